// Combines the elements along some dimensions. Kept and reduced dimensions, with neighbours
// merged, are listed from the innermost out.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    // Elements combined into one.
    reduced: u32,
    // ACTIVATES: result = activation(combined * scale).
    scale: f32,
    act_a: f32,
    act_b: f32,
#for d in 0..KEPT
    kept_extent_{{d}}: u32,
    kept_stride_{{d}}: u32,
#endfor
#for d in 0..REDUCED
    reduced_extent_{{d}}: u32,
    reduced_stride_{{d}}: u32,
#endfor
}

// VEC4: vectors of four outputs. FOLD: vectors of four elements that are combined into one.
#if VEC4 || FOLD
alias P = vec4<{{ELEMENT}}>;
#else
alias P = {{ELEMENT}};
#endif
#if FOLD
alias T = {{ELEMENT}};
#else
alias T = P;
#endif

@group(0) @binding(0) var<storage, read> input: array<P>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"
#if ACTIVATES
#include "math"
#endif

fn combine(x: P, y: P, how: u32) -> P {
    return {{COMBINE}};
}

fn fold(v: P) -> T {
    return {{FOLDED}};
}

#include "split"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let i = (group.y * groups.x + group.x) * {{WORKGROUP / SPLIT}}u + item_of(local);
    var kept = min(i, p.count - 1u);
#include "kept"
    var v = P({{START}});
    for (var r = part_of(local); r < p.reduced; r += {{SPLIT}}u) {
#include "reduced"
        v = combine(v, input[at], 0u);
    }
    let result = fold(across(v, local, 0u));
    if i < p.count && part_of(local) == 0u {
#if ACTIVATES
        let v = result * p.scale;
        output[i] = {{ACTIVATION}};
#else
        output[i] = result;
#endif
    }
}
