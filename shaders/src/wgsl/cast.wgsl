// Conversion between element types.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
}

#if VEC4
alias A = vec4<{{FROM}}>;
alias B = vec4<{{TO}}>;
#else
alias A = {{FROM}};
alias B = {{TO}};
#endif

@group(0) @binding(0) var<storage, read> input: array<A>;
@group(0) @binding(1) var<storage, read_write> output: array<B>;
#include "params"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let v = input[i];
        output[i] = {{CONVERSION}};
#include "walk_on"
}
