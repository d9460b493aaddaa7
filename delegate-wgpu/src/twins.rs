//! What other sizes of a model's inputs need compiled: for each kernel of a partition, the other texts that its nodes are
//! lowered to when the dimensions that can change have other sizes.
//!
//! Sizes are parameters of a kernel and no part of its text; a text only depends on a few things about them (whether they
//! come in fours, whether there is one row or several). So lowering a few nodes at a time for a few sizes of each of
//! their dimensions finds all of their texts.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{BuiltinOp, Model, NodeId, Op, Quantization, Shape, TensorId};
use delegraph_delegate_api::{DelegateParams, GraphView, NodeState, NodeView};
use delegraph_shaders::{Kernel, ShaderError, slice};

use crate::context::Facts;
use crate::dims::{Dim, Dims, infer};
use crate::graph::{Computed, Graph, Source, Spec, Step};
use crate::lower::Builder;
use crate::sizes::{self, Free};
use crate::{ops, passes};

/// So many kernels of a group are made at most, to see which of them are new.
const MOST_KERNELS: usize = 1 << 16;
/// After so many tries it is asked whether to go on.
const LOOKS_UP: usize = 64;
/// Bytes of a constant that are no weights to look at.
const FEW_BYTES: usize = 256;
/// Bytes of a computed constant that are copied for what looks at it later.
const MOST_BYTES: usize = 1 << 20;

/// A hash of what is written.
#[derive(Default)]
struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

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
    /// What the kernels that were given out last are for.
    current: Option<u64>,
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
            current: None,
            seen: HashSet::new(),
            found: Vec::new(),
        };
        twins.of_steps(graph, params, view);
        twins.own(view);
        twins
    }

    /// The kernels of the next nodes; `None` when there are no more nodes, or when it does not go on. What was given out
    /// before is taken to be compiled: nodes like that are `foreseen`, and are not looked at again.
    pub(crate) fn next(
        &mut self,
        foreseen: &mut HashSet<u64>,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<Vec<Kernel>> {
        foreseen.extend(self.current.take());
        while self.found.is_empty() {
            let group = self.groups.pop().filter(|_| goes_on())?;
            // Weights that are looked at are no part of what is known of a node.
            let key = (!group.heavy).then(|| self.key(&group.nodes));
            if key.is_some_and(|key| foreseen.contains(&key)) {
                continue;
            }
            if !self.of_group(&group.nodes, group.heavy, goes_on) {
                return None;
            }
            match self.found.is_empty() {
                true => foreseen.extend(key),
                false => self.current = key,
            }
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
            if let Spec::Computed(Computed(spec)) = &step.spec {
                for spec in of_filters(spec) {
                    self.add(spec.kernel(&caps));
                }
            }
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

    /// Adds the grouped convolutions, and those of each channel, that one becomes where its input, which is the model's, has
    /// other channels.
    fn of_channels(&mut self, graph: &Graph<'_>, step: &Step<'_>) {
        let channels = match &step.spec {
            Spec::Conv2D(conv) => conv.output[3],
            Spec::DepthwiseConv2D(conv) => conv.output[3],
            _ => return,
        };
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
        for count in (1..=channels).filter(|count| channels.is_multiple_of(*count)) {
            match &step.spec {
                Spec::Conv2D(conv) => {
                    let mut grouped = conv.clone();
                    grouped.input[3] = conv.filter[3].saturating_mul(count);
                    for spec in simple(&grouped.into()).into_iter().flatten() {
                        self.add(spec.kernel(&self.facts.caps));
                    }
                }
                Spec::DepthwiseConv2D(conv) => {
                    let mut fewer = conv.clone();
                    fewer.input[3] = count;
                    self.add(fewer.kernel(&self.facts.caps));
                }
                _ => {}
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

    /// Equal for groups that are lowered alike, in whatever model.
    fn key(&self, group: &[NodeId]) -> u64 {
        let mut digest = Digest::default();
        let _ = write!(digest, "{:?}{}{}", self.facts.caps, self.fusion, self.facts.custom_ops.len());
        let today = |symbol| format!("={}", self.dims.today(symbol));
        self.describe(&mut digest, &self.view(), group, &today, &|quantization| format!("{quantization:?}"));
        digest.0.finish()
    }

    /// Equal for groups of this model that are lowered alike.
    fn signature(&self, view: &GraphView<'_>, group: &[NodeId]) -> u64 {
        let mut digest = Digest::default();
        self.describe(&mut digest, view, group, &|_| String::new(), &|q| {
            format!("{:p}", std::ptr::from_ref(q))
        });
        digest.0.finish()
    }

    fn describe(
        &self,
        text: &mut Digest,
        view: &GraphView<'_>,
        group: &[NodeId],
        today: &dyn Fn(usize) -> String,
        quantized: &dyn Fn(&Quantization) -> String,
    ) {
        let (mut numbers, mut tensors) = (HashMap::new(), HashMap::new());
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
                            let number = *numbers.entry(symbol).or_insert(next);
                            write!(text, ",d{number}{}", today(*symbol))
                        }
                    };
                }
                let bytes = tensor.constant().filter(|bytes| constant && bytes.len() <= FEW_BYTES);
                let _ = write!(text, "{bytes:?}{}", self.escapes(tensor.id(), group));
                if let Some(quantization) = tensor.quantization() {
                    let _ = text.write_str(&quantized(quantization));
                }
            }
        }
    }

    /// Whether anybody but these nodes wants a tensor.
    fn escapes(&self, id: TensorId, group: &[NodeId]) -> bool {
        let readers = &self.readers[id.0];
        self.model.subgraphs[self.index].outputs.contains(&id)
            || readers.is_empty()
            || readers.iter().any(|reader| !group.contains(reader))
    }

    /// Finds the kernels of a group; false: it did not go on.
    fn of_group(&mut self, group: &[NodeId], heavy: bool, goes_on: &dyn Fn() -> bool) -> bool {
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
            return true;
        }
        let mut touched = inputs.clone();
        touched.extend(group.iter().flat_map(|id| self.view().node(*id).node().outputs.clone()));
        let before: Vec<Shape> = touched.iter().map(|id| self.tensors[id.0].shape.clone()).collect();
        let free = self.free(group, &symbols);
        let mut with = |sizes: &[usize]| {
            let sizes = symbols.iter().copied().zip(sizes.iter().copied()).collect();
            self.lower(group, &inputs, &sizes)
        };
        let first = with(&free.today);
        let (mut any, mut whole) = (first.is_some(), true);
        let tries = if heavy { Box::new(free.few_sizes().into_iter()) } else { free.sizes() };
        // Of nodes that are many kernels, every few of them.
        let each = (tries.len().saturating_mul(first.unwrap_or(1)) / MOST_KERNELS).saturating_add(1);
        for (n, sizes) in tries.step_by(each).enumerate() {
            if n.is_multiple_of(LOOKS_UP) && !goes_on() {
                whole = false;
                break;
            }
            any |= with(&sizes).is_some();
        }
        for (id, shape) in touched.iter().zip(before) {
            self.tensors[id.0].shape = shape;
        }
        if !any && whole {
            // What decides about shapes is computed from shapes. What such nodes do is nearly always to move elements.
            let view = self.view();
            let ranks = group.iter().flat_map(|id| view.node(*id).inputs().map(|t| t.tensor().shape.rank()));
            let most = ranks.max().unwrap_or(0);
            self.copies(most);
        }
        whole
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

    /// What is known of the sizes of these symbols.
    fn free(&self, group: &[NodeId], symbols: &[usize]) -> Free {
        let view = self.view();
        let mut free = Free {
            today: symbols.iter().map(|symbol| self.dims.today(*symbol)).collect(),
            fixed: Vec::new(),
            special: Vec::new(),
            windows: Vec::new(),
        };
        for node in group.iter().map(|id| view.node(*id)) {
            // A dimension may become what another one always is.
            let tensors = node.inputs().chain(node.outputs());
            let dims = tensors.flat_map(|tensor| self.dims.of(tensor.id()).unwrap_or_default());
            free.fixed.extend(dims.filter_map(|dim| match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Free(_) => None,
            }));
            free.special.extend_from_slice(sizes::special(node));
            free.special.extend(sizes::stated(node));
            free.windows.extend(sizes::window(node));
        }
        free
    }

    /// Adds the kernels of a group when symbols have these sizes, and tells how many they are; `None` where no such sizes
    /// can be.
    fn lower(
        &mut self,
        group: &[NodeId],
        inputs: &[TensorId],
        sizes: &HashMap<usize, usize>,
    ) -> Option<usize> {
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
        let count = kernels.len();
        kernels.into_iter().for_each(|kernel| self.add(kernel));
        Some(count)
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

/// A convolution by a filter that may have any size: with channels, groups and pixels of each kind.
fn of_filters(spec: &Spec) -> Vec<Spec> {
    /// Output channels that tiles of each width suit.
    const OUTPUTS: [u32; 3] = [8, 16, 24];
    /// Input channels of a group, that come in fours and don't.
    const INPUTS: [u32; 2] = [4, 5];
    let mut all = Vec::new();
    let sizes = INPUTS.into_iter().flat_map(|input| OUTPUTS.map(|output| [input, output]));
    for ([input, output], pixels) in sizes.flat_map(|sizes| [1, 3].map(|pixels| (sizes, pixels))) {
        match spec {
            Spec::Conv2D(conv) => {
                for groups in [1, 2] {
                    let mut conv = conv.clone();
                    conv.filter = [output, 1, 1, input];
                    conv.padding = [0, 0];
                    (conv.input, conv.output) = ([1, 1, pixels, input * groups], [1, 1, pixels, output]);
                    all.push(Computed(Box::new(conv.into())).into());
                }
            }
            Spec::TransposeConv(conv) => {
                let mut conv = conv.clone();
                conv.filter = [output, 1, 1, input];
                let wide = conv.stride[1].saturating_mul(pixels);
                (conv.input, conv.output) = ([1, 1, pixels, input], [1, 1, wide, output]);
                all.push(Computed(Box::new(conv.into())).into());
            }
            Spec::DepthwiseConv2D(conv) => {
                let mut conv = conv.clone();
                (conv.window, conv.padding) = ([1, 1], [0, 0]);
                (conv.input, conv.output) = ([1, 1, pixels, input], [1, 1, pixels, input]);
                all.push(Computed(Box::new(conv.into())).into());
            }
            _ => {}
        }
    }
    all
}
