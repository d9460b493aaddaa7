// Shared by convolutions and transposed ones. An invocation computes a register tile of PIXELS output pixels
// by WIDTH output channels; LANES neighbouring invocations (x) share the pixels.
//
// SHARED: those eight are a subgroup. Each loads values for another pixel, and broadcasts distribute them:
// on software devices loads cost far more than arithmetic.
//
// weights: [kernel row][kernel column][input channels / 4][output channels] of four input channels
// each, then the bias in fours.

// HALVES: weights are pairs of 16-bit floats; the bias is of 32-bit floats.
//
// INTEGERS: the input is integers, a word (or half of one) holds four weights, and the bias is part of
// the words of the output channels.

alias V = vec4<f32>;
#if INTEGERS
alias E = i32;
alias W = u32;
#else
alias E = f32;
#if HALVES
alias W = vec2<u32>;
#else
alias W = V;
#endif
#endif
#if IN_VEC4
alias I = vec4<E>;
#else
alias I = E;
#endif
#if FIXED
alias R = i32;
#else
alias R = f32;
#endif
#if WIDTH == 1
alias T = R;
#else
alias T = vec{{WIDTH}}<R>;
#endif

@group(0) @binding(0) var<storage, read> input: array<I>;
@group(0) @binding(1) var<storage, read> weights: array<W>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

#include "epilogue"
#include "divide"

#if !INTEGERS
alias S = f32;

// The weights of four input channels.
fn weight(at: u32) -> V {
#if HALVES
    let pairs = weights[at];
    return V(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
#else
    return weights[at];
#endif
}

// Four channels of the bias.
fn bias_of(fours: u32) -> V {
#if HALVES
    let at = p.bias + fours * 2u;
    return V(bitcast<vec2<f32>>(weights[at]), bitcast<vec2<f32>>(weights[at + 1u]));
#else
    return weights[p.bias + fours];
#endif
}
#endif

// The c-th vector of four input channels of a group. `at`: offset of the group's channels of the pixel.
fn load(at: u32, c: u32) -> V {
#if IN_VEC4
    return V(input[at + c]);
#else
#if CHANNELS > 0
    // All channels of a group of fewer than four.
    var v = V();
#for i in 0..CHANNELS
    v[{{i}}] = f32(input[at + {{i}}u]);
#endfor
    return v;
#else
    let first = at + c * 4u;
    let left = p.group_c - c * 4u;
    var v = V(f32(input[first]), 0.0, 0.0, 0.0);
    if left > 1u { v.y = f32(input[first + 1u]); }
    if left > 2u { v.z = f32(input[first + 2u]); }
    if left > 3u { v.w = f32(input[first + 3u]); }
    return v;
#endif
#endif
}

#if !POINTWISE
// With `&&` instead of `&`, each comparison is a branch: SwiftShader then compiles a tile for up to a minute.
fn inside(x: i32, y: i32) -> bool {
    return (x >= 0) & (x < p.in_w) & (y >= 0) & (y < p.in_h);
}

// Offset of a pixel's channels; any offset inside for a pixel outside of the image.
fn pixel_at(x: i32, y: i32, n: i32) -> u32 {
    let row = n * p.in_h + clamp(y, 0, p.in_h - 1);
    return u32(row * p.in_w + clamp(x, 0, p.in_w - 1)) * p.in_pixel;
}
#endif
#if SPLIT
var<workgroup> parts: array<S, {{LANES * ROWS * WIDTH}}>;
#endif
