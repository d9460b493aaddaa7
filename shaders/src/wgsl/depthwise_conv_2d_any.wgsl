// Depthwise convolution with any window, stride, dilation and channel multiplier. An invocation computes TILE
// columns of one channel, or of a vector of four.
//
// weights: [window row][window column][output channels], then the bias.

struct Params {
    // Number of invocations.
    count: u32,
    // Input channels, and output channels per input channel; for vectors of four, the latter is one.
    channels: u32,
    multiplier: u32,
    in_h: i32,
    in_w: i32,
    out_h: u32,
    out_w: u32,
    window_h: u32,
    window_w: u32,
    stride_h: u32,
    stride_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    tiles: u32,
    // Offset of the channels' words in packed weights.
    bias: u32,
#include "epilogue_params"
}

// INTEGERS: the input is integers, and a word holds four weights.

#if FIXED
alias R = i32;
#else
alias R = f32;
#endif
#if INTEGERS
alias E = i32;
#else
alias E = f32;
#endif
#if VEC4
alias F = vec4<f32>;
alias I = vec4<E>;
alias T = vec4<R>;
#else
alias F = f32;
alias I = E;
alias T = R;
#endif

@group(0) @binding(0) var<storage, read> input: array<I>;
#if INTEGERS
@group(0) @binding(1) var<storage, read> weights: array<u32>;
#else
@group(0) @binding(1) var<storage, read> weights: array<T>;
#endif
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

#include "epilogue"
#include "item"
#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let index = item_index(group, groups, local);
    if index >= p.count {
        return;
    }
    let out_channels = p.channels * p.multiplier;
    let place = divide(index, out_channels);
    let o = index - place * out_channels;
    let channel = divide(o, p.multiplier);
    let out_row = divide(place, p.tiles);
    let x = (place - out_row * p.tiles) * {{TILE}}u;
    let n = divide(out_row, p.out_h);
    let top = i32((out_row - n * p.out_h) * p.stride_h) - p.pad_h;
    let left = i32(x * p.stride_w) - p.pad_w;
#if INTEGERS
#if SUMS > 0
    let bias = I();
#else
    let bias = F();
#endif
    let zero = F(zero_of(n));
#else
    let bias = weights[p.window_h * p.window_w * out_channels + o];
    let zero = F();
#endif
#for i in 0..TILE
    var sum_{{i}} = bias;
#endfor
    var at_weight = o;
    for (var ky = 0u; ky < p.window_h; ky++) {
        let row = top + i32(ky * p.dilation_h);
        let inside_row = (row >= 0) & (row < p.in_h);
        let at_row = (n * u32(p.in_h) + u32(clamp(row, 0, p.in_h - 1))) * u32(p.in_w);
        for (var kx = 0u; kx < p.window_w; kx++) {
#if INTEGERS
#if VEC4
            let w = expand(at_weight);
#else
            let w = expand(at_weight / 4u)[at_weight % 4u];
#endif
#else
            let w = weights[at_weight];
#endif
            at_weight += out_channels;
#for i in 0..TILE
            {
                let column = left + i32({{i}}u * p.stride_w + kx * p.dilation_w);
                let inside = inside_row & (column >= 0) & (column < p.in_w);
                let v = input[(at_row + u32(clamp(column, 0, p.in_w - 1))) * p.channels + channel];
#if SUMS > 0
                sum_{{i}} += I(select(F(), F(v) - zero, inside) * w);
#else
                sum_{{i}} += select(F(), F(v) - zero, inside) * w;
#endif
            }
#endfor
        }
    }
#if ROLLED && INTEGERS
    // Unrolled, results take most of the time of compilation on software devices.
#if SUMS > 0
    var sums = array<I, {{TILE}}>(
#else
    var sums = array<F, {{TILE}}>(
#endif
#for i in 0..TILE
        sum_{{i}},
#endfor
    );
    for (var i = 0u; i < {{TILE}}u; i++) {
        let sum = sums[i];
        let column = x + i;
#include "depthwise_pixel"
    }
#else
#for i in 0..TILE
    {
        let sum = sum_{{i}};
        let column = x + {{i}}u;
#include "depthwise_pixel"
    }
#endfor
#endif
}
