// Fourier transforms of lines, one per workgroup: elements in the order of their reversed binary digits, then pairs of
// parts of 1, 2, 4, … elements are joined.

struct Params {
    lines: u32,
    // Extents of the transform: rows, and columns of its half.
    rows: u32,
    half: u32,
    // Extents of the part of an image that is read.
    read_rows: u32,
    read_columns: u32,
    // Extents of an image of floats.
    height: u32,
    width: u32,
}

#if REAL
@group(0) @binding(0) var<storage, read> input: array<f32>;
#else
@group(0) @binding(0) var<storage, read> input: array<vec2<f32>>;
#endif
// Points of the unit circle.
@group(0) @binding(1) var<storage, read> roots: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> output: array<vec2<f32>>;
#include "params"

const SIZE = {{SIZE}}u;
var<workgroup> elements: array<vec2<f32>, SIZE>;

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

#if REAL
// Column x of a row that starts at `first`, of which `count` elements are read.
fn real(first: u32, count: u32, x: u32) -> f32 {
    if x < count {
        return input[first + x];
    }
    return 0.0;
}
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let line = group.y * groups.x + group.x;
    // Workgroups beyond the last line repeat it, and write nothing.
    let read = min(line, p.lines - 1u);
#if REAL
    let image = read / p.rows;
    let row = read - image * p.rows;
    let first = (image * p.height + row) * p.width;
    let count = select(0u, p.read_columns, row < p.read_rows);
#else
    let image = read / p.half;
    let first = image * p.rows * p.half + read - image * p.half;
#endif
    for (var i = local; i < SIZE; i += {{WORKGROUP}}u) {
#if DIGITS > 0
        let to = reverseBits(i) >> {{32 - DIGITS}}u;
#else
        let to = 0u;
#endif
#if REAL
        elements[to] = vec2(real(first, count, 2u * i), real(first, count, 2u * i + 1u));
#else
        elements[to] = input[first + i * p.half];
#endif
    }
    workgroupBarrier();
    for (var digit = 0u; digit < {{DIGITS}}u; digit++) {
        let part = 1u << digit;
        for (var pair = local; pair < SIZE / 2u; pair += {{WORKGROUP}}u) {
            let at = pair & (part - 1u);
            let low = 2u * (pair - at) + at;
            // In roots of the line's length; a row has twice as many as it has pairs of floats.
#if REAL
            let root = roots[2u * at * (SIZE / 2u >> digit)];
#else
            let root = roots[at * (SIZE / 2u >> digit)];
#endif
            let turned = times(elements[low + part], root);
            let kept = elements[low];
            elements[low] = kept + turned;
            elements[low + part] = kept - turned;
        }
        workgroupBarrier();
    }
    if line >= p.lines {
        return;
    }
#if REAL
    // Even and odd floats were the parts of one complex number: their spectra are separated and combined.
    for (var i = local; i < p.half; i += {{WORKGROUP}}u) {
        let z = elements[i & (SIZE - 1u)];
        let opposite = elements[(SIZE - i) & (SIZE - 1u)] * vec2(1.0, -1.0);
        let even = (z + opposite) * 0.5;
        let odd = (z - opposite) * 0.5;
        output[line * p.half + i] = even + times(vec2(odd.y, -odd.x), roots[i]);
    }
#else
    for (var i = local; i < SIZE; i += {{WORKGROUP}}u) {
        output[first + i * p.half] = elements[i];
    }
#endif
}
