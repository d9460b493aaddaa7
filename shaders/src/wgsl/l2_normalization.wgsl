// Scales rows to length 1.

struct Params {
    rows: u32,
    // Elements of a row, or vectors of four.
    depth: u32,
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

fn combine(x: P, y: P, how: u32) -> P {
    return x + y;
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
    var squares = T();
    for (var i = first; i < end; i += {{SPLIT}}u) {
        squares += input[i] * input[i];
    }
    squares = across(squares, local, 0u);
#if VEC4
    let total = squares.x + squares.y + squares.z + squares.w;
#else
    let total = squares;
#endif
    if row >= p.rows {
        return;
    }
    let norm = max(sqrt(total), 1e-6);
    for (var i = first; i < end; i += {{SPLIT}}u) {
        output[i] = input[i] / norm;
    }
}
