//! Which dimensions of a model's tensors another size of its inputs can change, and which of them change together.
//!
//! Nothing is known of ops here: what a dimension depends on is found by inferring each node's shapes again with other
//! sizes of its inputs.

use std::collections::HashMap;

use delegraph_core::ops::{Declared, InferContext, InferTensor, InferredShape, definition};
use delegraph_core::{BuiltinOp, Shape, TensorId};
use delegraph_delegate_api::{GraphView, NodeView, TensorInfo};

/// A node of more dimensions that change is not looked into: a model decides how many there are.
const MOST_SYMBOLS: usize = 256;
/// Of so many it is asked of each pair whether they change together.
const MOST_PAIRED: usize = 24;
/// So many sizes are tried before a dimension is taken to stay.
const MOST_SIZES: usize = 64;

/// A dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dim {
    /// Has this size, whatever the inputs' are.
    Fixed(usize),
    /// Has the size of this symbol.
    Free(usize),
}

/// The dimensions of a graph's tensors.
pub(crate) struct Dims {
    of: Vec<Option<Vec<Dim>>>,
    varies: Vec<bool>,
    /// Per symbol, its size as the model is prepared.
    today: Vec<usize>,
}

impl Dims {
    /// Those of all tensors of `view`.
    pub(crate) fn new(view: &GraphView<'_>) -> Self {
        let mut finder = Finder::default();
        // What a later node fixes is known to the earlier ones the second time.
        for _ in 0..2 {
            finder.of = vec![None; view.tensor_count()];
            finder.varies = vec![false; view.tensor_count()];
            view.nodes().for_each(|node| finder.look_at(node));
        }
        let Finder { of, varies, today, .. } = finder;
        Dims { of, varies, today }
    }

    /// Of tensor `id`; none where nothing is known of them.
    pub(crate) fn of(&self, id: TensorId) -> Option<&[Dim]> {
        self.of.get(id.0)?.as_deref()
    }

    /// Whether what a constant holds comes from the shapes of tensors, so that it is another one for other sizes.
    pub(crate) fn varies(&self, id: TensorId) -> bool {
        self.varies.get(id.0) == Some(&true)
    }

    /// The size of a symbol as the model is prepared.
    pub(crate) fn today(&self, symbol: usize) -> usize {
        self.today.get(symbol).copied().unwrap_or(1)
    }
}

/// The shapes of a node's outputs when its inputs have these shapes; `None` where it refuses them.
pub(crate) fn infer(node: NodeView<'_>, shapes: &[Option<Shape>]) -> Option<Vec<Shape>> {
    let mut cx = InferContext {
        params: node.params(),
        version: node.version(),
        inputs: Default::default(),
        outputs: Default::default(),
    };
    for (i, shape) in shapes.iter().enumerate() {
        let tensor = node.input(i).zip(shape.as_ref());
        cx.inputs.push(tensor.map(|(tensor, shape)| {
            let (quantization, constant) = (tensor.quantization(), tensor.constant());
            InferTensor { ty: tensor.ty(), shape, quantization, constant }
        }));
    }
    for tensor in node.outputs() {
        let (shape, quantization) = (&tensor.tensor().shape, tensor.quantization());
        cx.outputs.push(Declared { ty: tensor.ty(), shape, quantization });
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
    today: Vec<usize>,
    /// Symbols that no node lets change.
    stuck: Vec<bool>,
    /// Per symbol, the one that a node makes it equal to, or itself.
    equal: Vec<usize>,
    /// What makes a symbol what it is.
    symbols: HashMap<Vec<usize>, usize>,
}

impl Finder {
    fn symbol(&mut self, meaning: Vec<usize>, today: usize) -> Dim {
        let symbol = *self.symbols.entry(meaning).or_insert_with(|| {
            self.today.push(today);
            self.stuck.push(false);
            self.equal.push(self.equal.len());
            self.today.len() - 1
        });
        let symbol = self.equal[symbol];
        if self.stuck[symbol] { Dim::Fixed(today) } else { Dim::Free(symbol) }
    }

    /// Dimensions of which nothing is known but that they are this tensor's.
    fn own(&mut self, view: GraphView<'_>, tensor: TensorInfo<'_>) {
        let id = tensor.id();
        let file = view.subgraph().tensor(id);
        // An input whose file says which dimensions may change keeps the others.
        let input = view.index() == 0 && view.subgraph().inputs.contains(&id);
        let stated = file.shape_signature.as_ref().filter(|_| input);
        let dims = tensor.tensor().shape.iter().enumerate().map(|(d, &size)| {
            match stated.and_then(|dims| dims.get(d)) {
                Some(Some(fixed)) if *fixed == size => Dim::Fixed(size),
                _ => self.symbol(vec![usize::MAX, id.0, d], size),
            }
        });
        self.of[id.0] = Some(dims.collect());
    }

    fn look_at(&mut self, node: NodeView<'_>) {
        for tensor in node.inputs().filter(|tensor| self.of[tensor.id().0].is_none()).collect::<Vec<_>>() {
            match tensor.is_constant() {
                true => self.of[tensor.id().0] = Some(fixed(&tensor.tensor().shape)),
                false => self.own(node.graph(), tensor),
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
            None => node.outputs().for_each(|tensor| self.own(node.graph(), tensor)),
        }
    }

    /// The dimensions of a node's outputs, found by changing those of its inputs.
    fn depends(&mut self, node: NodeView<'_>) -> Option<Vec<Vec<Dim>>> {
        let dims: Vec<Option<Vec<Dim>>> =
            (0..node.num_inputs()).map(|i| self.of[node.input(i)?.id().0].clone()).collect();
        let shapes = |change: &dyn Fn(usize) -> Option<usize>| -> Vec<Option<Shape>> {
            let size = |dim: &Dim| match *dim {
                Dim::Fixed(size) => size,
                Dim::Free(symbol) => change(symbol).unwrap_or(self.today[symbol]),
            };
            let shape = |dims: &Vec<Dim>| Shape::new(&dims.iter().map(size).collect::<Vec<_>>());
            dims.iter().map(|dims| dims.as_ref().map(shape)).collect()
        };
        let before = infer(node, &shapes(&|_| None))?;
        if !before.iter().eq(node.outputs().map(|tensor| &tensor.tensor().shape)) {
            return None;
        }
        let all = dims.iter().flatten().flatten();
        let mut symbols: Vec<usize> = all
            .clone()
            .filter_map(|dim| if let Dim::Free(symbol) = dim { Some(*symbol) } else { None })
            .collect();
        symbols.sort_unstable();
        symbols.dedup();
        if symbols.len() > MOST_SYMBOLS {
            return None;
        }
        let mut sizes: Vec<usize> =
            shapes(&|_| None).iter().flatten().chain(&before).flat_map(|s| s.dims().to_vec()).collect();
        // An index may have as many dimensions as there are.
        sizes.extend(1..=6);
        sizes.sort_unstable();
        sizes.dedup();
        sizes.truncate(MOST_SIZES);
        let sized = |list: &[usize], to: usize| infer(node, &shapes(&|s| list.contains(&s).then_some(to)));
        let twice = |list: &[usize], size: usize| -> Option<[Vec<Shape>; 2]> {
            Some([sized(list, size.checked_mul(3)?)?, sized(list, size.checked_mul(7)?)?])
        };
        let alone: Vec<_> = symbols.iter().map(|&symbol| twice(&[symbol], self.today[symbol])).collect();
        let is_tied = |i: usize| {
            let size = self.today[symbols[i]];
            alone[i].is_none() && sizes.iter().all(|&to| to == size || sized(&[symbols[i]], to).is_none())
        };
        let tied: Vec<bool> = (0..symbols.len()).map(is_tied).collect();
        let is_tied_to = |symbol: usize, size: usize| {
            self.today[symbol] == size && symbols.binary_search(&symbol).is_ok_and(|i| tied[i])
        };
        let most = dims.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let row = |d: usize| -> Vec<usize> {
            let all = dims.iter().flatten().filter_map(|dims| dims.get(d));
            all.filter_map(|dim| if let Dim::Free(symbol) = dim { Some(*symbol) } else { None }).collect()
        };
        let rows: Vec<Vec<usize>> = (0..most).map(row).filter(|row| row.len() > 2).collect();
        // Each symbol with what two other sizes make of the outputs, and whether one of it is stretched to another's size.
        let (mut changes, mut stuck, mut equal) = (Vec::new(), Vec::new(), Vec::new());
        for (i, &symbol) in symbols.iter().enumerate() {
            if let Some(found) = &alone[i] {
                changes.push((symbol, found.clone(), false));
                continue;
            }
            let size = self.today[symbol];
            let alike = (0..symbols.len()).filter(|j| self.today[symbols[*j]] == size);
            let mut found = twice(&alike.clone().map(|j| symbols[j]).collect::<Vec<_>>(), size);
            for j in alike.filter(|j| *j != i && tied[i] && symbols.len() <= MOST_PAIRED) {
                if let Some(pair) = twice(&[symbol, symbols[j]], size) {
                    equal.extend(tied[j].then_some((symbol, symbols[j])));
                    found = found.or(Some(pair));
                }
            }
            // What all inputs have in the same place.
            for row in rows.iter().filter(|row| tied[i] && row.first() == Some(&symbol)) {
                if row.iter().all(|other| is_tied_to(*other, size)) && twice(row, size).is_some() {
                    equal.extend(row.iter().map(|other| (symbol, *other)));
                }
            }
            match found {
                Some(found) => changes.push((symbol, found, size != 1 && sized(&[symbol], 1).is_some())),
                // A shape that a node states may still be reached by another way.
                None if node.op().builtin() == Some(BuiltinOp::RESHAPE) => {}
                None if tied[i] => stuck.push(symbol),
                None => {}
            }
        }
        let mut result = Vec::with_capacity(before.len());
        for (o, shape) in before.iter().enumerate() {
            let mut list = Vec::with_capacity(shape.rank());
            for (d, &size) in shape.iter().enumerate() {
                let mut meaning = vec![size];
                let mut same = None;
                for (symbol, [three, seven], stretches) in &changes {
                    let to = [three, seven].map(|shapes| shapes[o].dims().get(d).copied().unwrap_or(0));
                    if to == [size; 2] {
                        continue;
                    }
                    let v = self.today[*symbol];
                    if *stretches {
                        meaning.extend([*symbol, to[0], to[1]]);
                    } else if size == v && to == [3 * v, 7 * v] && same.is_none() {
                        same = Some(*symbol);
                    } else if same.is_some_and(|same| self.today[same] != v) || same.is_none() {
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
            result.push(list);
        }
        stuck.into_iter().for_each(|symbol| self.stuck[symbol] = true);
        for (one, other) in equal {
            let (one, other) = (self.equal[one], self.equal[other]);
            self.equal.iter_mut().filter(|symbol| **symbol == other).for_each(|symbol| *symbol = one);
        }
        Some(result)
    }
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

    /// The dimensions of these tensors, symbols as letters in the order in which they are met.
    fn dims(model: &Model, tensors: &[TensorId]) -> Vec<String> {
        let subgraph = &model.subgraphs[0];
        let mut all: Vec<RuntimeTensor> = subgraph.tensors.iter().map(RuntimeTensor::new).collect();
        for (tensor, file) in all.iter_mut().zip(&subgraph.tensors) {
            if let Some(bytes) = model.constant(file) {
                tensor.set_constant_copy(bytes).unwrap();
            }
        }
        let (known, states) = (vec![true; all.len()], vec![NodeState::default(); subgraph.nodes.len()]);
        let dims = Dims::new(&GraphView::new(model, 0, &all, &known, &states));
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
        let params =
            Conv2DParams { padding: Padding::Same, stride_w: stride, stride_h: stride, ..Default::default() };
        graph.node(BuiltinOp::CONV_2D, params).inputs([x, filter, bias]).output("")
    }

    #[test]
    fn weights_fix_channels_and_equal_sizes_are_one_only_where_they_must_be() {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 8, 8, 4]);
        let same = conv(&mut graph, x, 1);
        let halves = [conv(&mut graph, x, 2), conv(&mut graph, x, 2)];
        let axes = graph.constant("", [2], &[1_i32, 2]);
        let mean =
            graph.node(BuiltinOp::MEAN, ReducerParams { keep_dims: true }).inputs([same, axes]).output("");
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
    fn what_a_node_wants_equal_is_one_and_what_it_repeats_is_not() {
        let mut graph = SubgraphBuilder::new("main");
        let mut input = |shape: &[usize]| graph.input("", TensorType::Float32, shape);
        let [x, weights, bias] = [input(&[2, 10]), input(&[3, 10]), input(&[3])];
        let rows = [input(&[1, 4]), input(&[1, 4]), input(&[1, 4])];
        let [a, b] = [input(&[2, 8]), input(&[2, 8])];
        let params = FullyConnectedParams { keep_num_dims: true, ..Default::default() };
        let dense = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights, bias]).output("");
        let params = PackParams { values_count: 3, axis: 0 };
        let pack = graph.node(BuiltinOp::PACK, params).inputs(rows).output("");
        let product = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([a, b]).output("");
        graph.outputs([dense, pack, product]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        assert_eq!(dims(&model, &[x, weights, bias, dense]), ["a b", "c b", "c", "a c"]);
        assert_eq!(dims(&model, &[rows[0], rows[1], rows[2], pack]), ["a b", "a b", "a b", "3 a b"]);
        assert_eq!(dims(&model, &[a, b, product]), ["a b", "c d", "e f"]);
    }

    #[test]
    fn a_file_may_say_which_dimensions_stay() {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 8]);
        let y = graph.node(BuiltinOp::EXP, Params::None).inputs([x]).output("");
        graph.outputs([y]);
        let mut model = ModelBuilder::new().subgraph(graph).build().unwrap();
        assert_eq!(dims(&model, &[x, y]), ["a b", "a b"]);
        model.subgraphs[0].tensors[x.0].shape_signature = Some(vec![None, Some(8)]);
        assert_eq!(dims(&model, &[x, y]), ["a 8", "a 8"]);
    }
}
