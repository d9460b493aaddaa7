//! The dimensions of a model's tensors that change with the sizes of its inputs, and those that change together.
//!
//! Dependencies are found by inferring the shapes of each node with other sizes of its inputs, without knowledge of
//! what its op computes.

use std::collections::HashMap;

use delegraph_core::ops::{Declared, InferContext, InferTensor, InferredShape, definition};
use delegraph_core::{BuiltinOp, Shape, TensorId};
use delegraph_delegate_api::{GraphView, NodeView, TensorInfo};

/// Maximum number of symbols of a node for which dependencies are searched. The model determines the number of symbols.
const MAX_SYMBOLS: usize = 256;
/// Maximum number of symbols of a node for which all pairs are checked.
const MAX_PAIRED: usize = 24;
/// Maximum number of other sizes that are tried before a symbol counts as fixed.
const MAX_SIZES: usize = 64;

/// A dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dim {
    /// The same size for inputs of all sizes.
    Fixed(usize),
    /// The size of this symbol.
    Free(usize),
}

/// The dimensions of a graph's tensors.
pub(crate) struct SymbolicDims {
    of: Vec<Option<Vec<Dim>>>,
    varies: Vec<bool>,
    /// Per symbol, its size in the prepared model.
    present: Vec<usize>,
}

impl SymbolicDims {
    /// Finds the dimensions of all tensors of `view`.
    pub(crate) fn new(view: &GraphView<'_>) -> Self {
        let mut finder = Finder::default();
        // The second pass applies sizes that later nodes fix to earlier nodes.
        for _ in 0..2 {
            finder.of = vec![None; view.tensor_count()];
            finder.varies = vec![false; view.tensor_count()];
            view.nodes().for_each(|node| finder.visit(node));
        }
        let Finder { of, varies, present, .. } = finder;
        SymbolicDims { of, varies, present }
    }

    /// Returns the dimensions of tensor `id`; `None` if they are unknown.
    pub(crate) fn of(&self, id: TensorId) -> Option<&[Dim]> {
        self.of.get(id.0)?.as_deref()
    }

    /// Returns whether a folded constant is computed from shapes of tensors, so that its value depends on the sizes of
    /// inputs.
    pub(crate) fn varies(&self, id: TensorId) -> bool {
        self.varies.get(id.0) == Some(&true)
    }

    /// Returns the size of a symbol in the prepared model.
    pub(crate) fn present(&self, symbol: usize) -> usize {
        self.present.get(symbol).copied().unwrap_or(1)
    }
}

/// Infers the shapes of a node's outputs for inputs of these shapes; `None` if the node does not support them.
pub(crate) fn infer(node: NodeView<'_>, shapes: &[Option<Shape>]) -> Option<Vec<Shape>> {
    let mut cx = InferContext::new(node.params(), node.version());
    for (i, shape) in shapes.iter().enumerate() {
        let tensor = node.input(i).zip(shape.as_ref());
        cx.inputs.push(tensor.map(|(tensor, shape)| {
            InferTensor::new(tensor.ty(), shape)
                .with_quantization(tensor.quantization())
                .with_constant(tensor.constant())
        }));
    }
    for tensor in node.outputs() {
        let output = Declared::new(tensor.ty(), &tensor.tensor().shape);
        cx.outputs.push(output.with_quantization(tensor.quantization()));
    }
    let inferred = (definition(node.op().builtin()?)?.infer)(&cx).ok()?;
    let known = |shape| match shape {
        InferredShape::Known(shape) => Some(shape),
        InferredShape::DataDependent | InferredShape::FromKernel => None,
    };
    inferred.into_iter().map(|output| known(output.shape)).collect()
}

#[derive(Default)]
struct Finder {
    of: Vec<Option<Vec<Dim>>>,
    varies: Vec<bool>,
    present: Vec<usize>,
    /// Per symbol, whether a node requires its present size.
    stuck: Vec<bool>,
    /// Per symbol, the symbol that a node requires to be equal, or the symbol itself.
    equal: Vec<usize>,
    /// Symbols by their dependencies.
    symbols: HashMap<Vec<usize>, usize>,
}

impl Finder {
    fn symbol(&mut self, meaning: Vec<usize>, present: usize) -> Dim {
        let symbol = *self.symbols.entry(meaning).or_insert_with(|| {
            self.present.push(present);
            self.stuck.push(false);
            self.equal.push(self.equal.len());
            self.present.len() - 1
        });
        let symbol = self.equal[symbol];
        if self.stuck[symbol] { Dim::Fixed(present) } else { Dim::Free(symbol) }
    }

    /// Assigns new symbols to the dimensions of a tensor.
    fn assign_own(&mut self, view: GraphView<'_>, tensor: TensorInfo<'_>) {
        let id = tensor.id();
        let file = view.subgraph().tensor(id);
        // If the file declares which dimensions of an input may change, the others are fixed.
        let input = view.index() == 0 && view.subgraph().inputs().contains(&id);
        let stated = file.shape_signature().filter(|_| input);
        let dims = tensor.tensor().shape.iter().enumerate().map(|(d, &size)| {
            match stated.and_then(|dims| dims.get(d)) {
                Some(Some(fixed)) if *fixed == size => Dim::Fixed(size),
                _ => self.symbol(vec![usize::MAX, id.0, d], size),
            }
        });
        self.of[id.0] = Some(dims.collect());
    }

    fn visit(&mut self, node: NodeView<'_>) {
        for tensor in node.inputs().filter(|tensor| self.of[tensor.id().0].is_none()).collect::<Vec<_>>() {
            match tensor.is_constant() {
                true => self.of[tensor.id().0] = Some(fixed(&tensor.tensor().shape)),
                false => self.assign_own(node.graph(), tensor),
            }
        }
        let is_fixed = |tensor: TensorInfo<'_>| {
            let dims = self.of[tensor.id().0].iter().flatten();
            !self.varies[tensor.id().0] && dims.into_iter().all(|dim| matches!(dim, Dim::Fixed(_)))
        };
        let folded = node.state().folded;
        let varies = folded && !node.inputs().all(is_fixed);
        let moves = node.inputs().any(|tensor| self.varies[tensor.id().0]);
        if folded && !varies {
            node.outputs().for_each(|tensor| self.of[tensor.id().0] = Some(fixed(&tensor.tensor().shape)));
            return;
        }
        node.outputs().for_each(|tensor| self.varies[tensor.id().0] = varies);
        let known = node.inputs().chain(node.outputs()).all(|tensor| tensor.shape().is_some());
        let found = if known && !moves { self.depends(node) } else { None };
        match found {
            Some(dims) => {
                node.outputs().zip(dims).for_each(|(tensor, dims)| self.of[tensor.id().0] = Some(dims));
            }
            None => node.outputs().for_each(|tensor| self.assign_own(node.graph(), tensor)),
        }
    }

    /// Returns the dimensions of a node's outputs, found by inferring shapes for other sizes of its inputs.
    fn depends(&mut self, node: NodeView<'_>) -> Option<Vec<Vec<Dim>>> {
        let probe = Probe::new(node, &self.of, &self.present)?;
        let Dependencies { changes, stuck, equal } = probe.dependencies();
        let before = probe.before;
        let dims = |(output, shape)| self.output_dims(output, shape, &changes);
        let result = before.iter().enumerate().map(dims).collect();
        stuck.into_iter().for_each(|symbol| self.stuck[symbol] = true);
        for (one, other) in equal {
            let (one, other) = (self.equal[one], self.equal[other]);
            self.equal.iter_mut().filter(|symbol| **symbol == other).for_each(|symbol| *symbol = one);
        }
        Some(result)
    }

    /// Returns the dimensions of one output, whose present shape is `shape`.
    fn output_dims(&mut self, output: usize, shape: &Shape, changes: &[Change]) -> Vec<Dim> {
        let mut list = Vec::with_capacity(shape.rank());
        for (d, &size) in shape.iter().enumerate() {
            let mut meaning = vec![size];
            let mut same = None;
            for Change { symbol, outputs: [three, seven], stretches } in changes {
                let to = [three, seven].map(|shapes| shapes[output].dims().get(d).copied().unwrap_or(0));
                if to == [size; 2] {
                    continue;
                }
                let v = self.present[*symbol];
                if *stretches {
                    meaning.extend([*symbol, to[0], to[1]]);
                } else if size == v && to == [3 * v, 7 * v] && same.is_none() {
                    same = Some(*symbol);
                } else if same.is_some_and(|same| self.present[same] != v) || same.is_none() {
                    meaning.extend([*symbol, to[0], to[1]]);
                }
            }
            list.push(match (same, meaning.len()) {
                (Some(symbol), 1) => Dim::Free(symbol),
                (None, 1) => Dim::Fixed(size),
                (Some(symbol), _) => {
                    meaning.push(symbol);
                    self.symbol(meaning, size)
                }
                (None, _) => self.symbol(meaning, size),
            });
        }
        list
    }
}

/// The outputs of a node at two other sizes of a symbol: three and seven times the present one.
struct Change {
    symbol: usize,
    outputs: [Vec<Shape>; 2],
    /// Whether an extent of 1 broadcasts.
    stretches: bool,
}

/// The effects of the sizes of symbols, and the requirements of a node on them.
#[derive(Default)]
struct Dependencies {
    changes: Vec<Change>,
    /// Symbols that keep their size.
    stuck: Vec<usize>,
    /// Symbols that must be equal.
    equal: Vec<(usize, usize)>,
}

/// A node whose outputs are inferred for other sizes of its inputs.
struct Probe<'a> {
    node: NodeView<'a>,
    /// Per input, its dimensions.
    dims: Vec<Option<Vec<Dim>>>,
    present: &'a [usize],
    /// The outputs at the present sizes.
    before: Vec<Shape>,
    /// The symbols of the inputs, sorted.
    symbols: Vec<usize>,
}

impl<'a> Probe<'a> {
    /// Returns `None` if the node's outputs cannot be inferred, or its inputs have too many symbols.
    fn new(node: NodeView<'a>, of: &[Option<Vec<Dim>>], present: &'a [usize]) -> Option<Self> {
        let dims = (0..node.input_count()).map(|i| of[node.input(i)?.id().0].clone()).collect();
        let mut probe = Probe { node, dims, present, before: Vec::new(), symbols: Vec::new() };
        probe.before = infer(node, &probe.shapes(|_| None))?;
        if !probe.before.iter().eq(node.outputs().map(|tensor| &tensor.tensor().shape)) {
            return None;
        }
        probe.symbols = probe.dims.iter().flatten().flatten().filter_map(symbol_of).collect();
        probe.symbols.sort_unstable();
        probe.symbols.dedup();
        (probe.symbols.len() <= MAX_SYMBOLS).then_some(probe)
    }

    /// Returns the shapes of the inputs with other sizes for some symbols.
    fn shapes(&self, change: impl Fn(usize) -> Option<usize>) -> Vec<Option<Shape>> {
        let size = |dim: &Dim| match *dim {
            Dim::Fixed(size) => size,
            Dim::Free(symbol) => change(symbol).unwrap_or(self.present[symbol]),
        };
        let shape = |dims: &Vec<Dim>| Shape::new(&dims.iter().map(size).collect::<Vec<_>>());
        self.dims.iter().map(|dims| dims.as_ref().map(shape)).collect()
    }

    /// Infers the outputs where these symbols have size `to`.
    fn sized(&self, symbols: &[usize], to: usize) -> Option<Vec<Shape>> {
        infer(self.node, &self.shapes(|symbol| symbols.contains(&symbol).then_some(to)))
    }

    /// Infers the outputs where these symbols, which have size `size`, are three and seven times as large.
    fn twice(&self, symbols: &[usize], size: usize) -> Option<[Vec<Shape>; 2]> {
        Some([self.sized(symbols, size.checked_mul(3)?)?, self.sized(symbols, size.checked_mul(7)?)?])
    }

    /// Returns the sizes for which a symbol is tried alone.
    fn sizes(&self) -> Vec<usize> {
        let shapes = self.shapes(|_| None);
        let mut sizes: Vec<usize> =
            shapes.iter().flatten().chain(&self.before).flat_map(|shape| shape.dims().to_vec()).collect();
        // Index tuples have up to six indices, so these sizes are tried, too.
        sizes.extend(1..=6);
        sizes.sort_unstable();
        sizes.dedup();
        sizes.truncate(MAX_SIZES);
        sizes
    }

    /// Returns, for each dimension that has more than two symbols, its symbols in all inputs.
    fn rows(&self) -> Vec<Vec<usize>> {
        let rank = self.dims.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let row = |d| self.dims.iter().flatten().filter_map(|dims| symbol_of(dims.get(d)?)).collect();
        (0..rank).map(row).filter(|row: &Vec<usize>| row.len() > 2).collect()
    }

    /// Infers the node for other sizes of each symbol.
    fn dependencies(&self) -> Dependencies {
        let Probe { symbols, present, .. } = self;
        let sizes = self.sizes();
        let alone: Vec<_> = symbols.iter().map(|&symbol| self.twice(&[symbol], present[symbol])).collect();
        // Whether the node accepts no other size of a symbol while the other symbols keep theirs.
        let is_tied = |i: usize| {
            let size = present[symbols[i]];
            alone[i].is_none()
                && sizes.iter().all(|&to| to == size || self.sized(&[symbols[i]], to).is_none())
        };
        let tied: Vec<bool> = (0..symbols.len()).map(is_tied).collect();
        let rows = self.rows();
        let mut found = Dependencies::default();
        for (i, (&symbol, alone)) in symbols.iter().zip(alone).enumerate() {
            if let Some(outputs) = alone {
                found.changes.push(Change { symbol, outputs, stretches: false });
                continue;
            }
            let size = present[symbol];
            match self.together(i, &tied, &rows, &mut found.equal) {
                Some(outputs) => {
                    let stretches = size != 1 && self.sized(&[symbol], 1).is_some();
                    found.changes.push(Change { symbol, outputs, stretches });
                }
                // RESHAPE may allow other sizes of several symbols in combination.
                None if self.node.op().builtin() == Some(BuiltinOp::RESHAPE) => {}
                None if tied[i] => found.stuck.push(symbol),
                None => {}
            }
        }
        found
    }

    /// Infers the outputs where symbol `i` changes together with others of its size. Adds the pairs that must be equal.
    fn together(
        &self,
        i: usize,
        tied: &[bool],
        rows: &[Vec<usize>],
        equal: &mut Vec<(usize, usize)>,
    ) -> Option<[Vec<Shape>; 2]> {
        let Probe { symbols, present, .. } = self;
        let (symbol, size) = (symbols[i], present[symbols[i]]);
        let alike = (0..symbols.len()).filter(|j| present[symbols[*j]] == size);
        let mut found = self.twice(&alike.clone().map(|j| symbols[j]).collect::<Vec<_>>(), size);
        for j in alike.filter(|j| *j != i && tied[i] && symbols.len() <= MAX_PAIRED) {
            if let Some(pair) = self.twice(&[symbol, symbols[j]], size) {
                equal.extend(tied[j].then_some((symbol, symbols[j])));
                found = found.or(Some(pair));
            }
        }
        let is_tied = |symbol| symbols.binary_search(&symbol).is_ok_and(|i| tied[i]);
        // A dimension that must be equal in more than two inputs, as of PACK, cannot change in two of them alone.
        for row in rows.iter().filter(|row| tied[i] && row.first() == Some(&symbol)) {
            if row.iter().all(|other| present[*other] == size && is_tied(*other))
                && self.twice(row, size).is_some()
            {
                equal.extend(row.iter().map(|other| (symbol, *other)));
            }
        }
        found
    }
}

fn symbol_of(dim: &Dim) -> Option<usize> {
    if let Dim::Free(symbol) = dim { Some(*symbol) } else { None }
}

fn fixed(shape: &Shape) -> Vec<Dim> {
    shape.iter().map(|&size| Dim::Fixed(size)).collect()
}

#[cfg(test)]
mod tests {
    use delegraph_core::kernel::RuntimeTensor;
    use delegraph_core::ops::conv_2d::Conv2DParams;
    use delegraph_core::ops::fully_connected::FullyConnectedParams;
    use delegraph_core::ops::pack::PackParams;
    use delegraph_core::ops::reduce::ReducerParams;
    use delegraph_core::ops::reshape::ReshapeParams;
    use delegraph_core::ops::{Padding, binary::MulParams};
    use delegraph_core::{Model, ModelBuilder, Params, SubgraphBuilder, TensorType};
    use delegraph_delegate_api::NodeState;

    use super::*;

    /// The dimensions of these tensors, with symbols as letters in the order of their first use.
    fn dims(model: &Model, tensors: &[TensorId]) -> Vec<String> {
        let subgraph = &model.subgraphs()[0];
        let mut all: Vec<RuntimeTensor> = subgraph.tensors().iter().map(RuntimeTensor::new).collect();
        for (tensor, file) in all.iter_mut().zip(subgraph.tensors()) {
            if let Some(bytes) = model.constant(file) {
                tensor.set_constant_copy(bytes).unwrap();
            }
        }
        let (known, states) = (vec![true; all.len()], vec![NodeState::default(); subgraph.nodes().len()]);
        let dims = SymbolicDims::new(&GraphView::new(model, 0, &all, &known, &states));
        let mut letters: Vec<usize> = Vec::new();
        let mut letter = |dim: &Dim| match dim {
            Dim::Fixed(size) => size.to_string(),
            Dim::Free(symbol) => {
                let place = letters.iter().position(|s| s == symbol).unwrap_or_else(|| {
                    letters.push(*symbol);
                    letters.len() - 1
                });
                char::from(b'a' + u8::try_from(place).unwrap()).to_string()
            }
        };
        let one = |id: &TensorId| dims.of(*id).unwrap().iter().map(&mut letter).collect::<Vec<_>>().join(" ");
        tensors.iter().map(one).collect()
    }

    fn conv(graph: &mut SubgraphBuilder, x: TensorId, stride: i32) -> TensorId {
        let filter = graph.constant("", [16, 3, 3, 4], &[0.5_f32; 16 * 36]);
        let bias = graph.constant("", [16], &[0.0_f32; 16]);
        let params = Conv2DParams::default().padding(Padding::Same).stride_w(stride).stride_h(stride);
        graph.node(BuiltinOp::CONV_2D, params).inputs([x, filter, bias]).output("")
    }

    #[test]
    fn weights_fix_channels_and_nodes_decide_which_sizes_are_equal() {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 8, 8, 4]);
        let same = conv(&mut graph, x, 1);
        let halves = [conv(&mut graph, x, 2), conv(&mut graph, x, 2)];
        let axes = graph.constant("", [2], &[1_i32, 2]);
        let mean = graph
            .node(BuiltinOp::MEAN, ReducerParams::default().keep_dims(true))
            .inputs([same, axes])
            .output("");
        let product = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([same, mean]).output("");
        let shape = graph.constant("", [2], &[-1_i32, 32]);
        let rows =
            graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([product, shape]).output("");
        graph.outputs([rows, halves[0], halves[1]]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        let [one, other] = halves;
        assert_eq!(
            dims(&model, &[same, one, other, mean, product, rows]),
            ["a b c 16", "a d e 16", "a d e 16", "a 1 1 16", "a b c 16", "f 32"],
        );
    }

    #[test]
    fn required_equality_unifies_symbols_and_broadcasting_does_not() {
        let mut graph = SubgraphBuilder::new("main");
        let mut input = |shape: &[usize]| graph.input("", TensorType::Float32, shape);
        let [x, weights, bias] = [input(&[2, 10]), input(&[3, 10]), input(&[3])];
        let rows = [input(&[1, 4]), input(&[1, 4]), input(&[1, 4])];
        let [a, b] = [input(&[2, 8]), input(&[2, 8])];
        let params = FullyConnectedParams::default().keep_num_dims(true);
        let dense = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights, bias]).output("");
        let params = PackParams::default().values_count(3).axis(0);
        let pack = graph.node(BuiltinOp::PACK, params).inputs(rows).output("");
        let product = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([a, b]).output("");
        graph.outputs([dense, pack, product]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        assert_eq!(dims(&model, &[x, weights, bias, dense]), ["a b", "c b", "c", "a c"]);
        assert_eq!(dims(&model, &[rows[0], rows[1], rows[2], pack]), ["a b", "a b", "a b", "3 a b"]);
        assert_eq!(dims(&model, &[a, b, product]), ["a b", "c d", "e f"]);
    }

    #[test]
    fn a_file_may_declare_fixed_dimensions() {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 8]);
        let y = graph.node(BuiltinOp::EXP, Params::None).inputs([x]).output("");
        graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(graph.clone()).build().unwrap();
        assert_eq!(dims(&model, &[x, y]), ["a b", "a b"]);
        graph.resizable(x, [None, Some(8)]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        assert_eq!(dims(&model, &[x, y]), ["a 8", "a 8"]);
    }
}
