// Convolution. Tiles cover the flattened output images. POINTWISE: windows of one pixel, one for every
// pixel of the input.

struct Params {
#include "conv_2d_params"
#include "epilogue_params"
}

#include "conv"

#include "window"

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
