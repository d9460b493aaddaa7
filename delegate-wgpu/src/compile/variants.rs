//! Searches for the shader variants that a partition needs for other input sizes.
//!
//! Sizes are uniforms of a kernel. Its variant depends only on thresholds, for example whether an extent is 1 or a
//! multiple of 4. Each shader declares its thresholds or its variants ([`OtherSizes`]). To find which sides of a
//! threshold the sizes of a model can be on, the search lowers a few nodes at a time, at sample sizes of the dimensions
//! that can change.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{BuiltinOp, Model, NodeId, Op, Quantization, Shape, TensorId};
use delegraph_delegate_api::{DelegateParams, GraphView, NodeState, NodeView};
use delegraph_shaders::{Binding, Caps, Kernel, OtherSizes, Shader, Threshold, Variant, VariantKey, slice};

use super::size_samples::{self, FreeDims};
use crate::device::DeviceCaps;
use crate::graph::builder::Builder;
use crate::graph::passes;
use crate::graph::symbolic_dims::{Dim, SymbolicDims, infer};
use crate::graph::{Graph, Source, Spec, Step};
use crate::ops;

/// Maximum number of kernels that are lowered for a group.
const MAX_KERNELS: usize = 1 << 16;
/// Number of tries between checks whether the search is still needed.
const CHECK_INTERVAL: usize = 64;
/// Maximum number of searches of a group. A search is repeated if it finds shaders with further thresholds, which is
/// rare.
const MAX_ROUNDS: usize = 4;
/// Maximum size in bytes of constants that are not weights.
const MAX_SMALL_BYTES: usize = 256;
/// Maximum size in bytes of a computed constant that is copied for the search.
const MAX_COPIED_BYTES: usize = 1 << 20;

/// Per family and bindings of variants, the bit masks of bindings that have 16-bit floats.
type Halves = HashMap<(&'static str, Vec<Binding>), BTreeSet<u32>>;

/// A hash of the text written to it.
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
    /// Whether lowering reads weights. This takes long, so such nodes are tried at a few sizes only.
    heavy: bool,
}

/// A search for the variants that the nodes of a partition need at other sizes, a few nodes at a time. The search owns
/// its data, so that it can run on another thread.
pub(crate) struct VariantSearch {
    facts: Arc<DeviceCaps>,
    fusion: bool,
    // Declared, and therefore dropped, before the model: constants point into its bytes.
    tensors: Vec<RuntimeTensor>,
    known: Vec<bool>,
    states: Vec<NodeState>,
    model: Model,
    index: usize,
    dims: SymbolicDims,
    readers: Vec<Vec<NodeId>>,
    groups: Vec<Group>,
    /// The key of the group whose variants were returned last.
    current: Option<u64>,
    /// The variants of the current group, and the thresholds that its shaders declare.
    group: HashSet<VariantKey>,
    thresholds: BTreeSet<Threshold>,
    /// The bindings of 16-bit floats in the partition, per family and bindings of its variants.
    halves: Halves,
    /// Keys of the variants that were returned or are in `found`.
    seen: HashSet<VariantKey>,
    found: Vec<Variant>,
}

impl VariantSearch {
    /// Creates a search for a partition that was lowered to `graph`.
    pub(crate) fn new(
        facts: &Arc<DeviceCaps>,
        fusion: bool,
        graph: &Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Self {
        let subgraph = view.subgraph();
        let mut search = VariantSearch {
            facts: Arc::clone(facts),
            fusion,
            tensors: subgraph.tensors().iter().map(RuntimeTensor::new).collect(),
            known: vec![true; view.tensor_count()],
            states: view.nodes().map(|node| node.state()).collect(),
            model: view.model().clone(),
            index: view.index(),
            dims: SymbolicDims::new(view),
            readers: readers(view),
            groups: Vec::new(),
            current: None,
            group: HashSet::new(),
            thresholds: BTreeSet::new(),
            halves: HashMap::new(),
            seen: HashSet::new(),
            found: Vec::new(),
        };
        if facts.halves {
            search.halves = halves(facts, graph);
        }
        search.add_steps(graph, params, view);
        search.own_tensors(view);
        search
    }

    /// Returns the variants of the next group with new ones; `None` after the last group, or when `is_needed` returns
    /// false. `compiled` holds hashes of groups, each over everything that the group's lowering depends on. Groups in
    /// `compiled` are skipped; the group of the previous call is added.
    pub(crate) fn next(
        &mut self,
        compiled: &mut HashSet<u64>,
        is_needed: &dyn Fn() -> bool,
    ) -> Option<Vec<Variant>> {
        compiled.extend(self.current.take());
        while self.found.is_empty() {
            let group = self.groups.pop().filter(|_| is_needed())?;
            // The hash covers neither weights nor the values around the group, which may have 16 bits.
            let key = (!group.heavy && !self.facts.halves).then(|| self.key(&group.nodes));
            if key.is_some_and(|key| compiled.contains(&key)) {
                continue;
            }
            if !self.search_group(&group.nodes, group.heavy, is_needed) {
                return None;
            }
            match self.found.is_empty() {
                true => compiled.extend(key),
                false => self.current = key,
            }
        }
        Some(std::mem::take(&mut self.found))
    }

    fn view(&self) -> GraphView<'_> {
        GraphView::new(&self.model, self.index, &self.tensors, &self.known, &self.states).called_directly()
    }
}

/// Lists, per tensor, the nodes that read it.
fn readers(view: &GraphView<'_>) -> Vec<Vec<NodeId>> {
    let mut readers = vec![Vec::new(); view.tensor_count()];
    for node in view.nodes() {
        node.inputs().for_each(|tensor| readers[tensor.id().0].push(node.id()));
    }
    readers
}

/// Lists the masks of bindings with 16-bit floats in `graph`, per family and bindings of its variants. Sizes do not
/// affect which values have 16 bits.
fn halves(facts: &DeviceCaps, graph: &Graph<'_>) -> Halves {
    let mut halves = Halves::new();
    for step in &graph.steps {
        let Ok(Kernel { variant, .. }) = step.kernel(graph, facts) else { continue };
        halves.entry((variant.name, variant.bindings.clone())).or_default().insert(variant.halves());
    }
    halves
}

impl VariantSearch {
    fn add(&mut self, variant: Variant) {
        match self.halves.get(&(variant.name, variant.bindings.clone())) {
            Some(masks) => {
                for mask in masks.clone() {
                    // Matrix units multiply 16-bit inputs and weights only, which are the first two bindings.
                    if !variant.features.matrices || mask & 0b11 == 0b11 {
                        self.add_stored(variant.clone().with_halves(mask));
                    }
                }
            }
            None if variant.features.matrices => {}
            None => self.add_stored(variant),
        }
    }

    /// Returns the capabilities for kernels without and with matrix units.
    fn caps(&self) -> impl Iterator<Item = Caps> + use<> {
        let caps = self.facts.caps;
        [Some(caps), self.facts.matrix_units.then(|| caps.with_matrices(true))].into_iter().flatten()
    }

    fn add_stored(&mut self, variant: Variant) {
        if self.seen.insert(variant.key.clone()) {
            self.found.push(variant);
        }
    }

    /// Adds the variants that the shader of `spec` declares; returns false if it declares thresholds instead.
    fn add_declared(&mut self, spec: &Spec) -> bool {
        let mut declared = true;
        for caps in self.caps() {
            match spec.other_sizes(&caps) {
                OtherSizes::Variants(variants) => variants.into_iter().for_each(|variant| self.add(variant)),
                OtherSizes::Thresholds(thresholds) => {
                    self.thresholds.extend(thresholds);
                    declared = false;
                }
            }
        }
        declared
    }

    /// Adds the variants that the steps' shaders declare, and collects the nodes to be lowered again, one group per
    /// step.
    fn add_steps(&mut self, graph: &Graph<'_>, params: &DelegateParams, view: &GraphView<'_>) {
        let mut groups = Vec::new();
        let has_weights = |id: &NodeId| {
            let mut constants = view.node(*id).inputs().filter(|tensor| tensor.is_constant());
            constants.any(|tensor| tensor.tensor().bytes().len() > MAX_SMALL_BYTES)
        };
        let nodes =
            graph.steps.iter().filter(|step| is_heavy(step)).flat_map(|step| step.nodes.iter().copied());
        let heavy: HashSet<NodeId> = nodes.filter(has_weights).collect();
        for step in &graph.steps {
            let declared = self.add_declared(&step.spec);
            // The first node that is merged into the step at these sizes, and may be a step of its own at others.
            let mut apart = step.nodes.iter().position(|id| self.comes_apart(view.node(*id)));
            let mut alone = step.spec.clone();
            if let (true, Some(_), Some(epilogue)) = (declared, apart, alone.epilogue_mut())
                && epilogue.residual.take().is_some()
            {
                self.add_declared(&alone);
            }
            self.add_other_channels(graph, step);
            if !declared {
                apart = Some(0);
            }
            if let Some(nodes) = apart.and_then(|first| step.nodes.get(first..)) {
                groups
                    .push(Group { nodes: nodes.to_vec(), heavy: nodes.iter().any(|id| heavy.contains(id)) });
            }
        }
        // Nodes that are views at these sizes have no step.
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

    /// Sets the shapes of the tensors that the groups read and write, and the data of constants.
    fn own_tensors(&mut self, view: &GraphView<'_>) {
        let nodes = self.groups.iter().flat_map(|group| &group.nodes);
        let tensors = nodes.flat_map(|id| view.node(*id).inputs().chain(view.node(*id).outputs()));
        for info in tensors.collect::<Vec<_>>() {
            let id = info.id();
            let tensor = &mut self.tensors[id.0];
            tensor.ty = info.ty();
            tensor.shape = info.tensor().shape.clone();
            let Some(bytes) = info.constant().filter(|_| !self.dims.varies(id)) else { continue };
            let file = self.model.constant(&self.model.subgraphs()[self.index].tensors()[id.0]);
            if file.is_some_and(|file| std::ptr::eq(file, bytes)) {
                let data = bytes.as_ptr().cast_mut();
                // SAFETY: the bytes are the model's, which are immutable and live as long as `self.model`;
                // `self.tensors` is declared before it and dropped first. Constants are never written through this
                // pointer.
                unsafe { tensor.set_data(Placement::Constant, data, bytes.len()) };
            } else if bytes.len() <= MAX_COPIED_BYTES {
                // If the copy cannot be allocated, the tensor is not constant here, and its nodes may fail to lower.
                drop(tensor.set_constant_copy(bytes));
            }
        }
    }

    /// Whether a node may be merged with others at some sizes and not at others.
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

    /// Adds the variants of a convolution for other numbers of input channels, if its channels are those of an input of
    /// the partition.
    fn add_other_channels(&mut self, graph: &Graph<'_>, step: &Step<'_>) {
        if !matches!(step.spec, Spec::Conv2D(_) | Spec::DepthwiseConv2D(_)) {
            return;
        }
        let Some(&input) = step.inputs.first() else { return };
        // Weights of an earlier step fix the number of channels.
        let mut value = graph.root(input).0;
        while let Some(before) = graph.steps.iter().find(|s| graph.root(s.output).0 == value) {
            let Some(&input) = before.inputs.first().filter(|_| before.weights.is_none()) else { return };
            value = graph.root(input).0;
        }
        if !matches!(graph.value(value).source, Source::Input) {
            return;
        }
        let variants = match &step.spec {
            Spec::Conv2D(conv) => self.caps().flat_map(|caps| conv.other_channels(&caps)).collect(),
            Spec::DepthwiseConv2D(conv) => conv.other_channels(&self.facts.caps),
            _ => Vec::new(),
        };
        variants.into_iter().for_each(|variant| self.add(variant));
    }

    /// Returns the tensors that a group reads and does not write, without constants that are the same at all sizes.
    fn inputs(&self, view: &GraphView<'_>, group: &[NodeId]) -> Vec<TensorId> {
        let mut made = HashSet::new();
        let mut inputs = Vec::new();
        for &id in group {
            for tensor in view.node(id).inputs() {
                let is_fixed = tensor.is_constant() && !self.dims.varies(tensor.id());
                if !is_fixed && !made.contains(&tensor.id()) && !inputs.contains(&tensor.id()) {
                    inputs.push(tensor.id());
                }
            }
            made.extend(view.node(id).outputs().map(|tensor| tensor.id()));
        }
        inputs
    }

    /// Hashes everything that determines the variants of a group whose lowering does not read weights. Equal groups of
    /// different models have equal hashes.
    fn key(&self, group: &[NodeId]) -> u64 {
        let mut digest = Digest::default();
        let _ = write!(digest, "{:?}{}{}", self.facts.caps, self.fusion, self.facts.custom_ops.len());
        let present = |symbol| format!("={}", self.dims.present(symbol));
        self.describe(&mut digest, &self.view(), group, &present, &|quantization| {
            format!("{quantization:?}")
        });
        digest.0.finish()
    }

    /// Hashes everything that determines a group's variants within this model.
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
        present: &dyn Fn(usize) -> String,
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
                            write!(text, ",d{number}{}", present(*symbol))
                        }
                    };
                }
                let bytes = tensor.constant().filter(|bytes| constant && bytes.len() <= MAX_SMALL_BYTES);
                let _ = write!(text, "{bytes:?}{}", self.escapes(tensor.id(), group));
                if let Some(quantization) = tensor.quantization() {
                    let _ = text.write_str(&quantized(quantization));
                }
            }
        }
    }

    /// Whether a tensor is an output of the subgraph, is read by a node outside the group, or has no readers.
    fn escapes(&self, id: TensorId, group: &[NodeId]) -> bool {
        let readers = &self.readers[id.0];
        self.model.subgraphs()[self.index].outputs().contains(&id)
            || readers.is_empty()
            || readers.iter().any(|reader| !group.contains(reader))
    }

    /// Finds the variants of a group. Returns false if `is_needed` returned false.
    fn search_group(&mut self, group: &[NodeId], heavy: bool, is_needed: &dyn Fn() -> bool) -> bool {
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
        touched.extend(group.iter().flat_map(|id| self.view().node(*id).node().outputs().to_vec()));
        let before: Vec<Shape> = touched.iter().map(|id| self.tensors[id.0].shape.clone()).collect();
        let lowers = self.try_sizes(group, heavy, is_needed, &inputs, &symbols);
        for (id, shape) in touched.iter().zip(before) {
            self.tensors[id.0].shape = shape;
        }
        if lowers == Some(false) {
            // No sample lowers if the values that determine the shapes are computed from shapes. Nearly all such nodes
            // move elements, so the variants of slices are added.
            let view = self.view();
            let ranks = group.iter().flat_map(|id| view.node(*id).inputs().map(|t| t.tensor().shape.rank()));
            let rank = ranks.max().unwrap_or(0);
            let caps = self.facts.caps;
            slice::variants(&caps, rank).for_each(|variant| self.add(variant));
        }
        lowers.is_some()
    }

    /// Lowers a group at samples of all sizes. Returns whether any of them lowers; `None` if `is_needed` returned
    /// false.
    fn try_sizes(
        &mut self,
        group: &[NodeId],
        heavy: bool,
        is_needed: &dyn Fn() -> bool,
        inputs: &[TensorId],
        symbols: &[usize],
    ) -> Option<bool> {
        self.group.clear();
        self.thresholds.clear();
        let mut free = self.free(group, symbols);
        let lower = |search: &mut Self, sizes: &[usize]| {
            search.lower(group, inputs, &symbols.iter().copied().zip(sizes.iter().copied()).collect())
        };
        // The thresholds of most kernels are known after a few sizes.
        let first = lower(self, &free.present);
        let mut any = first.is_some();
        for sizes in free.few_sizes() {
            any |= lower(self, &sizes).is_some();
        }
        let mut tried = heavy.then(Vec::new);
        for _ in 0..MAX_ROUNDS {
            let thresholds: Vec<Threshold> = self.thresholds.iter().copied().collect();
            if tried.as_ref() == Some(&thresholds) {
                break;
            }
            free.set_samples(&thresholds);
            let tries = if heavy { Box::new(free.few_sizes().into_iter()) } else { free.sizes() };
            // For nodes with many kernels, only every `each`-th combination is tried.
            let each = (tries.len().saturating_mul(first.unwrap_or(1)) / MAX_KERNELS).saturating_add(1);
            for (n, sizes) in tries.step_by(each).enumerate() {
                if n.is_multiple_of(CHECK_INTERVAL) && !is_needed() {
                    return None;
                }
                any |= lower(self, &sizes).is_some();
            }
            tried = Some(thresholds);
        }
        Some(any)
    }

    /// Collects the dimensions of a group that can change, and the sizes that its nodes name.
    fn free(&self, group: &[NodeId], symbols: &[usize]) -> FreeDims {
        let view = self.view();
        let mut free = FreeDims::new(symbols.iter().map(|symbol| self.dims.present(*symbol)).collect());
        for node in group.iter().map(|id| view.node(*id)) {
            // A dimension may become equal to one that is fixed.
            let tensors = node.inputs().chain(node.outputs());
            let dims = tensors.flat_map(|tensor| self.dims.of(tensor.id()).unwrap_or_default());
            free.fixed.extend(dims.filter_map(|dim| match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Free(_) => None,
            }));
            free.stated.extend(size_samples::stated(node));
            free.windows.extend(size_samples::window(node));
        }
        free
    }

    /// Lowers a group with these sizes of symbols, adds the variants of its kernels, and returns the number of kernels;
    /// `None` if the nodes do not support the sizes.
    fn lower(
        &mut self,
        group: &[NodeId],
        inputs: &[TensorId],
        sizes: &HashMap<usize, usize>,
    ) -> Option<usize> {
        for id in inputs {
            let size = |dim: &Dim| match dim {
                Dim::Fixed(size) => *size,
                Dim::Free(symbol) => sizes.get(symbol).copied().unwrap_or_else(|| self.dims.present(*symbol)),
            };
            let dims: Vec<usize> = self.dims.of(*id)?.iter().map(size).collect();
            self.tensors[id.0].shape = Shape::new(&dims);
        }
        for &id in group {
            let shapes = {
                let node = self.view().node(id);
                let inputs = (0..node.input_count()).map(|i| Some(node.input(i)?.tensor().shape.clone()));
                infer(node, &inputs.collect::<Vec<_>>())?
            };
            let outputs = self.model.subgraphs()[self.index].nodes()[id.0].outputs().iter();
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
            passes::optimize(&mut lowered, self.facts.view_alignment());
        }
        let count = lowered.steps.len();
        let variants_of = |step: Step<'_>| {
            // Without a kernel, the device does not support this size.
            let variants = self.caps().filter_map(|caps| Some(step.spec.kernel(&caps).ok()?.variant));
            let new = variants.filter(|variant| !self.group.contains(&variant.key));
            new.map(|variant| (step.spec.clone(), variant)).collect::<Vec<_>>()
        };
        let new: Vec<_> = lowered.steps.into_iter().flat_map(variants_of).collect();
        for (spec, variant) in new {
            if self.group.insert(variant.key.clone()) {
                self.add(variant);
                self.add_declared(&spec);
            }
        }
        Some(count)
    }
}

/// Adds to a group the views between its nodes.
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

/// Whether a node may be a view of its input.
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

/// Returns whether lowering a step reads weights, which takes long.
fn is_heavy(step: &Step<'_>) -> bool {
    step.weights.is_some() || matches!(step.spec, Spec::Lstm(_) | Spec::Table(_) | Spec::Custom(_))
}
