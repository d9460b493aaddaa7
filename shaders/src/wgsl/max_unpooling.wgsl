// Places elements at their positions in windows, with zeros elsewhere. Where windows overlap, the last one is kept.

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
    // Rows above and columns left of the output.
    pad_h: i32,
    pad_w: i32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> places: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
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
        // The windows that contain this pixel.
        let y = i32(digit_2) + p.pad_h;
        let x = i32(digit_1) + p.pad_w;
        let y0 = max(0, y - p.window_h + p.stride_h) / p.stride_h;
        let x0 = max(0, x - p.window_w + p.stride_w) / p.stride_w;
        var result = 0.0;
        for (var iy = y0; iy < min(p.in_h, y / p.stride_h + 1); iy++) {
            for (var ix = x0; ix < min(p.in_w, x / p.stride_w + 1); ix++) {
                let at = u32((i32(digit_3) * p.in_h + iy) * p.in_w + ix) * p.extent_0 + digit_0;
                let place = (y - iy * p.stride_h) * p.window_w + x - ix * p.stride_w;
                let mine = places[at] >= 0.0 && places[at] < f32(p.window_h * p.window_w);
                if mine && i32(places[at]) == place {
                    result = input[at];
                }
            }
        }
        output[i] = result;
#include "walk_on"
}
