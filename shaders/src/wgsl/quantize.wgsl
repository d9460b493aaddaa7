// Between integers with a scale and real numbers.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
    // The scale, or one over it.
    factor: f32,
    zero: i32,
    low: i32,
    high: i32,
}

#if VEC4
alias F = vec4<f32>;
alias N = vec4<i32>;
#else
alias F = f32;
alias N = i32;
#endif

#if TO_REAL
@group(0) @binding(0) var<storage, read> input: array<N>;
@group(0) @binding(1) var<storage, read_write> output: array<F>;
#else
@group(0) @binding(0) var<storage, read> input: array<F>;
@group(0) @binding(1) var<storage, read_write> output: array<N>;
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
#if TO_REAL
        output[i] = F(v - N(p.zero)) * p.factor;
#else
        let steps = v * p.factor;
#if AWAY
        let nearest = sign(steps) * floor(abs(steps) + 0.5);
#else
        let nearest = round(steps);
#endif
        // Limited while it is a float, whose range holds any number of steps.
        output[i] = N(clamp(nearest + f32(p.zero), F(f32(p.low)), F(f32(p.high))));
#endif
#include "walk_on"
}
