// Convolution in blocks, as sums of outer products: a workgroup computes BLOCK_PIXELS output pixels by BLOCK_CHANNELS output
// channels. In every step it copies the inputs and weights of DEPTH vectors of four terms to workgroup memory, four pixels
// or channels to a vector, from which an invocation multiplies OWN_PIXELS vectors of pixels by OWN_CHANNELS vectors of
// channels.
//
// Terms are numbered row by row of the window, then by column and channel, as the weights are.

struct Params {
#include "conv_2d_params"
#include "epilogue_params"
}

#include "conv"

#include "window"

#include "outer_memory"

#include "conv_terms"
#include "conv_store"

@compute @workgroup_size({{INVOCATIONS}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let first_pixel = (group.z * p.row + group.y) * {{BLOCK_PIXELS}}u;
    let first_channel = group.x * {{BLOCK_CHANNELS}}u;
#include "outer_place"
    // Surplus pixels and channels are copies of the last ones, which nothing stores.
#for v in 0..PIXEL_LOADS
#for j in 0..4
    let pixel_of_{{v}}_{{j}} = min(first_pixel + pixel_four_{{v}} * 4u + {{j}}u, p.out_pixels - 1u);
#if INTEGERS
    let zero_{{v}}_{{j}} = V(zero_of(row_of(pixel_of_{{v}}_{{j}})));
#else
    let zero_{{v}}_{{j}} = V();
#endif
#if POINTWISE
    let at_{{v}}_{{j}} = pixel_of_{{v}}_{{j}} * p.in_pixel;
#else
    let window_{{v}}_{{j}} = window(pixel_of_{{v}}_{{j}});
#endif
#endfor
#endfor
#for v in 0..FILTER_LOADS
#for j in 0..4
    let channel_{{v}}_{{j}} = min(first_channel + channel_four_{{v}} * 4u + {{j}}u, p.out_c - 1u);
#endfor
#endfor
    // From the uniform block itself: barriers must be in uniform control flow, and a private variable is not uniform.
    let terms = uniforms.kernel_h * uniforms.kernel_w * uniforms.group_v;
    {
#include "conv_outer_next"
    }
    for (var step = 0u; step < terms; step += {{DEPTH}}u) {
        workgroupBarrier();
#include "outer_copies"
        workgroupBarrier();
        // The next step's loads, which overlap with the products of this one; zeros after the last terms.
        next += {{DEPTH}}u;
#include "conv_outer_next"
#include "outer_products"
    }

#for f in 0..OWN_CHANNELS
    let channel_four_of_{{f}} = first_channel + ({{f * COLUMNS}}u + across) * 4u;
#for g in 0..OWN_PIXELS
#for j in 0..4
    store(first_pixel + ({{g * ROWS}}u + down) * 4u + {{j}}u, channel_four_of_{{f}},
        array<S, 4>(sum_{{4 * g + j}}_{{f}}[0], sum_{{4 * g + j}}_{{f}}[1], sum_{{4 * g + j}}_{{f}}[2], sum_{{4 * g + j}}_{{f}}[3]));
#endfor
#endfor
#endfor
}
