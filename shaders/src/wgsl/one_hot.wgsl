// One value where the index equals the position along a new dimension, another one elsewhere.

struct Params {
    // Words of the output.
    count: u32,
    items: u32,
    // Inner, class and outer.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
}

@group(0) @binding(0) var<storage, read> indices: array<i32>;
@group(0) @binding(1) var<storage, read> on: array<u32>;
@group(0) @binding(2) var<storage, read> off: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<u32>;
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
        let hot = indices[digit_2 * p.extent_0 + digit_0] == i32(digit_1);
        output[i] = select(off[0], on[0], hot);
#include "walk_on"
}
