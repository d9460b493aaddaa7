// Convolution. An invocation makes a register tile of PIXELS neighbours in the flattened output image
// times WIDTH output channels; eight invocations side by side (x) share the pixels.
//
// SHARED: those eight are a subgroup. Each loads what another pixel needs, and broadcasts hand it round:
// on software devices loads cost far more than arithmetic.
//
// weights: [kernel row][kernel column][input channels / 4][output channels] of four input channels
// each, then the bias in fours.

struct Params {
    in_h: i32,
    in_w: i32,
    // Elements, or vectors of four where channels come in fours, of a pixel of the input.
    in_pixel: u32,
    // Input channels of a group, and vectors of four of them.
    group_c: u32,
    group_v: u32,
    // Pixels of all output images.
    pixels: u32,
    out_h: u32,
    out_w: u32,
    out_c: u32,
    // Output channels of a group.
    group_out: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: i32,
    stride_w: i32,
    dilation_h: i32,
    dilation_w: i32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    // Where the bias begins in weights.
    bias: u32,
    // Workgroups along the pixels in one row of the dispatch.
    row: u32,
#include "epilogue_params"
}

alias V = vec4<f32>;
#if IN_VEC4
alias I = vec4<f32>;
#else
alias I = f32;
#endif
#if WIDTH == 1
alias T = f32;
#else
alias T = vec{{WIDTH}}<f32>;
#endif

@group(0) @binding(0) var<storage, read> input: array<I>;
@group(0) @binding(1) var<storage, read> weights: array<V>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
@group(0) @binding(3) var<uniform> p: Params;

#include "epilogue"
#include "divide"

// Four input channels, the c-th of a group on. `at`: where the group's channels of the pixel begin.
fn load(at: u32, c: u32) -> V {
#if IN_VEC4
    return input[at + c];
#else
    let first = at + c * 4u;
    let left = p.group_c - c * 4u;
    var v = V(input[first], 0.0, 0.0, 0.0);
    if left > 1u { v.y = input[first + 1u]; }
    if left > 2u { v.z = input[first + 2u]; }
    if left > 3u { v.w = input[first + 3u]; }
    return v;
#endif
}

// Top left corner of an output pixel's window, and its image.
fn window(pixel: u32) -> vec3<i32> {
    let row = divide(pixel, p.out_w);
    let n = divide(row, p.out_h);
    let x = i32(pixel - row * p.out_w);
    let y = i32(row - n * p.out_h);
    return vec3(x * p.stride_w - p.pad_w, y * p.stride_h - p.pad_h, i32(n));
}

fn inside(x: i32, y: i32) -> bool {
    return x >= 0 && x < p.in_w && y >= 0 && y < p.in_h;
}

// Where a pixel's channels begin; of one outside the image: anywhere in it.
fn pixel_at(x: i32, y: i32, n: i32) -> u32 {
    let row = n * p.in_h + clamp(y, 0, p.in_h - 1);
    return u32(row * p.in_w + clamp(x, 0, p.in_w - 1)) * p.in_pixel;
}

@compute @workgroup_size(8, {{ROWS}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
#if SHARED
    @builtin(subgroup_invocation_id) lane: u32,
#endif
) {
    let o = (group.x * 8u + local.x) * {{WIDTH}}u;
    let first = ((group.z * p.row + group.y) * {{ROWS}}u + local.y) * {{PIXELS}}u;
    // The last tiles stick out: their surplus reads what is there and writes nothing.
    let wo = min(o, p.out_c - {{WIDTH}}u);
#if SHARED
#for v in 0..PIXELS / 8
    let window_{{v}} = window(min(first + {{v * 8}}u + lane, p.pixels - 1u));
#endfor
#else
#for v in 0..PIXELS
    let window_{{v}} = window(min(first + {{v}}u, p.pixels - 1u));
#endfor
#if IN_VEC4
    let channel = wo / p.group_out * p.group_v;
#else
    let channel = wo / p.group_out * p.group_c;
#endif
#endif
    let bias = weights[p.bias + wo / 4u];
#for c in 0..WIDTH
    let bias_{{c}} = bias[(wo + {{c}}u) % 4u];
#for i in 0..PIXELS
    var sum_{{i}}_{{c}} = bias_{{c}};
#endfor
#endfor
    var w = wo;
    for (var ky = 0u; ky < p.kernel_h; ky++) {
        for (var kx = 0u; kx < p.kernel_w; kx++) {
#if SHARED
#for v in 0..PIXELS / 8
            let x_{{v}} = window_{{v}}.x + i32(kx) * p.dilation_w;
            let y_{{v}} = window_{{v}}.y + i32(ky) * p.dilation_h;
            let inside_{{v}} = inside(x_{{v}}, y_{{v}});
            let at_{{v}} = pixel_at(x_{{v}}, y_{{v}}, window_{{v}}.z);
#endfor
#else
#for v in 0..PIXELS
            let x_{{v}} = window_{{v}}.x + i32(kx) * p.dilation_w;
            let y_{{v}} = window_{{v}}.y + i32(ky) * p.dilation_h;
            let inside_{{v}} = inside(x_{{v}}, y_{{v}});
            let at_{{v}} = pixel_at(x_{{v}}, y_{{v}}, window_{{v}}.z) + channel;
#endfor
#endif
            for (var k = 0u; k < p.group_v; k++) {
#for c in 0..WIDTH
                let w_{{c}} = weights[w + {{c}}u];
#endfor
#if SHARED
#for v in 0..PIXELS / 8
                let mine_{{v}} = select(V(), load(at_{{v}}, k), inside_{{v}});
#for i in 0..8
                let v_{{v * 8 + i}} = subgroupBroadcast(mine_{{v}}, {{i}}u);
#endfor
#endfor
#else
#for i in 0..PIXELS
                let v_{{i}} = select(V(), load(at_{{i}}, k), inside_{{i}});
#endfor
#endif
#for i in 0..PIXELS
#for c in 0..WIDTH
                sum_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#endfor
#endfor
                w += p.out_c;
            }
        }
    }
    if o >= p.out_c {
        return;
    }
#for i in 0..PIXELS
    if first + {{i}}u < p.pixels {
        let at = ((first + {{i}}u) * p.out_c + o) / {{WIDTH}}u;
#if WIDTH == 1
        output[at] = finish(sum_{{i}}_0, at, o);
#else
#if WIDTH == 2
        output[at] = finish(T(sum_{{i}}_0, sum_{{i}}_1), at, o / 2u);
#else
        output[at] = finish(T(sum_{{i}}_0, sum_{{i}}_1, sum_{{i}}_2, sum_{{i}}_3), at, o / 4u);
#endif
#endif
    }
#endfor
}
