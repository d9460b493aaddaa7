// Zeros, to which updates are added at index tuples. Every element searches all updates for its own, in their
// order, so that sums are the same on every device.

struct Params {
    // Elements of the output.
    count: u32,
    items: u32,
    // Inner elements, and positions that tuples index.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    tuples: u32,
#for n in 0..DEPTH
    size_{{n}}: i32,
    stride_{{n}}: i32,
#endfor
}

@group(0) @binding(0) var<storage, read> indices: array<i32>;
@group(0) @binding(1) var<storage, read> updates: array<{{ELEMENT}}>;
@group(0) @binding(2) var<storage, read_write> output: array<{{ELEMENT}}>;
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
        var sum = {{ELEMENT}}(0);
        for (var tuple = 0u; tuple < p.tuples; tuple++) {
            var mine = true;
            var at = 0;
#for n in 0..DEPTH
            let index_{{n}} = indices[tuple * {{DEPTH}}u + {{n}}u];
            mine = mine & (index_{{n}} >= 0) & (index_{{n}} < p.size_{{n}});
            at += index_{{n}} * p.stride_{{n}};
#endfor
            if mine && at == i32(digit_1) {
#if OR
                sum |= updates[tuple * p.extent_0 + digit_0];
#else
                sum += updates[tuple * p.extent_0 + digit_0];
#endif
            }
        }
        output[i] = sum;
#include "walk_on"
}
