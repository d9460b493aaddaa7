// An operator on two quantized tensors, which are read as in binary.wgsl.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    items: u32,
    zero_a: i32,
    zero_b: i32,
    left: u32,
    multiplier_a: i32,
    shift_a: i32,
    multiplier_b: i32,
    shift_b: i32,
    multiplier: i32,
    shift: i32,
    zero: i32,
    low: i32,
    high: i32,
    // Elements (or vectors) before this index round the product of an operand once.
    once: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
}

#if VEC4
alias T = vec4<i32>;
#else
alias T = i32;
#endif

#if A_REPEATS
@group(0) @binding(0) var<storage, read> a: array<i32>;
#else
@group(0) @binding(0) var<storage, read> a: array<T>;
#endif
#if B_REPEATS
@group(0) @binding(1) var<storage, read> b: array<i32>;
#else
@group(0) @binding(1) var<storage, read> b: array<T>;
#endif
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"
#include "fixed"
#include "rounding"

#if ONCE
// x * m * 2^(shift - 31) for a factor below 1, rounded once, halves upwards.
fn multiply_once(x: i32, m: i32, shift: i32) -> i32 {
    let size = long_product(bitcast<u32>(abs(x)), bitcast<u32>(m));
    let right = u32(31 - min(shift, 0));
    // A half; for negative values a little less: 2^(right - 1) - 1.
    let half_at = right - 1u;
    var half = vec2<u32>(select(0u, 1u << (half_at & 31u), half_at >= 32u), select(0u, 1u << (half_at & 31u), half_at < 32u));
    if x < 0 {
        half = select(half - vec2<u32>(0u, 1u), vec2<u32>(half.x - 1u, 0xffffffffu), half.y == 0u);
    }
    let low = size.y + half.y;
    let high = size.x + half.x + select(0u, 1u, low < size.y);
    let scaled = bitcast<i32>(select(high >> ((right - 32u) & 31u), (high << 1u) | (low >> 31u), right == 31u));
    return select(scaled, -scaled, x < 0);
}
#endif

// An operand at the common scale.
fn scaled(x: i32, which: u32, once: bool) -> i32 {
    let shifted = x << p.left;
    let multiplier = select(p.multiplier_b, p.multiplier_a, which == 0u);
    let shift = select(p.shift_b, p.shift_a, which == 0u);
#if ONCE
    if once {
        return multiply_once(shifted, multiplier, shift);
    }
#endif
    return fixed_multiply(shifted, multiplier, shift, false);
}

fn limited(v: i32) -> i32 {
    return clamp(v, p.low, p.high);
}

// From the common scale to the output's.
fn placed(v: i32) -> i32 {
    return limited(fixed_multiply(v, p.multiplier, p.shift, false) + p.zero);
}

#if DIVIDES
// 1 / (1 + x), both as 31-bit fractions: three steps of Newton's method, with 29 fractional bits.
fn one_over_one_plus(x: i32) -> i32 {
    let half_denominator = bitcast<i32>((bitcast<u32>(x) + 0x80000000u) >> 1u);
    var y = 1515870810 + high_product(half_denominator, -1010580540);
    for (var step = 0u; step < 3u; step++) {
        let error = (1 << 29u) - high_product(half_denominator, y);
        y += saturating_shift(high_product(y, error), 2u);
    }
    return saturating_shift(y, 1u);
}
#endif

fn op(of_a: i32, of_b: i32, once: bool) -> i32 {
    let x = of_a - p.zero_a;
    let y = of_b - p.zero_b;
    {{OPERATION}}
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        var at_a = 0u;
        var at_b = 0u;
#for d in 0..RANK
        at_a += digit_{{d}} * p.a_stride_{{d}};
        at_b += digit_{{d}} * p.b_stride_{{d}};
#endfor
        let x = T(a[at_a]);
        let y = T(b[at_b]);
        let once = i < p.once;
#if VEC4
        output[i] = T(op(x.x, y.x, once), op(x.y, y.y, once), op(x.z, y.z, once), op(x.w, y.w, once));
#else
        output[i] = op(x, y, once);
#endif
#include "walk_on"
}
