//! Measures the speed of the CPU kernels and of a delegate on this machine, for a [`CostModel`].

use std::time::Duration;

use delegraph_core::error::{Error, Result};
use delegraph_core::ops::Padding;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorId, TensorType};
use delegraph_delegate_api::{CostModel, Delegate, Rates};
use web_time::Instant;

use crate::runtime::Interpreter;

/// Rows, columns and channels of the measured models: 1 MiB of floats.
const SIZE: usize = 64;
const CHANNELS: usize = 64;
const BYTES: f64 = (4 * SIZE * SIZE * CHANNELS) as f64;
const MULTIPLY_ADDS: f64 = (SIZE * SIZE * CHANNELS * CHANNELS) as f64;

/// Layers of the longer of two models. The difference of their times is the time of the additional layers.
const LAYERS: usize = 5;

/// Measures the CPU kernels with `threads` threads, and the delegate that `delegate` creates: convolutions for
/// arithmetic, pooling for data movement, and a minimal model for the overhead. Takes about a second.
///
/// # Errors
/// [`Error::Unsupported`] if the delegate does not run CONV_2D and AVERAGE_POOL_2D of float32; the author of the
/// delegate must then provide the rates. The error of `delegate`.
pub fn measure<D: Delegate + 'static>(
    threads: usize,
    mut delegate: impl FnMut() -> Result<D>,
) -> Result<CostModel> {
    let mut seconds =
        |op: fn(&mut SubgraphBuilder, TensorId) -> TensorId, size: usize, layers: usize, delegated: bool| {
            let mut graph = SubgraphBuilder::new("main");
            let mut x = graph.input("x", TensorType::Float32, [1, size, size, CHANNELS]);
            for _ in 0..layers {
                x = op(&mut graph, x);
            }
            graph.outputs([x]);
            let model = ModelBuilder::new().subgraph(graph).build()?;
            let builder = Interpreter::builder(model).threads(threads);
            let mut interpreter = if delegated { builder.delegate(delegate()?) } else { builder }.build()?;
            if delegated && interpreter.report().delegated_nodes() < layers {
                let reason =
                    interpreter.report().rejected().next().map(|(n, why)| format!(": {}: {why}", n.op));
                let reason = reason.unwrap_or_default();
                return Err(Error::Unsupported(format!("the delegate cannot be measured{reason}")));
            }
            interpreter.input_mut::<f32>(0)?.fill(0.5);
            median(&mut interpreter)
        };
    let of = |(short, long): (f64, f64)| ((long - short) / (LAYERS - 1) as f64).max(1e-9);
    let cpu = Rates {
        multiply_adds: MULTIPLY_ADDS
            / of((seconds(convolve, SIZE, 1, false)?, seconds(convolve, SIZE, LAYERS, false)?)),
        bytes: 2.0 * BYTES / of((seconds(pool, SIZE, 1, false)?, seconds(pool, SIZE, LAYERS, false)?)),
    };
    let overhead = seconds(pool, 1, 1, true)?;
    let pooled = (seconds(pool, SIZE, 1, true)?, seconds(pool, SIZE, LAYERS, true)?);
    let delegate = Rates {
        multiply_adds: MULTIPLY_ADDS
            / of((seconds(convolve, SIZE, 1, true)?, seconds(convolve, SIZE, LAYERS, true)?)),
        bytes: 2.0 * BYTES / of(pooled),
    };
    let copies = 2.0 * BYTES / (pooled.0 - overhead - of(pooled)).max(1e-9);
    Ok(CostModel { cpu, delegate, copies, overhead: Duration::from_secs_f64(overhead) })
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

/// Returns the seconds of one run.
fn median(interpreter: &mut Interpreter) -> Result<f64> {
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
