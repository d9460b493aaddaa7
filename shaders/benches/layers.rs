//! Times kernels on the layers of four well-known models: `cargo bench -p delegraph-shaders --bench layers`,
//! followed by `--` and a part of a model's or a layer's name to select some of them. Without `--bench` (as under
//! `cargo test`) every layer runs once.
//!
//! `--long` repeats each layer for seconds, for a profiler.
//!
//! Where the "GPU" is the processor, CPU time is more precise than the clock on a busy machine: it is printed as well where
//! the system reports it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark fails by panicking")]

#[path = "../tests/gpu/mod.rs"]
mod gpu;

use std::time::Instant;

use delegraph_shaders::binary::{self, Binary};
use delegraph_shaders::pool_2d::{self, Pool};
use delegraph_shaders::resize::{self, Resize};
use delegraph_shaders::unary::{self, Unary};
use delegraph_shaders::{
    Activation, Binding, Caps, Element, Epilogue, Kernel, Shader, ShaderError, conv_2d, depthwise_conv_2d,
};
use gpu::{Gpu, bytes, noise};

/// A kernel to time, the sizes of its operands (in elements), and its number of multiplications and additions.
struct Case {
    name: String,
    kernel: Kernel,
    inputs: Vec<(Binding, usize)>,
    output: usize,
    flops: f64,
}

type Layer = fn(&Caps, [u32; 6]) -> Result<Case, ShaderError>;

fn area(side: u32, channels: u32) -> usize {
    (side * side * channels) as usize
}

/// Side, input channels, output channels, window, stride, 1 with a residual operand.
fn conv(caps: &Caps, [side, from, to, window, stride, residual]: [u32; 6]) -> Result<Case, ShaderError> {
    let out = side.div_ceil(stride);
    let spec = conv_2d::Spec {
        input: [1, side, side, from],
        output: [1, out, out, to],
        filter: [to, window, window, from],
        stride: [stride; 2],
        dilation: [1; 2],
        padding: [((window - 1) / 2) as i32; 2],
        epilogue: Epilogue {
            residual: (residual == 1).then_some(Activation::None),
            ..Epilogue::activation(Activation::RELU6)
        },
    };
    Ok(Case {
        name: format!("conv {window}x{window}/{stride} {side}x{side}x{from} -> {to}"),
        kernel: spec.kernel(caps)?,
        inputs: vec![
            (Binding::Input(0), area(side, from)),
            (Binding::Weights, spec.pack_weights(&[], None).len()),
            (Binding::Residual, area(out, to)),
        ],
        output: area(out, to),
        flops: 2.0 * area(out, to) as f64 * f64::from(window * window * from),
    })
}

/// Side, channels, window, stride, dilation.
fn depthwise(
    caps: &Caps,
    [side, channels, window, stride, dilation, _]: [u32; 6],
) -> Result<Case, ShaderError> {
    let out = side.div_ceil(stride);
    let spec = depthwise_conv_2d::Spec {
        input: [1, side, side, channels],
        output: [1, out, out, channels],
        window: [window; 2],
        stride: [stride; 2],
        dilation: [dilation; 2],
        padding: [((window - 1) / 2 * dilation) as i32; 2],
        epilogue: Epilogue::activation(Activation::RELU6),
    };
    Ok(Case {
        name: format!("depthwise {window}x{window}/{stride}:{dilation} {side}x{side}x{channels}"),
        kernel: spec.kernel(caps)?,
        inputs: vec![
            (Binding::Input(0), area(side, channels)),
            (Binding::Weights, spec.pack_weights(&[], None).len()),
        ],
        output: area(out, channels),
        flops: 2.0 * area(out, channels) as f64 * f64::from(window * window),
    })
}

/// Side, channels, side of the window, stride, 1 for the maximum.
fn pool(caps: &Caps, [side, channels, window, stride, max, _]: [u32; 6]) -> Result<Case, ShaderError> {
    let out = (side - window) / stride + 1;
    let op = if max == 1 { Pool::Max } else { Pool::Average };
    let spec = pool_2d::Spec {
        op,
        input: [1, side, side, channels],
        output: [1, out, out, channels],
        window: [window; 2],
        stride: [stride; 2],
        padding: [0; 2],
        activation: Activation::None,
        integers: None,
    };
    Ok(Case {
        name: format!("pool {op:?} {window}x{window}/{stride} {side}x{side}x{channels}"),
        kernel: spec.kernel(caps)?,
        inputs: vec![(Binding::Input(0), area(side, channels))],
        output: area(out, channels),
        flops: area(out, channels) as f64 * f64::from(window * window),
    })
}

/// Side, channels, side of the output.
fn bilinear(caps: &Caps, [side, channels, out, _, _, _]: [u32; 6]) -> Result<Case, ShaderError> {
    let spec = resize::Spec {
        op: Resize::Bilinear { align_corners: true, half_pixel_centers: false },
        input: [1, side, side, channels],
        size: [out; 2],
    };
    Ok(Case {
        name: format!("bilinear {side}x{side}x{channels} -> {out}x{out}"),
        kernel: spec.kernel(caps)?,
        inputs: vec![(Binding::Input(0), area(side, channels))],
        output: area(out, channels),
        flops: 8.0 * area(out, channels) as f64,
    })
}

/// Side, channels, 1 to multiply by a factor per channel (0 to add a tensor).
fn arithmetic(caps: &Caps, [side, channels, per_channel, _, _, _]: [u32; 6]) -> Result<Case, ShaderError> {
    let shape = vec![1, side, side, channels];
    let op = if per_channel == 1 { Binary::Mul } else { Binary::Add };
    let b = if per_channel == 1 { vec![1, 1, 1, channels] } else { shape.clone() };
    let elements = b.iter().product::<u32>() as usize;
    let spec = binary::Spec {
        op,
        element: Element::F32,
        a: shape.clone(),
        b,
        output: shape,
        activation: Activation::None,
    };
    Ok(Case {
        name: format!("{op:?} {side}x{side}x{channels} with {elements}"),
        kernel: spec.kernel(caps)?,
        inputs: vec![(Binding::Input(0), area(side, channels)), (Binding::Input(1), elements)],
        output: area(side, channels),
        flops: area(side, channels) as f64,
    })
}

/// Side, channels.
fn logistic(caps: &Caps, [side, channels, ..]: [u32; 6]) -> Result<Case, ShaderError> {
    let spec = unary::Spec { steps: vec![Unary::Logistic], elements: area(side, channels) as u32 };
    Ok(Case {
        name: format!("logistic {side}x{side}x{channels}"),
        kernel: spec.kernel(caps)?,
        inputs: vec![(Binding::Input(0), area(side, channels))],
        output: area(side, channels),
        flops: 4.0 * area(side, channels) as f64,
    })
}

/// Number of equal layers, the layer, and its parameters.
type Row = (u32, Layer, [u32; 6]);

const SELFIE_SEGMENTATION: &[Row] = &[
    (1, conv, [256, 3, 16, 3, 2, 0]),
    (2, conv, [128, 16, 16, 1, 1, 0]),
    (1, conv, [128, 16, 16, 1, 1, 1]),
    (1, depthwise, [128, 16, 3, 2, 1, 0]),
    (2, pool, [64, 16, 64, 1, 0, 0]),
    (2, arithmetic, [64, 16, 1, 0, 0, 0]),
    (10, conv, [1, 16, 16, 1, 1, 0]),
    (2, conv, [64, 16, 16, 1, 1, 0]),
    (1, conv, [64, 16, 72, 1, 1, 0]),
    (1, depthwise, [64, 72, 3, 2, 1, 0]),
    (1, conv, [32, 72, 24, 1, 1, 0]),
    (1, conv, [32, 24, 88, 1, 1, 0]),
    (1, depthwise, [32, 88, 3, 1, 1, 0]),
    (1, conv, [32, 88, 24, 1, 1, 1]),
    (1, conv, [32, 24, 96, 1, 1, 0]),
    (1, depthwise, [32, 96, 5, 2, 1, 0]),
    (3, pool, [16, 96, 16, 1, 0, 0]),
    (6, conv, [1, 96, 24, 1, 1, 0]),
    (3, arithmetic, [16, 96, 1, 0, 0, 0]),
    (3, conv, [16, 96, 32, 1, 1, 1]),
    (3, conv, [16, 32, 128, 1, 1, 0]),
    (2, depthwise, [16, 128, 5, 1, 1, 0]),
    (2, pool, [16, 128, 16, 1, 0, 0]),
    (5, conv, [1, 128, 32, 1, 1, 0]),
    (3, arithmetic, [16, 128, 1, 0, 0, 0]),
    (2, conv, [16, 128, 32, 1, 1, 1]),
    (2, conv, [16, 32, 96, 1, 1, 0]),
    (2, depthwise, [16, 96, 5, 1, 1, 0]),
    (1, bilinear, [16, 128, 32, 0, 0, 0]),
    (1, conv, [32, 128, 24, 1, 1, 0]),
    (1, conv, [32, 24, 24, 1, 1, 1]),
    (1, depthwise, [32, 24, 3, 1, 1, 0]),
    (1, bilinear, [32, 24, 64, 0, 0, 0]),
    (1, conv, [64, 24, 16, 1, 1, 0]),
    (1, depthwise, [64, 16, 3, 1, 1, 0]),
    (1, bilinear, [64, 16, 128, 0, 0, 0]),
    (1, arithmetic, [128, 16, 0, 0, 0, 0]),
    (1, arithmetic, [128, 16, 1, 0, 0, 0]),
    (1, pool, [128, 16, 128, 1, 0, 0]),
    (1, depthwise, [128, 16, 3, 1, 1, 0]),
    (1, logistic, [256, 1, 0, 0, 0, 0]),
];

const FACE_DETECTION: &[Row] = &[
    (1, conv, [128, 3, 24, 5, 2, 0]),
    (2, depthwise, [64, 24, 3, 1, 1, 0]),
    (2, conv, [64, 24, 24, 1, 1, 1]),
    (1, depthwise, [64, 28, 3, 2, 1, 0]),
    (1, pool, [64, 28, 2, 2, 1, 0]),
    (1, conv, [32, 28, 32, 1, 1, 1]),
    (2, depthwise, [32, 32, 3, 1, 1, 0]),
    (1, conv, [32, 32, 36, 1, 1, 1]),
    (1, conv, [32, 36, 42, 1, 1, 1]),
    (1, depthwise, [32, 42, 3, 2, 1, 0]),
    (1, conv, [16, 42, 48, 1, 1, 1]),
    (6, depthwise, [16, 64, 3, 1, 1, 0]),
    (6, conv, [16, 64, 72, 1, 1, 1]),
    (1, depthwise, [16, 88, 3, 2, 1, 0]),
    (5, conv, [8, 96, 96, 1, 1, 1]),
    (4, depthwise, [8, 96, 3, 1, 1, 0]),
    (1, conv, [16, 88, 2, 1, 1, 0]),
    (1, conv, [8, 96, 6, 1, 1, 0]),
    (1, conv, [16, 88, 32, 1, 1, 0]),
];

const HAND_LANDMARK: &[Row] = &[
    (1, conv, [224, 3, 24, 3, 2, 0]),
    (1, depthwise, [112, 24, 3, 1, 1, 0]),
    (1, conv, [112, 24, 16, 1, 1, 0]),
    (1, conv, [112, 16, 64, 1, 1, 0]),
    (1, depthwise, [112, 64, 3, 2, 1, 0]),
    (1, conv, [56, 64, 24, 1, 1, 0]),
    (2, conv, [56, 24, 144, 1, 1, 0]),
    (1, depthwise, [56, 144, 3, 1, 1, 0]),
    (1, conv, [56, 144, 24, 1, 1, 1]),
    (1, depthwise, [56, 144, 5, 2, 1, 0]),
    (1, conv, [28, 144, 40, 1, 1, 0]),
    (2, conv, [28, 40, 240, 1, 1, 0]),
    (1, depthwise, [28, 240, 5, 1, 1, 0]),
    (1, conv, [28, 240, 40, 1, 1, 1]),
    (1, depthwise, [28, 240, 3, 2, 1, 0]),
    (1, conv, [14, 240, 80, 1, 1, 0]),
    (3, conv, [14, 80, 480, 1, 1, 0]),
    (2, depthwise, [14, 480, 3, 1, 1, 0]),
    (2, conv, [14, 480, 80, 1, 1, 1]),
    (1, depthwise, [14, 480, 5, 1, 1, 0]),
    (1, conv, [14, 480, 112, 1, 1, 0]),
    (3, conv, [14, 112, 672, 1, 1, 0]),
    (2, depthwise, [14, 672, 5, 1, 1, 0]),
    (2, conv, [14, 672, 112, 1, 1, 1]),
    (1, depthwise, [14, 672, 5, 2, 1, 0]),
    (1, conv, [7, 672, 192, 1, 1, 0]),
    (4, conv, [7, 192, 1152, 1, 1, 0]),
    (3, depthwise, [7, 1152, 5, 1, 1, 0]),
    (3, conv, [7, 1152, 192, 1, 1, 1]),
    (1, depthwise, [7, 1152, 3, 1, 1, 0]),
    (1, pool, [7, 1152, 7, 1, 0, 0]),
    (2, conv, [1, 1152, 1, 1, 1, 0]),
    (2, conv, [1, 1152, 63, 1, 1, 0]),
];

const DEEPLABV3: &[Row] = &[
    (1, conv, [257, 3, 16, 3, 2, 0]),
    (1, depthwise, [129, 16, 3, 1, 1, 0]),
    (1, conv, [129, 16, 8, 1, 1, 0]),
    (1, conv, [129, 8, 48, 1, 1, 0]),
    (1, depthwise, [129, 48, 3, 2, 1, 0]),
    (1, conv, [65, 48, 12, 1, 1, 0]),
    (2, conv, [65, 12, 72, 1, 1, 0]),
    (1, depthwise, [65, 72, 3, 1, 1, 0]),
    (1, conv, [65, 72, 12, 1, 1, 1]),
    (1, depthwise, [65, 72, 3, 2, 1, 0]),
    (1, conv, [33, 72, 16, 1, 1, 0]),
    (3, conv, [33, 16, 96, 1, 1, 0]),
    (3, depthwise, [33, 96, 3, 1, 1, 0]),
    (2, conv, [33, 96, 16, 1, 1, 1]),
    (1, conv, [33, 96, 32, 1, 1, 0]),
    (4, conv, [33, 32, 192, 1, 1, 0]),
    (4, depthwise, [33, 192, 3, 1, 2, 0]),
    (3, conv, [33, 192, 32, 1, 1, 1]),
    (1, conv, [33, 192, 48, 1, 1, 0]),
    (3, conv, [33, 48, 288, 1, 1, 0]),
    (3, depthwise, [33, 288, 3, 1, 2, 0]),
    (2, conv, [33, 288, 48, 1, 1, 1]),
    (1, conv, [33, 288, 80, 1, 1, 0]),
    (3, conv, [33, 80, 480, 1, 1, 0]),
    (3, depthwise, [33, 480, 3, 1, 2, 0]),
    (2, conv, [33, 480, 80, 1, 1, 1]),
    (1, conv, [33, 480, 160, 1, 1, 0]),
    (1, pool, [33, 160, 33, 1, 0, 0]),
    (1, conv, [1, 160, 256, 1, 1, 0]),
    (1, bilinear, [1, 256, 33, 0, 0, 0]),
    (1, conv, [33, 160, 256, 1, 1, 0]),
    (1, conv, [33, 512, 256, 1, 1, 0]),
    (1, conv, [33, 256, 21, 1, 1, 0]),
    (1, bilinear, [33, 21, 257, 0, 0, 0]),
];

const MODELS: [(&str, &[Row]); 4] = [
    ("selfie_segmentation", SELFIE_SEGMENTATION),
    ("face_detection", FACE_DETECTION),
    ("hand_landmark", HAND_LANDMARK),
    ("deeplabv3", DEEPLABV3),
];

/// Seconds that all threads of this process have run, where the system reports it.
fn cpu_time() -> Option<f64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let nanoseconds: Option<Vec<f64>> = tasks
        .map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        })
        .collect();
    Some(nanoseconds?.iter().sum::<f64>() * 1e-9)
}

/// Seconds of one dispatch by the clock and of CPU time, the best of several runs, and of the first run, which compiles the
/// kernel unless the driver has cached it.
fn time(gpu: &Gpu, bound: &gpu::Bound, measure: bool, rounds: u32) -> (f64, f64, f64) {
    let first = gpu.dispatch(bound, 1);
    if !measure {
        return (first, 0.0, first);
    }
    let once = gpu.dispatch(bound, 1);
    let times = (0.01 / once).clamp(1.0, 500.0) as u32;
    let (mut wall, mut cpu) = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        let before = cpu_time();
        wall = wall.min(gpu.dispatch(bound, times) / f64::from(times));
        if let (Some(before), Some(after)) = (before, cpu_time()) {
            cpu = cpu.min((after - before) / f64::from(times));
        }
    }
    (wall, cpu, first)
}

fn main() {
    let measure = std::env::args().any(|a| a == "--bench");
    let rounds = if std::env::args().any(|a| a == "--long") { 1000 } else { 7 };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(gpu) = gpu::gpu() else { return };
    println!("{}, {:?}", gpu.adapter, gpu.caps);
    println!("{:44} {:>4} {:>10} {:>10} {:>9} {:>9}", "layer", "n", "us", "cpu us", "GFLOP/s", "first ms");
    let started = Instant::now();
    for (model, rows) in MODELS {
        let (mut wall, mut cpu, mut flops) = (0.0, 0.0, 0.0);
        for (n, layer, numbers) in rows {
            let case = layer(&gpu.caps, *numbers).unwrap();
            if !wanted.iter().all(|w| model.contains(w) || case.name.contains(w)) {
                continue;
            }
            let data: Vec<Vec<f32>> = case.inputs.iter().map(|(_, words)| noise(*words, 1)).collect();
            let operands: Vec<(Binding, &[u8])> =
                case.inputs.iter().zip(&data).map(|((at, _), data)| (*at, bytes(data))).collect();
            let bound = gpu.bind(&case.kernel, &operands, case.output);
            let (clock, busy, first) = time(gpu, &bound, measure, rounds);
            if measure {
                let rate = case.flops / clock * 1e-9;
                let (clock, busy, first) = (clock * 1e6, busy * 1e6, first * 1e3);
                println!("{:44} {n:4} {clock:10.1} {busy:10.1} {rate:9.1} {first:9.1}", case.name);
            }
            wall += clock * f64::from(*n);
            cpu += busy * f64::from(*n);
            flops += case.flops * f64::from(*n);
        }
        if measure && wall > 0.0 {
            let rate = flops / wall * 1e-9;
            println!("{model:44}      {:10.1} {:10.1} {rate:9.1}\n", wall * 1e6, cpu * 1e6);
        }
    }
    println!("{} pipelines, {:.1} s in all", gpu.pipelines(), started.elapsed().as_secs_f64());
}
