// A chain of unary functions over a tensor, in one pass.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
#for i in 0..STEPS
    a_{{i}}: f32,
    b_{{i}}: f32,
#endfor
}

#if VEC4
alias T = vec4<f32>;
#else
alias T = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "math"
#if ANGLES
#include "angles"
#endif

fn chain(v: T) -> T {
    return {{CHAIN}};
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#if PAIRS
    // Items are loaded in pairs, so that the latencies of loads overlap.
    let block = group.y * groups.x + group.x;
    let first = block * {{WORKGROUP}}u * p.items + local;
    for (var item = 0u; item < p.items; item += 2u) {
        let i = first + item * {{WORKGROUP}}u;
        let j = i + {{WORKGROUP}}u;
        let x = input[min(i, p.count - 1u)];
        let y = input[min(j, p.count - 1u)];
        if i < p.count {
            output[i] = chain(x);
        }
        if (j < p.count) & (item + 1u < p.items) {
            output[j] = chain(y);
        }
    }
#else
#include "walk"
        output[i] = chain(input[i]);
#include "walk_on"
#endif
}
