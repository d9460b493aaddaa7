// Combines the elements along some dimensions. Kept and reduced dimensions, merged where they are
// neighbours, are listed from the innermost out.

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

// VEC4: four neighbouring outputs at a time. FOLD: four neighbours that become one.
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
    var rest = min(i, p.count - 1u);
    var base = 0u;
#for d in 0..KEPT
#if d < KEPT - 1
    let outer_{{d}} = divide(rest, p.kept_extent_{{d}});
#else
    let outer_{{d}} = 0u;
#endif
    base += (rest - outer_{{d}} * p.kept_extent_{{d}}) * p.kept_stride_{{d}};
    rest = outer_{{d}};
#endfor
    var v = P({{START}});
    for (var r = part_of(local); r < p.reduced; r += {{SPLIT}}u) {
        var at = base;
        var left = r;
#for d in 0..REDUCED
#if d < REDUCED - 1
        let turn_{{d}} = divide(left, p.reduced_extent_{{d}});
#else
        let turn_{{d}} = 0u;
#endif
        at += (left - turn_{{d}} * p.reduced_extent_{{d}}) * p.reduced_stride_{{d}};
        left = turn_{{d}};
#endfor
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
