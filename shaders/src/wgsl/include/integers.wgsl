// Products of integers. The weights are followed by two to five words per output channel, depending on RESULT, from
// p.bias on.
#if BY_ROW
// Scale and zero point of the input's rows, and the reciprocal of the scale.
@group(0) @binding({{BY_ROW_BINDING}}) var<storage, read> rows: array<vec4<f32>>;
#endif

// Four weights.
fn expand(at: u32) -> vec4<f32> {
#if BITS == 4
    let word = weights[at / 2u] >> (at % 2u * 16u);
    let quads = (vec4<i32>(bitcast<i32>(word)) << vec4<u32>(28u, 24u, 20u, 16u)) >> vec4<u32>(28u);
#else
    let word = weights[at];
    let quads = (vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
#endif
    return vec4<f32>(quads - vec4<i32>(p.weight_zero));
}

// The row of the input that an output pixel is computed from.
fn row_of(pixel: u32) -> u32 {
#if BY_ROW
    return pixel / p.row_pixels;
#else
    return 0u;
#endif
}

// Zero point of a row of the input.
fn zero_of(row: u32) -> f32 {
#if BY_ROW
    return rows[row].y;
#else
    return f32(p.input_zero);
#endif
}

// SUMS: 0: sums are floats; 1 and 2: they are integers, to which partial sums in floats are added (1:
// of blocks of steps in depth, 2: of each step); 3: likewise, in pairs that represent x + 65536 * y.
#if SUMS == 0
alias S = f32;
#else
#if SUMS == 3
alias S = vec2<i32>;
#else
alias S = i32;
#endif
#endif

#if SUMS > 0
// A partial sum, which is a whole number.
fn part(sum: f32) -> S {
#if SUMS == 3
    return vec2(i32(sum) & 0xffff, i32(sum) >> 16u);
#else
    return i32(sum);
#endif
}

// The sum of four products.
fn products(v: vec4<f32>, w: vec4<f32>) -> S {
#if HALVED
    return part(dot(v.xy, w.xy)) + part(dot(v.zw, w.zw));
#else
    return part(dot(v, w));
#endif
}
#endif

// RESULT: 0: a float; 1: an integer, from a 32-bit sum; 2: from a 64-bit sum; 3: in double precision.
#if RESULT == 0
fn result(sum: S, o: u32, pixel: u32) -> f32 {
    let at = p.bias + o * 2u;
    let scale = bitcast<f32>(weights[at]);
    let bias = bitcast<f32>(weights[at + 1u]);
#if SUMS == 3
    let whole = f32(sum.y) * 65536.0 + f32(sum.x);
#else
    let whole = f32(sum);
#endif
#if BY_ROW
    return whole * (rows[row_of(pixel)].x * scale) + bias;
#else
    return whole * scale + bias;
#endif
}
#else
#if RESULT == 1
#include "fixed"

fn scaled(sum: S, o: u32, pixel: u32) -> i32 {
    let at = p.bias + o * 3u;
#if SUMS == 3
    let biased = sum.x + (sum.y << 16u) + bitcast<i32>(weights[at]);
#else
    let biased = i32(sum) + bitcast<i32>(weights[at]);
#endif
    let shift = bitcast<i32>(weights[at + 2u]);
    let before = pixel < p.tail_pixel || (pixel == p.tail_pixel && o < p.tail_channel);
    return fixed_multiply(biased, bitcast<i32>(weights[at + 1u]), shift >> 1u, (shift & 1) == 1 && before);
}
#else
#include "fixed_wide"

fn biased(sum: S, at: u32) -> vec2<u32> {
#if SUMS == 3
    let wide = wide_add(wide_left(wide_of(sum.y), 16u), wide_of(sum.x));
#else
    let wide = wide_of(i32(sum));
#endif
    return wide_add(wide, vec2(weights[at], weights[at + 1u]));
}
#if RESULT == 2

fn scaled(sum: S, o: u32, pixel: u32) -> i32 {
    let at = p.bias + o * 4u;
    return fixed_wide(biased(sum, at), weights[at + 2u], bitcast<i32>(weights[at + 3u]));
}
#else
#include "fixed_double"

fn scaled(sum: S, o: u32, pixel: u32) -> i32 {
    let at = p.bias + o * 5u;
    let whole = biased(sum, at);
    let shift = weights[at + 4u];
    let kept = select(whole, wide_of(bitcast<i32>(whole.x)), (shift & 1u) == 1u);
    return fixed_double(kept, vec2(weights[at + 2u], weights[at + 3u]), shift >> 1u);
}
#endif
#endif

fn result(sum: S, o: u32, pixel: u32) -> i32 {
    return clamp(scaled(sum, o, pixel) + p.result_zero, p.low, p.high);
}
#endif
