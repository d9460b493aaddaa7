// Softmax of bytes along the innermost dimension.

struct Params {
    rows: u32,
    depth: u32,
    // Scale of the output.
    scale: f32,
    zero: i32,
    low: i32,
    high: i32,
    // Padding.
    nothing: u32,
}

alias P = i32;

@group(0) @binding(0) var<storage, read> input: array<i32>;
// The exponential of each difference to the maximum.
@group(0) @binding(1) var<storage, read> exponentials: array<f32, 256>;
@group(0) @binding(2) var<storage, read_write> output: array<i32>;
#include "params"

#include "exact"

fn combine(x: P, y: P, how: u32) -> P {
    return max(x, y);
}

#include "split"

#if SPLIT > 1
// The exponentials of all invocations, which each of them adds up in order.
var<workgroup> terms: array<f32, {{WORKGROUP}}>;
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let row = (group.y * groups.x + group.x) * {{WORKGROUP / SPLIT}}u + item_of(local);
    let begin = min(row, p.rows - 1u) * p.depth;
    let end = begin + p.depth;
    let first = begin + part_of(local);
    var largest = input[begin];
    for (var i = first; i < end; i += {{SPLIT}}u) {
        largest = max(largest, input[i]);
    }
    largest = across(largest, local, 0u);
    // The sum of floats depends on their order.
    var sum = 0.0;
#if SPLIT > 1
    // The loop's bound is a uniform, which compilers know to be equal for all invocations at a barrier.
    for (var start = 0u; start < uniforms.depth; start += {{SPLIT}}u) {
        let at = start + part_of(local);
        workgroupBarrier();
        if at < p.depth {
            terms[local] = exponentials[largest - input[begin + at]];
        }
        workgroupBarrier();
        let terms_here = min({{SPLIT}}u, p.depth - start);
        for (var i = 0u; i < terms_here; i++) {
            sum = opaque(sum + terms[i]);
        }
    }
#else
    for (var i = begin; i < end; i++) {
        sum = opaque(sum + exponentials[largest - input[i]]);
    }
#endif
    if row >= p.rows {
        return;
    }
    let factor = reciprocal(opaque(sum * p.scale));
    for (var i = first; i < end; i += {{SPLIT}}u) {
        let steps = opaque(exponentials[largest - input[i]] * factor);
#if CUT
        output[i] = i32(clamp(floor(steps + 0.5), f32(p.low), f32(p.high)));
#else
        output[i] = i32(clamp(nearest_whole(steps) + f32(p.zero), f32(p.low), f32(p.high)));
#endif
    }
}
