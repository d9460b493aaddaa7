// Moves words from one strided place to another. Dimensions are listed from the innermost out.

struct Params {
    // Words, or vectors of four.
    count: u32,
    src: i32,
    dst: i32,
#for d in 0..RANK
    extent_{{d}}: u32,
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
@group(0) @binding(2) var<uniform> p: Params;

#include "item"
#include "divide"

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
    var src = p.src;
    var dst = p.dst;
#for d in 0..RANK - 1
    let outer_{{d}} = divide(rest, p.extent_{{d}});
    let along_{{d}} = i32(rest - outer_{{d}} * p.extent_{{d}});
    src += along_{{d}} * p.src_stride_{{d}};
    dst += along_{{d}} * p.dst_stride_{{d}};
    rest = outer_{{d}};
#endfor
    src += i32(rest) * p.src_stride_{{RANK - 1}};
    dst += i32(rest) * p.dst_stride_{{RANK - 1}};
    output[dst] = input[src];
}
