// output = condition ? a : b, all three read with a stride per dimension of the output, whose dimensions
// are collapsed as far as the operands allow and listed from the innermost out.

struct Params {
    // Words of the output, or vectors of four.
    count: u32,
    items: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    condition_stride_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
}

#if VEC4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

// An operand that repeats one element along the innermost dimension is read as scalars.
#for operand in 0..3
#if operand == 0 && REPEATS_0 || operand == 1 && REPEATS_1 || operand == 2 && REPEATS_2
alias T{{operand}} = u32;
#else
alias T{{operand}} = T;
#endif
#endfor

@group(0) @binding(0) var<storage, read> condition: array<T0>;
@group(0) @binding(1) var<storage, read> a: array<T1>;
@group(0) @binding(2) var<storage, read> b: array<T2>;
@group(0) @binding(3) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        var at = vec3<u32>();
#for d in 0..RANK
        at += digit_{{d}} * vec3(p.condition_stride_{{d}}, p.a_stride_{{d}}, p.b_stride_{{d}});
#endfor
        output[i] = select(T(b[at.z]), T(a[at.y]), T(condition[at.x]) != T(0u));
#include "walk_on"
}
