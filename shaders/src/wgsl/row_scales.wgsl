// Scales for rows of floats that are about to become integers. A workgroup looks at one row.

struct Params {
    rows: u32,
    depth: u32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<f32>>;
#include "params"

// Lowest and highest of what each invocation has seen. Zero is always in between.
var<workgroup> ends: array<vec2<f32>, {{WORKGROUP}}>;

// Halves away from zero.
fn nearest(v: f32) -> f32 {
    return sign(v) * floor(abs(v) + 0.5);
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    // Workgroups beyond the last row do it again.
    let row = min(group.y * groups.x + group.x, p.rows - 1u);
    var own = vec2<f32>();
    for (var k = local; k < p.depth; k += {{WORKGROUP}}u) {
        let v = input[row * p.depth + k];
        own = vec2(min(own.x, v), max(own.y, v));
    }
    ends[local] = own;
    for (var half = {{WORKGROUP / 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            let other = ends[local + half];
            ends[local] = vec2(min(ends[local].x, other.x), max(ends[local].y, other.y));
        }
    }
    if local > 0u {
        return;
    }
    let low = ends[0].x;
    let high = ends[0].y;
#if ASYMMETRIC
    if low == high {
        output[row] = vec4(1.0, 0.0, 0.0, 0.0);
        return;
    }
    let scale = (high - low) / 255.0;
    // The end that is nearer to zero places it: it loses less precision.
    let from_low = 128.0 + abs(low / scale) < 127.0 + abs(high / scale);
    let zero = select(127.0 - high / scale, -128.0 - low / scale, from_low);
    output[row] = vec4(scale, nearest(clamp(zero, -128.0, 127.0)), 1.0 / scale, 0.0);
#else
    let range = max(high, -low);
    if range == 0.0 {
        output[row] = vec4(1.0, 0.0, 0.0, 0.0);
        return;
    }
    output[row] = vec4(range / 127.0, 0.0, 127.0 / range, 0.0);
#endif
}
