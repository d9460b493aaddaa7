// Divides each value by a power of a sum over its neighbours along the channels.

struct Params {
    count: u32,
    items: u32,
    // Channels and pixels.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    radius: u32,
    bias: f32,
    alpha: f32,
    beta: f32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
#include "params"

alias T = f32;

fn power(x: T, y: T) -> T {
#include "power"
}

#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let before = min(p.radius, digit_0);
        let end = i - digit_0 + min(digit_0 + p.radius + 1u, p.extent_0);
        var sum = 0.0;
        for (var at = i - before; at < end; at++) {
            sum += input[at] * input[at];
        }
        output[i] = input[i] * power(p.bias + p.alpha * sum, -p.beta);
#include "walk_on"
}
