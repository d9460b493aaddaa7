//! What other sizes of a model's inputs need compiled: for each kernel of a partition, the other texts that its nodes are
//! lowered to when the dimensions that can change have other sizes.
//!
//! Sizes are parameters of a kernel and no part of its text; a text only depends on a few things about them (whether they
//! come in fours, whether there is one row or several). So lowering a few nodes at a time for a few sizes of each of
//! their dimensions finds all of their texts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, Model, NodeId, Op, Shape, TensorId};
use delegraph_delegate_api::{DelegateParams, GraphView, NodeState, NodeView};
use delegraph_shaders::{Kernel, ShaderError, slice};

use crate::context::Facts;
use crate::dims::{Dim, Dims, infer};
use crate::graph::{Graph, Source, Spec, Step};
use crate::lower::Builder;
use crate::{ops, passes};

/// Sizes of which one is of each kind: one, an odd number, one that comes in fours and is long enough to be shared.
const KINDS: [usize; 3] = [1, 3, 68];
/// An odd number and one that comes in fours, of which even six dimensions are not too many elements.
const SMALL: [usize; 2] = [3, 4];
/// Columns of a product that tiles of each width suit, and a depth beyond which sums of integers take more.
const COLUMNS: [usize; 5] = [6, 8, 10, 16, 8196];
/// Few rows in fours, rows too many to be shared, in fours and not, and ones long enough to be.
const ROWS: [usize; 4] = [4, 67, 8195, 8196];
/// What can be cut into pieces of every kind.
const PIECES: [usize; 5] = [2, 6, 24, 64, 720];
/// Dimensions that an index may have.
const DEPTHS: [usize; 5] = [2, 3, 4, 5, 6];
/// Dimensions of which each is tried as one and as several, beside all others.
const MOST_REPEATED: usize = 9;
/// Random tries for each dimension, where there are too many or too special ones to try all.
const TRIES: usize = 160;
/// Dimensions of which every combination of kinds is tried; of more, every pair's.
const MOST: usize = 3;
/// Bytes of a constant that are no weights to look at.
const FEW_BYTES: usize = 256;
/// Bytes of a computed constant that are copied for what looks at it later.
const MOST_BYTES: usize = 1 << 20;

/// Nodes that are lowered together.
#[derive(Default)]
struct Group {
    nodes: Vec<NodeId>,
    /// They look at weights, which takes long: only at a few sizes.
    heavy: bool,
}

/// Finds the kernels that the nodes of a partition need at other sizes, some nodes at a time. It has all that it needs for
/// itself, so that it can be done on another thread.
pub(crate) struct Twins {
    facts: Arc<Facts>,
    fusion: bool,
    // Before the model, into whose bytes constants point.
    tensors: Vec<RuntimeTensor>,
    known: Vec<bool>,
    states: Vec<NodeState>,
    model: Model,
    index: usize,
    dims: Dims,
    readers: Vec<Vec<NodeId>>,
    groups: Vec<Group>,
    /// Keys of kernels that were given out.
    seen: HashSet<String>,
    found: Vec<Kernel>,
}

impl Twins {
    /// For a partition that became `graph`.
    pub(crate) fn new(
        facts: &Arc<Facts>,
        fusion: bool,
        graph: &Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Self {
        let subgraph = view.subgraph();
        let mut twins = Twins {
            facts: Arc::clone(facts),
            fusion,
            tensors: subgraph.tensors.iter().map(RuntimeTensor::new).collect(),
            known: vec![true; view.tensor_count()],
            states: view.nodes().map(|node| node.state()).collect(),
            model: view.model().clone(),
            index: view.index(),
            dims: Dims::new(view),
            readers: readers(view),
            groups: Vec::new(),
            seen: HashSet::new(),
            found: Vec::new(),
        };
        twins.of_steps(graph, params, view);
        twins.own(view);
        twins
    }

    /// The kernels of the next nodes; `None` when there are no more nodes.
    pub(crate) fn next(&mut self) -> Option<Vec<Kernel>> {
        if self.found.is_empty() {
            let group = self.groups.pop()?;
            self.of_group(&group.nodes, group.heavy);
        }
        Some(std::mem::take(&mut self.found))
    }

    fn view(&self) -> GraphView<'_> {
        GraphView::new(&self.model, self.index, &self.tensors, &self.known, &self.states)
    }
}

/// Per tensor, the nodes that read it.
fn readers(view: &GraphView<'_>) -> Vec<Vec<NodeId>> {
    let mut readers = vec![Vec::new(); view.tensor_count()];
    for node in view.nodes() {
        node.inputs().for_each(|tensor| readers[tensor.id().0].push(node.id()));
    }
    readers
}

impl Twins {
    fn add(&mut self, kernel: Result<Kernel, ShaderError>) {
        // Sizes that no kernel takes are no sizes of the model.
        if let Ok(kernel) = kernel
            && !self.seen.contains(&kernel.key)
        {
            self.seen.insert(kernel.key.clone());
            self.found.push(kernel);
        }
    }

    /// Adds what steps know by themselves, and notes the nodes to be lowered again, those of a step together.
    fn of_steps(&mut self, graph: &Graph<'_>, params: &DelegateParams, view: &GraphView<'_>) {
        let caps = self.facts.caps;
        let mut groups = Vec::new();
        let has_weights = |id: &NodeId| {
            let mut constants = view.node(*id).inputs().filter(|tensor| tensor.is_constant());
            constants.any(|tensor| tensor.tensor().bytes().len() > FEW_BYTES)
        };
        let nodes =
            graph.steps.iter().filter(|step| is_heavy(step)).flat_map(|step| step.nodes.iter().copied());
        let heavy: HashSet<NodeId> = nodes.filter(has_weights).collect();
        for step in &graph.steps {
            let own = simple(&step.spec);
            // What became part of the step, and need not be for other sizes.
            let mut apart = step.nodes.iter().position(|id| self.comes_apart(view.node(*id)));
            for spec in own.iter().flatten() {
                let mut spec = spec.clone();
                self.add(spec.kernel(&caps));
                if let (Some(_), Some(epilogue)) = (apart, spec.epilogue_mut())
                    && epilogue.residual.take().is_some()
                {
                    self.add(spec.kernel(&caps));
                }
            }
            self.of_channels(graph, step);
            if own.is_none() {
                apart = Some(0);
            }
            if let Some(nodes) = apart.and_then(|first| step.nodes.get(first..)) {
                groups
                    .push(Group { nodes: nodes.to_vec(), heavy: nodes.iter().any(|id| heavy.contains(id)) });
            }
        }
        // Nodes that move no element now.
        let running: HashSet<NodeId> =
            graph.steps.iter().flat_map(|step| step.nodes.iter().copied()).collect();
        let idle = |id: &&NodeId| !running.contains(id) && !view.node(**id).state().folded;
        groups.extend(params.nodes.iter().filter(idle).map(|id| Group { nodes: vec![*id], heavy: false }));
        let mut seen = HashSet::new();
        for group in groups {
            let nodes = complete(view, &self.readers, group.nodes);
            if !nodes.is_empty() && seen.insert(self.signature(view, &nodes)) {
                self.groups.push(Group { nodes, ..group });
            }
        }
        self.groups.reverse();
    }

    /// Gives what the noted nodes look at its shape, and constants their data.
    fn own(&mut self, view: &GraphView<'_>) {
        let nodes = self.groups.iter().flat_map(|group| &group.nodes);
        let tensors = nodes.flat_map(|id| view.node(*id).inputs().chain(view.node(*id).outputs()));
        for info in tensors.collect::<Vec<_>>() {
            let id = info.id();
            let tensor = &mut self.tensors[id.0];
            tensor.ty = info.ty();
            tensor.shape = info.tensor().shape.clone();
            let Some(bytes) = info.constant().filter(|_| !self.dims.varies(id)) else { continue };
            let file = self.model.constant(&self.model.subgraphs[self.index].tensors[id.0]);
            if file.is_some_and(|file| std::ptr::eq(file, bytes)) {
                let data = bytes.as_ptr().cast_mut();
                // SAFETY: they are the model's own bytes, which it never changes; `self` keeps it as long as the tensor,
                // and constants are never written through.
                unsafe { tensor.set_data(Placement::Constant, data, bytes.len()) };
            } else if bytes.len() <= MOST_BYTES {
                // Without memory for it, it is no constant, and what is found of these nodes may be nothing.
                drop(tensor.set_constant_copy(bytes));
            }
        }
    }

    /// Whether a node may be merged with others at one size and not at another.
    fn comes_apart(&self, node: NodeView<'_>) -> bool {
        use BuiltinOp as B;
        match node.op().builtin() {
            Some(B::CONCATENATION | B::PACK | B::STABLEHLO_CONCATENATE) => true,
            Some(B::ADD | B::ADD_N | B::STABLEHLO_ADD) => {
                let mut dims = node.inputs().map(|tensor| self.dims.of(tensor.id()));
                let first = dims.next();
                dims.any(|dims| Some(dims) != first)
            }
            _ => false,
        }
    }

    /// Adds the grouped convolutions that one becomes where its input, which is the model's, has more channels.
    fn of_channels(&mut self, graph: &Graph<'_>, step: &Step<'_>) {
        let Spec::Conv2D(conv) = &step.spec else { return };
        let Some(&input) = step.inputs.first() else { return };
        // Weights before it would have fixed the channels.
        let mut value = graph.root(input).0;
        while let Some(before) = graph.steps.iter().find(|s| graph.root(s.output).0 == value) {
            let Some(&input) = before.inputs.first().filter(|_| before.weights.is_none()) else { return };
            value = graph.root(input).0;
        }
        if !matches!(graph.value(value).source, Source::Input) {
            return;
        }
        for groups in (1..=conv.output[3]).filter(|groups| conv.output[3].is_multiple_of(*groups)) {
            let mut grouped = conv.clone();
            grouped.input[3] = conv.filter[3].saturating_mul(groups);
            for spec in simple(&grouped.into()).into_iter().flatten() {
                self.add(spec.kernel(&self.facts.caps));
            }
        }
    }

    /// Tensors that a group's nodes read and none of them writes, without constants that stay.
    fn inputs(&self, view: &GraphView<'_>, group: &[NodeId]) -> Vec<TensorId> {
        let mut made = HashSet::new();
        let mut inputs = Vec::new();
        for &id in group {
            for tensor in view.node(id).inputs() {
                let stays = tensor.is_constant() && !self.dims.varies(tensor.id());
                if !stays && !made.contains(&tensor.id()) && !inputs.contains(&tensor.id()) {
                    inputs.push(tensor.id());
                }
            }
            made.extend(view.node(id).outputs().map(|tensor| tensor.id()));
        }
        inputs
    }

    /// Equal for groups that are lowered alike.
    fn signature(&self, view: &GraphView<'_>, group: &[NodeId]) -> String {
        use std::fmt::Write as _;
        let (mut text, mut numbers, mut tensors) = (String::new(), HashMap::new(), HashMap::new());
        for &id in group {
            let node = view.node(id);
            let _ = write!(text, "{}.{}{:?}", node.op(), node.version(), node.params());
            for (i, tensor) in node.inputs().chain(node.outputs()).enumerate() {
                let next = tensors.len();
                let place = *tensors.entry(tensor.id()).or_insert(next);
                let constant = tensor.is_constant() && !self.dims.varies(tensor.id());
                let _ = write!(text, " {i}:{place}{:?}{constant}", tensor.ty());
                for dim in self.dims.of(tensor.id()).unwrap_or_default() {
                    let _ = match dim {
                        Dim::Fixed(size) => write!(text, ",{size}"),
                        Dim::Free(symbol) => {
                            let next = numbers.len();
                            write!(text, ",d{}", *numbers.entry(symbol).or_insert(next))
                        }
                    };
                }
                let bytes = tensor.constant().filter(|bytes| constant && bytes.len() <= 64);
                let _ = write!(text, "{bytes:?}{}", self.escapes(tensor.id(), group));
                if let Some(quantization) = tensor.quantization() {
                    let _ = write!(text, "{:p}", quantization);
                }
            }
        }
        text
    }

    /// Whether anybody but these nodes wants a tensor.
    fn escapes(&self, id: TensorId, group: &[NodeId]) -> bool {
        let readers = &self.readers[id.0];
        self.model.subgraphs[self.index].outputs.contains(&id)
            || readers.is_empty()
            || readers.iter().any(|reader| !group.contains(reader))
    }

    fn of_group(&mut self, group: &[NodeId], heavy: bool) {
        let inputs = self.inputs(&self.view(), group);
        let mut symbols: Vec<usize> = Vec::new();
        for id in &inputs {
            let dims = self.dims.of(*id).unwrap_or_default();
            symbols.extend(dims.iter().filter_map(|dim| match dim {
                Dim::Free(symbol) => Some(*symbol),
                Dim::Fixed(_) => None,
            }));
        }
        symbols.sort_unstable();
        symbols.dedup();
        if symbols.is_empty() {
            return;
        }
        let mut touched = inputs.clone();
        touched.extend(group.iter().flat_map(|id| self.view().node(*id).node().outputs.clone()));
        let before: Vec<Shape> = touched.iter().map(|id| self.tensors[id.0].shape.clone()).collect();
        let mut any = false;
        let tries = if heavy { self.few_sizes(&symbols) } else { self.sizes(group, &symbols) };
        for sizes in tries {
            any |= self.lower(group, &inputs, &sizes).is_some();
        }
        for (id, shape) in touched.iter().zip(before) {
            self.tensors[id.0].shape = shape;
        }
        if !any {
            // What decides about shapes is computed from shapes. What such nodes do is nearly always to move elements.
            let view = self.view();
            let ranks = group.iter().flat_map(|id| view.node(*id).inputs().map(|t| t.tensor().shape.rank()));
            let most = ranks.max().unwrap_or(0);
            self.copies(most);
        }
    }

    /// Copies of so many dimensions.
    fn copies(&mut self, rank: usize) {
        for rank in 1..=rank.min(6) {
            for (from, to) in [(5, 3), (8, 4)] {
                let (mut input, mut output) = (vec![5; rank], vec![3; rank]);
                (input[rank - 1], output[rank - 1]) = (from, to);
                let spec = slice::Spec { input, output, begin: vec![0; rank], step: vec![1; rank] };
                self.add(spec.kernel(&self.facts.caps));
            }
        }
    }

    /// Sizes of each kind, of all symbols or of one.
    fn few_sizes(&self, symbols: &[usize]) -> Vec<HashMap<usize, usize>> {
        let today: HashMap<usize, usize> = symbols.iter().map(|s| (*s, self.dims.today(*s))).collect();
        let mut all: Vec<HashMap<usize, usize>> =
            KINDS.iter().map(|size| symbols.iter().map(|s| (*s, *size)).collect()).collect();
        for symbol in symbols {
            all.extend(KINDS.map(|size| {
                let mut list = today.clone();
                list.insert(*symbol, size);
                list
            }));
        }
        all.push(today);
        all
    }

    /// Sizes of these symbols that lead to every text of the nodes, one list for each try.
    fn sizes(&self, group: &[NodeId], symbols: &[usize]) -> Vec<HashMap<usize, usize>> {
        let view = self.view();
        let kind = |size: usize| if size == 1 { 0 } else { 1 + usize::from(size.is_multiple_of(4)) };
        let kinds = |symbol: usize| {
            let today = self.dims.today(symbol);
            KINDS.map(|size| if kind(size) == kind(today) && size != 68 { today } else { size })
        };
        let today: HashMap<usize, usize> = symbols.iter().map(|s| (*s, self.dims.today(*s))).collect();
        // A few that all have the same kind of size, to change one or two of them.
        let mut bases = vec![today];
        bases.extend(KINDS.map(|size| symbols.iter().map(|s| (*s, size)).collect()));
        let mut all = bases.clone();
        all.extend(SMALL.map(|size| symbols.iter().map(|s| (*s, size)).collect()));
        let change = |base: &HashMap<usize, usize>, to: &[(usize, usize)]| {
            let mut list = base.clone();
            list.extend(to.iter().copied());
            list
        };
        let pairs =
            || symbols.iter().enumerate().flat_map(|(i, a)| symbols[i + 1..].iter().map(|b| (*a, *b)));
        if symbols.len() <= MOST {
            let mut product: Vec<HashMap<usize, usize>> = vec![HashMap::new()];
            for &symbol in symbols {
                let with =
                    |list: HashMap<usize, usize>| kinds(symbol).map(|size| change(&list, &[(symbol, size)]));
                product = product.into_iter().flat_map(with).collect();
            }
            all.extend(product);
        } else {
            for (base, (a, b)) in bases.iter().flat_map(|base| pairs().map(move |pair| (base, pair))) {
                let each = kinds(a).into_iter().flat_map(|x| kinds(b).map(|y| [(a, x), (b, y)]));
                all.extend(each.map(|to| change(base, &to)));
            }
        }
        let (mut special, mut equals) = (Vec::new(), HashSet::new());
        for id in group {
            let node = view.node(*id);
            // A dimension may become what another one always is.
            for tensor in node.inputs().chain(node.outputs()) {
                let dims = self.dims.of(tensor.id()).unwrap_or_default();
                equals.extend(dims.iter().filter_map(|dim| match dim {
                    Dim::Fixed(size) => Some(*size),
                    Dim::Free(_) => None,
                }));
            }
            special.extend_from_slice(special_sizes(node));
            // A window over all of an image is another kernel.
            if let Ok(pool) = <&Pool2DParams>::try_from(node.params()) {
                let [h, w] = [pool.filter_height, pool.filter_width].map(|n| usize::try_from(n).unwrap_or(1));
                for (base, (a, b)) in bases.iter().flat_map(|base| pairs().map(move |pair| (base, pair))) {
                    all.extend([[(a, h), (b, w)], [(a, w), (b, h)]].map(|to| change(base, &to)));
                }
            }
        }
        for (base, &symbol) in bases.iter().flat_map(|base| symbols.iter().map(move |symbol| (base, symbol)))
        {
            all.extend(special.iter().chain(&equals).map(|size| change(base, &[(symbol, *size)])));
        }
        if symbols.len() > MOST {
            // Any of them repeated along the others' dimensions: what is equal now stays equal, or becomes one.
            let odd =
                |size: usize| if size == 1 || equals.contains(&size) { size } else { size + 1 - size % 2 };
            let bases = SMALL.map(|small| move |size: usize| if size == 1 { small } else { size });
            for (base, in_fours) in bases.iter().flat_map(|base| [(base, true), (base, false)]) {
                for ones in 0..1_usize << symbols.len().min(MOST_REPEATED) {
                    all.push(HashMap::from_iter(symbols.iter().enumerate().map(|(i, &symbol)| {
                        let today = self.dims.today(symbol);
                        let size = base(if in_fours { today } else { odd(today) });
                        (symbol, if ones >> i.min(MOST_REPEATED - 1) & 1 == 1 { 1 } else { size })
                    })));
                }
            }
        }
        if symbols.len() > MOST || !special.is_empty() {
            let domain: Vec<usize> =
                symbols.iter().map(|s| self.dims.today(*s)).chain(KINDS).chain(special).collect();
            let mut state = 1_u64;
            let mut one_of = |sizes: &[usize]| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sizes[(state >> 33) as usize % sizes.len()]
            };
            for _ in 0..TRIES * symbols.len() {
                // Few sizes, as many dimensions must be equal.
                let few = [one_of(&domain), one_of(&domain), one_of(&KINDS)];
                all.push(symbols.iter().map(|symbol| (*symbol, one_of(&few))).collect());
            }
        }
        all
    }

    /// Adds the kernels of a group when symbols have these sizes; `None` where no such sizes can be.
    fn lower(&mut self, group: &[NodeId], inputs: &[TensorId], sizes: &HashMap<usize, usize>) -> Option<()> {
        for id in inputs {
            let size = |dim: &Dim| match dim {
                Dim::Fixed(size) => *size,
                Dim::Free(symbol) => sizes.get(symbol).copied().unwrap_or_else(|| self.dims.today(*symbol)),
            };
            let dims: Vec<usize> = self.dims.of(*id)?.iter().map(size).collect();
            self.tensors[id.0].shape = Shape::new(&dims);
        }
        for &id in group {
            let shapes = {
                let node = self.view().node(id);
                let inputs = (0..node.num_inputs()).map(|i| Some(node.input(i)?.tensor().shape.clone()));
                infer(node, &inputs.collect::<Vec<_>>())?
            };
            let outputs = self.model.subgraphs[self.index].nodes[id.0].outputs.iter();
            outputs.zip(shapes).for_each(|(output, shape)| self.tensors[output.0].shape = shape);
        }
        let view = self.view();
        let mut builder = Builder::new(&self.facts);
        for &id in group {
            ops::lower(view.node(id), &mut builder, true).ok()?;
        }
        for output in group.iter().flat_map(|id| view.node(*id).outputs()) {
            if self.escapes(output.id(), group) {
                builder.add_output(output).ok()?;
            }
        }
        let mut lowered = builder.graph;
        if self.fusion {
            let alignment = self.facts.limits.min_storage_buffer_offset_alignment;
            passes::optimize(&mut lowered, alignment.into());
        }
        let kernels: Vec<_> = lowered.steps.iter().map(|step| step.spec.kernel(&self.facts.caps)).collect();
        kernels.into_iter().for_each(|kernel| self.add(kernel));
        Some(())
    }
}

/// Sizes that matter to an op beyond their kind.
fn special_sizes(node: NodeView<'_>) -> &'static [usize] {
    use BuiltinOp as B;
    match node.op().builtin() {
        Some(B::BATCH_MATMUL | B::FULLY_CONNECTED) => &COLUMNS,
        Some(
            B::MEAN
            | B::SUM
            | B::REDUCE_MAX
            | B::REDUCE_MIN
            | B::REDUCE_PROD
            | B::REDUCE_ANY
            | B::REDUCE_ALL
            | B::SOFTMAX
            | B::LOG_SOFTMAX
            | B::L2_NORMALIZATION
            | B::ARG_MAX
            | B::ARG_MIN
            | B::TOPK_V2
            | B::AVERAGE_POOL_2D
            | B::MAX_POOL_2D,
        ) => &ROWS,
        Some(
            B::SPLIT
            | B::SPLIT_V
            | B::DEPTH_TO_SPACE
            | B::SPACE_TO_DEPTH
            | B::SPACE_TO_BATCH_ND
            | B::BATCH_TO_SPACE_ND,
        ) => &PIECES,
        Some(B::GATHER_ND | B::SCATTER_ND) => &DEPTHS,
        _ => &[],
    }
}

/// Adds nodes between those of a group that are no step of their own.
fn complete(view: &GraphView<'_>, readers: &[Vec<NodeId>], group: Vec<NodeId>) -> Vec<NodeId> {
    let (Some(first), Some(last)) = (group.iter().min(), group.iter().max()) else { return group };
    let mut made: HashSet<TensorId> = HashSet::new();
    let mut all = Vec::new();
    for id in (first.0..=last.0).map(NodeId) {
        let node = view.node(id);
        let leads_on = || {
            let follows = node.inputs().any(|tensor| made.contains(&tensor.id()));
            follows && node.outputs().any(|t| readers[t.id().0].iter().any(|reader| reader <= last))
        };
        let in_group = group.contains(&id);
        if (in_group || is_reshape(node) && leads_on()) && !node.state().folded {
            made.extend(node.outputs().map(|tensor| tensor.id()));
            all.push(id);
        }
    }
    all
}

/// A node that gives the same bytes another shape.
fn is_reshape(node: NodeView<'_>) -> bool {
    use BuiltinOp as B;
    let op = match node.op() {
        Op::Builtin(op) => *op,
        Op::Custom(_) => return false,
    };
    matches!(
        op,
        B::RESHAPE | B::SQUEEZE | B::EXPAND_DIMS | B::STABLEHLO_RESHAPE | B::DEQUANTIZE | B::TRANSPOSE
    )
}

/// Steps whose nodes are much to lower, as weights are looked at: what they are at other sizes they know themselves.
fn is_heavy(step: &Step<'_>) -> bool {
    step.weights.is_some() || matches!(step.spec, Spec::Lstm(_) | Spec::Table(_) | Spec::Custom(_))
}

/// The spec for sizes of each kind, where that is all that its text depends on.
fn simple(spec: &Spec) -> Option<Vec<Spec>> {
    /// Elements that come in eights, in fours, and in neither.
    const ELEMENTS: [u32; 3] = [64, 68, 67];
    macro_rules! elements {
        ($spec:expr) => {
            ELEMENTS.map(|elements| {
                let mut spec = $spec.clone();
                spec.elements = elements;
                spec.into()
            })
        };
    }
    Some(match spec {
        Spec::Unary(spec) => elements!(spec).to_vec(),
        Spec::Table(spec) => elements!(spec).to_vec(),
        Spec::Cast(spec) => elements!(spec).to_vec(),
        Spec::Quantize(spec) => elements!(spec).to_vec(),
        Spec::RowSteps(spec) => ELEMENTS
            .map(|depth| {
                let mut spec = *spec;
                spec.depth = depth;
                spec.into()
            })
            .to_vec(),
        Spec::Conv2D(conv) => {
            let (mut one, mut several) = (conv.clone(), conv.clone());
            // A convolution that takes each pixel by itself still does.
            let pixel = |shape: [u32; 4], n| [n, 1, 1, shape[3]];
            if conv.input[..3] == conv.output[..3] {
                (one.input, one.output) = (pixel(conv.input, 1), pixel(conv.output, 1));
                (several.input, several.output) = (pixel(conv.input, 3), pixel(conv.output, 3));
            } else {
                (one.input[0], one.output) = (1, pixel(conv.output, 1));
                (several.input[0], several.output[0]) = (3, 3);
            }
            vec![one.into(), several.into()]
        }
        Spec::FullyConnected(spec) => [1, 3]
            .map(|rows| {
                let mut spec = spec.clone();
                spec.rows = rows;
                spec.into()
            })
            .to_vec(),
        Spec::TransposeConv(spec) => {
            let (mut one, mut several) = (spec.clone(), spec.clone());
            (one.input[0], one.output) = (1, [1, 1, 1, spec.output[3]]);
            (several.input[0], several.output[0]) = (3, 3);
            vec![one.into(), several.into()]
        }
        Spec::DepthwiseConv2D(_) | Spec::RowScales(_) | Spec::Lstm(_) | Spec::Custom(_) => Vec::new(),
        _ => return None,
    })
}
