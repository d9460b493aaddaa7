// Average or maximum over a window. The average counts only what lies inside the image.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    in_h: i32,
    in_w: i32,
    // Channels, or vectors of four.
    channels: u32,
    out_h: u32,
    out_w: u32,
    window_h: i32,
    window_w: i32,
    stride_h: i32,
    stride_w: i32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    act_a: f32,
    act_b: f32,
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
#include "math"

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
    let row = divide(pixel, p.out_w);
    let n = divide(row, p.out_h);
    let channel = i - pixel * p.channels;
    let top = i32(row - n * p.out_h) * p.stride_h - p.pad_h;
    let left = i32(pixel - row * p.out_w) * p.stride_w - p.pad_w;
    // A window may lie outside altogether; it is moved to the border then, and an average of nothing is 0.
    let y0 = clamp(top, 0, p.in_h - 1);
    let y1 = min(top + p.window_h, p.in_h);
    let x0 = clamp(left, 0, p.in_w - 1);
    let x1 = min(left + p.window_w, p.in_w);
    let image = n * u32(p.in_h);
    var result = {{START}};
    for (var y = y0; y < y1; y++) {
        var at = ((image + u32(y)) * u32(p.in_w) + u32(x0)) * p.channels + channel;
        for (var x = x0; x < x1; x++) {
#if AVERAGE
            result += input[at];
#else
            result = max(result, input[at]);
#endif
            at += p.channels;
        }
    }
#if AVERAGE
    let v = result / f32(max((y1 - y0) * (x1 - x0), 1));
#else
    let v = result;
#endif
    output[i] = {{ACTIVATION}};
}
