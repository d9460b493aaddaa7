// A step of the basic LSTM cell of integers, from its gates before their functions.

struct Params {
    count: u32,
    items: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    cells: u32,
    // Offset of the states in the output.
    state_at: u32,
}

// Input, cell, forget and output gate of each sequence.
@group(0) @binding(0) var<storage, read> gates: array<i32>;
@group(0) @binding(1) var<storage, read> states: array<i32>;
@group(0) @binding(2) var<storage, read_write> output: array<i32>;
#include "params"

#include "divide"
#include "rounding"
#include "sigmoid"

// The product of two fractions, rounded to nearest, halves upwards.
fn product(a: i32, b: i32) -> i32 {
    return min((a * b + 16384) >> 15u, 32767);
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let at = digit_1 * p.cells * 4u + digit_0;
        let added = product(fixed_logistic(gates[at], 3u), fixed_tanh(gates[at + p.cells], 3u));
        let kept = product(fixed_logistic(gates[at + p.cells * 2u], 3u), states[i]);
        // States have 4 integer bits.
        let state = clamp(shift_right(added, 4) + kept, -32768, 32767);
        let result = product(fixed_logistic(gates[at + p.cells * 3u], 3u), fixed_tanh(state, 4u));
        output[p.state_at + i] = state;
        output[i] = 128 + clamp(shift_right(result, 8), -128, 127);
#include "walk_on"
}
