// Moves the first two coordinates of landmarks by a 4x4 matrix.

struct Params {
    // Number of landmarks.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
    // Factor of the matrix's translation.
    scale: f32,
}

@group(0) @binding(0) var<storage, read> landmarks: array<f32>;
@group(0) @binding(1) var<storage, read> matrix: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
#include "params"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let at = i * {{DIMENSIONS}}u;
        let x = landmarks[at];
        let y = landmarks[at + 1u];
        output[at] = matrix[0] * x + matrix[1] * y + matrix[3] * p.scale;
        output[at + 1u] = matrix[4] * x + matrix[5] * y + matrix[7] * p.scale;
#if DIMENSIONS > 2
        output[at + 2u] = landmarks[at + 2u];
#endif
#include "walk_on"
}
