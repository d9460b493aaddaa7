// Copies words between strided layouts. Dimensions are listed from the innermost out.

struct Params {
    // Words, or vectors of four.
    count: u32,
    items: u32,
    src: i32,
    dst: i32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    src_stride_{{d}}: i32,
    dst_stride_{{d}}: i32,
#endfor
}

#if VEC4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
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
        var src = p.src;
        var dst = p.dst;
#for d in 0..RANK
        src += i32(digit_{{d}}) * p.src_stride_{{d}};
        dst += i32(digit_{{d}}) * p.dst_stride_{{d}};
#endfor
        output[dst] = input[src];
#include "walk_on"
}
