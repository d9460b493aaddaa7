//! Valid models that need more resources than any machine has: one function per kind.

use delegraph::core::ops::binary::{AddParams, MulParams};
use delegraph::core::ops::concatenation::ConcatenationParams;
use delegraph::core::ops::control_flow::{
    CallParams, IfParams, StableHloCompositeParams, StablehloCaseParams, WhileParams,
};
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::gather::GatherParams;
use delegraph::core::ops::hashtable::HashtableParams;
use delegraph::core::ops::local_response_normalization::LocalResponseNormalizationParams;
use delegraph::core::ops::one_hot::OneHotParams;
use delegraph::core::ops::pad::MirrorPadParams;
use delegraph::core::ops::pool_2d::Pool2DParams;
use delegraph::core::ops::reshape::ReshapeParams;
use delegraph::core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph::core::ops::split::SplitParams;
use delegraph::core::ops::{MirrorPadMode, Padding};
use delegraph::core::quantization::Affine;
use delegraph::core::{Attributes, BuiltinOp, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorId};
use delegraph::{Model, TensorType};

const F32: TensorType = TensorType::Float32;

/// The ways to call a subgraph.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Function,
    If,
    Case,
    While,
    Composite,
}

impl Call {
    pub(crate) const ALL: [Call; 5] = [Call::Function, Call::If, Call::Case, Call::While, Call::Composite];

    /// Adds a call of subgraph `callee`, from `x` to `y`. `condition` is a subgraph that returns false.
    fn add(self, graph: &mut SubgraphBuilder, callee: usize, condition: usize, x: TensorId, y: TensorId) {
        let (callee, condition) = (i32::try_from(callee).unwrap(), i32::try_from(condition).unwrap());
        match self {
            Call::Function => {
                let params = CallParams::default().subgraph(callee.cast_unsigned());
                graph.node(BuiltinOp::CALL, params).inputs([x]).writes([y]);
            }
            Call::If => {
                let yes = graph.constant_bytes("yes", TensorType::Bool, [1], &[1]);
                let params = IfParams::default().then_subgraph_index(callee).else_subgraph_index(callee);
                graph.node(BuiltinOp::IF, params).inputs([yes, x]).writes([y]);
            }
            Call::Case => {
                let index = graph.constant("index", [], &[0i32]);
                let params = StablehloCaseParams::default().branch_subgraph_indices(vec![callee]);
                graph.node(BuiltinOp::STABLEHLO_CASE, params).inputs([index, x]).writes([y]);
            }
            Call::While => {
                let params =
                    WhileParams::default().cond_subgraph_index(condition).body_subgraph_index(callee);
                graph.node(BuiltinOp::WHILE, params).inputs([x]).writes([y]);
            }
            Call::Composite => {
                let params = StableHloCompositeParams::default()
                    .name("nested".to_owned())
                    .composite_attributes(Attributes::new().to_bytes())
                    .decomposition_subgraph_index(callee)
                    .version(1);
                graph.node(BuiltinOp::STABLEHLO_COMPOSITE, params).inputs([x]).writes([y]);
            }
        }
    }
}

fn build(subgraphs: impl IntoIterator<Item = SubgraphBuilder>) -> Model {
    subgraphs.into_iter().fold(ModelBuilder::new(), ModelBuilder::subgraph).build().unwrap()
}

/// `x + x`.
fn leaf() -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new("leaf");
    let x = graph.input("x", F32, [1]);
    let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("y");
    graph.outputs([y]);
    graph
}

/// Returns the constant `value` for one float.
fn condition(value: bool) -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new("condition");
    graph.input("x", F32, [1]);
    let value = graph.constant_bytes("value", TensorType::Bool, [1], &[u8::from(value)]);
    graph.outputs([value]);
    graph
}

/// `levels` subgraphs before a leaf. `level` adds the nodes of one of them: it gets the index of the next subgraph, the
/// index of the condition and the input, and returns the output.
fn levels(levels: usize, level: impl Fn(&mut SubgraphBuilder, usize, usize, TensorId) -> TensorId) -> Model {
    let graphs = (0..levels).map(|i| {
        let mut graph = SubgraphBuilder::new(format!("level {i}"));
        let x = graph.input("x", F32, [1]);
        let y = level(&mut graph, i + 1, levels + 1, x);
        graph.outputs([y]);
        graph
    });
    build(graphs.chain([leaf(), condition(false)]))
}

/// Each of `depth` subgraphs calls the next.
pub(crate) fn chain(call: Call, depth: usize) -> Model {
    levels(depth, |graph, next, condition, x| {
        let y = graph.tensor("y", F32, [1]);
        call.add(graph, next, condition, x, y);
        y
    })
}

/// Each of `depth` subgraphs calls the next one twice: `2^depth` calls.
pub(crate) fn tree(call: Call, depth: usize) -> Model {
    levels(depth, |graph, next, condition, x| {
        let (y, z) = (graph.tensor("y", F32, [1]), graph.tensor("z", F32, [1]));
        call.add(graph, next, condition, x, y);
        call.add(graph, next, condition, y, z);
        z
    })
}

/// Each of `depth` subgraphs calls the next one with two shapes: the leaf is prepared `2^depth` times.
pub(crate) fn alternating_shapes(call: Call, depth: usize) -> Model {
    levels(depth, |graph, next, condition, x| {
        let twice = graph
            .node(BuiltinOp::CONCATENATION, ConcatenationParams::default())
            .inputs([x, x])
            .output("twice");
        let (y, z) = (graph.tensor("y", F32, [1]), graph.tensor("z", F32, [2]));
        call.add(graph, next, condition, x, y);
        call.add(graph, next, condition, twice, z);
        y
    })
}

/// One node with a window as large as its input, at every element.
pub(crate) fn large_windows() -> [Model; 3] {
    let model = |op, params: Params, shape: [usize; 4]| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", F32, shape);
        let y = graph.node(op, params).inputs([x]).output("y");
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    };
    const SIDE: usize = 1 << 10;
    let window = || {
        let params = Pool2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
        params.filter_width(SIDE as i32).filter_height(SIDE as i32).into()
    };
    let radius = LocalResponseNormalizationParams::default()
        .radius((SIDE * SIDE) as i32)
        .bias(1.0)
        .alpha(1.0)
        .beta(0.5);
    [
        model(BuiltinOp::MAX_POOL_2D, window(), [1, SIDE, SIDE, 1]),
        model(BuiltinOp::AVERAGE_POOL_2D, window(), [1, SIDE, SIDE, 1]),
        model(BuiltinOp::LOCAL_RESPONSE_NORMALIZATION, radius.into(), [1, 1, 1, SIDE * SIDE]),
    ]
}

/// A loop that never ends, over a body with `steps` nodes.
pub(crate) fn endless(steps: usize) -> Model {
    let mut body = SubgraphBuilder::new("body");
    let mut x = body.input("x", F32, [1]);
    for i in 0..steps {
        x = body.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output(&format!("y{i}"));
    }
    body.outputs([x]);
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", F32, [1]);
    let y = main.tensor("y", F32, [1]);
    let params = WhileParams::default().cond_subgraph_index(2).body_subgraph_index(1);
    main.node(BuiltinOp::WHILE, params).inputs([x]).writes([y]);
    main.outputs([y]);
    build([main, body, condition(true)])
}

/// The time when the sizes of giant results are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    Constant,
    /// Sizes depend on the values of the input, which the model multiplies by zero.
    AtRunTime,
}

/// An op whose result may be much larger than its inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Giant {
    Fill,
    Tile,
    TileStrings,
    BroadcastTo,
    Range,
    OneHot,
    ResizeBilinear,
    ResizeNearest,
    Pad,
}

impl Giant {
    pub(crate) const ALL: [Giant; 9] = [
        Giant::Fill,
        Giant::Tile,
        Giant::TileStrings,
        Giant::BroadcastTo,
        Giant::Range,
        Giant::OneHot,
        Giant::ResizeBilinear,
        Giant::ResizeNearest,
        Giant::Pad,
    ];

    /// Adds the op with a result of about `4 * elements` bytes.
    fn add(self, graph: &mut SubgraphBuilder, elements: i32, sizes: Sizes, i: usize) -> TensorId {
        let one =
            |graph: &mut SubgraphBuilder, shape: &[usize]| graph.constant(&format!("one{i}"), shape, &[1f32]);
        let (op, params, inputs, ty): (_, Params, _, _) = match self {
            Giant::Fill => {
                let value = graph.constant(&format!("value{i}"), [], &[1f32]);
                (BuiltinOp::FILL, Params::None, vec![size(graph, &[elements], sizes, i), value], F32)
            }
            Giant::Tile => {
                let inputs = vec![one(graph, &[1]), size(graph, &[elements], sizes, i)];
                (BuiltinOp::TILE, Params::None, inputs, F32)
            }
            Giant::TileStrings => {
                let text = graph.strings(&format!("text{i}"), [1], &["a".repeat(1000)]);
                let inputs = vec![text, size(graph, &[elements / 250], sizes, i)];
                (BuiltinOp::TILE, Params::None, inputs, TensorType::String)
            }
            Giant::BroadcastTo => {
                let inputs = vec![one(graph, &[1]), size(graph, &[elements], sizes, i)];
                (BuiltinOp::BROADCAST_TO, Params::None, inputs, F32)
            }
            Giant::Range => {
                let start = graph.constant(&format!("start{i}"), [], &[0i32]);
                let delta = graph.constant(&format!("delta{i}"), [], &[1i32]);
                let limit = scalar(graph, elements, sizes, i);
                (BuiltinOp::RANGE, Params::None, vec![start, limit, delta], TensorType::Int32)
            }
            Giant::OneHot => {
                let indices = graph.constant(&format!("indices{i}"), [1], &[0i32]);
                let depth = scalar(graph, elements, sizes, i);
                let on = graph.constant(&format!("on{i}"), [], &[1f32]);
                let off = graph.constant(&format!("off{i}"), [], &[0f32]);
                (
                    BuiltinOp::ONE_HOT,
                    OneHotParams::default().axis(-1).into(),
                    vec![indices, depth, on, off],
                    F32,
                )
            }
            Giant::ResizeBilinear => {
                let inputs = vec![one(graph, &[1, 1, 1, 1]), size(graph, &[elements, 1], sizes, i)];
                (BuiltinOp::RESIZE_BILINEAR, ResizeBilinearParams::default().into(), inputs, F32)
            }
            Giant::ResizeNearest => {
                let inputs = vec![one(graph, &[1, 1, 1, 1]), size(graph, &[1, elements], sizes, i)];
                (
                    BuiltinOp::RESIZE_NEAREST_NEIGHBOR,
                    ResizeNearestNeighborParams::default().into(),
                    inputs,
                    F32,
                )
            }
            Giant::Pad => {
                let one = one(graph, &[1]);
                let paddings = size(graph, &[0, elements], sizes, i);
                let shape = graph.constant(&format!("matrix{i}"), [2], &[1i32, 2]);
                let matrix = graph.tensor(&format!("paddings{i}"), TensorType::Int32, [1, 2]);
                graph
                    .node(BuiltinOp::RESHAPE, ReshapeParams::default())
                    .inputs([paddings, shape])
                    .writes([matrix]);
                (BuiltinOp::PAD, Params::None, vec![one, matrix], F32)
            }
        };
        let y = graph.tensor(&format!("y{i}"), ty, [1]);
        graph.node(op, params).inputs(inputs).writes([y]);
        y
    }
}

/// A vector of sizes.
fn size(graph: &mut SubgraphBuilder, values: &[i32], sizes: Sizes, i: usize) -> TensorId {
    let constant = graph.constant(&format!("sizes{i}"), [values.len()], values);
    if sizes == Sizes::Constant {
        return constant;
    }
    let zero = graph.tensor(&format!("zero{i}"), TensorType::Int32, [1]);
    let none = graph.constant(&format!("none{i}"), [1], &[0i32]);
    graph.node(BuiltinOp::MUL, MulParams::default()).inputs([TensorId(0), none]).writes([zero]);
    graph.node(BuiltinOp::ADD, AddParams::default()).inputs([constant, zero]).output(&format!("known{i}"))
}

/// A size without dimensions.
fn scalar(graph: &mut SubgraphBuilder, value: i32, sizes: Sizes, i: usize) -> TensorId {
    let vector = size(graph, &[value], sizes, i);
    let shape = graph.constant(&format!("scalar{i}"), [0], &[] as &[i32]);
    let y = graph.tensor(&format!("limit{i}"), TensorType::Int32, []);
    graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([vector, shape]).writes([y]);
    y
}

/// `count` results of about `4 * elements` bytes each, all of which are outputs.
pub(crate) fn giants(giant: Giant, count: usize, elements: i32, sizes: Sizes) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    graph.input("x", TensorType::Int32, [1]);
    let outputs: Vec<TensorId> = (0..count).map(|i| giant.add(&mut graph, elements, sizes, i)).collect();
    graph.outputs(outputs);
    build([graph])
}

/// The product of a matrix of `size` rows and columns with itself. The matrix and the product are computed while
/// preparing.
pub(crate) fn giant_product(size: i32) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    graph.input("x", F32, [1]);
    let dims = graph.constant("dims", [2], &[size, size]);
    let value = graph.constant("value", [], &[1f32]);
    let a = graph.node(BuiltinOp::FILL, Params::None).inputs([dims, value]).output("a");
    let y = graph.node(BuiltinOp::BATCH_MATMUL, batch_matmul()).inputs([a, a]).output("y");
    graph.outputs([y]);
    build([graph])
}

/// `count` products of two matrices of one number.
pub(crate) fn many_products(count: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [count, 1, 1]);
    let y = graph.node(BuiltinOp::BATCH_MATMUL, batch_matmul()).inputs([x, x]).output("y");
    graph.outputs([y]);
    build([graph])
}

fn batch_matmul() -> Params {
    delegraph::core::ops::batch_matmul::BatchMatMulParams::default().into()
}

/// A resize of no images to `size` rows: the kernel needs a table of rows, but computes no pixels.
pub(crate) fn resize_of_nothing(size: i32) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [0, 1, 1, 1]);
    let to = graph.constant("to", [2], &[size, 1]);
    let params = ResizeBilinearParams::default();
    let y = graph.node(BuiltinOp::RESIZE_BILINEAR, params).inputs([x, to]).output("y");
    graph.outputs([y]);
    build([graph])
}

/// A Fourier transform with `length` columns of each of `images` images.
pub(crate) fn transform(images: usize, length: i32) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [images, 1, 1]);
    let to = graph.constant("to", [2], &[1, length]);
    let y = graph.node(BuiltinOp::RFFT2D, Params::None).inputs([x, to]).output("y");
    graph.outputs([y]);
    build([graph])
}

/// `layers` matrix products of two rows and one column, all with the same `depth` weights. The optimized kernels pack
/// and pad the weights; for products of one row they would read them in place.
pub(crate) fn shared_weights(layers: usize, depth: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [2, depth]);
    let weights = graph.constant("weights", [1, depth], &vec![1f32; depth]);
    let layer = |_| {
        let params = FullyConnectedParams::default();
        graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]).output("y")
    };
    let outputs: Vec<TensorId> = (0..layers).map(layer).collect();
    graph.outputs(outputs);
    build([graph])
}

/// One byte that MIRROR_PAD repeats in `rank` dimensions.
pub(crate) fn mirrored(rank: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::UInt8, vec![1usize; rank].as_slice());
    let paddings: Vec<i32> = [1, 0].repeat(rank);
    let paddings = graph.constant("paddings", [rank, 2], &paddings);
    let params = MirrorPadParams::default().mode(MirrorPadMode::Symmetric);
    let y = graph.node(BuiltinOp::MIRROR_PAD, params).inputs([x, paddings]).output("y");
    graph.outputs([y]);
    build([graph])
}

/// `nodes` DEQUANTIZE nodes of one tensor with a scale for each of its `channels`, added up.
pub(crate) fn shared_scales(nodes: usize, channels: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int8, [1, channels]);
    let (scales, zero_points) = (vec![0.5; channels], vec![0; channels].into());
    graph.quantize(x, Quantization::Affine(Affine { scales, zero_points, dimension: 1 }));
    let mut sum = graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([x]).output("real");
    for _ in 1..nodes {
        let real = graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([x]).output("real");
        sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, real]).output("sum");
    }
    graph.outputs([sum]);
    build([graph])
}

/// A lookup of `keys` keys in a table that contains none of them, with a default value of `len` bytes.
pub(crate) fn defaults_of_a_table(keys: usize, len: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [1]);
    let params = HashtableParams::default().table_id(1).key_dtype(TensorType::Int64);
    let params = params.value_dtype(TensorType::String);
    let table = graph.tensor("table", TensorType::Resource, [1]);
    graph.node(BuiltinOp::HASHTABLE, params).inputs([]).writes([table]);
    let key = graph.constant("key", [1], &[-1i64]);
    let value = graph.strings("value", [1], &["a"]);
    graph.node(BuiltinOp::HASHTABLE_IMPORT, Params::None).inputs([table, key, value]).writes([]);
    let sought = graph.constant("sought", [keys], &vec![7i64; keys]);
    let default = graph.strings("default", [1], &["d".repeat(len)]);
    let found = graph.tensor("found", TensorType::String, [keys]);
    graph.node(BuiltinOp::HASHTABLE_FIND, Params::None).inputs([table, sought, default]).writes([found]);
    graph.outputs([x, found]);
    build([graph])
}

/// The index list `[0, 1, 1]`, and an input with about 2^62 matrices of shape `[2, 0]`, which have no elements.
fn rows_of_nothing(graph: &mut SubgraphBuilder, deferred: bool) -> [TensorId; 2] {
    // Sizes that depend on data need the first input.
    graph.input("n", TensorType::Int32, [1]);
    let giant = i32::MAX as usize;
    let x = graph.input("x", F32, [giant, giant, 2, 0]);
    let sizes = if deferred { Sizes::AtRunTime } else { Sizes::Constant };
    [size(graph, &[0, 1, 1], sizes, 0), x]
}

/// Gathers rows of about 2^62 matrices without elements. With `deferred`, their shape and the indices of the rows are
/// known only at run time.
pub(crate) fn gather_of_nothing(deferred: bool) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let [indices, mut x] = rows_of_nothing(&mut graph, deferred);
    if deferred {
        let shape = size(&mut graph, &[i32::MAX, i32::MAX, 2, 0], Sizes::AtRunTime, 1);
        let shaped = graph.tensor("shaped", F32, [0]);
        graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([x, shape]).writes([shaped]);
        x = shaped;
    }
    let y = graph.tensor("y", F32, [0]);
    graph.node(BuiltinOp::GATHER, GatherParams::default().axis(2)).inputs([x, indices]).writes([y]);
    graph.outputs([y]);
    build([graph])
}

/// The sum of about 2^62 matrices without elements. With `deferred`, the axes are known only at run time.
pub(crate) fn reduction_of_nothing(deferred: bool) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let [_, x] = rows_of_nothing(&mut graph, deferred);
    let sizes = if deferred { Sizes::AtRunTime } else { Sizes::Constant };
    let axes = size(&mut graph, &[0, 1, 2, 3], sizes, 1);
    let params = delegraph::core::ops::reduce::ReducerParams::default();
    let y = graph.tensor("y", F32, []);
    graph.node(BuiltinOp::SUM, params).inputs([x, axes]).writes([y]);
    graph.outputs([y]);
    build([graph])
}

/// The shape of the rows that [`gather_of_nothing`] returns.
pub(crate) fn shape_of_nothing() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let [indices, x] = rows_of_nothing(&mut graph, false);
    let params = GatherParams::default().axis(2);
    let y = graph.node(BuiltinOp::GATHER, params).inputs([x, indices]).output("y");
    let shape = delegraph::core::ops::shape::ShapeParams::default().out_type(TensorType::Int32);
    let shape = graph.node(BuiltinOp::SHAPE, shape).inputs([y]).output("shape");
    graph.outputs([shape]);
    build([graph])
}

/// `count` inputs, all of which are outputs, too.
pub(crate) fn many_inputs(count: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let inputs: Vec<TensorId> = (0..count).map(|_| graph.input("", F32, [1])).collect();
    graph.outputs(inputs);
    build([graph])
}

/// A split into `count` outputs.
pub(crate) fn many_outputs(count: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let axis = graph.constant("axis", [], &[0i32]);
    let x = graph.input("x", F32, [count]);
    let outputs: Vec<TensorId> = (0..count).map(|_| graph.tensor("", F32, [1])).collect();
    let splits = SplitParams::default().num_splits(i32::try_from(count).unwrap());
    graph.node(BuiltinOp::SPLIT, splits).inputs([axis, x]).writes(outputs.iter().copied());
    graph.outputs(outputs);
    build([graph])
}

/// Options of a custom op: a FlexBuffer map whose `len` names are the suffixes of one text of `len` bytes.
pub(crate) fn overlapping_names(len: usize) -> Model {
    let mut bytes = vec![b'a'; len];
    bytes.push(0);
    bytes.extend(u32::try_from(len).unwrap().to_le_bytes());
    let word = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let keys = bytes.len();
    (0..len).for_each(|i| bytes.extend(word(keys + 4 * i - i)));
    bytes.extend(word(bytes.len() - keys));
    bytes.extend([word(4), word(len)].concat());
    let values = bytes.len();
    (0..len).for_each(|i| bytes.extend(word(i)));
    bytes.extend(vec![1 << 2 | 2; len]);
    bytes.extend(word(bytes.len() - values));
    bytes.extend([9 << 2 | 2, 4]);
    let mut graph = SubgraphBuilder::new("main");
    let boxes = graph.input("boxes", F32, [1, 4, 4]);
    let scores = graph.input("scores", F32, [1, 4, 2]);
    let anchors = graph.constant("anchors", [4, 4], &[1f32; 16]);
    let outputs: Vec<TensorId> = (0..4).map(|i| graph.tensor(&format!("y{i}"), F32, [1])).collect();
    let inputs = [boxes, scores, anchors];
    let node = graph.custom("TFLite_Detection_PostProcess").inputs(inputs).options(&bytes);
    node.writes(outputs.iter().copied());
    graph.outputs(outputs);
    build([graph])
}

fn numbers(values: &[(&str, i64)]) -> Vec<u8> {
    let mut builder = flexbuffers::Builder::default();
    let mut map = builder.start_map();
    values.iter().for_each(|&(name, value)| map.push(name, value));
    map.end_map();
    builder.take_buffer()
}

/// `count` spectrograms with the largest windows, each with tables of 24 MiB.
pub(crate) fn spectrograms(count: usize) -> Model {
    let options = numbers(&[("window_size", 1 << 20), ("stride", 1)]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [16, 1]);
    let outputs: Vec<TensorId> = (0..count).map(|i| graph.tensor(&format!("y{i}"), F32, [1, 0, 1])).collect();
    for y in &outputs {
        graph.custom("AudioSpectrogram").inputs([x]).options(&options).writes([*y]);
    }
    graph.outputs(outputs);
    build([graph])
}

/// The coefficients of a sound, with a cosine transform of 128 MiB.
pub(crate) fn cepstral_coefficients() -> Model {
    let options = numbers(&[
        ("filterbank_channel_count", 4096),
        ("dct_coefficient_count", 4096),
        ("lower_frequency_limit", 20),
        ("upper_frequency_limit", 4000),
    ]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [1, 1, 16]);
    let rate = graph.constant("rate", [1], &[16_000i32]);
    let y = graph.tensor("y", F32, [1, 1, 4096]);
    graph.custom("Mfcc").inputs([x, rate]).options(&options).writes([y]);
    graph.outputs([y]);
    build([graph])
}

/// Calls a subgraph whose input is a constant; with `other`, with an argument of another shape.
pub(crate) fn constant_input(other: bool) -> Model {
    let mut callee = SubgraphBuilder::new("callee");
    let x = callee.constant("x", [1], &[2f32]);
    let y = callee.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("y");
    callee.outputs([y]);
    callee.change(x, |_| ());
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", F32, [if other { 4096 } else { 1 }]);
    let y = main.tensor("y", F32, [1]);
    main.node(BuiltinOp::CALL, CallParams::default().subgraph(1)).inputs([x]).writes([y]);
    main.outputs([y]);
    let mut draft = build([main, callee, leaf()]).into_draft();
    draft.subgraphs[1].inputs_mut().push(TensorId(0));
    draft.verify().unwrap()
}

/// Calls a subgraph that returns a constant and its own input.
pub(crate) fn constant_output() -> Model {
    let mut callee = SubgraphBuilder::new("callee");
    let x = callee.input("x", F32, [1]);
    let constant = callee.constant("constant", [3], &[1f32, 2.0, 3.0]);
    callee.outputs([constant, x, constant]);
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", F32, [1]);
    let outputs = [3, 1, 3].map(|n| main.tensor("y", F32, [n]));
    main.node(BuiltinOp::CALL, CallParams::default().subgraph(1)).inputs([x]).writes(outputs);
    main.outputs(outputs);
    build([main, callee])
}

/// A node over constants computes a first value of `gets` elements for a variable of `has` elements.
pub(crate) fn growing_variable(has: usize, gets: i32) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F32, [1]);
    let dims = graph.constant("dims", [1], &[gets]);
    let value = graph.constant("value", [], &[1f32]);
    let state = graph.variable("state", F32, [has]);
    graph.node(BuiltinOp::FILL, Params::None).inputs([dims, value]).writes([state]);
    let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, state]).output("y");
    graph.outputs([y]);
    build([graph])
}
