//! Functions in single precision that quantized ops approximate, each in the order in which TFLite's kernels compute
//! it.

/// `1 / (1 + exp(-x))`.
pub fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x`, or `exp(x) - 1` below 0.
pub fn elu(x: f32) -> f32 {
    if x < 0.0 { x.exp_m1() } else { x }
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
pub fn gelu(x: f32) -> f32 {
    // The complement of the error function keeps its precision where x is far below 0.
    0.5 * x * libm::erfcf(x * -std::f32::consts::FRAC_1_SQRT_2)
}

/// Returns the approximation of [`gelu`] by `tanh`.
pub fn approximate_gelu(x: f32) -> f32 {
    const SQRT_2_PI: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
    0.5 * x * (1.0 + (SQRT_2_PI * (x + 0.044_715 * x * x * x)).tanh())
}
