// Combines integers along some dimensions in memory order. Kept and reduced dimensions,
// with neighbours merged, are listed from the innermost out.

struct Params {
    // Elements of the output.
    count: u32,
    items: u32,
    extent_0: u32,
    step_0: u32,
    // Elements combined into one.
    reduced: u32,
    input_zero: i32,
    output_zero: i32,
    low: i32,
    high: i32,
    // A 15-bit factor, and the right shift of its products.
    multiplier: u32,
    right: i32,
    // Left shift and right shift that wrap results to the bits of their type, and the mask of an unsigned one.
    unused: u32,
    mask: u32,
#for d in 0..KEPT
    kept_extent_{{d}}: u32,
    kept_stride_{{d}}: u32,
#endfor
#for d in 0..REDUCED
    reduced_extent_{{d}}: u32,
    reduced_stride_{{d}}: u32,
#endfor
}

@group(0) @binding(0) var<storage, read> input: array<i32>;
@group(0) @binding(1) var<storage, read_write> output: array<i32>;
#include "params"

#include "divide"
#if !WRAPS
#include "fixed_wide"
#endif

#if RESCALES
fn rescaled(v: vec2<u32>) -> i32 {
    return fixed_wide(v, p.multiplier, p.right);
}

// The product of two 32-bit integers.
fn whole_product(a: i32, b: i32) -> vec2<u32> {
    let size = wide_product(bitcast<u32>(abs(a)), bitcast<u32>(abs(b)));
    return select(size, wide_negate(size), vec2((a < 0) != (b < 0)));
}
#endif
#if MEAN
// a / b, truncated: a quotient of 31 bits.
fn wide_quotient(a: vec2<u32>, b: u32) -> i32 {
    let size = wide_abs(a);
    var left = 0u;
    var quotient = 0u;
    for (var bit = 0u; bit < 64u; bit++) {
        let word = select(size.y, size.x, bit > 31u);
        // The remainder is below b, which has 31 bits.
        left = (left << 1u) | ((word >> (31u - (bit & 31u))) & 1u);
        let fits = left >= b;
        left -= select(0u, b, fits);
        quotient = (quotient << 1u) | select(0u, 1u, fits);
    }
    let result = bitcast<i32>(quotient);
    return select(result, -result, (a.y >> 31u) == 1u);
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
        var kept = i;
#include "kept"
#if MEAN
        var sum = vec2<u32>();
#else
        var product = 1;
#endif
        for (var r = 0u; r < p.reduced; r++) {
#include "reduced"
            let v = input[at] - p.input_zero;
#if MEAN
            sum = wide_add(sum, wide_of(v));
#else
#if RESCALES
            // The first factor is not scaled.
            if r == 0u {
                product = v;
            } else {
                product = rescaled(whole_product(product, v));
            }
#else
            product *= v;
#endif
#endif
        }
#if MEAN
        output[i] = wide_quotient(sum, p.reduced);
#else
#if RESCALES
        output[i] = clamp(rescaled(wide_of(product)) + p.output_zero, p.low, p.high);
#else
        output[i] = ((product << p.unused) >> p.unused) & bitcast<i32>(p.mask);
#endif
#endif
#include "walk_on"
}
