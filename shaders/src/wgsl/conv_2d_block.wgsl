// Convolution in blocks, for devices with fast workgroup memory: a workgroup computes BLOCK_PIXELS output pixels by
// BLOCK_CHANNELS output channels. In every step it copies the inputs and weights of DEPTH vectors of four terms to
// workgroup memory, from which an invocation multiplies PIXELS pixels by FOURS vectors of four channels.
//
// SLICES > 1: SLICES groups of invocations compute the same block, each from every SLICES-th vector of terms, and their
// results are summed at the end. For outputs that are too small to occupy the device otherwise.
//
// Terms are numbered row by row of the window, then by column and channel, as the weights are.

struct Params {
#include "conv_2d_params"
#include "epilogue_params"
}

#include "conv"

#include "window"

// Inputs [vector of terms][pixel], then weights [vector of terms][channel % 4][channel / 4]; rows are padded, so that
// invocations that access different rows access different banks. At the end, sums of slices that are floats.
var<workgroup> operands: array<V, {{OPERANDS}}>;
#if SUMS > 0 && SLICES > 1
// Sums of slices.
var<workgroup> parts: array<vec4<S>, {{PARTS}}>;
#endif

#include "conv_terms"
#include "conv_store"

// Not dot(): a chain of fused operations takes fewer instructions.
fn add(sum: f32, v: V, w: V) -> f32 {
    return fma(v.w, w.w, fma(v.z, w.z, fma(v.y, w.y, fma(v.x, w.x, sum))));
}

@compute @workgroup_size({{SLICE * SLICES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#if SLICES == 1
    let slice = 0u;
#else
    let slice = local / {{SLICE}}u;
#endif
    let place = local % {{SLICE}}u;
    // 32 invocations form a block of LANES columns, so that those of a subgroup read few different rows and columns.
    let lane = place % 32u;
    let across = place / 32u % {{COLUMNS / LANES}}u * {{LANES}}u + lane % {{LANES}}u;
    let down = place / 32u / {{COLUMNS / LANES}}u * {{32 / LANES}}u + lane / {{LANES}}u;
#include "conv_copies"
#for v in 0..PIXEL_LOADS
    let to_pixel_{{v}} = local % {{DEPTH}}u * {{PIXEL_STRIDE}}u + row + {{v * LOADED_PIXELS}}u;
#endfor
    let to_filter = {{DEPTH * PIXEL_STRIDE}}u + local / {{BLOCK_CHANNELS}}u * {{4 * FILTER_STRIDE}}u
        + column % 4u * {{FILTER_STRIDE}}u + column / 4u;

#for i in 0..PIXELS
#for o in 0..4 * FOURS
    var sum_{{i}}_{{o}} = S();
#if SUMS == 1
    var part_{{i}}_{{o}} = 0.0;
#endif
#endfor
#endfor
#if SUMS == 1
    // Vectors of terms in each part.
    var filled = 0u;
#endif
    for (var step = 0u; step < terms; step += {{DEPTH}}u) {
        workgroupBarrier();
#for v in 0..PIXEL_LOADS
        operands[to_pixel_{{v}}] = pixel_{{v}};
#endfor
#for v in 0..FILTER_LOADS
        operands[to_filter + {{v * LOADED_TERMS * 4 * FILTER_STRIDE}}u] = filter_{{v}};
#endfor
        workgroupBarrier();
#include "conv_next"
        for (var k = slice; k < {{DEPTH}}u; k += {{SLICES}}u) {
            let from_pixel = k * {{PIXEL_STRIDE}}u + down;
            let from_filter = {{DEPTH * PIXEL_STRIDE}}u + k * {{4 * FILTER_STRIDE}}u + across;
#for o in 0..4 * FOURS
            let w_{{o}} = operands[from_filter + {{o % 4 * FILTER_STRIDE + o / 4 * COLUMNS}}u];
#endfor
#for i in 0..PIXELS
            let v_{{i}} = operands[from_pixel + {{i * ROWS}}u];
#for o in 0..4 * FOURS
#if SUMS == 1
            part_{{i}}_{{o}} = add(part_{{i}}_{{o}}, v_{{i}}, w_{{o}});
#else
            sum_{{i}}_{{o}} = add(sum_{{i}}_{{o}}, v_{{i}}, w_{{o}});
#endif
#endfor
#endfor
        }
#if SUMS == 1
        filled += {{DEPTH / SLICES}}u;
        if filled + {{DEPTH / SLICES}}u > p.block {
            filled = 0u;
#for i in 0..PIXELS
#for o in 0..4 * FOURS
            sum_{{i}}_{{o}} += part(part_{{i}}_{{o}});
            part_{{i}}_{{o}} = 0.0;
#endfor
#endfor
        }
#endif
    }
#if SUMS == 1
#for i in 0..PIXELS
#for o in 0..4 * FOURS
    sum_{{i}}_{{o}} += part(part_{{i}}_{{o}});
#endfor
#endfor
#endif

#if SLICES > 1
    // Half of the slices at a time are added to the other half.
    for (var half = {{SLICES / 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if slice >= half && slice < 2u * half {
#for i in 0..PIXELS
#for f in 0..FOURS
            {{PARTS_IN}}[({{i * FOURS + f}}u * half + slice - half) * {{SLICE}}u + place] =
                vec4<S>(sum_{{i}}_{{4 * f}}, sum_{{i}}_{{4 * f + 1}}, sum_{{i}}_{{4 * f + 2}}, sum_{{i}}_{{4 * f + 3}});
#endfor
#endfor
        }
        workgroupBarrier();
        if slice < half {
#for i in 0..PIXELS
#for f in 0..FOURS
            let more_{{i}}_{{f}} = {{PARTS_IN}}[({{i * FOURS + f}}u * half + slice) * {{SLICE}}u + place];
#for o in 0..4
            sum_{{i}}_{{4 * f + o}} += more_{{i}}_{{f}}[{{o}}];
#endfor
#endfor
#endfor
        }
    }
    if slice > 0u {
        return;
    }
#endif

#for f in 0..FOURS
    let channel_{{f}} = first_channel + (across + {{f * COLUMNS}}u) * 4u;
#for i in 0..PIXELS
    store(first_pixel + down + {{i * ROWS}}u, channel_{{f}},
        array<S, 4>(sum_{{i}}_{{4 * f}}, sum_{{i}}_{{4 * f + 1}}, sum_{{i}}_{{4 * f + 2}}, sum_{{i}}_{{4 * f + 3}}));
#endfor
#endfor
}
