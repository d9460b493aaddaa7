// The largest element of each window, or its position in the window.

struct Params {
    count: u32,
    items: u32,
    // Channels, columns, rows and images.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    in_h: i32,
    in_w: i32,
    window_h: i32,
    window_w: i32,
    stride_h: i32,
    stride_w: i32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    low: f32,
    high: f32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
#include "params"

#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let top = i32(digit_2) * p.stride_h - p.pad_h;
        let left = i32(digit_1) * p.stride_w - p.pad_w;
        var largest = -3.4028234e38;
        // The fraction guards against rounding when it is truncated later.
        var place = 0.1;
        for (var y = max(0, -top); y < min(p.window_h, p.in_h - top); y++) {
            for (var x = max(0, -left); x < min(p.window_w, p.in_w - left); x++) {
                let pixel = (i32(digit_3) * p.in_h + top + y) * p.in_w + left + x;
                let value = input[u32(pixel) * p.extent_0 + digit_0];
                if value > largest {
                    largest = value;
                    place = f32(y * p.window_w + x) + 0.1;
                }
            }
        }
#if PLACES
        output[i] = place;
#else
        output[i] = min(max(largest, p.low), p.high);
#endif
#include "walk_on"
}
