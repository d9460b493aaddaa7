// The index along a dimension of the largest or smallest element.

struct Params {
    // Number of lines.
    count: u32,
    // Elements of a line.
    size: u32,
    // Distance between neighbouring elements of a line.
    inner: u32,
}

@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;
#include "params"

#include "divide"
#include "order"
#include "split"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let line = (group.y * groups.x + group.x) * {{WORKGROUP / SPLIT}}u + item_of(local);
    let i = min(line, p.count - 1u);
    let outer = divide(i, p.inner);
    let first = outer * p.size * p.inner + (i - outer * p.inner);
    var best = NONE;
    for (var n = part_of(local); n < p.size; n += {{SPLIT}}u) {
        best = combine(best, P(order(input[first + n * p.inner]), n), 0u);
    }
    best = across(best, local, 0u);
    if line < p.count && part_of(local) == 0u {
        output[line] = best.index;
    }
}
