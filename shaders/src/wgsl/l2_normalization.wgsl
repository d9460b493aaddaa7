// Scales rows to length 1.

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

// 1 / sqrt(v) for v above 0, as a factor and its shift: five steps of Newton's, with 3 whole bits; a product of two has 6,
// of three 9.
fn inverse_root(v: i32) -> vec2<i32> {
    if v <= 1 {
        return vec2<i32>(2147483647, 0);
    }
    var x = v;
    var right = 11;
    while x >= (1 << 29u) {
        x /= 4;
        right += 1;
    }
    // Shifted left by pairs of bits until it is within 2^27..2^29.
    let pairs = (i32(countLeadingZeros(x)) - 1) / 2 - 1;
    right -= pairs;
    x = x << u32(2 * pairs);
    let half = shift_right(x >> 1u, 1);
    var y = 1 << 28u;
    for (var step = 0u; step < 5u; step++) {
        let cube = saturating_shift(high_product(high_product(y, y), y), 6u);
        y = saturating_shift(high_product(402653184, y) - high_product(half, cube), 3u);
    }
    let root = high_product(y, 1518500250);
    return vec2<i32>(root << u32(max(-right, 0)), -max(right, 0));
}
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
    // Times 128: in front for unsigned bytes, in the shift for signed ones, as the field does it.
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
    let norm = max(sqrt(total), 1e-6);
    for (var i = first; i < end; i += {{SPLIT}}u) {
        output[i] = input[i] / norm;
    }
#endif
}
