// Products of integers. The weights are followed by three words per output channel, from p.bias on.
#if BY_ROW
// Scale and zero point of the input's rows, and what they were found with.
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

// The row of the input that an output pixel comes from.
fn row_of(pixel: u32) -> u32 {
#if BY_ROW
    return pixel / p.row_pixels;
#else
    return 0u;
#endif
}

// What stands for zero in a row of the input.
fn zero_of(row: u32) -> f32 {
#if BY_ROW
    return rows[row].y;
#else
    return f32(p.input_zero);
#endif
}

#if FIXED
#include "fixed"

fn result(sum: f32, o: u32, pixel: u32) -> i32 {
    let at = p.bias + o * 3u;
    let biased = i32(sum) + bitcast<i32>(weights[at]);
    let shift = bitcast<i32>(weights[at + 2u]);
    let scaled = fixed_multiply(biased, bitcast<i32>(weights[at + 1u]), shift >> 1u, (shift & 1) == 1);
    return clamp(scaled + p.result_zero, p.low, p.high);
}
#else
fn result(sum: f32, o: u32, pixel: u32) -> f32 {
    let at = p.bias + o * 3u;
    let scale = bitcast<f32>(weights[at]);
    let bias = bitcast<f32>(weights[at + 1u]);
#if BY_ROW
    return sum * (rows[row_of(pixel)].x * scale) + bias;
#else
    return sum * scale + bias;
#endif
}
#endif
