// Unary functions. T is f32 or a vector of it; `a` and `b` are the op's parameters.
// Arguments of exp are clamped, so that no driver computes inf/inf.

fn op_abs(v: T, a: f32, b: f32) -> T {
    return abs(v);
}

fn op_affine(v: T, a: f32, b: f32) -> T {
    return v * a + b;
}

// A power, corrected by a step of Newton's method.
fn op_cbrt(v: T, a: f32, b: f32) -> T {
    let x = abs(v);
    let root = pow(x, T(0.33333334));
    let square = root * root;
    let better = root - (root - x / square) * 0.33333334;
    let y = select(root, better, (square > T(0.0)) & (square < T(3e38)));
    return select(y, -y, v < T(0.0));
}

fn op_ceil(v: T, a: f32, b: f32) -> T {
    return ceil(v);
}

// Written with comparisons so that NaN stays NaN where the compiler keeps them. NVIDIA's makes a minimum and a maximum of
// them, which return the bound.
fn op_clamp(v: T, a: f32, b: f32) -> T {
    let low = select(v, T(a), v < T(a));
    return select(low, T(b), low > T(b));
}

fn op_elu(v: T, a: f32, b: f32) -> T {
    return select(exp(min(v, T(0.0))) - 1.0, v, v > T(0.0));
}

fn op_exp(v: T, a: f32, b: f32) -> T {
    return exp(v);
}

fn op_floor(v: T, a: f32, b: f32) -> T {
    return floor(v);
}

// erf after Abramowitz and Stegun 7.1.26, with an error of at most 1.5e-7.
fn erf(v: T) -> T {
    let x = abs(v);
    let t = 1.0 / (1.0 + 0.3275911 * x);
    let poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    let y = 1.0 - poly * exp(-min(x * x, T(80.0)));
    return select(y, -y, v < T(0.0));
}

fn op_gelu(v: T, a: f32, b: f32) -> T {
    return 0.5 * v * (1.0 + erf(v * 0.70710678));
}

fn op_gelu_tanh(v: T, a: f32, b: f32) -> T {
    return 0.5 * v * (1.0 + op_tanh(0.79788456 * (v + 0.044715 * v * v * v), a, b));
}

fn op_hard_swish(v: T, a: f32, b: f32) -> T {
    return v * clamp(v + 3.0, T(0.0), T(6.0)) * 0.16666667;
}

fn op_leaky_relu(v: T, a: f32, b: f32) -> T {
    return select(v * a, v, v > T(0.0));
}

fn op_log(v: T, a: f32, b: f32) -> T {
    return log(v);
}

fn op_logistic(v: T, a: f32, b: f32) -> T {
    return 1.0 / (1.0 + exp(-clamp(v, T(-80.0), T(80.0))));
}

fn op_neg(v: T, a: f32, b: f32) -> T {
    return -v;
}

fn op_round(v: T, a: f32, b: f32) -> T {
    return round(v);
}

fn op_rsqrt(v: T, a: f32, b: f32) -> T {
    return 1.0 / sqrt(v);
}

fn op_sign(v: T, a: f32, b: f32) -> T {
    // `sign` is unspecified for NaN, and compilers may assume that NaN equals itself.
    return select(v, sign(v), abs(v) > T(0.0));
}

fn op_sqrt(v: T, a: f32, b: f32) -> T {
    return sqrt(v);
}

fn op_square(v: T, a: f32, b: f32) -> T {
    return v * v;
}

fn op_tanh(v: T, a: f32, b: f32) -> T {
    let e = exp(-2.0 * min(abs(v), T(40.0)));
    let y = (1.0 - e) / (1.0 + e);
    return select(y, -y, v < T(0.0));
}
