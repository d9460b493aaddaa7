// The input, in which an update replaces the elements from computed indices on, clamped so that the update fits.
// Dimensions are listed from the innermost out.

struct Params {
    // Words.
    count: u32,
    items: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
    // Extents and strides of the update.
    size_{{d}}: u32,
    stride_{{d}}: u32,
#endfor
}

@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read> update: array<u32>;
@group(0) @binding(2) var<storage, read> start: array<i32>;
@group(0) @binding(3) var<storage, read_write> output: array<u32>;
#include "params"

#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#for d in 0..RANK
    let first_{{d}} = u32(clamp(start[{{RANK - 1 - d}}], 0, i32(p.extent_{{d}} - p.size_{{d}})));
#endfor
#include "walk"
        var inside = true;
        var src = 0u;
#for d in 0..RANK
        // Before the update, the difference wraps to a large index.
        let at_{{d}} = digit_{{d}} - first_{{d}};
        inside = inside & (at_{{d}} < p.size_{{d}});
        src += min(at_{{d}}, p.size_{{d}} - 1u) * p.stride_{{d}};
#endfor
        output[i] = select(input[i], update[src], inside);
#include "walk_on"
}
