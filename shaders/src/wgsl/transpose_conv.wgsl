// Transposed convolution. Output pixels whose coordinates (plus padding) have the same remainder modulo the
// stride share their taps, a stride apart: each such phase is an ordinary convolution with a flipped filter.

struct Params {
    in_h: i32,
    in_w: i32,
    // Elements of a pixel of the input, or vectors of four where channels come in fours.
    in_pixel: u32,
    // Input channels, and vectors of four of them.
    group_c: u32,
    group_v: u32,
    // Pixels of all output images.
    out_pixels: u32,
    out_h: u32,
    out_w: u32,
    out_c: u32,
    // Equal to out_c: the output channels of the only group.
    group_out: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_h: u32,
    pad_w: u32,
    // Offset of the bias in weights.
    bias: u32,
    // Rows and columns of a phase, and pixels of all its images.
    phase_h: u32,
    phase_w: u32,
    phase_pixels: u32,
#include "epilogue_params"
}

#include "conv"

// Output coordinates and image of a phase's pixel.
fn place(pixel: u32, first: vec2<u32>) -> vec3<u32> {
    let row = divide(pixel, p.phase_w);
    let n = divide(row, p.phase_h);
    let x = (pixel - row * p.phase_w) * p.stride_w + first.x;
    let y = (row - n * p.phase_h) * p.stride_h + first.y;
    return vec3(x, y, n);
}

// The input position of the first tap of an output pixel.
fn window(pixel: u32, first: vec2<u32>) -> vec3<i32> {
    let at = place(min(pixel, p.phase_pixels - 1u), first);
    return vec3(i32((at.x + p.pad_w) / p.stride_w), i32((at.y + p.pad_h) / p.stride_h), i32(at.z));
}

@compute @workgroup_size({{LANES}}, {{ROWS}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
#if SHARED
    @builtin(subgroup_invocation_id) lane: u32,
#endif
) {
    p = uniforms;
#if LANES == 1
    // Uniform for all invocations, as the weights are.
    let o = group.x * {{WIDTH}}u;
#else
    let o = (group.x * {{LANES}}u + local.x) * {{WIDTH}}u;
#endif
#if SPLIT
    let start = group.y * {{PIXELS}}u;
#else
    let start = (group.y * {{ROWS}}u + local.y) * {{PIXELS}}u;
#endif
    // The phase's first output pixel, and its first tap.
    let first = vec2(group.z % p.stride_w, group.z / p.stride_w);
    let tap_x = (first.x + p.pad_w) % p.stride_w;
    let tap_y = (first.y + p.pad_h) % p.stride_h;
#include "conv_begin"
#for v in 0..VECTORS
#if SHARED
    let window_{{v}} = window(start + {{v * 8}}u + lane, first);
#else
    let window_{{v}} = window(start + {{v}}u, first);
#endif
#if INTEGERS
    let zero_{{v}} = V(zero_of(u32(window_{{v}}.z)));
#endif
#endfor
    var down = 0;
    for (var ky = tap_y; ky < p.kernel_h; ky += p.stride_h) {
        var across = 0;
        for (var kx = tap_x; kx < p.kernel_w; kx += p.stride_w) {
            var w = (ky * p.kernel_w + kx) * p.group_v * p.out_c + wo;
#include "conv_tap"
            across -= 1;
        }
        down -= 1;
    }
#for i in 0..PIXELS
    let at_{{i}} = place(start + {{i}}u, first);
    // Phases that end early have pixels beyond the image.
    let there_{{i}} = (start + {{i}}u < p.phase_pixels) & (at_{{i}}.x < p.out_w) & (at_{{i}}.y < p.out_h);
    let row_{{i}} = at_{{i}}.z * p.out_h + at_{{i}}.y;
    let pixel_{{i}} = select(p.out_pixels, row_{{i}} * p.out_w + at_{{i}}.x, there_{{i}});
#endfor
#include "conv_end"
}
