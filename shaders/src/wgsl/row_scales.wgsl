// Scales with which rows of floats are quantized. One invocation per row with ALONE, else one workgroup.

struct Params {
    rows: u32,
    depth: u32,
    // Padding.
    nothing: u32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<f32>>;
#include "params"

#if !ALONE
// Minimum and maximum of each invocation's elements, and zero.
var<workgroup> ends: array<vec2<f32>, {{WORKGROUP}}>;
#endif

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
    let index = group.y * groups.x + group.x;
#if ALONE
    // Invocations beyond the last row repeat it.
    let row = min(index * {{WORKGROUP}}u + local, p.rows - 1u);
    let first = 0u;
#else
    // Workgroups beyond the last row repeat it.
    let row = min(index, p.rows - 1u);
    let first = local;
#endif
    var own = vec2<f32>();
    for (var k = first; k < p.depth; k += {{STEP}}u) {
        let v = input[row * p.depth + k];
        own = vec2(min(own.x, v), max(own.y, v));
    }
#if !ALONE
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
    own = ends[0];
#endif
    output[row] = row_scale(own.x, own.y);
}
