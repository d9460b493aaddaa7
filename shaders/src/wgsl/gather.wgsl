// output[batch, outer, i, inner] = input[batch, outer, indices[batch, i], inner].

struct Params {
    // Words of the output, or vectors of four.
    count: u32,
    inner: u32,
    indices: u32,
    // Extent of the gathered dimension.
    axis: i32,
    outer: u32,
}

#if VEC4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
@group(0) @binding(3) var<uniform> p: Params;

#include "item"
#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = item_index(group, groups, local);
    if i >= p.count {
        return;
    }
    let row = divide(i, p.inner);
    let outer = divide(row, p.indices);
    let batch = divide(outer, p.outer);
    let index = indices[batch * p.indices + row - outer * p.indices];
    let from_end = select(index, index + p.axis, index < 0);
    let src = (outer * u32(p.axis) + u32(clamp(from_end, 0, p.axis - 1))) * p.inner + i - row * p.inner;
    output[i] = select(T(0u), input[src], from_end >= 0 && from_end < p.axis);
}
