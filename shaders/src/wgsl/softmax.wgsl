// Softmax or its logarithm along the innermost dimension.

struct Params {
    rows: u32,
    // Elements of a row, or vectors of four.
    depth: u32,
    beta: f32,
}

#if VEC4
alias T = vec4<f32>;
#else
alias T = f32;
#endif
alias P = T;

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

const MAX = 0u;
const SUM = 1u;

fn combine(x: P, y: P, how: u32) -> P {
    return select(max(x, y), x + y, how == SUM);
}

#include "split"

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
    largest = across(largest, local, MAX);
#if VEC4
    let top = max(max(largest.x, largest.y), max(largest.z, largest.w));
#else
    let top = largest;
#endif
    var sum = T();
    for (var i = first; i < end; i += {{SPLIT}}u) {
        sum += exp((input[i] - top) * p.beta);
    }
    sum = across(sum, local, SUM);
#if VEC4
    let total = sum.x + sum.y + sum.z + sum.w;
#else
    let total = sum;
#endif
    if row >= p.rows {
        return;
    }
#if LOG
    let logarithm = log(total);
    for (var i = first; i < end; i += {{SPLIT}}u) {
        output[i] = (input[i] - top) * p.beta - logarithm;
    }
#else
    let scale = 1.0 / total;
    for (var i = first; i < end; i += {{SPLIT}}u) {
        output[i] = exp((input[i] - top) * p.beta) * scale;
    }
#endif
}
