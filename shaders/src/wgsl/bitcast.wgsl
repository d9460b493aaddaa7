// The same bits as elements of another size, each in a word of its own.

struct Params {
    // Elements of the output.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
    // Bits of an element of input and output.
    from_bits: u32,
    to_bits: u32,
    // Left shift, and right shift after it, of results.
    unused: u32,
    // Mask of a result's bits.
    mask: u32,
}

@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;
#include "params"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
#if WIDENS
        let parts = p.to_bits / p.from_bits;
        var bits = 0u;
        for (var part = 0u; part < parts; part++) {
            let element = input[i * parts + part] << (32u - p.from_bits);
            bits |= (element >> (32u - p.from_bits)) << (part * p.from_bits);
        }
#else
        let parts = p.from_bits / p.to_bits;
        let bits = input[i / parts] >> (i % parts * p.to_bits);
#endif
        output[i] = bitcast<u32>(bitcast<i32>(bits << p.unused) >> p.unused) & p.mask;
#include "walk_on"
}
