// Running sums. An invocation computes a line, so that sums have one order on every device.

struct Params {
    // Number of lines.
    count: u32,
    items: u32,
    // Inner and outer.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    // Elements of a line.
    size: u32,
}

@group(0) @binding(0) var<storage, read> input: array<{{ELEMENT}}>;
@group(0) @binding(1) var<storage, read_write> output: array<{{ELEMENT}}>;
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
        let first = digit_1 * p.size * p.extent_0 + digit_0;
        var sum = {{ELEMENT}}(0);
        for (var n = 0u; n < p.size; n++) {
#if REVERSE
            let at = first + (p.size - 1u - n) * p.extent_0;
#else
            let at = first + n * p.extent_0;
#endif
#if EXCLUSIVE
            output[at] = sum;
            sum += input[at];
#else
            sum += input[at];
            output[at] = sum;
#endif
        }
#include "walk_on"
}
