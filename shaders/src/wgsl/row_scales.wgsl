// Scales with which rows of floats are quantized. One workgroup per row.

struct Params {
    rows: u32,
    depth: u32,
    // Padding.
    nothing: u32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<f32>>;
#include "params"

// Minimum and maximum of each invocation's elements, and zero.
var<workgroup> ends: array<vec2<f32>, {{WORKGROUP}}>;

#include "exact"
#include "divide_exact"
#if ASYMMETRIC
#include "fixed_wide"
#endif
#include "row_scale"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    // Workgroups beyond the last row repeat it.
    let row = min(group.y * groups.x + group.x, p.rows - 1u);
    var own = vec2<f32>();
    for (var k = local; k < p.depth; k += {{WORKGROUP}}u) {
        let v = input[row * p.depth + k];
        own = vec2(min(own.x, v), max(own.y, v));
    }
    ends[local] = own;
    for (var half = {{WORKGROUP / 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            let other = ends[local + half];
            ends[local] = vec2(min(ends[local].x, other.x), max(ends[local].y, other.y));
        }
    }
    if local > 0u {
        return;
    }
    output[row] = row_scale(ends[0].x, ends[0].y);
}
