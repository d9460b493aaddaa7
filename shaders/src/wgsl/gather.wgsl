// output[batch, outer, i, inner] = input[batch, outer, indices[batch, i], inner].

struct Params {
    // Words of the output, or vectors of four.
    count: u32,
    items: u32,
    // Extent of the gathered dimension.
    axis: i32,
    // Inner, index, outer and batch.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
}

#if VEC4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
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
        let index = indices[digit_3 * p.extent_1 + digit_1];
        let from_end = select(index, index + p.axis, index < 0);
        let outer = digit_3 * p.extent_2 + digit_2;
        let src = (outer * u32(p.axis) + u32(clamp(from_end, 0, p.axis - 1))) * p.extent_0 + digit_0;
        output[i] = select(T(0u), input[src], from_end >= 0 && from_end < p.axis);
#include "walk_on"
}
