// An operator on two tensors. Both are read with a stride per dimension of the output, whose
// dimensions are collapsed as far as the operands allow and listed from the innermost out.

struct Params {
    // Elements of the output, or vectors of four.
    count: u32,
    items: u32,
    act_a: f32,
    act_b: f32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
}

#if VEC4
alias T = vec4<{{ELEMENT}}>;
alias B = vec4<bool>;
alias U = vec4<u32>;
alias R = vec4<{{RESULT}}>;
#else
alias T = {{ELEMENT}};
alias B = bool;
alias U = u32;
alias R = {{RESULT}};
#endif

// An operand that repeats one element along the innermost dimension is read as scalars.
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
#include "params"

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
    p = uniforms;
#include "walk"
        var at_a = 0u;
        var at_b = 0u;
#for d in 0..RANK
        at_a += digit_{{d}} * p.a_stride_{{d}};
        at_b += digit_{{d}} * p.b_stride_{{d}};
#endfor
        let v = op(T(a[at_a]), T(b[at_b]));
#if ACTIVATES
        output[i] = {{ACTIVATION}};
#else
        output[i] = v;
#endif
#include "walk_on"
}
