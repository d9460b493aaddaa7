// All steps of an LSTM of integers, one workgroup per sequence. Its invocations share the cells, with barriers
// where a step needs results of other invocations.

struct Params {
    steps: u32,
    cells: u32,
    outputs: u32,
    // Distances between sequences and between steps, in rows.
    sequence_stride: u32,
    step_stride: u32,
    // Offsets in the constants of the parts after the gates' numbers.
    recurrent_at: u32,
    peephole_at: u32,
    norm_at: u32,
    bias_at: u32,
    projection_at: u32,
    projection_bias_at: u32,
    tables_at: u32,
    // Offsets in the output of the parts after the sequences.
    last_at: u32,
    state_at: u32,
    gates_at: u32,
    hidden_at: u32,
    // Peephole connections number cells across sequences, this far apart; cells from the end on have none.
    peephole_stride: u32,
    peephole_end: u32,
    // Zero point of the outputs.
    output_zero: i32,
    // Exponent of the state's scale, a power of two.
    state_exponent: i32,
    // Maximum magnitudes of a state and of a projected output.
    cell_clip: i32,
    output_clip: i32,
    hidden_multiplier: i32,
    hidden_shift: i32,
    hidden_zero: i32,
    projection_multiplier: i32,
    projection_shift: i32,
    // Padding.
    nothing: u32,
}

// Contributions of the input to the gates. A row has all cells of the input gate, then of the forget, cell and output
// gate.
@group(0) @binding(0) var<storage, read> inputs: array<i32>;
// Numbers of each gate, recurrent weights with the cells innermost and the gates in the bytes of a word, then the other parts.
@group(0) @binding(1) var<storage, read> constants: array<i32>;
@group(0) @binding(2) var<storage, read> first_last: array<i32>;
@group(0) @binding(3) var<storage, read> first_state: array<i32>;
// The results of all steps, then the last output and the state, then scratch memory for gates and hidden values.
@group(0) @binding(4) var<storage, read_write> output: array<i32>;
#include "params"

#include "fixed"
#include "rounding"
#if NARROW
#include "exact"
#include "divide_exact"
#else
#include "sigmoid"
#if NORM
#include "inverse_root"
#include "fixed_wide"
#endif
#endif

fn to_16_bits(v: i32) -> i32 {
    return clamp(v, -32768, 32767);
}

fn to_bytes(v: i32) -> i32 {
    return clamp(v, -128, 127);
}

// A number of a gate.
fn number(gate: u32, i: u32) -> i32 {
    return constants[gate * 16u + i];
}

// v times the factor that the gate's numbers i and i + 1 represent.
fn scaled(v: i32, gate: u32, i: u32) -> i32 {
    let m = number(gate, i);
#if NARROW
    return fixed_multiply(select(v, -v, m < 0), abs(m), number(gate, i + 1u), false);
#else
    return fixed_multiply(v, m, number(gate, i + 1u), false);
#endif
}

// The sum of both products of a gate.
fn sum_of(of_input: i32, of_last: i32, gate: u32) -> i32 {
    let last = scaled(of_last, gate, 0u);
#if NARROW
    let zeros = vec2(number(gate, 2u), number(gate, 3u));
    let h = to_bytes(last + zeros.x) - zeros.x;
    let x = to_bytes(of_input + zeros.y) - zeros.y;
    return to_16_bits(scaled(h, gate, 6u) + scaled(x, gate, 4u));
#else
    return to_16_bits(last + of_input);
#endif
}

#if NARROW
// A function of a 16-bit value, by its table.
fn looked_up(v: i32, table: u32) -> i32 {
    let at = bitcast<u32>(v + 32768);
    let word = constants[p.tables_at + table * 32768u + at / 2u];
    return (word << (16u - 16u * (at & 1u))) >> 16u;
}
#endif

fn sigmoid(v: i32) -> i32 {
#if NARROW
    return looked_up(v, 0u);
#else
    return fixed_logistic(v, 3u);
#endif
}

fn candidate(v: i32) -> i32 {
#if NARROW
    return looked_up(v, 1u);
#else
    return fixed_tanh(v, 3u);
#endif
}

fn of_state(v: i32) -> i32 {
#if NARROW
    return looked_up(v, 2u);
#else
    return fixed_tanh(v, bitcast<u32>(15 + p.state_exponent));
#endif
}

#if PEEPHOLE
// Adds the peephole connection from a cell's state to a gate.
fn peeped(sum: i32, state: i32, cell: u32, which: u32, gate: u32) -> i32 {
    if cell >= p.peephole_end {
        return sum;
    }
    let weight = constants[p.peephole_at + which * p.cells + cell % p.outputs];
    return to_16_bits(scaled(weight * state, gate, 8u) + sum);
}
#endif

#if NORM
#if NARROW
// Mean of a gate over all cells, and the reciprocal of its deviation, summed in the order of a CPU; negative where the
// variance is.
fn spread(at: u32) -> vec2<f32> {
    var sum = 0.0;
    var squares = 0.0;
    for (var c = 0u; c < p.cells; c++) {
        let v = f32(output[at + c]);
        sum = opaque(sum + v);
        squares = opaque(squares + opaque(v * v));
    }
    let mean = quotient(sum, f32(p.cells));
    let variance = opaque(quotient(squares, f32(p.cells)) - opaque(mean * mean));
    let inverse = reciprocal(root(select(abs(variance), 1e-8, variance == 0.0)));
    return vec2(mean, select(inverse, -1.0, variance < 0.0));
}

fn normal(v: i32, spread: vec2<f32>, gate: u32, c: u32) -> i32 {
    let at = gate * p.cells + c;
    let weight = f32(constants[p.norm_at + at]);
    let bias = nearest_float(constants[p.bias_at + at]);
    let scales = bitcast<vec2<f32>>(vec2(number(gate, 10u), number(gate, 11u)));
    if spread.y < 0.0 {
        return 0;
    }
    let normalized = opaque(opaque(f32(v) - spread.x) * spread.y);
    let weighted = opaque(opaque(opaque(normalized * weight) * scales.x) + opaque(bias * scales.y));
    return i32(clamp(nearest_whole(opaque(weighted * 4096.0)), -32768.0, 32767.0));
}
#else
// Mean of a gate over all cells times 1024, and the reciprocal of its deviation as a factor and its shift.
fn spread(at: u32, gate: u32) -> vec3<i32> {
    var sum = 0;
    var squares = vec2<u32>();
    for (var c = 0u; c < p.cells; c++) {
        let v = output[at + c];
        sum += v;
        squares = wide_add(squares, vec2(bitcast<u32>(v * v), 0u));
    }
    let count = bitcast<i32>(p.cells);
    let mean = sum / count * 1024 + sum % count * 1024 / count;
    let size = bitcast<u32>(abs(mean));
    let variance =
        wide_add(wide_scale(squares, 1048576u / p.cells), wide_negate(wide_product(size, size)));
    let whole = bitcast<i32>(wide_right(variance, 20u).x);
    let enough = (variance.y >> 31u) == 0u && whole > 0;
    return vec3(mean, inverse_root(select(number(gate, 12u), whole, enough)));
}

fn normal(v: i32, spread: vec3<i32>, gate: u32, c: u32) -> i32 {
    let at = gate * p.cells + c;
    let near = fixed_multiply(1024 * v - spread.x, spread.y, spread.z, false);
    let weighted = near * constants[p.norm_at + at] + constants[p.bias_at + at];
    let left = weighted % 1024;
    let rounded = weighted / 1024 + select(select(0, -1, left <= -512), 1, left >= 512);
    return to_16_bits(scaled(rounded, gate, 10u));
}
#endif
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
        let row = group.x * p.sequence_stride + step * p.step_stride;
        for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
            var sums = vec4<i32>();
            var at = p.recurrent_at + c;
            for (var o = 0u; o < p.outputs; o++) {
                let weights = (vec4<i32>(constants[at]) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
                sums += weights * (output[last + o] - p.output_zero);
                at += p.cells;
            }
            let begin = row * p.cells * 4u + c;
#for g in 0..4
            var gate_{{g}} = sum_of(inputs[begin + p.cells * {{g}}u], sums[{{g}}], {{g}}u);
#endfor
#if PEEPHOLE
            let before = output[state + c];
            let cell = group.x * p.peephole_stride + c;
#if !COUPLED
            gate_0 = peeped(gate_0, before, cell, 0u, 0u);
#endif
            gate_1 = peeped(gate_1, before, cell, 1u, 1u);
#endif
#for g in 0..4
            output[gates + p.cells * {{g}}u + c] = gate_{{g}};
#endfor
        }
#if NORM
        storageBarrier();
#if NARROW
        let spread_1 = spread(gates + p.cells);
        let spread_2 = spread(gates + p.cells * 2u);
#else
#if !COUPLED
        let spread_0 = spread(gates, 0u);
#endif
        let spread_1 = spread(gates + p.cells, 1u);
        let spread_2 = spread(gates + p.cells * 2u, 2u);
#endif
#endif
        for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
            var gate_0 = output[gates + c];
            var gate_1 = output[gates + p.cells + c];
            var gate_2 = output[gates + p.cells * 2u + c];
#if NORM
#if !COUPLED
            gate_0 = normal(gate_0, spread_0, 0u, c);
#endif
            gate_1 = normal(gate_1, spread_1, 1u, c);
            gate_2 = normal(gate_2, spread_2, 2u, c);
#endif
            let forget = sigmoid(gate_1);
#if COUPLED
            let let_in = 32767 - forget;
#else
            let let_in = sigmoid(gate_0);
#endif
            let kept = shift_right(forget * output[state + c], 15);
            let added = shift_right(let_in * candidate(gate_2), 30 + p.state_exponent);
            let next = clamp(to_16_bits(kept + added), -p.cell_clip, p.cell_clip);
            output[state + c] = next;
#if PEEPHOLE
            // The output gate depends on the new state.
            let at = gates + p.cells * 3u + c;
            output[at] = peeped(output[at], next, group.x * p.peephole_stride + c, 2u, 3u);
#endif
        }
#if NORM
        storageBarrier();
#if NARROW
        let spread_3 = spread(gates + p.cells * 3u);
#else
        let spread_3 = spread(gates + p.cells * 3u, 3u);
#endif
#endif
        for (var c = local; c < p.cells; c += {{WORKGROUP}}u) {
            var gate = output[gates + p.cells * 3u + c];
#if NORM
            gate = normal(gate, spread_3, 3u, c);
#endif
            let product = sigmoid(gate) * of_state(output[state + c]);
#if NARROW
            output[hidden + c] = shift_right(product, 15);
#else
            let value = fixed_multiply(product, p.hidden_multiplier, p.hidden_shift, false);
#if PROJECTION
            // The projection subtracts the zero point with the opposite sign.
            output[hidden + c] = to_bytes(value - p.hidden_zero) + p.hidden_zero;
#else
            output[hidden + c] = to_bytes(value + p.hidden_zero);
#endif
#endif
        }
        storageBarrier();
        for (var o = local; o < p.outputs; o += {{WORKGROUP}}u) {
#if PROJECTION
            var sum = constants[p.projection_bias_at + o];
            var at = p.projection_at + o;
            for (var c = 0u; c < p.cells; c++) {
                let weight = (constants[at] << (24u - 8u * (c & 3u))) >> 24u;
                sum += weight * output[hidden + c];
                at += select(0u, p.outputs, (c & 3u) == 3u);
            }
            let projected = fixed_multiply(sum, p.projection_multiplier, p.projection_shift, false);
            let result = clamp(to_bytes(projected + p.output_zero), -p.output_clip, p.output_clip);
#else
            let result = output[hidden + o];
#endif
            output[last + o] = result;
            output[row * p.outputs + o] = result;
        }
    }
}
