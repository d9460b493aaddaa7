// An operator on 64-bit integers, pairs of words with the low one first. Both operands are read with a stride per dimension of
// the output, whose dimensions are collapsed as far as the operands allow and listed from the innermost out.

struct Params {
    // Integers of the output.
    count: u32,
    items: u32,
    low_x: u32,
    low_y: u32,
    high_x: u32,
    high_y: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
}

@group(0) @binding(0) var<storage, read> left: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> right: array<vec2<u32>>;
#if COMPARES
@group(0) @binding(2) var<storage, read_write> output: array<u32>;
#else
@group(0) @binding(2) var<storage, read_write> output: array<vec2<u32>>;
#endif
#include "params"

#include "divide"

fn less(a: vec2<u32>, b: vec2<u32>) -> bool {
    let above = bitcast<i32>(a.y) < bitcast<i32>(b.y);
    return select(above, a.x < b.x, a.y == b.y);
}

fn sum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn difference(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn product(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    // The low words in halves: no product of two halves overflows.
    let x = vec2(a.x & 0xffffu, a.x >> 16u);
    let y = vec2(b.x & 0xffffu, b.x >> 16u);
    let cross = vec2(x.x * y.y, x.y * y.x);
    let middle = ((x.x * y.x) >> 16u) + (cross.x & 0xffffu) + (cross.y & 0xffffu);
    let carry = x.y * y.y + (cross.x >> 16u) + (cross.y >> 16u) + (middle >> 16u);
    return vec2(a.x * b.x, carry + a.x * b.y + a.y * b.x);
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        var at = vec2<u32>();
#for d in 0..RANK
        at += digit_{{d}} * vec2(p.a_stride_{{d}}, p.b_stride_{{d}});
#endfor
        let a = left[at.x];
        let b = right[at.y];
#if COMPARES
        output[i] = select(0u, 1u, {{OPERATOR}});
#else
        var result = {{OPERATOR}};
#if LIMITED
        let low = vec2(p.low_x, p.low_y);
        let high = vec2(p.high_x, p.high_y);
        result = select(result, low, less(result, low));
        result = select(result, high, less(high, result));
#endif
        output[i] = result;
#endif
#include "walk_on"
}
