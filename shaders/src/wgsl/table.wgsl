// The table's entry for each integer.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
    // Length of the table, a power of two, minus one.
    mask: u32,
}

#if VEC4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

@group(0) @binding(0) var<storage, read> entries: array<u32>;
@group(0) @binding(1) var<storage, read> input: array<T>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let at = input[i] & T(p.mask);
#if VEC4
        output[i] = T(entries[at.x], entries[at.y], entries[at.z], entries[at.w]);
#else
        output[i] = entries[at];
#endif
#include "walk_on"
}
