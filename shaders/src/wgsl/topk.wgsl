// The indices of the largest elements of each row, in descending order. One workgroup per row: it searches for the
// first element after the last one found, once per wanted element.

struct Params {
    rows: u32,
    // Elements of a row.
    size: u32,
    // Elements wanted of each row.
    wanted: u32,
}

@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;
#include "params"

#include "order"
#include "split"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    // Workgroups beyond the last row repeat it and write nothing.
    let row = group.y * groups.x + group.x;
    let first = min(row, p.rows - 1u) * p.size;
    var last = P(2147483647, 0u);
    for (var n = 0u; n < uniforms.wanted; n++) {
        var best = NONE;
        for (var at = part_of(local); at < p.size; at += {{SPLIT}}u) {
            let candidate = P(order(input[first + at]), at);
            if n == 0u || before(last, candidate) {
                best = combine(best, candidate, 0u);
            }
        }
        last = across(best, local, 0u);
        if row < p.rows && part_of(local) == 0u {
            output[row * p.wanted + n] = last.index;
        }
    }
}
