// Resizing of images, bilinear or to the nearest pixel.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    // Channels, or vectors of four.
    channels: u32,
    in_h: i32,
    in_w: i32,
    out_h: u32,
    out_w: u32,
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
@group(0) @binding(2) var<uniform> p: Params;

#include "item"
#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = item_index(group, groups, local);
    if i >= p.count {
        return;
    }
    let pixel = divide(i, p.channels);
    let out_row = divide(pixel, p.out_w);
    let n = divide(out_row, p.out_h);
    let channel = i - pixel * p.channels;
    let y = (f32(out_row - n * p.out_h) + p.before) * p.scale_h + p.after;
    let x = (f32(pixel - out_row * p.out_w) + p.before) * p.scale_w + p.after;
    let row = p.in_w * i32(p.channels);
    let image = i32(n) * p.in_h * row + i32(channel);
#if BILINEAR
    let y0 = max(i32(floor(y)), 0);
    let x0 = max(i32(floor(x)), 0);
    let y1 = min(i32(ceil(y)), p.in_h - 1);
    let x1 = min(i32(ceil(x)), p.in_w - 1);
    let top = image + y0 * row;
    let bottom = image + y1 * row;
    let left = x0 * i32(p.channels);
    let right = x1 * i32(p.channels);
    let down = y - f32(y0);
    let along = x - f32(x0);
    let above = input[top + left] * (1.0 - along) + input[top + right] * along;
    let below = input[bottom + left] * (1.0 - along) + input[bottom + right] * along;
    output[i] = above * (1.0 - down) + below * down;
#else
    let iy = clamp(i32(floor(y)), 0, p.in_h - 1);
    let ix = clamp(i32(floor(x)), 0, p.in_w - 1);
    output[i] = input[image + iy * row + ix * i32(p.channels)];
#endif
}
