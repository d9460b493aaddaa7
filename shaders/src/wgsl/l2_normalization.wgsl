// Scales rows to a length of 1.

struct Params {
    rows: u32,
    // Elements of a row, or vectors of four.
    depth: u32,
#if INTEGERS
    input_zero: i32,
    zero: i32,
    low: i32,
    high: i32,
#endif
}

#if VEC4
alias T = vec4<f32>;
#else
#if INTEGERS
alias T = i32;
#else
alias T = f32;
#endif
#endif
alias P = T;

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

fn combine(x: P, y: P, how: u32) -> P {
    return x + y;
}

#include "split"

#if INTEGERS
#include "fixed"
#include "rounding"

#include "inverse_root"
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let row = (group.y * groups.x + group.x) * {{WORKGROUP / SPLIT}}u + item_of(local);
    let begin = min(row, p.rows - 1u) * p.depth;
    let end = begin + p.depth;
    let first = begin + part_of(local);
    var squares = T();
    for (var i = first; i < end; i += {{SPLIT}}u) {
#if INTEGERS
        let x = input[i] - p.input_zero;
        squares += x * x;
#else
        squares += input[i] * input[i];
#endif
    }
    squares = across(squares, local, 0u);
#if VEC4
    let total = squares.x + squares.y + squares.z + squares.w;
#else
    let total = squares;
#endif
    if row >= p.rows {
        return;
    }
#if INTEGERS
    // The factor 128 is applied first for unsigned bytes, and is part of the shift for signed ones, as in TFLite.
    let root = inverse_root(total);
    for (var i = first; i < end; i += {{SPLIT}}u) {
        let x = input[i] - p.input_zero;
#if UNSIGNED
        let steps = fixed_multiply(x * 128, root.x, root.y, false);
#else
        let steps = fixed_multiply(x, root.x, root.y + 7, false);
#endif
        output[i] = clamp(steps + p.zero, p.low, p.high);
    }
#else
    // NaN stays NaN if the driver supports it.
    let root = sqrt(total);
    let norm = select(root, 1e-6, root < 1e-6);
    for (var i = first; i < end; i += {{SPLIT}}u) {
        output[i] = input[i] / norm;
    }
#endif
}
