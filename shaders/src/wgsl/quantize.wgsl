// Conversion between quantized integers and real numbers.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
    // The scale, or its reciprocal.
    factor: f32,
    zero: i32,
    low: i32,
    high: i32,
    scale: f32,
    // Elements (or vectors) before the remainder after groups of eight.
    eights: u32,
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

#if LEFT
#include "rounding"

fn fraction(v: f32) -> u32 {
    return (bitcast<u32>(v) & 0x7fffffu) | 0x800000u;
}

// Whether twice |v| is at least n scales, for n below 2^20: in 64 bits, for normal numbers.
fn reaches(v: f32, n: u32) -> bool {
    let apart = i32((bitcast<u32>(v) >> 23u) & 0xffu) + 1 - i32((bitcast<u32>(p.scale) >> 23u) & 0xffu);
    let left = long_product(fraction(v), 1u << u32(clamp(apart, 0, 31)));
    let right = long_product(fraction(p.scale), n);
    let reached = left.x > right.x || (left.x == right.x && left.y >= right.y);
    return apart >= 0 && (reached || apart > 30);
}

// v over the scale, divided exactly, rounded to nearest with halves away from zero.
fn divided(v: f32) -> f32 {
    let about = min(abs(v) * p.factor, 262144.0);
    var whole = u32(floor(about + 0.5));
    if whole > 0u && !reaches(v, 2u * whole - 1u) {
        whole -= 1u;
    } else if reaches(v, 2u * whole + 1u) {
        whole += 1u;
    }
    return select(f32(whole), -f32(whole), v < 0.0);
}
#endif

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
        var nearest = round(steps);
#endif
#if LEFT
        if i >= p.eights {
#if VEC4
            nearest = F(divided(v.x), divided(v.y), divided(v.z), divided(v.w));
#else
            nearest = divided(v);
#endif
        }
#endif
        // Clamped as a float, whose range contains any quotient.
        output[i] = N(clamp(nearest + f32(p.zero), F(f32(p.low)), F(f32(p.high))));
#endif
#include "walk_on"
}
