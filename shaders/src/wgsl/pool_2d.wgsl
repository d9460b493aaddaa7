// Average or maximum over a window. The average counts only elements inside of the image.

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
    window_h: i32,
    window_w: i32,
    stride_h: i32,
    stride_w: i32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    act_a: f32,
    act_b: f32,
    // INTEGERS: minimum and maximum of the results.
    low: i32,
    high: i32,
}

#if VEC4
#if INTEGERS
alias T = vec4<i32>;
#else
alias T = vec4<f32>;
#endif
#else
#if INTEGERS
alias T = i32;
#else
alias T = f32;
#endif
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"
#if !INTEGERS
#include "math"
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    // A window outside of the image is moved to the border, and its average is 0.
    let top = i32(group.y) * p.stride_h - p.pad_h;
    let y0 = clamp(top, 0, p.in_h - 1);
    let y1 = min(top + p.window_h, p.in_h);
    let image = group.z * u32(p.in_h);
    let out_row = (group.z * p.out_h + group.y) * p.count;
#include "walk"
        let left = i32(digit_1) * p.stride_w - p.pad_w;
        let x0 = clamp(left, 0, p.in_w - 1);
        let x1 = min(left + p.window_w, p.in_w);
        var result = {{START}};
        for (var y = y0; y < y1; y++) {
            var at = ((image + u32(y)) * u32(p.in_w) + u32(x0)) * p.extent_0 + digit_0;
            for (var x = x0; x < x1; x++) {
#if AVERAGE
                result += input[at];
#else
                result = max(result, input[at]);
#endif
                at += p.extent_0;
            }
        }
#if INTEGERS
#if AVERAGE
        let size = max((y1 - y0) * (x1 - x0), 1);
        let half = select(T(-(size / 2)), T(size / 2), result > T(0));
        let v = (result + half) / size;
#else
        let v = result;
#endif
        output[out_row + i] = clamp(v, T(p.low), T(p.high));
#else
#if AVERAGE
        let v = result / f32(max((y1 - y0) * (x1 - x0), 1));
#else
        let v = result;
#endif
        output[out_row + i] = {{ACTIVATION}};
#endif
#include "walk_on"
}
