// All steps of units that depend on the input and their own last outputs, one workgroup per sequence.

struct Params {
    steps: u32,
    units: u32,
    // Distances between sequences and between steps, in rows, and the row of the first step.
    sequence_stride: u32,
    step_stride: u32,
    first_row: u32,
    // Offsets in the output of the last outputs, and of scratch memory for their integers.
    state_at: u32,
    steps_at: u32,
    act_a: f32,
    act_b: f32,
    // Scale of the integers of recurrent weights.
    scale: f32,
    // Padding.
    nothing: u32,
}

alias T = f32;

// Contributions of the input to the units, with their biases.
@group(0) @binding(0) var<storage, read> inputs: array<f32>;
// Recurrent weights with the units innermost; integers are packed four to a word.
@group(0) @binding(1) var<storage, read> constants: array<u32>;
@group(0) @binding(2) var<storage, read> first_state: array<f32>;
// The results of all steps, then the last ones.
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
#include "params"

#include "math"
#if HYBRID
#include "exact"
#include "divide_exact"
#if ASYMMETRIC
#include "fixed_wide"
#endif
#include "row_scale"
#endif

fn activate(v: f32) -> f32 {
    return {{ACTIVATION}};
}

@compute @workgroup_size({{WORKGROUP}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    p = uniforms;
    let state = p.state_at + group.x * p.units;
    for (var u = local; u < p.units; u += {{WORKGROUP}}u) {
        output[state + u] = first_state[group.x * p.units + u];
    }
    for (var step = 0u; step < uniforms.steps; step++) {
        storageBarrier();
        let row = group.x * p.sequence_stride + p.first_row + step * p.step_stride;
#if HYBRID
        let integers = p.steps_at + group.x * p.units;
        var ends = vec2<f32>();
        for (var i = 0u; i < p.units; i++) {
            let v = output[state + i];
            ends = vec2(min(ends.x, v), max(ends.y, v));
        }
        let of_row = row_scale(ends.x, ends.y);
        for (var u = local; u < p.units; u += {{WORKGROUP}}u) {
            output[integers + u] = row_step(output[state + u], of_row);
        }
        storageBarrier();
#endif
        for (var u = local; u < p.units; u += {{WORKGROUP}}u) {
            var sum = inputs[row * p.units + u];
            var at = u;
#if HYBRID
            var whole = 0;
            for (var i = 0u; i < p.units; i++) {
                let weight = (bitcast<i32>(constants[at]) << (24u - 8u * (i & 3u))) >> 24u;
                whole += weight * i32(output[integers + i]);
                at += select(0u, p.units, (i & 3u) == 3u);
            }
            sum += f32(whole) * (p.scale * of_row.x);
#else
            for (var i = 0u; i < p.units; i++) {
                sum += bitcast<f32>(constants[at]) * output[state + i];
                at += p.units;
            }
#endif
            output[row * p.units + u] = activate(sum);
        }
        storageBarrier();
        for (var u = local; u < p.units; u += {{WORKGROUP}}u) {
            output[state + u] = output[row * p.units + u];
        }
    }
}
