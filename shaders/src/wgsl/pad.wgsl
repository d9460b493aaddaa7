// Padding with a value or with a mirror image. Dimensions are listed from the innermost out.

struct Params {
    // Words of the output, or vectors of four.
    count: u32,
    items: u32,
    // Bits of the padding.
    value: u32,
    // For mirror images: 1 where the border itself is repeated.
    border: i32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    in_{{d}}: i32,
    before_{{d}}: i32,
    stride_{{d}}: i32,
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

// The index of the element mirrored at position `i` of a dimension of `extent`.
fn mirror(i: i32, extent: i32) -> i32 {
    let low = select(i, -i - p.border, i < 0);
    return select(low, 2 * (extent - 1) - low + p.border, low >= extent);
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        var src = 0;
        var inside = true;
#for d in 0..RANK
        let at_{{d}} = i32(digit_{{d}}) - p.before_{{d}};
#if MIRROR
        src += mirror(at_{{d}}, p.in_{{d}}) * p.stride_{{d}};
#else
        inside = inside & (at_{{d}} >= 0) & (at_{{d}} < p.in_{{d}});
        src += clamp(at_{{d}}, 0, p.in_{{d}} - 1) * p.stride_{{d}};
#endif
#endfor
        output[i] = select(T(p.value), input[src], inside);
#include "walk_on"
}
