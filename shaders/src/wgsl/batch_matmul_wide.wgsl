// Products of pairs of matrices of 16-bit integers, with 64-bit sums.

struct Params {
    count: u32,
    items: u32,
    // Columns, rows and products.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    depth: u32,
    // Strides of the operands: along rows or columns, and along the depth.
    a_row: u32,
    a_depth: u32,
    b_column: u32,
    b_depth: u32,
    // A 15-bit factor, and the right shift after it.
    multiplier: u32,
    right: i32,
    // Number of products, by their dimensions from the innermost out.
#for d in 0..BATCHES
    batch_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
}

@group(0) @binding(0) var<storage, read> a: array<i32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> output: array<i32>;
#include "params"

#include "divide"
#include "fixed_wide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        var at_a = digit_1 * p.a_row;
        var at_b = digit_0 * p.b_column;
        var place = digit_2;
#for d in 0..BATCHES
        at_a += place % p.batch_{{d}} * p.a_stride_{{d}};
        at_b += place % p.batch_{{d}} * p.b_stride_{{d}};
        place /= p.batch_{{d}};
#endfor
        // Sums of the low and of the high halves of up to 65535 products fit 32 bits.
        var low = 0u;
        var high = 0;
        for (var k = 0u; k < p.depth; k++) {
            let product = a[at_a] * b[at_b];
            low += bitcast<u32>(product) & 0xffffu;
            high += product >> 16u;
            at_a += p.a_depth;
            at_b += p.b_depth;
        }
        let sum = wide_add(wide_left(wide_of(high), 16u), vec2(low, 0u));
        output[i] = clamp(fixed_wide(sum, p.multiplier, p.right), -32768, 32767);
#include "walk_on"
}
