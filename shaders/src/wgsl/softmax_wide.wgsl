// Softmax of 16-bit integers along the innermost dimension, with two tables.

struct Params {
    rows: u32,
    depth: u32,
    // From the input's scale to that of the first table.
    multiplier: i32,
    shift: i32,
}

alias P = i32;

@group(0) @binding(0) var<storage, read> input: array<i32>;
// 513 points of exp over [-10, 0], then 513 of 1 / (1 + x) over [0, 1].
@group(0) @binding(1) var<storage, read> points: array<i32, 1026>;
@group(0) @binding(2) var<storage, read_write> output: array<i32>;
#include "params"

#include "fixed"

const MAX = 0u;
const SUM = 1u;

fn combine(x: P, y: P, how: u32) -> P {
    return select(max(x, y), x + y, how == SUM);
}

#include "split"

// The function at `v`, interpolated between two points; differences and results wrap to 16 bits.
fn between(v: i32, table: u32) -> i32 {
    let at = table + u32(256 + (v >> 7u));
    let from_here = points[at];
    let slope = ((points[at + 1u] - from_here) << 16u) >> 16u;
    return ((from_here + ((slope * (v & 0x7f) + 64) >> 7u)) << 16u) >> 16u;
}

fn exponential(below: i32) -> i32 {
    let scaled = fixed_multiply(below, p.multiplier, p.shift, false);
    return between(clamp(scaled, -65535, 0) + 32767, 0u);
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let row = (group.y * groups.x + group.x) * {{WORKGROUP / SPLIT}}u + item_of(local);
    let begin = min(row, p.rows - 1u) * p.depth;
    let end = begin + p.depth;
    let first = begin + part_of(local);
    var largest = input[begin];
    for (var i = first; i < end; i += {{SPLIT}}u) {
        largest = max(largest, input[i]);
    }
    largest = across(largest, local, MAX);
    var sum = 0;
    for (var i = first; i < end; i += {{SPLIT}}u) {
        sum += exponential(input[i] - largest);
    }
    sum = across(sum, local, SUM);
    if row >= p.rows {
        return;
    }
    // The sum, at least nearly 1, as 1 + x shifted left until it fills the word.
    let headroom = clamp(countLeadingZeros(bitcast<u32>(sum)), 1u, 30u);
    let shifted = ((bitcast<u32>(sum) << (headroom - 1u)) + 8192u) >> 14u;
    let factor = between(clamp(i32(shifted) - 32768 - 65536, -32768, 32767), 513u);
    let shift = 31u - headroom;
    for (var i = first; i < end; i += {{SPLIT}}u) {
        let product = (exponential(input[i] - largest) * factor + (1 << (shift - 1u))) >> shift;
        output[i] = clamp(product, 0, 32767);
    }
}
