//! The limits of the adapter, and the share of them that the kernels reach. Measured with the environment variable
//! `DELEGRAPH_ROOFLINE`, a number of seconds:
//!
//! `DELEGRAPH_ROOFLINE=60 cargo test --release -p delegraph-shaders --test results roofline -- --nocapture`
//!
//! The limits are measured on the device itself: the bandwidth of copies, and the rate of multiplications and additions of
//! kernels that do nothing else. Kernels that move data are compared with the bandwidth; products and convolutions with the
//! rate of their type. Each figure is a line of JSON, as is each kernel that is left out because the seconds have
//! passed. Without the variable everything runs once, on small operands.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use delegraph_shaders::binary::{self, Binary};
use delegraph_shaders::reduce::{self, Reduce};
use delegraph_shaders::unary::{self, Unary};
use delegraph_shaders::{
    Activation, Binding, Caps, Element, Epilogue, Features, FixedChannel, IntegerResult, Integers, Kernel,
    Scaling, Shader, Sums, Terms, Variant, batch_matmul, conv_2d, depthwise_conv_2d, fully_connected,
    transpose,
};

use crate::gpu::{Gpu, gpu};

/// The type of a kernel's operands.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    F32,
    /// 16-bit floats in all buffers; arithmetic in 32 bits.
    F16,
    Int8,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::F32 => "f32",
            Type::F16 => "f16",
            Type::Int8 => "int8",
        }
    }
}

/// The limit that a kernel is compared with.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Bandwidth,
    /// Multiplications and additions.
    Arithmetic,
}

/// A kernel with the sizes of its operands in elements.
struct Case {
    name: String,
    ty: Type,
    kernel: Kernel,
    inputs: Vec<(Binding, usize)>,
    output: usize,
    limit: Limit,
    /// Bytes moved, or operations.
    work: f64,
}

/// A measured rate.
struct Row {
    name: String,
    ty: &'static str,
    unit: &'static str,
    /// In units of 10^9 per second.
    rate: f64,
    /// Share of the limit; `None` for the limits themselves.
    share: Option<f64>,
    microseconds: f64,
}

/// The measured limits, in bytes and operations per second.
#[derive(Default)]
struct Limits {
    bandwidth: f64,
    f32: f64,
    f16: f64,
    int8: f64,
    /// Of matrix units; 0 if kernels cannot use them.
    matrices: f64,
}

/// Duration of the load on a device before a kernel is measured.
const WARM_UP: Duration = Duration::from_millis(200);

struct Run<'g> {
    gpu: &'g Gpu,
    measure: bool,
    started: Instant,
    seconds: f64,
    rows: Vec<Row>,
    limits: Limits,
}

/// A kernel with only this text, which writes `output`.
fn written(name: &'static str, text: String, inputs: u8, dispatch: u32, features: Features) -> Kernel {
    let bindings = (0..inputs).map(Binding::Input).chain([Binding::Output]).collect();
    let variant = Variant::from_text("roofline", name.to_owned(), text, bindings, features);
    Kernel { variant, uniform: Vec::new(), dispatch: [dispatch, 1, 1], iterations: 0 }
}

/// Copies vectors of four words.
fn copy(groups: u32) -> Kernel {
    let text = "@group(0) @binding(0) var<storage, read> input: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<u32>>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = group.x * 1024u + local;
    for (var i = 0u; i < 4u; i++) {
        output[first + i * 256u] = input[first + i * 256u];
    }
}";
    written("copy", text.into(), 1, groups, Features::default())
}

/// Invocations of a kernel that computes and moves nothing.
const INVOCATIONS: u32 = 1 << 18;
/// Independent accumulators of an invocation.
const CHAINS: u32 = 8;
/// Steps of each accumulator in a pass of the loop.
const UNROLLED: u32 = 4;

/// Chains of dependent operations, `steps` times: `step` updates the accumulator `{}` of type `ty`, whose elements are of type `scalar`.
fn chains(
    name: &'static str,
    [ty, scalar]: [&str; 2],
    step: &str,
    steps: u32,
    sum: &str,
    features: Features,
) -> Kernel {
    let mut text = String::new();
    if features.f16 {
        text += "enable f16;\n";
    }
    text += "@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let seed = id.x & 7u;\n";
    for i in 0..CHAINS {
        let _ = writeln!(text, "    var s{i} = {ty}({scalar}(seed + {i}u));");
    }
    let _ = writeln!(text, "    let a = {ty}({scalar}(seed & 1u));\n    let b = {ty}({scalar}(seed >> 1u));");
    let _ = writeln!(text, "    for (var i = 0u; i < {}u; i++) {{", steps / UNROLLED);
    // Several steps per pass, so that the loop itself takes no part of the time.
    for i in (0..UNROLLED).flat_map(|_| 0..CHAINS) {
        let _ = writeln!(text, "        {}", step.replace("{}", &format!("s{i}")));
    }
    text += "    }\n";
    let all: Vec<String> = (0..CHAINS).map(|i| format!("s{i}")).collect();
    let _ =
        writeln!(text, "    output[id.x] = {};\n}}", sum.replace("{}", &format!("({})", all.join(" + "))));
    written(name, text, 0, INVOCATIONS / 64, features)
}

/// Products of cooperative matrices by each of 8 subgroups of 32 invocations in `groups` workgroups, `steps` times four.
fn cooperative(groups: u32, steps: u32) -> Kernel {
    let mut text = String::from(
        "enable f16;
enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> output: array<f32>;
var<workgroup> ones: array<vec4<f16>, 64>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if local < 64u {
        ones[local] = vec4<f16>(f16(local % 3u));
    }
    workgroupBarrier();
    let a = coopLoadT<coop_mat16x16<f16, A>>(&ones[0], 4u);
    let b = coopLoad<coop_mat16x16<f16, B>>(&ones[0], 4u);\n",
    );
    let all = 0..4;
    for i in all.clone() {
        let _ = writeln!(text, "    var s{i} = coop_mat16x16<f32, C>();");
    }
    let _ = writeln!(text, "    for (var i = 0u; i < {steps}u; i++) {{");
    for i in all.clone() {
        let _ = writeln!(text, "        s{i} = coopMultiplyAdd(a, b, s{i});");
    }
    text += "    }\n    let at = (group.x * 8u + local / 32u) * 256u;\n";
    for i in all {
        let _ = writeln!(text, "    coopStoreT(s{i}, &output[at], 16u);");
    }
    text += "}";
    let mut features = Features::default();
    (features.f16, features.subgroups, features.matrices) = (true, true, true);
    written("cooperative", text, 0, groups, features)
}

impl<'g> Run<'g> {
    /// Measures for this number of seconds; without it, everything runs once.
    fn new(gpu: &'g Gpu, seconds: Option<f64>) -> Self {
        Self {
            gpu,
            measure: seconds.is_some(),
            started: Instant::now(),
            seconds: seconds.unwrap_or(f64::INFINITY),
            rows: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Run<'_> {
    /// One of three sizes: for hardware adapters, for software adapters, and where nothing is measured.
    fn size(&self, hardware: u32, software: u32, smallest: u32) -> u32 {
        match (self.measure, self.gpu.caps.software) {
            (true, false) => hardware,
            (true, true) => software,
            (false, _) => smallest,
        }
    }

    fn is_over(&self) -> bool {
        self.started.elapsed().as_secs_f64() > self.seconds
    }

    /// Seconds of one dispatch: the shortest of several runs, after one that compiles the kernel.
    fn time(&self, kernel: &Kernel, operands: &[(Binding, &[u8])], words: usize) -> f64 {
        self.time_for(0.05, kernel, operands, words)
    }

    /// As [`Run::time`], with runs of this number of seconds.
    fn time_for(&self, run: f64, kernel: &Kernel, operands: &[(Binding, &[u8])], words: usize) -> f64 {
        let bound = self.gpu.bind(kernel, operands, words);
        let first = self.gpu.dispatch(&bound, 1);
        if !self.measure {
            return first;
        }
        let mut once = self.gpu.dispatch(&bound, 1);
        // Devices raise their clocks under load, and lower them while a kernel compiles.
        let warm = Instant::now();
        while !self.gpu.caps.software && warm.elapsed() < WARM_UP {
            let times = (WARM_UP.as_secs_f64() / 10.0 / once).clamp(1.0, 500.0) as u32;
            once = once.min(self.gpu.dispatch(&bound, times) / f64::from(times));
        }
        let times = (run / once).clamp(1.0, 500.0) as u32;
        let runs = if once > 0.2 { 1 } else { 4 };
        let run = |_| self.gpu.dispatch(&bound, times) / f64::from(times);
        (0..runs).map(run).fold(once, f64::min)
    }

    /// Prints a line of JSON when measuring.
    fn print(&self, line: &str) {
        if self.measure {
            println!("{line}");
        }
    }

    fn add(&mut self, row: Row) {
        let share = row.share.map_or("null".into(), |share| format!("{share:.4}"));
        let Row { name, ty, unit, rate, microseconds, .. } = &row;
        self.print(&format!(
            "{{\"name\":{},\"type\":\"{ty}\",\"unit\":\"{unit}\",\"rate\":{rate:.3},\"share\":{share},\
             \"microseconds\":{microseconds:.3}}}",
            quoted(name)
        ));
        self.rows.push(row);
    }

    fn leave_out(&self, what: &str) {
        self.print(&format!("{{\"left_out\":{}}}", quoted(what)));
    }

    /// Measures a limit: `work` bytes or operations of one dispatch. Returns the rate per second.
    fn limit(
        &mut self,
        name: &str,
        ty: Type,
        kernel: &Kernel,
        inputs: &[u8],
        words: usize,
        work: f64,
    ) -> f64 {
        let seconds = self.time(kernel, &[(Binding::Input(0), inputs)], words);
        let unit = if inputs.is_empty() { "GOP/s" } else { "GB/s" };
        let rate = work / seconds;
        let (name, ty, microseconds) = (name.to_owned(), ty.name(), seconds * 1e6);
        self.add(Row { name, ty, unit, rate: rate * 1e-9, share: None, microseconds });
        rate
    }

    fn measure_limits(&mut self) {
        let words: u32 = 1 << self.size(25, 23, 14);
        let data = vec![0x3c; words as usize * 4];
        let moved = 8.0 * f64::from(words);
        self.limits.bandwidth =
            self.limit("limit: copies", Type::F32, &copy(words / 4096), &data, words as usize, moved);
        let steps = self.size(1024, 32, 4);
        let operations = f64::from(INVOCATIONS) * f64::from(CHAINS) * f64::from(steps);
        let results = INVOCATIONS as usize;
        let plain = Features::default();
        let mut f16 = plain;
        f16.f16 = true;
        let dot = "dot({}, vec4<f32>(1.0))";
        let fused = chains("f32 fma", ["vec4<f32>", "f32"], "{} = fma({}, a, b);", steps, dot, plain);
        let apart = chains("f32", ["vec4<f32>", "f32"], "{} = {} * a + b;", steps, dot, plain);
        for (name, kernel) in [("limit: fma(x, a, b)", fused), ("limit: x * a + b", apart)] {
            let rate = self.limit(name, Type::F32, &kernel, &[], results, operations * 8.0);
            self.limits.f32 = self.limits.f32.max(rate);
        }
        if self.gpu.caps.f16 {
            let dot = "dot(vec4<f32>({}), vec4<f32>(1.0))";
            let kernel = chains("f16", ["vec4<f16>", "f16"], "{} = fma({}, a, b);", steps, dot, f16);
            self.limits.f16 =
                self.limit("limit: fma(x, a, b)", Type::F16, &kernel, &[], results, operations * 8.0);
        } else {
            self.leave_out("16-bit floats: the adapter has none");
        }
        if self.gpu.matrices {
            let (groups, steps) = (4096, 256);
            let operations = 2.0 * 16_f64.powi(3) * 4.0 * f64::from(groups * 8 * steps);
            let results = groups as usize * 8 * 256;
            let kernel = cooperative(groups, steps);
            self.limits.matrices =
                self.limit("limit: coopMultiplyAdd", Type::F16, &kernel, &[], results, operations);
        } else {
            self.leave_out("matrix units: kernels cannot use any on the adapter");
        }
        let step = "{} = {} + dot4I8Packed(bitcast<u32>({}), bitcast<u32>(a) ^ 0x01020304u);";
        let kernel = chains("dot4I8Packed", ["i32", "i32"], step, steps, "f32({})", plain);
        let rate =
            self.limit("limit: x + dot4I8Packed(x, a)", Type::Int8, &kernel, &[], results, operations * 8.0);
        // Products of bytes are exact in floats, too.
        self.limits.int8 = rate.max(self.limits.f32);
    }

    fn run(&mut self, case: &Case) {
        let label = format!("{} {}", case.name, case.ty.name());
        if self.is_over() {
            return self.leave_out(&format!("{label}: no time left"));
        }
        let seconds = self.seconds_of(0.05, case);
        let (limit, unit) = match (case.limit, case.ty) {
            (Limit::Bandwidth, _) => (self.limits.bandwidth, "GB/s"),
            (Limit::Arithmetic, Type::F32) => (self.limits.f32, "GOP/s"),
            (Limit::Arithmetic, Type::F16) if case.kernel.variant.features.matrices => {
                (self.limits.matrices, "GOP/s")
            }
            // Arithmetic is in 32 bits regardless of the storage.
            (Limit::Arithmetic, Type::F16) => (self.limits.f32.max(self.limits.f16), "GOP/s"),
            (Limit::Arithmetic, Type::Int8) => (self.limits.int8, "GOP/s"),
        };
        let rate = case.work / seconds;
        let (name, ty, microseconds) = (case.name.clone(), case.ty.name(), seconds * 1e6);
        let name = if case.kernel.variant.features.matrices { format!("{name}, matrix units") } else { name };
        let share = Some(rate / limit);
        self.add(Row { name, ty, unit, rate: rate * 1e-9, share, microseconds });
    }

    /// Seconds of one dispatch of a case, from runs of `run` seconds.
    fn seconds_of(&self, run: f64, case: &Case) -> f64 {
        let mut kernel = case.kernel.clone();
        if case.ty == Type::F16 {
            let is_float = |binding: &Binding| !matches!(binding, Binding::Uniform | Binding::Texture);
            let bindings = (0..).zip(&kernel.variant.bindings).filter(|(_, b)| is_float(b));
            let mask = bindings.map(|(number, _): (u32, _)| 1 << number).sum();
            kernel.variant = kernel.variant.with_halves(mask);
        }
        // Small numbers in every format.
        let (bytes, pattern) = if case.ty == Type::F16 { (2, [0x00, 0x30]) } else { (4, [0x00, 0x00]) };
        let data: Vec<Vec<u8>> =
            case.inputs.iter().map(|(_, elements)| pattern.repeat(elements * bytes / 2)).collect();
        let operands: Vec<(Binding, &[u8])> =
            case.inputs.iter().zip(&data).map(|((at, _), data)| (*at, data.as_slice())).collect();
        self.time_for(run, &kernel, &operands, case.output * bytes / 4)
    }

    fn types(&self) -> impl Iterator<Item = Type> + use<> {
        let f16 = self.gpu.caps.f16;
        [Type::F32, Type::F16].into_iter().filter(move |ty| *ty == Type::F32 || f16)
    }

    fn elementwise(&mut self) {
        let side = self.size(4096, 2048, 64);
        let elements = side * side;
        for ty in self.types() {
            let width = if ty == Type::F16 { 2.0 } else { 4.0 };
            let moved = |operands: f64| operands * width * f64::from(elements);
            let shape = vec![side, side];
            let binary = |b: Vec<u32>| binary::Spec {
                op: Binary::Add,
                element: Element::F32,
                a: shape.clone(),
                b,
                output: shape.clone(),
                activation: Activation::None,
            };
            let size = elements as usize;
            let kernels = [
                ("add", binary(shape.clone()).kernel(&self.gpu.caps), vec![size, size], size, moved(3.0)),
                (
                    "logistic",
                    unary::Spec { steps: vec![Unary::Logistic], elements }.kernel(&self.gpu.caps),
                    vec![size],
                    size,
                    moved(2.0),
                ),
                (
                    "transpose",
                    transpose::Spec { input: shape.clone(), permutation: vec![1, 0] }.kernel(&self.gpu.caps),
                    vec![size],
                    size,
                    moved(2.0),
                ),
                (
                    "mean of rows",
                    reduce::Spec {
                        op: Reduce::Mean,
                        element: Element::F32,
                        input: shape.clone(),
                        axes: vec![1],
                        activation: Activation::None,
                    }
                    .kernel(&self.gpu.caps),
                    vec![size],
                    side as usize,
                    moved(1.0),
                ),
            ];
            for (name, kernel, inputs, output, work) in kernels {
                let inputs = (0..).map(Binding::Input).zip(inputs).collect();
                let (kernel, name) = (kernel.unwrap(), format!("{name} {side}x{side}"));
                self.run(&Case { name, ty, kernel, inputs, output, limit: Limit::Bandwidth, work });
            }
        }
    }

    /// A product with constant weights: of one row (limited by the bandwidth of the weights), or of many.
    fn weights(&mut self, rows: u32, n: u32) {
        for ty in self.types().chain([Type::Int8]) {
            let mut spec =
                fully_connected::Spec { rows, inputs: n, outputs: n, epilogue: Epilogue::default() };
            let packed = if ty == Type::Int8 {
                spec.epilogue = bytes(n);
                spec.pack_integers(&[], &channels(n)).len()
            } else {
                spec.pack_weights(&[], None).len()
            };
            let (input, output) = ((rows * n) as usize, (rows * n) as usize);
            let kernel = spec.kernel(&self.caps(ty)).unwrap();
            let inputs = vec![(Binding::Input(0), input), (Binding::Weights, packed)];
            let products = 2.0 * f64::from(rows) * f64::from(n) * f64::from(n);
            let width = if ty == Type::F16 { 2.0 } else { 4.0 };
            let (name, limit, work) = match rows {
                1 => (format!("matrix by vector {n}"), Limit::Bandwidth, width * packed as f64),
                _ => (format!("matrix by weights {rows}x{n}x{n}"), Limit::Arithmetic, products),
            };
            self.run(&Case { name, ty, kernel, inputs, output, limit, work });
        }
    }

    /// A product of two tensors.
    fn tensors(&mut self, n: u32) {
        for ty in self.types() {
            let spec = batch_matmul::Spec {
                a: vec![n; 2],
                b: vec![n; 2],
                transpose_a: false,
                transpose_b: false,
                activation: Activation::None,
                integers: None,
            };
            let (kernel, size) = (spec.kernel(&self.gpu.caps).unwrap(), (n * n) as usize);
            let inputs = vec![(Binding::Input(0), size), (Binding::Input(1), size)];
            let (name, work) = (format!("matrix by matrix {n}x{n}x{n}"), 2.0 * f64::from(n).powi(3));
            self.run(&Case { name, ty, kernel, inputs, output: size, limit: Limit::Arithmetic, work });
        }
    }

    /// A convolution of an image of `side` by `side` pixels.
    fn convolution(&mut self, [side, from, to, window]: [u32; 4]) {
        for ty in self.types().chain([Type::Int8]) {
            let spec = convolution(ty, [side, from, to, window]);
            let kernel = spec.kernel(&self.caps(ty)).unwrap();
            self.run(&convolution_case(ty, &spec, kernel));
        }
    }

    /// The capabilities for kernels of a type.
    fn caps(&self, ty: Type) -> Caps {
        self.gpu.caps.with_matrices(self.gpu.matrices && ty == Type::F16)
    }

    fn depthwise(&mut self, side: u32, channels: u32) {
        for ty in self.types() {
            let shape = [1, side, side, channels];
            let spec = depthwise_conv_2d::Spec {
                input: shape,
                output: shape,
                window: [3; 2],
                stride: [1; 2],
                dilation: [1; 2],
                padding: [1; 2],
                epilogue: Epilogue::activation(Activation::RELU6),
            };
            let size = (side * side * channels) as usize;
            let packed = spec.pack_weights(&[], None).len();
            let kernel = spec.kernel(&self.gpu.caps).unwrap();
            let inputs = vec![(Binding::Input(0), size), (Binding::Weights, packed)];
            let name = format!("depthwise 3x3 {side}x{side}x{channels}");
            let work = if ty == Type::F16 { 4.0 } else { 8.0 } * size as f64;
            self.run(&Case { name, ty, kernel, inputs, output: size, limit: Limit::Bandwidth, work });
        }
    }

    fn all(&mut self) {
        self.measure_limits();
        self.elementwise();
        if !self.measure {
            self.weights(1, 64);
            self.weights(64, 64);
            self.tensors(64);
            self.convolution([8, 16, 16, 3]);
            return self.depthwise(8, 16);
        }
        for n in [2048, 4096, 6144] {
            if n <= self.size(6144, 2048, 64) {
                self.weights(1, n);
            }
        }
        // The largest product that takes at most a quarter of a second at the limit.
        let takes = |n: u32| 2.0 * f64::from(n).powi(3) / self.limits.f32;
        let n = [4096, 2048, 1024].into_iter().find(|n| takes(*n) < 0.25).unwrap_or(512);
        self.weights(n, n);
        self.tensors(n);
        self.convolution([56, 128, 128, 3]);
        self.convolution([56, 256, 256, 1]);
        self.depthwise(112, 256);
    }
}

/// A convolution of `[side, from, to, window]`: an image of `side` by `side` pixels with `from` channels.
fn convolution(ty: Type, [side, from, to, window]: [u32; 4]) -> conv_2d::Spec {
    let epilogue = match ty {
        Type::Int8 => bytes(window * window * from),
        _ => Epilogue::activation(Activation::RELU6),
    };
    conv_2d::Spec {
        input: [1, side, side, from],
        output: [1, side, side, to],
        filter: [to, window, window, from],
        stride: [1; 2],
        dilation: [1; 2],
        padding: [((window - 1) / 2) as i32; 2],
        epilogue,
    }
}

fn convolution_case(ty: Type, spec: &conv_2d::Spec, kernel: Kernel) -> Case {
    let ([_, side, _, from], [to, window, ..]) = (spec.input, spec.filter);
    let packed = match ty {
        Type::Int8 => spec.pack_integers(&[], &channels(to)).len(),
        _ => spec.pack_weights(&[], None).len(),
    };
    let (pixels, output) = ((side * side) as usize, (side * side * to) as usize);
    let inputs = vec![(Binding::Input(0), pixels * from as usize), (Binding::Weights, packed)];
    let name = format!("convolution {window}x{window} {side}x{side}x{from} to {to}");
    let work = 2.0 * output as f64 * f64::from(window * window * from);
    Case { name, ty, kernel, inputs, output, limit: Limit::Arithmetic, work }
}

/// An epilogue of products of 8-bit integers, `depth` per sum.
fn bytes(depth: u32) -> Epilogue {
    let weights = u64::from(depth) * 127;
    let terms = Terms { count: depth.into(), input: 131, weight: 127, weights, wraps: true };
    let result =
        IntegerResult::Fixed { scaling: Scaling::Narrow, zero: 0, low: -128, high: 127, tail: [u32::MAX, 0] };
    let sums = Sums::of(terms).unwrap();
    Epilogue::of_integers(Activation::None, Integers { input_zero: 3, weight_zero: 0, bits: 8, sums, result })
}

fn channels(count: u32) -> Vec<u32> {
    let channel = FixedChannel { bias: 1, multiplier: 1 << 30, shift: -8, up: true };
    (0..count).flat_map(|_| channel.words()).collect()
}

/// A string of JSON. Characters that it escapes become spaces.
fn quoted(text: &str) -> String {
    let plain = |c: char| if c.is_control() || matches!(c, '"' | '\\') { ' ' } else { c };
    format!("\"{}\"", text.chars().map(plain).collect::<String>())
}

/// Convolutions of many models, as `[side, input channels, output channels, window]`.
const CONVOLUTIONS: [[u32; 4]; 31] = [
    [112, 3, 32, 3],
    [112, 32, 16, 1],
    [112, 16, 96, 1],
    [56, 24, 144, 1],
    [56, 144, 24, 1],
    [56, 64, 64, 3],
    [56, 256, 64, 1],
    [28, 144, 40, 1],
    [28, 192, 32, 1],
    [28, 128, 128, 3],
    [28, 512, 256, 1],
    [14, 80, 480, 1],
    [14, 480, 112, 1],
    [14, 384, 64, 1],
    [14, 256, 256, 3],
    [14, 1024, 512, 1],
    [8, 128, 128, 1],
    [8, 128, 64, 3],
    [7, 672, 192, 1],
    [7, 192, 1152, 1],
    [7, 1152, 320, 1],
    [7, 512, 512, 3],
    [7, 2048, 512, 1],
    [4, 256, 256, 1],
    [2, 512, 96, 1],
    [64, 32, 32, 3],
    [128, 16, 8, 1],
    [128, 64, 64, 3],
    [64, 1024, 1024, 1],
    [256, 16, 16, 3],
    [64, 4096, 4096, 1],
];

/// Measures all tiles of convolutions with the environment variable `DELEGRAPH_TILES`, a number of seconds, and prints
/// a line of JSON per kernel. The costs of tiles were calibrated with it.
#[test]
fn tiles() {
    let Some(gpu) = gpu() else { return };
    let Ok(seconds) = std::env::var("DELEGRAPH_TILES") else { return };
    let run = Run::new(gpu, Some(seconds.parse().unwrap()));
    run.print("");
    for (i, sizes) in CONVOLUTIONS.into_iter().enumerate() {
        // Integers are floats in workgroup memory, so that a few sizes show what they cost.
        for ty in run.types().chain((i % 3 == 0).then_some(Type::Int8)) {
            let spec = convolution(ty, sizes);
            for kernel in spec.candidates(&run.caps(ty)).unwrap() {
                if run.is_over() {
                    return;
                }
                let case = convolution_case(ty, &spec, kernel);
                let (seconds, key) = (run.seconds_of(0.02, &case), quoted(case.kernel.variant.key.as_str()));
                let line = format!(
                    "\"type\":\"{}\",\"microseconds\":{:.3},\"kernel\":{key}",
                    ty.name(),
                    seconds * 1e6
                );
                run.print(&format!("{{\"sizes\":{sizes:?},{line}}}"));
            }
        }
    }
}

#[test]
fn rates() {
    let Some(gpu) = gpu() else { return };
    let mut run = Run::new(gpu, std::env::var("DELEGRAPH_ROOFLINE").ok().map(|s| s.parse().unwrap()));
    // Ends the line that the test harness has begun.
    run.print("");
    run.print(&format!("{{\"adapter\":{}}}", quoted(&gpu.adapter)));
    run.all();
    // The other tests check results; this one checks that everything ran.
    assert!(run.rows.iter().all(|row| row.rate.is_finite() && row.rate > 0.0));
    assert!(run.measure || run.rows.len() > 15, "{} rows", run.rows.len());
}
