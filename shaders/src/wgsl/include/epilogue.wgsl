#if FIXED
fn finish(result: T, at: u32, channel: u32) -> T {
    return result;
}
#else
// Activation, residual operand and second activation. T, the element of the output's buffer, is f32 or a vector of it.
#if RESIDUAL
@group(0) @binding({{RESIDUAL_BINDING}}) var<storage, read> residual: array<T>;
#endif
#if SLOPE
@group(0) @binding({{SLOPE_BINDING}}) var<storage, read> slope: array<T>;

fn op_prelu(v: T, slope: T) -> T {
    return select(v * slope, v, v > T(0.0));
}

fn slope_at(channel: u32) -> T {
    return slope[channel];
}
#endif

#include "math"

// `at`: index into the output; `channel`: index into per-channel buffers; both in units of T.
fn finish(result: T, at: u32, channel: u32) -> T {
    var v = result;
    v = {{ACTIVATION}};
#if RESIDUAL
    v = v + residual[at];
    v = {{AFTER}};
#endif
    return v;
}
#endif
#if INTEGERS
#include "integers"
#endif
