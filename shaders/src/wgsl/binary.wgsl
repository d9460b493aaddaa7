// An operator on two tensors. Both are walked with a stride per dimension of the output, whose
// dimensions are collapsed as far as the operands allow and listed from the innermost out.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    act_a: f32,
    act_b: f32,
#for d in 0..RANK
    extent_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
}

#if VEC4
alias T = vec4<{{ELEMENT}}>;
alias B = vec4<bool>;
alias R = vec4<{{RESULT}}>;
#else
alias T = {{ELEMENT}};
alias B = bool;
alias R = {{RESULT}};
#endif

// An operand that repeats one element along the innermost dimension is read element by element.
#if A_REPEATS
@group(0) @binding(0) var<storage, read> a: array<{{ELEMENT}}>;
#else
@group(0) @binding(0) var<storage, read> a: array<T>;
#endif
#if B_REPEATS
@group(0) @binding(1) var<storage, read> b: array<{{ELEMENT}}>;
#else
@group(0) @binding(1) var<storage, read> b: array<T>;
#endif
@group(0) @binding(2) var<storage, read_write> output: array<R>;
@group(0) @binding(3) var<uniform> p: Params;

#include "item"
#include "divide"
#if ACTIVATES
#include "math"
#endif

fn op(x: T, y: T) -> R {
    {{OPERATION}}
}

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
    var rest = i;
    var at_a = 0u;
    var at_b = 0u;
#for d in 0..LAST
    let outer_{{d}} = divide(rest, p.extent_{{d}});
    let along_{{d}} = rest - outer_{{d}} * p.extent_{{d}};
    at_a += along_{{d}} * p.a_stride_{{d}};
    at_b += along_{{d}} * p.b_stride_{{d}};
    rest = outer_{{d}};
#endfor
    at_a += rest * p.a_stride_{{LAST}};
    at_b += rest * p.b_stride_{{LAST}};
    let v = op(T(a[at_a]), T(b[at_b]));
#if ACTIVATES
    output[i] = {{ACTIVATION}};
#else
    output[i] = v;
#endif
}
