// Absolute values of complex numbers. The larger part is factored out of the root, so that squares do not overflow.

struct Params {
    count: u32,
    items: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
}

@group(0) @binding(0) var<storage, read> input: array<vec2<f32>>;
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
        let parts = abs(input[digit_0]);
        let large = max(parts.x, parts.y);
        // Equal parts may be zero or infinite.
        let ratio = select(min(parts.x, parts.y) / large, 1.0, parts.x == parts.y);
        output[digit_0] = large * sqrt(1.0 + ratio * ratio);
#include "walk_on"
}
