//! Times products of 1024 by 1024 matrices on the machine's adapter, by the delegate's kernels and by well-known
//! designs written for only that size: `cargo bench -p delegraph-shaders --bench matmul`. Without `--bench` (as under
//! `cargo test`) every design runs once on a small product.
//!
//! Designs run in turn, so that the machine's other load affects them equally; the best time of each counts. Each result is
//! compared with that of the first.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark fails by panicking")]

#[path = "../tests/gpu/mod.rs"]
mod gpu;

use std::fmt::Write as _;

use delegraph_shaders::{
    Activation, Binding, Caps, Epilogue, Features, Kernel, Shader, Variant, batch_matmul, fully_connected,
};
use gpu::{assert_close, bytes, gpu, noise};

const BINDINGS: &str = "
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
";

/// A design written for a product of `n` by `n`, which `dispatch` covers.
fn design(name: String, wgsl: String, dispatch: [u32; 3]) -> Kernel {
    let bindings = vec![Binding::Input(0), Binding::Input(1), Binding::Output];
    let variant = Variant::from_text("matmul", name, wgsl, bindings, Features::default());
    Kernel { variant, uniform: Vec::new(), dispatch, iterations: 0 }
}

/// One element per invocation, by definition.
fn plain(n: u32) -> Kernel {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    var sum = 0.0;
    for (var k = 0u; k < {n}u; k++) {{
        sum += a[id.y * {n}u + k] * b[k * {n}u + id.x];
    }}
    c[id.y * {n}u + id.x] = sum;
}}"
    );
    design("one element".into(), text, [n / 16, n / 16, 1])
}

/// Square tiles of both operands in workgroup memory, one element per invocation.
fn shared(n: u32) -> Kernel {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
var<workgroup> tile_a: array<f32, 256>;
var<workgroup> tile_b: array<f32, 256>;
@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {{
    var sum = 0.0;
    for (var k = 0u; k < {n}u; k += 16u) {{
        tile_a[local.y * 16u + local.x] = a[id.y * {n}u + k + local.x];
        tile_b[local.y * 16u + local.x] = b[(k + local.y) * {n}u + id.x];
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {{
            sum += tile_a[local.y * 16u + i] * tile_b[i * 16u + local.x];
        }}
        workgroupBarrier();
    }}
    c[id.y * {n}u + id.x] = sum;
}}"
    );
    design("workgroup memory 16x16".into(), text, [n / 16, n / 16, 1])
}

/// `rows` rows by `vectors` vectors of four columns in an invocation's registers, `wide` by `high` invocations. Four
/// steps in depth at a time: a row of `b` is multiplied by an element of `a` (outer products).
fn registers(n: u32, rows: u32, vectors: u32, wide: u32, high: u32) -> Kernel {
    let v = n / 4;
    let mut text = format!(
        "@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;{BINDINGS}
@compute @workgroup_size({wide}, {high})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let column = id.x * {vectors}u;
    let row = id.y * {rows}u;\n"
    );
    let every = || (0..rows).flat_map(|r| (0..vectors).map(move |c| (r, c)));
    every().for_each(|(r, c)| writeln!(text, "var s_{r}_{c} = vec4<f32>();").unwrap());
    writeln!(text, "for (var k = 0u; k < {v}u; k++) {{").unwrap();
    (0..rows).for_each(|r| writeln!(text, "let a_{r} = a[(row + {r}u) * {v}u + k];").unwrap());
    for part in 0..4 {
        for c in 0..vectors {
            writeln!(text, "let b_{part}_{c} = b[(4u * k + {part}u) * {v}u + column + {c}u];").unwrap();
        }
        every().for_each(|(r, c)| writeln!(text, "s_{r}_{c} += a_{r}[{part}] * b_{part}_{c};").unwrap());
    }
    writeln!(text, "}}").unwrap();
    every().for_each(|(r, c)| writeln!(text, "c[(row + {r}u) * {v}u + column + {c}u] = s_{r}_{c};").unwrap());
    text += "}";
    let name = format!("registers {rows}x{}, {wide}x{high}", 4 * vectors);
    design(name, text, [v / vectors / wide, n / rows / high, 1])
}

/// Tiles of `rows` × 16 by 16 × 4 `vectors` whose operands pass through workgroup memory, `deep` at a time, and are
/// multiplied in registers.
fn both(n: u32, rows: u32, vectors: u32, deep: u32) -> Kernel {
    let (v, high, wide) = (n / 4, rows * 16, vectors * 16);
    let mut text = format!(
        "@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;{BINDINGS}
var<workgroup> tile_a: array<vec4<f32>, {}>;
var<workgroup> tile_b: array<vec4<f32>, {}>;
@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {{
    let x = local % 16u;
    let y = local / 16u;\n",
        high * deep / 4,
        wide * deep
    );
    let every = || (0..rows).flat_map(|r| (0..vectors).map(move |c| (r, c)));
    every().for_each(|(r, c)| writeln!(text, "var s_{r}_{c} = vec4<f32>();").unwrap());
    let (d, a_size, b_size) = (deep / 4, high * deep / 4, wide * deep);
    writeln!(
        text,
        "for (var k = 0u; k < {v}u; k += {d}u) {{
        for (var i = local; i < {a_size}u; i += 256u) {{
            tile_a[i] = a[(group.y * {high}u + i / {d}u) * {v}u + k + i % {d}u];
        }}
        for (var i = local; i < {b_size}u; i += 256u) {{
            tile_b[i] = b[(4u * k + i / {wide}u) * {v}u + group.x * {wide}u + i % {wide}u];
        }}
        workgroupBarrier();
        for (var i = 0u; i < {d}u; i++) {{"
    )
    .unwrap();
    (0..rows).for_each(|r| writeln!(text, "let a_{r} = tile_a[(y * {rows}u + {r}u) * {d}u + i];").unwrap());
    for part in 0..4 {
        for c in 0..vectors {
            let at = format!("(4u * i + {part}u) * {wide}u + x * {vectors}u + {c}u");
            writeln!(text, "let b_{part}_{c} = tile_b[{at}];").unwrap();
        }
        every().for_each(|(r, c)| writeln!(text, "s_{r}_{c} += a_{r}[{part}] * b_{part}_{c};").unwrap());
    }
    text += "}\nworkgroupBarrier();\n}\n";
    let row = format!("group.y * {high}u + y * {rows}u");
    let column = format!("group.x * {wide}u + x * {vectors}u");
    every().for_each(|(r, c)| {
        writeln!(text, "c[({row} + {r}u) * {v}u + {column} + {c}u] = s_{r}_{c};").unwrap();
    });
    text += "}";
    let name = format!("workgroup memory {high}x{}x{deep}, registers {rows}x{}", 4 * wide, 4 * vectors);
    design(name, text, [v / wide, n / high, 1])
}

/// The delegate's kernel of BATCH_MATMUL of two tensors.
fn tensors(caps: &Caps, n: u32) -> Kernel {
    let (a, b) = (vec![n; 2], vec![n; 2]);
    let (transpose_a, transpose_b, activation) = (false, false, Activation::None);
    batch_matmul::Spec { a, b, transpose_a, transpose_b, activation, integers: None }.kernel(caps).unwrap()
}

/// The delegate's kernel of FULLY_CONNECTED.
fn weights(n: u32) -> fully_connected::Spec {
    fully_connected::Spec { rows: n, inputs: n, outputs: n, epilogue: Epilogue::default() }
}

fn main() {
    let measure = std::env::args().any(|a| a == "--bench");
    let Some(gpu) = gpu() else { return };
    let n = if measure { 1024 } else { 128 };
    let rounds = if measure { 7 } else { 1 };
    let (size, flops) = ((n * n) as usize, 2.0 * f64::from(n).powi(3));
    let (a, b) = (noise(size, 1), noise(size, 2));
    // FULLY_CONNECTED has a row of its filter per output.
    let filter: Vec<f32> = (0..size).map(|i| b[i % n as usize * n as usize + i / n as usize]).collect();
    let packed = weights(n).pack_weights(&filter, None);
    let mut kernels = vec![plain(n), shared(n)];
    for (rows, vectors, wide, high) in [
        (4, 1, 8, 8),
        (4, 1, 16, 16),
        (4, 2, 8, 8),
        (8, 1, 8, 8),
        (8, 1, 8, 1),
        (8, 2, 8, 8),
        (8, 2, 8, 1),
        (16, 1, 8, 1),
        (4, 4, 8, 1),
        (4, 4, 8, 4),
    ] {
        kernels.push(registers(n, rows, vectors, wide, high));
    }
    for (rows, vectors, deep) in [(4, 1, 16), (4, 1, 32), (8, 1, 8), (4, 2, 16), (8, 2, 8)] {
        kernels.push(both(n, rows, vectors, deep));
    }
    let written = kernels.len();
    kernels.push(tensors(&gpu.caps, n));
    kernels.push(weights(n).kernel(&gpu.caps).unwrap());
    let operands =
        [(Binding::Input(0), bytes(&a)), (Binding::Input(1), bytes(&b)), (Binding::Weights, bytes(&packed))];
    let bound: Vec<_> = kernels.iter().map(|kernel| gpu.bind(kernel, &operands, size)).collect();
    let mut expected = Vec::new();
    for (kernel, bound) in kernels.iter().zip(&bound) {
        gpu.dispatch(bound, 1);
        let got: Vec<f32> = gpu.read(bound, size);
        if expected.is_empty() {
            expected.clone_from(&got);
        }
        assert_close(kernel.variant.key.as_str(), &got, &expected);
    }
    if !measure {
        return;
    }
    let mut best = vec![f64::MAX; kernels.len()];
    for _ in 0..rounds {
        for (best, bound) in best.iter_mut().zip(&bound) {
            *best = best.min(gpu.dispatch(bound, 1));
        }
    }
    println!("{}, {n} by {n} by {n}", gpu.adapter);
    println!("{:60} {:>9} {:>9}", "design", "ms", "GFLOP/s");
    let names = kernels[..written].iter().map(|k| k.variant.key.as_str());
    let names = names.chain(["ours, BATCH_MATMUL of tensors", "ours, FULLY_CONNECTED"]);
    for (name, seconds) in names.zip(&best) {
        println!("{name:60} {:9.2} {:9.1}", seconds * 1e3, flops / seconds * 1e-9);
    }
    let fastest = best[..written].iter().copied().fold(f64::MAX, f64::min);
    let share = |i: usize| 100.0 * fastest / best[i];
    println!(
        "of the best written for this size: {:.0}% with tensors, {:.0}% with weights",
        share(written),
        share(written + 1)
    );
}
