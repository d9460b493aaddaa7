// output[tuple, inner] = input[index tuple, inner]; zero where a tuple is outside of the input.

struct Params {
    // Words of the output, or vectors of four.
    count: u32,
    items: u32,
    // Inner and tuple.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
#for n in 0..DEPTH
    size_{{n}}: i32,
    stride_{{n}}: i32,
#endfor
}

#if VEC4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
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
        var inside = true;
        var src = i32(digit_0);
#for n in 0..DEPTH
        let index_{{n}} = indices[digit_1 * {{DEPTH}}u + {{n}}u];
        inside = inside & (index_{{n}} >= 0) & (index_{{n}} < p.size_{{n}});
        src += clamp(index_{{n}}, 0, p.size_{{n}} - 1) * p.stride_{{n}};
#endfor
        output[i] = select(T(), input[src], inside);
#include "walk_on"
}
