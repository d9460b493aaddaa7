//! Times the compute primitives on the layers of real models.
//!
//! `cargo run --release -p delegraph-compute --example bench_compute -- [MODEL] [ISA] [THREADS]`
//!
//! `MODEL` is `deeplabv3`, `selfie` or `hand`, all in single precision, or `efficientnet`, efficientnet_lite0 in 8-bit
//! integers. Without it, all are timed.

use std::time::{Duration, Instant};

use delegraph_compute::{
    ByteQuant, ChannelTies, Clamp, ConvF32, ConvGeometry, ConvI8, DepthwiseF32, DepthwiseFilter, DepthwiseI8,
    Filter, GemmF32, Isa, MatrixLayout, Multiplier, OutputQuant, Parallel, Result, ThreadPool,
};

/// Count, input height and width, input channels, output channels, window, stride, dilation. Output channels 0:
/// depthwise. Input size 0: fully connected.
type Layer = (usize, usize, usize, usize, usize, usize, usize);

const DEEPLABV3: &[Layer] = &[
    (1, 257, 3, 16, 3, 2, 1),
    (1, 129, 16, 0, 3, 1, 1),
    (1, 129, 16, 8, 1, 1, 1),
    (1, 129, 8, 48, 1, 1, 1),
    (1, 129, 48, 0, 3, 2, 1),
    (1, 65, 48, 12, 1, 1, 1),
    (2, 65, 12, 72, 1, 1, 1),
    (1, 65, 72, 0, 3, 1, 1),
    (1, 65, 72, 12, 1, 1, 1),
    (1, 65, 72, 0, 3, 2, 1),
    (1, 33, 72, 16, 1, 1, 1),
    (3, 33, 16, 96, 1, 1, 1),
    (3, 33, 96, 0, 3, 1, 1),
    (2, 33, 96, 16, 1, 1, 1),
    (1, 33, 96, 32, 1, 1, 1),
    (4, 33, 32, 192, 1, 1, 1),
    (4, 33, 192, 0, 3, 1, 2),
    (3, 33, 192, 32, 1, 1, 1),
    (1, 33, 192, 48, 1, 1, 1),
    (3, 33, 48, 288, 1, 1, 1),
    (3, 33, 288, 0, 3, 1, 2),
    (2, 33, 288, 48, 1, 1, 1),
    (1, 33, 288, 80, 1, 1, 1),
    (3, 33, 80, 480, 1, 1, 1),
    (3, 33, 480, 0, 3, 1, 4),
    (2, 33, 480, 80, 1, 1, 1),
    (1, 33, 480, 160, 1, 1, 1),
    (1, 33, 160, 256, 1, 1, 1),
    (1, 33, 512, 256, 1, 1, 1),
    (1, 33, 256, 21, 1, 1, 1),
];

const SELFIE: &[Layer] = &[
    (1, 256, 3, 16, 3, 2, 1),
    (3, 128, 16, 16, 1, 1, 1),
    (1, 128, 16, 0, 3, 2, 1),
    (2, 64, 16, 16, 1, 1, 1),
    (1, 64, 16, 72, 1, 1, 1),
    (1, 64, 72, 0, 3, 2, 1),
    (1, 32, 72, 24, 1, 1, 1),
    (1, 32, 24, 88, 1, 1, 1),
    (1, 32, 88, 0, 3, 1, 1),
    (1, 32, 88, 24, 1, 1, 1),
    (1, 32, 24, 96, 1, 1, 1),
    (1, 32, 96, 0, 5, 2, 1),
    (3, 16, 96, 32, 1, 1, 1),
    (2, 16, 32, 128, 1, 1, 1),
    (2, 16, 128, 0, 5, 1, 1),
    (2, 16, 128, 32, 1, 1, 1),
    (2, 16, 32, 96, 1, 1, 1),
    (2, 16, 96, 0, 5, 1, 1),
    (1, 16, 32, 128, 1, 1, 1),
    (1, 32, 128, 24, 1, 1, 1),
    (1, 32, 24, 24, 1, 1, 1),
    (1, 32, 24, 0, 3, 1, 1),
    (1, 64, 24, 16, 1, 1, 1),
    (1, 64, 16, 0, 3, 1, 1),
    (1, 128, 16, 0, 3, 1, 1),
];

const HAND: &[Layer] = &[
    (1, 224, 3, 24, 3, 2, 1),
    (1, 112, 24, 0, 3, 1, 1),
    (1, 112, 24, 16, 1, 1, 1),
    (1, 112, 16, 64, 1, 1, 1),
    (1, 112, 64, 0, 3, 2, 1),
    (1, 56, 64, 24, 1, 1, 1),
    (2, 56, 24, 144, 1, 1, 1),
    (1, 56, 144, 0, 3, 1, 1),
    (1, 56, 144, 24, 1, 1, 1),
    (1, 56, 144, 0, 5, 2, 1),
    (1, 28, 144, 40, 1, 1, 1),
    (2, 28, 40, 240, 1, 1, 1),
    (1, 28, 240, 0, 5, 1, 1),
    (1, 28, 240, 40, 1, 1, 1),
    (1, 28, 240, 0, 3, 2, 1),
    (1, 14, 240, 80, 1, 1, 1),
    (3, 14, 80, 480, 1, 1, 1),
    (2, 14, 480, 0, 3, 1, 1),
    (2, 14, 480, 80, 1, 1, 1),
    (1, 14, 480, 0, 5, 1, 1),
    (1, 14, 480, 112, 1, 1, 1),
    (3, 14, 112, 672, 1, 1, 1),
    (2, 14, 672, 0, 5, 1, 1),
    (2, 14, 672, 112, 1, 1, 1),
    (1, 14, 672, 0, 5, 2, 1),
    (1, 7, 672, 192, 1, 1, 1),
    (4, 7, 192, 1152, 1, 1, 1),
    (3, 7, 1152, 0, 5, 1, 1),
    (3, 7, 1152, 192, 1, 1, 1),
    (1, 7, 1152, 0, 3, 1, 1),
    (2, 0, 1152, 63, 1, 1, 1),
    (1, 0, 1280, 1000, 1, 1, 1),
];

const EFFICIENTNET: &[Layer] = &[
    (1, 224, 3, 32, 3, 2, 1),
    (1, 112, 32, 0, 3, 1, 1),
    (1, 112, 32, 16, 1, 1, 1),
    (1, 112, 16, 96, 1, 1, 1),
    (1, 112, 96, 0, 3, 2, 1),
    (1, 56, 96, 24, 1, 1, 1),
    (2, 56, 24, 144, 1, 1, 1),
    (1, 56, 144, 0, 3, 1, 1),
    (1, 56, 144, 24, 1, 1, 1),
    (1, 56, 144, 0, 5, 2, 1),
    (1, 28, 144, 40, 1, 1, 1),
    (2, 28, 40, 240, 1, 1, 1),
    (1, 28, 240, 0, 5, 1, 1),
    (1, 28, 240, 40, 1, 1, 1),
    (1, 28, 240, 0, 3, 2, 1),
    (1, 14, 240, 80, 1, 1, 1),
    (3, 14, 80, 480, 1, 1, 1),
    (2, 14, 480, 0, 3, 1, 1),
    (2, 14, 480, 80, 1, 1, 1),
    (1, 14, 480, 0, 5, 1, 1),
    (1, 14, 480, 112, 1, 1, 1),
    (3, 14, 112, 672, 1, 1, 1),
    (2, 14, 672, 0, 5, 1, 1),
    (2, 14, 672, 112, 1, 1, 1),
    (1, 14, 672, 0, 5, 2, 1),
    (1, 7, 672, 192, 1, 1, 1),
    (4, 7, 192, 1152, 1, 1, 1),
    (3, 7, 1152, 0, 5, 1, 1),
    (3, 7, 1152, 192, 1, 1, 1),
    (1, 7, 1152, 0, 3, 1, 1),
    (1, 7, 1152, 320, 1, 1, 1),
    (1, 7, 320, 1280, 1, 1, 1),
    (1, 0, 1280, 1000, 1, 1, 1),
];

const NAMES: [&str; 4] = ["deeplabv3", "selfie", "hand", "efficientnet"];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let isa =
        Isa::available().iter().copied().find(|i| args.iter().any(|a| a == i.name())).unwrap_or(Isa::best());
    let threads = args.iter().find_map(|a| a.parse().ok()).unwrap_or(1);
    let pool = ThreadPool::new(threads);
    for (name, layers) in NAMES.into_iter().zip([DEEPLABV3, SELFIE, HAND, EFFICIENTNET]) {
        if args.iter().any(|a| NAMES.contains(&a.as_str()) && a != name) {
            continue;
        }
        println!("{name} with {} on {threads} threads", isa.name());
        let mut total = Duration::ZERO;
        for layer in layers {
            let (time, products) = time_layer(isa, layer, name == "efficientnet", &pool)?;
            total += time * layer.0 as u32;
            let (n, size, ic, oc, window, stride, dilation) = layer;
            let rate = 2.0 * products as f64 / time.as_secs_f64() / 1e9;
            let kind = if *oc == 0 { "depthwise".into() } else { format!("to {oc}") };
            println!(
                "{n} x {:>9} {rate:7.1} GFLOP/s  {size}x{size}x{ic} {kind}, {window}x{window} stride {stride} dilation {dilation}",
                format!("{:.1?}", time)
            );
        }
        println!("{name}: {total:.2?} in all\n");
    }
    Ok(())
}

/// Time of a layer and its multiply-adds.
fn time_layer(
    isa: Isa,
    &(_, size, ic, oc, window, stride, dilation): &Layer,
    bytes: bool,
    pool: &ThreadPool,
) -> Result<(Duration, usize)> {
    let threads = pool.threads();
    let rows = if size == 0 { 1 } else { size };
    let out = rows.div_ceil(stride);
    let reach = (window - 1) * dilation + 1;
    let padding = ((out - 1) * stride + reach).saturating_sub(rows) / 2;
    let geo = ConvGeometry {
        batch: 1,
        input: [rows, rows],
        in_channels: ic,
        output: [out, out],
        window: [window, window],
        stride: [stride, stride],
        dilation: [dilation, dilation],
        padding: [padding, padding],
    };
    let values = |n: usize| -> Vec<f32> { (0..n).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect() };
    let input = values(rows * rows * ic);
    let channels = if oc == 0 { ic } else { oc };
    let mut output = vec![0.0; out * out * channels];
    let products = out * out * channels * window * window * if oc == 0 { 1 } else { ic };
    let weights = values(channels * window * window * if oc == 0 { 1 } else { ic });
    let bias = values(channels);
    if bytes {
        let time = time_bytes(isa, &geo, oc, pool)?;
        return Ok((time, products));
    }
    let time = if oc == 0 {
        let conv = DepthwiseF32::pack(isa, [ic; 2], [window, window], &weights, Some(&bias))?;
        shortest(|| conv.run(&geo, &input, &mut output, Clamp::RELU6, pool))?
    } else if size == 0 {
        let gemm = GemmF32::pack(isa, (ic, oc), &weights, MatrixLayout::ColumnsContiguous, Some(&bias))?;
        let mut scratch = vec![0; gemm.scratch_len(1, threads)?];
        shortest(|| gemm.run(1, &input, &mut output, Clamp::NONE, &mut scratch, pool))?
    } else {
        let filter = Filter { out_channels: oc, height: window, width: window, in_channels: ic, groups: 1 };
        let conv = ConvF32::pack(isa, filter, &weights, Some(&bias))?;
        let mut scratch = vec![0; conv.scratch_len(&geo, threads)?];
        shortest(|| conv.run(&geo, &input, &mut output, Clamp::RELU6, &mut scratch, pool))?
    };
    Ok((time, products))
}

/// Time of a layer of 8-bit integers.
fn time_bytes(isa: Isa, geo: &ConvGeometry, oc: usize, pool: &ThreadPool) -> Result<Duration> {
    let [height, width] = geo.window;
    let ic = geo.in_channels;
    let channels = if oc == 0 { ic } else { oc };
    let values = |n: usize| -> Vec<u8> { (0..n).map(|i| (i * 7919 % 251) as u8).collect() };
    let input = values(geo.input[0] * geo.input[1] * ic);
    let weights = values(channels * height * width * if oc == 0 { 1 } else { ic });
    let bias = vec![5; channels];
    let mut out = vec![0; geo.output[0] * geo.output[1] * channels];
    let quant = ByteQuant { signed: true, zero_point: -3 };
    let weight_quant = ByteQuant { signed: true, zero_point: 0 };
    let multipliers = vec![Multiplier::from_real(0.003); channels];
    let ties = if oc == 0 { ChannelTies::AwayFrom(channels / 8 * 8) } else { ChannelTies::Up };
    let output = OutputQuant { multipliers: &multipliers, zero_point: 2, low: -128, high: 127, ties };
    if oc == 0 {
        let filter = DepthwiseFilter { channels: ic, window: geo.window };
        let conv = DepthwiseI8::pack(isa, filter, geo, &weights, weight_quant, Some(&bias), quant, output)?;
        return shortest(|| conv.run(geo, &input, &mut out, pool));
    }
    let filter = Filter { out_channels: oc, height, width, in_channels: ic, groups: 1 };
    let conv = ConvI8::pack(isa, filter, geo, &weights, weight_quant, Some(&bias), quant, Some(output))?;
    let mut scratch = vec![0; conv.scratch_len(geo, pool.threads())?];
    shortest(|| conv.run(geo, &input, &mut out, &mut scratch, pool))
}

/// Minimum of many runs, which excludes interference by other processes.
fn shortest(mut f: impl FnMut() -> Result<()>) -> Result<Duration> {
    let begin = Instant::now();
    let (mut best, mut runs) = (Duration::MAX, 0);
    while runs < 7 || begin.elapsed() < Duration::from_millis(40) {
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed());
        runs += 1;
    }
    Ok(best)
}
