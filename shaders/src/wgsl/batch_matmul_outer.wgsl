// Products of pairs of matrices of floats in blocks, as sums of outer products: see conv_2d_outer.wgsl, whose pixels and channels
// are rows and columns here. The numbers of columns and of terms are multiples of four.

struct Params {
#include "matmul_params"
}

alias V = vec4<f32>;
alias T = V;

// A_ROWS: four rows of a term, otherwise four terms of a row. B_ROWS: four columns of a term, otherwise four terms of a column.
@group(0) @binding(0) var<storage, read> a: array<V>;
@group(0) @binding(1) var<storage, read> b: array<V>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

#include "math"

#include "outer_memory"

fn finish(v: T) -> T {
    return {{ACTIVATION}};
}

@compute @workgroup_size({{INVOCATIONS}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let first_row = group.y * {{BLOCK_PIXELS}}u;
    let first_column = group.x * {{BLOCK_CHANNELS}}u;
#include "matmul_batch"
#include "outer_place"
    // Surplus rows and columns are copies of the last ones, which nothing stores.
#for v in 0..PIXEL_LOADS
#if A_ROWS
    let row_four_{{v}} = a_base + min(first_row / 4u + pixel_four_{{v}}, p.rows / 4u - 1u);
#else
#for j in 0..4
    let row_{{v}}_{{j}} = a_base + min(first_row + pixel_four_{{v}} * 4u + {{j}}u, p.rows - 1u) * p.a_row;
#endfor
#endif
#endfor
#for v in 0..FILTER_LOADS
#if B_ROWS
    let column_four_{{v}} = b_base + min(first_column / 4u + channel_four_{{v}}, p.columns / 4u - 1u);
#else
#for j in 0..4
    let column_{{v}}_{{j}} = b_base + min(first_column + channel_four_{{v}} * 4u + {{j}}u, p.columns - 1u) * p.b_column;
#endfor
#endif
#endfor
    // From the uniform block itself: barriers must be in uniform control flow, and a private variable is not uniform.
    let terms = uniforms.depth / 4u;
    {
#include "matmul_outer_next"
    }
    for (var step = 0u; step < terms; step += {{DEPTH}}u) {
        workgroupBarrier();
#include "outer_copies"
        workgroupBarrier();
        // The next step's loads, which overlap with the products of this one; zeros after the last terms.
        next += {{DEPTH}}u;
#include "matmul_outer_next"
#include "outer_products"
    }

#for f in 0..OWN_CHANNELS
    let column_of_{{f}} = first_column + ({{f * COLUMNS}}u + across) * 4u;
#for g in 0..OWN_PIXELS
#for j in 0..4
    let row_of_{{f}}_{{4 * g + j}} = first_row + ({{g * ROWS}}u + down) * 4u + {{j}}u;
    if row_of_{{f}}_{{4 * g + j}} < p.rows && column_of_{{f}} < p.columns {
        output[((group.z * p.rows + row_of_{{f}}_{{4 * g + j}}) * p.columns + column_of_{{f}}) / 4u] = finish(sum_{{4 * g + j}}_{{f}});
    }
#endfor
#endfor
#endfor
}
