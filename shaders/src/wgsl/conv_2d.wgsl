// Convolution. Tiles cover the flattened output images. POINTWISE: windows of one pixel, one for every
// pixel of the input.

struct Params {
    in_h: i32,
    in_w: i32,
    // Elements of a pixel of the input, or vectors of four where channels come in fours.
    in_pixel: u32,
    // Input channels of a group, and vectors of four of them.
    group_c: u32,
    group_v: u32,
    // Pixels of all output images.
    out_pixels: u32,
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
    // Offset of the bias in weights.
    bias: u32,
    // Workgroups along the pixels in one row of the dispatch.
    row: u32,
#include "epilogue_params"
}

#include "conv"

#if !POINTWISE
// Top left corner of an output pixel's window, and its image.
fn window(pixel: u32) -> vec3<i32> {
    let row = divide(pixel, p.out_w);
    let n = divide(row, p.out_h);
    let x = i32(pixel - row * p.out_w);
    let y = i32(row - n * p.out_h);
    return vec3(x * p.stride_w - p.pad_w, y * p.stride_h - p.pad_h, i32(n));
}
#endif

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
    let first = (group.z * p.row + group.y) * {{PIXELS}}u;
#else
    let first = ((group.z * p.row + group.y) * {{ROWS}}u + local.y) * {{PIXELS}}u;
#endif
#include "conv_begin"
#for v in 0..VECTORS
#if SHARED
    let pixel_of_{{v}} = min(first + {{v * 8}}u + lane, p.out_pixels - 1u);
#else
    let pixel_of_{{v}} = min(first + {{v}}u, p.out_pixels - 1u);
#endif
#if INTEGERS
    let zero_{{v}} = V(zero_of(row_of(pixel_of_{{v}})));
#endif
#if POINTWISE
    let at_{{v}} = pixel_of_{{v}} * p.in_pixel + channel;
#else
    let window_{{v}} = window(pixel_of_{{v}});
#endif
#endfor
    var w = wo;
#if SPLIT
    var tap_w = wo;
#endif
#if POINTWISE
#include "conv_tap"
#else
    for (var ky = 0u; ky < p.kernel_h; ky++) {
        let down = i32(ky) * p.dilation_h;
        for (var kx = 0u; kx < p.kernel_w; kx++) {
            let across = i32(kx) * p.dilation_w;
#include "conv_tap"
        }
    }
#endif
#for i in 0..PIXELS
    let pixel_{{i}} = first + {{i}}u;
#endfor
#include "conv_end"
}
