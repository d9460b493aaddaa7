//! Measures the speed of the CPU kernels and of a delegate on this machine, for a [`CostModel`].

use std::time::Duration;

use delegraph_core::error::{Error, Result};
use delegraph_core::ops::Padding;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, Model, ModelBuilder, SubgraphBuilder, TensorId, TensorType};
use delegraph_delegate_api::{CostModel, Delegate, Rates, Rejection};
use web_time::Instant;

use crate::runtime::Interpreter;

/// Rows, columns and channels of the measured models: 1 MiB of floats.
const SIZE: usize = 64;
const CHANNELS: usize = 64;
const BYTES: f64 = (4 * SIZE * SIZE * CHANNELS) as f64;
const MULTIPLY_ADDS: f64 = (SIZE * SIZE * CHANNELS * CHANNELS) as f64;

/// Layers of the longer of two models. The difference of their times is the time of the additional layers.
const LAYERS: usize = 5;

/// Bytes that a layer reads and writes.
const COPIED: f64 = 2.0 * BYTES;

/// The shortest time of a layer, where differences of measured times are lower or negative.
const MIN_SECONDS: f64 = 1e-9;

/// The ops that are measured, as errors name them.
const OPS: &str = "CONV_2D and AVERAGE_POOL_2D of FLOAT32";

/// Appends one layer to a measured model.
type Layer = fn(&mut SubgraphBuilder, TensorId) -> TensorId;

/// Measures the CPU kernels with `threads` threads, and the delegate that `delegate` creates: convolutions for
/// arithmetic, pooling for data movement, and a minimal model for the overhead. Takes about a second.
///
/// The speed of a delegate that runs only one of CONV_2D and AVERAGE_POOL_2D of float32 is measured with that op. For
/// the other op, the same ratio to the CPU's speed is assumed.
///
/// # Errors
/// [`Error::Unsupported`] if the delegate runs neither op; the author of the delegate must then provide the rates. The
/// errors of `delegate`, and of preparing and running the measured models.
pub fn measure<D: Delegate + 'static>(
    threads: usize,
    mut delegate: impl FnMut() -> Result<D>,
) -> Result<CostModel> {
    let cpu = |layer: Layer| {
        let seconds = |layers| {
            median(&mut Interpreter::builder(layered(layer, SIZE, layers)?).threads(threads).build()?)
        };
        Ok::<_, Error>(per_layer(seconds(1)?, seconds(LAYERS)?))
    };
    let cpu = Rates { multiply_adds: MULTIPLY_ADDS / cpu(convolve)?, bytes: COPIED / cpu(pool)? };
    let mut rejected = Rejected::default();
    let mut delegated = |layer: Layer| {
        let mut seconds = |size, layers| {
            delegated_seconds(threads, delegate()?, layered(layer, size, layers)?, &mut rejected)
        };
        let Some(overhead) = seconds(1, 1)? else { return Ok::<_, Error>(None) };
        let (Some(short), Some(long)) = (seconds(SIZE, 1)?, seconds(SIZE, LAYERS)?) else { return Ok(None) };
        let layer = per_layer(short, long);
        Ok(Some(Delegated { overhead, layer, copies: COPIED / (short - overhead - layer).max(MIN_SECONDS) }))
    };
    let (pooled, convolved) = (delegated(pool)?, delegated(convolve)?);
    let bytes = |pooled: &Delegated| COPIED / pooled.layer;
    let multiply_adds = |convolved: &Delegated| MULTIPLY_ADDS / convolved.layer;
    let (times, delegate) = match (pooled, convolved) {
        (Some(pooled), Some(convolved)) => {
            let rates = Rates { multiply_adds: multiply_adds(&convolved), bytes: bytes(&pooled) };
            (pooled, rates)
        }
        (Some(pooled), None) => {
            let bytes = bytes(&pooled);
            (pooled, Rates { multiply_adds: cpu.multiply_adds * (bytes / cpu.bytes), bytes })
        }
        (None, Some(convolved)) => {
            let multiply_adds = multiply_adds(&convolved);
            (convolved, Rates { multiply_adds, bytes: cpu.bytes * (multiply_adds / cpu.multiply_adds) })
        }
        (None, None) => return Err(rejected.error()),
    };
    let overhead = Duration::from_secs_f64(times.overhead);
    Ok(CostModel { cpu, delegate, copies: times.copies, overhead })
}

/// Times of one op with the delegate.
struct Delegated {
    /// The seconds of a minimal model.
    overhead: f64,
    /// The seconds of one layer.
    layer: f64,
    /// Bytes copied per second.
    copies: f64,
}

/// The delegate that does not run a measured model, and the reasons for it.
#[derive(Default)]
struct Rejected {
    delegate: String,
    reasons: Vec<String>,
}

impl Rejected {
    fn error(self) -> Error {
        let Rejected { delegate, reasons } = self;
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        Error::Unsupported(format!(
            "the delegate {delegate} cannot be measured: the measurement uses {OPS}, and the delegate runs none of \
             them{reasons}"
        ))
    }
}

/// Returns the seconds of one run with the delegate; `None`, and the reason in `rejected`, if the delegate does not run
/// all nodes.
fn delegated_seconds(
    threads: usize,
    delegate: impl Delegate + 'static,
    model: Model,
    rejected: &mut Rejected,
) -> Result<Option<f64>> {
    let nodes = model.subgraphs().iter().map(|subgraph| subgraph.nodes().len()).sum::<usize>();
    delegate.name().clone_into(&mut rejected.delegate);
    let mut interpreter = Interpreter::builder(model).threads(threads).delegate(delegate).build()?;
    if interpreter.report().delegated_nodes() >= nodes {
        return median(&mut interpreter).map(Some);
    }
    // That the op is not supported follows from the rest of the message.
    let reason =
        interpreter.report().rejected().find(|(_, why)| !matches!(why, Rejection::UnsupportedOp { .. }));
    let reason = reason.map(|(node, why)| format!("{}: {why}", node.op));
    rejected.reasons.extend(reason.filter(|reason| !rejected.reasons.contains(reason)));
    Ok(None)
}

/// Returns a model of `layers` layers over `size` rows and columns.
fn layered(layer: Layer, size: usize, layers: usize) -> Result<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [1, size, size, CHANNELS]);
    for _ in 0..layers {
        x = layer(&mut graph, x);
    }
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build()
}

/// Returns the seconds of one layer, from the times of models with 1 and with [`LAYERS`] layers.
fn per_layer(short: f64, long: f64) -> f64 {
    ((long - short) / (LAYERS - 1) as f64).max(MIN_SECONDS)
}

fn convolve(graph: &mut SubgraphBuilder, x: TensorId) -> TensorId {
    let weights = graph.constant("", [CHANNELS, 1, 1, CHANNELS], &[0.01f32; CHANNELS * CHANNELS]);
    let bias = graph.constant("", [CHANNELS], &[0f32; CHANNELS]);
    let params = Conv2DParams::default().padding(Padding::Valid).stride_w(1).stride_h(1);
    graph.node(BuiltinOp::CONV_2D, params).inputs([x, weights, bias]).output("")
}

fn pool(graph: &mut SubgraphBuilder, x: TensorId) -> TensorId {
    let params = Pool2DParams::default()
        .padding(Padding::Same)
        .stride_w(1)
        .stride_h(1)
        .filter_width(2)
        .filter_height(2);
    graph.node(BuiltinOp::AVERAGE_POOL_2D, params).inputs([x]).output("")
}

/// Returns the median time of nine runs, in seconds.
fn median(interpreter: &mut Interpreter) -> Result<f64> {
    interpreter.input_mut::<f32>(0)?.fill(0.5);
    interpreter.invoke()?;
    let mut times = [0f64; 9];
    for time in &mut times {
        let start = Instant::now();
        interpreter.invoke()?;
        *time = start.elapsed().as_secs_f64();
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
