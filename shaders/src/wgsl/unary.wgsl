// A chain of unary functions over a tensor, in one pass.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
#for i in 0..STEPS
    a_{{i}}: f32,
    b_{{i}}: f32,
#endfor
}

#if VEC4
alias T = vec4<f32>;
#else
alias T = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "math"
#if ANGLES
#include "angles"
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        output[i] = {{CHAIN}};
#include "walk_on"
}
