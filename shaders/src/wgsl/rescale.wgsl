// Conversion of integers from one scale to another.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    // Elements (or vectors) of a group, and number of groups.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    before: i32,
    multiplier: i32,
    shift: i32,
    // Elements of a group before this index round halves upwards.
    up: u32,
    after: i32,
    low: i32,
    high: i32,
    scale: f32,
    bias: f32,
    // Padding.
    nothing: u32,
}

#if VEC4
alias T = vec4<i32>;
#else
alias T = i32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"
#if REAL
#include "exact"
#else
#include "fixed"
#endif

fn rescaled(v: i32, up: bool) -> i32 {
#if REAL
    let real = nearest_whole(opaque(nearest_float(v) * p.scale) + p.bias);
    let scaled = i32(clamp(real, f32(p.low - p.after), f32(p.high - p.after)));
#else
    let scaled = fixed_multiply(v - p.before, p.multiplier, p.shift, up);
#endif
#if SATURATES
    return clamp(scaled, p.low - p.after, p.high - p.after) + p.after;
#else
    return clamp(scaled + p.after, p.low, p.high);
#endif
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let v = input[i];
        let up = digit_0 < p.up;
#if VEC4
        output[i] = T(rescaled(v.x, up), rescaled(v.y, up), rescaled(v.z, up), rescaled(v.w, up));
#else
        output[i] = rescaled(v, up);
#endif
#include "walk_on"
}
