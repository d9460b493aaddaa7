// Convolution. An invocation makes a register tile of PIXELS neighbours in a row (of the whole image
// when POINTWISE) times BLOCKS vectors of four output channels.
//
// weights: [kernel row][kernel column][input channels / 4][4][output channels], then the bias, with both
// channel counts padded to fours.

struct Params {
    // Input height, width and channels, all of them and of one group, the latter also in vectors.
    in_h: i32,
    in_w: i32,
    in_c: u32,
    group_c: u32,
    group_v: u32,
    // Output height, width and channels, the latter also in vectors, of all and of one group.
    out_h: u32,
    out_w: u32,
    out_c: u32,
    out_v: u32,
    group_out_v: u32,
    // Vectors of output channels over BLOCKS; pixels of a row over PIXELS; tiles in all.
    tiles_c: u32,
    tiles_w: u32,
    tiles: u32,
    // Kernel height and width.
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
#include "epilogue_params"
}

alias V = vec4<f32>;
#if IN_VEC4
alias I = vec4<f32>;
#else
alias I = f32;
#endif
#if OUT_VEC4
alias T = vec4<f32>;
#else
alias T = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<I>;
@group(0) @binding(1) var<storage, read> weights: array<V>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
@group(0) @binding(3) var<uniform> p: Params;

#include "epilogue"
#include "item"

// Four input channels from the c-th vector on. `at`: where the group's channels of the pixel begin.
fn load(at: u32, c: u32) -> V {
#if IN_VEC4
    return input[at + c];
#else
    var v = V(input[at + c * 4u], 0.0, 0.0, 0.0);
    let left = p.group_c - c * 4u;
    if left > 1u { v.y = input[at + c * 4u + 1u]; }
    if left > 2u { v.z = input[at + c * 4u + 2u]; }
    if left > 3u { v.w = input[at + c * 4u + 3u]; }
    return v;
#endif
}

fn store(pixel: u32, o: u32, v: V) {
#if OUT_VEC4
    let at = pixel * p.out_v + o;
    output[at] = finish(v, at, o);
#else
    let at = pixel * p.out_c + o * 4u;
    let left = p.out_c - o * 4u;
    output[at] = finish(v.x, at, o * 4u);
    if left > 1u { output[at + 1u] = finish(v.y, at + 1u, o * 4u + 1u); }
    if left > 2u { output[at + 2u] = finish(v.z, at + 2u, o * 4u + 2u); }
    if left > 3u { output[at + 3u] = finish(v.w, at + 3u, o * 4u + 3u); }
#endif
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = item_index(group, groups, local);
    if i >= p.tiles {
        return;
    }
    let o = (i % p.tiles_c) * {{BLOCKS}}u;
    let tile = i / p.tiles_c;
    let x = (tile % p.tiles_w) * {{PIXELS}}u;
    let row = tile / p.tiles_w;
    let y = row % p.out_h;
    let n = row / p.out_h;
#if IN_VEC4
    let pixel_size = p.in_c / 4u;
    let first = (o / p.group_out_v) * p.group_v;
#else
    let pixel_size = p.in_c;
    let first = (o / p.group_out_v) * p.group_c;
#endif
    // The last tile of a row is shifted into it when its tail would stick out: some pixels are made twice.
#for b in 0..BLOCKS
    let o_{{b}} = min(o + {{b}}u, p.out_v - 1u);
    let bias_{{b}} = weights[p.bias + o_{{b}}];
#for x in 0..PIXELS
    var sum_{{x}}_{{b}} = bias_{{b}};
#endfor
#endfor
    for (var ky = 0u; ky < p.kernel_h; ky++) {
        let iy = i32(y) * p.stride_h + i32(ky) * p.dilation_h - p.pad_h;
        if iy < 0 || iy >= p.in_h {
            continue;
        }
        let in_row = (n * u32(p.in_h) + u32(iy)) * u32(p.in_w);
        for (var kx = 0u; kx < p.kernel_w; kx++) {
            let ix = i32(x) * p.stride_w + i32(kx) * p.dilation_w - p.pad_w;
#for x in 0..PIXELS
            let ix_{{x}} = ix + {{x}} * p.stride_w;
            let inside_{{x}} = ix_{{x}} >= 0 && ix_{{x}} < p.in_w;
            let at_{{x}} = (in_row + u32(clamp(ix_{{x}}, 0, p.in_w - 1))) * pixel_size + first;
#endfor
            var w = (ky * p.kernel_w + kx) * p.group_v * 4u * p.out_v;
            for (var c = 0u; c < p.group_v; c++) {
#for x in 0..PIXELS
                let v_{{x}} = select(V(), load(at_{{x}}, c), inside_{{x}});
#endfor
#for b in 0..BLOCKS
                let w0_{{b}} = weights[w + o_{{b}}];
                let w1_{{b}} = weights[w + p.out_v + o_{{b}}];
                let w2_{{b}} = weights[w + 2u * p.out_v + o_{{b}}];
                let w3_{{b}} = weights[w + 3u * p.out_v + o_{{b}}];
#for x in 0..PIXELS
                sum_{{x}}_{{b}} += v_{{x}}.x * w0_{{b}} + v_{{x}}.y * w1_{{b}} + v_{{x}}.z * w2_{{b}} + v_{{x}}.w * w3_{{b}};
#endfor
#endfor
                w += 4u * p.out_v;
            }
        }
    }
    let pixel = row * p.out_w + x;
#for x in 0..PIXELS
    if x + {{x}}u < p.out_w {
#for b in 0..BLOCKS
        if o + {{b}}u < p.out_v { store(pixel + {{x}}u, o + {{b}}u, sum_{{x}}_{{b}}); }
#endfor
    }
#endfor
}
