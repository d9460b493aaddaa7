enable f16;
enable wgpu_cooperative_matrix;
// Convolution of 16-bit floats by matrix units, with 32-bit sums: a workgroup computes BLOCK_PIXELS output pixels by
// BLOCK_CHANNELS output channels. In every step it copies the inputs and weights of DEPTH vectors of four terms to
// workgroup memory, from which a subgroup multiplies TILES_DOWN by TILES_ACROSS tiles of 16 pixels by 16 channels.
//
// Terms are numbered row by row of the window, then by column and channel, as the weights are. The input and the
// weights are stored in 16 bits, so that converting what is loaded back to 16 bits changes nothing.

struct Params {
#include "conv_2d_params"
#include "epilogue_params"
}

#include "conv"

#include "window"

// Rows of terms, with padding between them, so that rows begin in different banks.
var<workgroup> pixels: array<vec4<f16>, {{BLOCK_PIXELS * STRIDE}}>;
var<workgroup> filters: array<vec4<f16>, {{BLOCK_CHANNELS * STRIDE}}>;
// A tile of results per subgroup.
var<workgroup> sums: array<f32, {{SUBGROUPS * 256}}>;

alias MatrixA = coop_mat16x16<f16, A>;
alias MatrixB = coop_mat16x16<f16, B>;
alias MatrixC = coop_mat16x16<f32, C>;

#include "conv_terms"
#include "conv_store"

@compute @workgroup_size({{INVOCATIONS}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    p = uniforms;
    let across = subgroup % {{SUBGROUPS_ACROSS}}u * {{16 * TILES_ACROSS}}u;
    let down = subgroup / {{SUBGROUPS_ACROSS}}u * {{16 * TILES_DOWN}}u;
#include "conv_copies"
#for v in 0..PIXEL_LOADS
    let to_pixel_{{v}} = (row + {{v * LOADED_PIXELS}}u) * {{STRIDE}}u + local % {{DEPTH}}u;
#endfor
    let to_filter = column * {{STRIDE}}u + local / {{BLOCK_CHANNELS}}u;

#for i in 0..TILES_DOWN
#for o in 0..TILES_ACROSS
    var sum_{{i}}_{{o}} = MatrixC();
#endfor
#endfor
    for (var step = 0u; step < terms; step += {{DEPTH}}u) {
        workgroupBarrier();
#for v in 0..PIXEL_LOADS
        pixels[to_pixel_{{v}}] = vec4<f16>(pixel_{{v}});
#endfor
#for v in 0..FILTER_LOADS
        filters[to_filter + {{v * LOADED_TERMS}}u] = vec4<f16>(filter_{{v}});
#endfor
        workgroupBarrier();
#include "conv_next"
#for k in 0..DEPTH / 4
#for o in 0..TILES_ACROSS
        let b_{{k}}_{{o}} = coopLoad<MatrixB>(&filters[(across + {{16 * o}}u) * {{STRIDE}}u + {{4 * k}}u], {{STRIDE}}u);
#endfor
#for i in 0..TILES_DOWN
        let a_{{k}}_{{i}} = coopLoadT<MatrixA>(&pixels[(down + {{16 * i}}u) * {{STRIDE}}u + {{4 * k}}u], {{STRIDE}}u);
#for o in 0..TILES_ACROSS
        sum_{{i}}_{{o}} = coopMultiplyAdd(a_{{k}}_{{i}}, b_{{k}}_{{o}}, sum_{{i}}_{{o}});
#endfor
#endfor
#endfor
    }

    // Every invocation stores two vectors of each matrix.
    let first = subgroup * 256u + lane * 4u;
    let pixel = first_pixel + down + lane / 4u;
#for o in 0..TILES_ACROSS
    let channel_{{o}} = first_channel + across + {{16 * o}}u + lane % 4u * 4u;
#for i in 0..TILES_DOWN
    workgroupBarrier();
    coopStoreT(sum_{{i}}_{{o}}, &sums[subgroup * 256u], 16u);
    workgroupBarrier();
    store(pixel + {{16 * i}}u, channel_{{o}}, array<S, 4>(sums[first], sums[first + 1u], sums[first + 2u], sums[first + 3u]));
    store(pixel + {{16 * i + 8}}u, channel_{{o}},
        array<S, 4>(sums[first + 128u], sums[first + 129u], sums[first + 130u], sums[first + 131u]));
#endfor
#endfor
}
