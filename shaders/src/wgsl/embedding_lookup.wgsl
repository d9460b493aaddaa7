// Rows of a packed table of small integers, as floats.

struct Params {
    // Elements of the output.
    count: u32,
    items: u32,
    // Columns and ids.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    // Rows of the table.
    rows: i32,
    // Distance between the scales of neighbouring rows.
    scale_stride: u32,
}

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
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
        let id = ids[digit_1];
        let row = u32(clamp(id, 0, p.rows - 1));
        let at = row * p.extent_0 + digit_0;
        let word = bitcast<i32>(weights[at / {{32 / BITS}}u]);
        let value = (word << (32u - {{BITS}}u - at % {{32 / BITS}}u * {{BITS}}u)) >> (32u - {{BITS}}u);
        output[i] = select(0.0, f32(value) * scales[row * p.scale_stride], id >= 0 && id < p.rows);
#include "walk_on"
}
