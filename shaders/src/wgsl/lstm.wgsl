// All steps of an LSTM, one workgroup per sequence. Its invocations share the cells, with barriers
// where a step needs results of other invocations.

struct Params {
    steps: u32,
    cells: u32,
    outputs: u32,
    // Distances between sequences and between steps, in rows, and the row of the first step.
    sequence_stride: u32,
    step_stride: u32,
    first_row: u32,
    // Offsets in the constants of the parts after the recurrent weights.
    peephole_at: u32,
    norm_at: u32,
    bias_at: u32,
    projection_at: u32,
    projection_bias_at: u32,
    // Offsets in the output of the parts after the sequences.
    last_at: u32,
    state_at: u32,
    gates_at: u32,
    hidden_at: u32,
    steps_at: u32,
    // Limits; infinite for none.
    cell_clip: f32,
    output_clip: f32,
    act_a: f32,
    act_b: f32,
    // Scales of the integers of recurrent weights and the projection.
    scale_0: f32,
    scale_1: f32,
    scale_2: f32,
    scale_3: f32,
    projection_scale: f32,
    // Padding.
    nothing: u32,
}

alias T = f32;

// Contributions of the input to the gates. A row has all cells of the input gate, then of the forget, cell and output
// gate.
@group(0) @binding(0) var<storage, read> inputs: array<f32>;
// Recurrent weights with the cells innermost (for integers with the gates in the bytes of a word), then the other parts.
@group(0) @binding(1) var<storage, read> constants: array<u32>;
@group(0) @binding(2) var<storage, read> first_last: array<f32>;
@group(0) @binding(3) var<storage, read> first_state: array<f32>;
// The results of all steps, then the last output and the state, then scratch memory for gates and hidden values.
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
#include "params"

#include "math"
#if HYBRID
#include "exact"
#include "divide_exact"
#if ASYMMETRIC
#include "fixed_wide"
#endif
#include "row_scale"

// Quantizes `count` values from `at` on to `to`, and returns their scale.
fn quantize(at: u32, count: u32, to: u32, local: u32) -> f32 {
    var ends = vec2<f32>();
    for (var i = 0u; i < count; i++) {
        let v = output[at + i];
        ends = vec2(min(ends.x, v), max(ends.y, v));
    }
    let row = row_scale(ends.x, ends.y);
    for (var i = local; i < count; i += {{WORKGROUP}}u) {
        output[to + i] = row_step(output[at + i], row);
    }
    return row.x;
}
#endif

fn constant(i: u32) -> f32 {
    return bitcast<f32>(constants[i]);
}

fn activate(v: f32) -> f32 {
    return {{ACTIVATION}};
}

fn sigmoid(v: f32) -> f32 {
    return op_logistic(v, 0.0, 0.0);
}

fn limit(v: f32, most: f32) -> f32 {
    return op_clamp(v, -most, most);
}

#if NORM
// Mean of a gate over all cells, and the reciprocal of its deviation.
fn spread(at: u32) -> vec2<f32> {
    let count = f32(p.cells);
    var sum = 0.0;
    for (var c = 0u; c < p.cells; c++) {
        sum += output[at + c];
    }
    let mean = sum / count;
    var squares = 0.0;
    for (var c = 0u; c < p.cells; c++) {
        let off = output[at + c] - mean;
        squares += off * off;
    }
    return vec2(mean, 1.0 / sqrt(squares / count + 1e-8));
}

fn normal(v: f32, spread: vec2<f32>, gate: u32, c: u32) -> f32 {
    let at = gate * p.cells + c;
    return (v - spread.x) * spread.y * constant(p.norm_at + at) + constant(p.bias_at + at);
}
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    p = uniforms;
    let last = p.last_at + group.x * p.outputs;
    let state = p.state_at + group.x * p.cells;
    let gates = p.gates_at + group.x * p.cells * 4u;
    let hidden = p.hidden_at + group.x * p.cells;
    for (var o = local; o < p.outputs; o += {{WORKGROUP}}u) {
        output[last + o] = first_last[group.x * p.outputs + o];
    }
    for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
        output[state + c] = first_state[group.x * p.cells + c];
    }
    for (var step = 0u; step < uniforms.steps; step++) {
        storageBarrier();
        let row = group.x * p.sequence_stride + p.first_row + step * p.step_stride;
#if HYBRID && !DIAGONAL
        let last_scale = quantize(last, p.outputs, p.steps_at + group.x * max(p.cells, p.outputs), local);
        storageBarrier();
#endif
        for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
            let begin = row * p.cells * 4u + c;
            var sums = vec4(
                inputs[begin],
                inputs[begin + p.cells],
                inputs[begin + p.cells * 2u],
                inputs[begin + p.cells * 3u],
            );
#if DIAGONAL
            let weights = vec4(
                constant(c),
                constant(p.cells + c),
                constant(p.cells * 2u + c),
                constant(p.cells * 3u + c),
            );
            sums += weights * output[last + c];
#else
#if HYBRID
            var whole = vec4<i32>();
            var at = c;
            for (var o = 0u; o < p.outputs; o++) {
                let word = bitcast<i32>(constants[at]);
                let weights = (vec4<i32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
                whole += weights * i32(output[p.steps_at + group.x * max(p.cells, p.outputs) + o]);
                at += p.cells;
            }
            sums += vec4<f32>(whole) * (vec4(p.scale_0, p.scale_1, p.scale_2, p.scale_3) * last_scale);
#else
            let gate = p.outputs * p.cells;
            var at = c;
            for (var o = 0u; o < p.outputs; o++) {
                let weights =
                    vec4(constant(at), constant(at + gate), constant(at + gate * 2u), constant(at + gate * 3u));
                sums += weights * output[last + o];
                at += p.cells;
            }
#endif
#endif
#if PEEPHOLE
            let before = output[state + c];
            sums.x += before * constant(p.peephole_at + c);
            sums.y += before * constant(p.peephole_at + p.cells + c);
#endif
            output[gates + c] = sums.x;
            output[gates + p.cells + c] = sums.y;
            output[gates + p.cells * 2u + c] = sums.z;
            output[gates + p.cells * 3u + c] = sums.w;
        }
#if NORM
        storageBarrier();
        let spread_x = spread(gates);
        let spread_y = spread(gates + p.cells);
        let spread_z = spread(gates + p.cells * 2u);
        storageBarrier();
#endif
        for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
            var sums = vec4(
                output[gates + c],
                output[gates + p.cells + c],
                output[gates + p.cells * 2u + c],
                output[gates + p.cells * 3u + c],
            );
#if NORM
            sums.x = normal(sums.x, spread_x, 0u, c);
            sums.y = normal(sums.y, spread_y, 1u, c);
            sums.z = normal(sums.z, spread_z, 2u, c);
#endif
            let forget = sigmoid(sums.y);
#if COUPLED
            let keep = 1.0 - forget;
#else
            let keep = sigmoid(sums.x);
#endif
            let next = limit(forget * output[state + c] + activate(sums.z) * keep, p.cell_clip);
            output[state + c] = next;
#if PEEPHOLE
            // The output gate depends on the new state.
            sums.w += next * constant(p.peephole_at + p.cells * 2u + c);
#endif
#if NORM
            output[gates + p.cells * 3u + c] = sums.w;
#else
            output[hidden + c] = activate(next) * sigmoid(sums.w);
#endif
        }
        storageBarrier();
#if NORM
        let spread_w = spread(gates + p.cells * 3u);
        for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
            let sum = normal(output[gates + p.cells * 3u + c], spread_w, 3u, c);
            output[hidden + c] = activate(output[state + c]) * sigmoid(sum);
        }
        storageBarrier();
#endif
#if PROJECTION && HYBRID
        let hidden_scale = quantize(hidden, p.cells, p.steps_at + group.x * max(p.cells, p.outputs), local);
        storageBarrier();
#endif
        for (var o = local; o < p.outputs; o += {{WORKGROUP}}u) {
#if PROJECTION
            var sum = constant(p.projection_bias_at + o);
            var at = p.projection_at + o;
#if HYBRID
            var whole = 0;
            for (var c = 0u; c < p.cells; c++) {
                let weight = (bitcast<i32>(constants[at]) << (24u - 8u * (c & 3u))) >> 24u;
                whole += weight * i32(output[p.steps_at + group.x * max(p.cells, p.outputs) + c]);
                at += select(0u, p.outputs, (c & 3u) == 3u);
            }
            sum += f32(whole) * (p.projection_scale * hidden_scale);
#else
            for (var c = 0u; c < p.cells; c++) {
                sum += constant(at) * output[hidden + c];
                at += p.outputs;
            }
#endif
            let result = limit(sum, p.output_clip);
#else
            let result = output[hidden + o];
#endif
            output[last + o] = result;
            output[row * p.outputs + o] = result;
        }
    }
}
