// Resizing of images, bilinear or to the nearest pixel.

struct Params {
    // Elements of a row of the output, or vectors of four.
    count: u32,
    items: u32,
    // Channels (or vectors of four) and columns.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    in_h: i32,
    in_w: i32,
    out_h: u32,
    // Input pixels per output pixel.
    scale_h: f32,
    scale_w: f32,
    // Added to an output coordinate before scaling it, and to an input coordinate after.
    before: f32,
    after: f32,
}

#if VEC4
alias T = vec4<f32>;
#else
alias T = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let y = (f32(group.y) + p.before) * p.scale_h + p.after;
    let channels = i32(p.extent_0);
    let row = p.in_w * channels;
    let image = i32(group.z) * p.in_h * row;
    let out_row = (group.z * p.out_h + group.y) * p.count;
#if BILINEAR
    let y0 = max(i32(floor(y)), 0);
    let down = y - f32(y0);
    let top = image + y0 * row;
    let bottom = image + min(i32(ceil(y)), p.in_h - 1) * row;
#else
    let top = image + clamp(i32(floor(y)), 0, p.in_h - 1) * row;
#endif
#include "walk"
        let x = (f32(digit_1) + p.before) * p.scale_w + p.after;
        let channel = i32(digit_0);
#if BILINEAR
        let x0 = max(i32(floor(x)), 0);
        let along = x - f32(x0);
        let left = x0 * channels + channel;
        let right = min(i32(ceil(x)), p.in_w - 1) * channels + channel;
        let above = input[top + left] * (1.0 - along) + input[top + right] * along;
        let below = input[bottom + left] * (1.0 - along) + input[bottom + right] * along;
        output[out_row + i] = above * (1.0 - down) + below * down;
#else
        output[out_row + i] = input[top + clamp(i32(floor(x)), 0, p.in_w - 1) * channels + channel];
#endif
#include "walk_on"
}
