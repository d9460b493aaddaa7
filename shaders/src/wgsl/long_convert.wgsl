// Conversion between 64-bit integers, pairs of words with the low one first, and integers of one word.

struct Params {
    // Integers.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
}

#if NARROWS
@group(0) @binding(0) var<storage, read> input: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> output: array<i32>;
#else
@group(0) @binding(0) var<storage, read> input: array<i32>;
@group(0) @binding(1) var<storage, read_write> output: array<vec2<u32>>;
#endif
#include "params"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let v = input[i];
#if NARROWS
        let word = bitcast<i32>(v.x);
        // The high word of an integer that fits repeats the sign of the low one.
        let fits = bitcast<i32>(v.y) == (word >> 31u);
        let nearest = select(0x7fffffff, -0x7fffffff - 1, bitcast<i32>(v.y) < 0);
        output[i] = select(nearest, word, fits);
#else
        output[i] = vec2(bitcast<u32>(v), bitcast<u32>(v >> 31u));
#endif
#include "walk_on"
}
