// Convolution in three dimensions, or its transpose. The filter has the model's layout: its two innermost extents are
// input and output channels, in the transpose output and input channels.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    items: u32,
    // Channels (or vectors of four), columns, rows, planes and images.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    // Columns, rows and planes.
#for d in 0..3
    in_{{d}}: i32,
    window_{{d}}: i32,
    stride_{{d}}: i32,
    dilation_{{d}}: i32,
    pad_{{d}}: i32,
#endfor
    in_c: u32,
    act_a: f32,
    act_b: f32,
}

#if VEC4
alias T = vec4<f32>;
#else
alias T = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<T>;
#if BIAS
@group(0) @binding(2) var<storage, read> bias: array<T>;
#endif
@group(0) @binding({{2 + BIAS}}) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"
#include "math"

// The input position of a tap along a dimension; outside of the input where the tap has none.
fn met(at: u32, tap: i32, stride: i32, dilation: i32, pad: i32) -> i32 {
#if TRANSPOSED
    let place = i32(at) + pad - tap * dilation;
    let whole = place / stride;
    return select(-1, whole, place >= 0 && whole * stride == place);
#else
    return i32(at) * stride - pad + tap * dilation;
#endif
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        var sum = T();
        for (var tap_2 = 0; tap_2 < p.window_2; tap_2++) {
            let at_2 = met(digit_3, tap_2, p.stride_2, p.dilation_2, p.pad_2);
            if at_2 < 0 || at_2 >= p.in_2 {
                continue;
            }
            for (var tap_1 = 0; tap_1 < p.window_1; tap_1++) {
                let at_1 = met(digit_2, tap_1, p.stride_1, p.dilation_1, p.pad_1);
                if at_1 < 0 || at_1 >= p.in_1 {
                    continue;
                }
                for (var tap_0 = 0; tap_0 < p.window_0; tap_0++) {
                    let at_0 = met(digit_1, tap_0, p.stride_0, p.dilation_0, p.pad_0);
                    if at_0 < 0 || at_0 >= p.in_0 {
                        continue;
                    }
                    let pixel = ((i32(digit_4) * p.in_2 + at_2) * p.in_1 + at_1) * p.in_0 + at_0;
                    let tap = u32((tap_2 * p.window_1 + tap_1) * p.window_0 + tap_0);
                    let first = u32(pixel) * p.in_c;
                    for (var c = 0u; c < p.in_c; c++) {
#if TRANSPOSED
                        sum += input[first + c] * weights[(tap * p.extent_0 + digit_0) * p.in_c + c];
#else
                        sum += input[first + c] * weights[(tap * p.in_c + c) * p.extent_0 + digit_0];
#endif
                    }
                }
            }
        }
#if BIAS
        let v = sum + bias[digit_0];
#else
        let v = sum;
#endif
        output[i] = {{ACTIVATION}};
#include "walk_on"
}
