//! `exp`, `tanh` and the logistic function in fixed point, bit-exact with TFLite's fixed-point library.
//!
//! A number is an integer of `BITS` bits, 16 or 32, of which `integer` are before the point; the others, except the
//! sign, are its fraction. Results are fractions: all bits except the sign are after the point.

/// `tanh(x)`.
pub fn tanh<const BITS: u32>(x: i32, integer: u32) -> i32 {
    let x = i64::from(x);
    if x == 0 {
        return 0;
    }
    // Reading x with one more whole bit doubles it.
    let e = exp_of_negative::<BITS>(-x.abs(), integer + 1);
    let half_denominator = half_one_plus::<BITS>(e);
    let magnitude = saturating_shl::<BITS>(reciprocal::<BITS>(half_denominator) - (1 << (BITS - 3)), 2);
    (if x < 0 { -magnitude } else { magnitude }) as i32
}

/// `1 / (1 + exp(-x))`.
pub fn logistic<const BITS: u32>(x: i32, integer: u32) -> i32 {
    let x = i64::from(x);
    if x == 0 {
        return 1 << (BITS - 2);
    }
    let e = exp_of_negative::<BITS>(-x.abs(), integer);
    let positive = saturating_shl::<BITS>(reciprocal::<BITS>(half_one_plus::<BITS>(e)), 1);
    (if x > 0 { positive } else { one::<BITS>() - positive }) as i32
}

/// `exp(x)` for `x` not above 0.
fn exp_of_negative<const BITS: u32>(x: i64, integer: u32) -> i64 {
    if x == 0 {
        return one::<BITS>();
    }
    let fraction = BITS - 1 - integer;
    // x = part - remainder, with part in [-1/4, 0) and the remainder a multiple of 1/4.
    let quarter = 1 << (fraction - 2);
    let part = (x & (quarter - 1)) - quarter;
    let remainder = part - x;
    let mut result = exp_near_zero::<BITS>(part << integer);
    // exp of -1/4, -1/2, -1, -2, …: one factor for each bit of the remainder.
    let factors = [1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242];
    for (i, factor) in (0..integer + 2).zip(factors) {
        if remainder & 1 << (fraction - 2 + i) != 0 {
            result = mul::<BITS>(result, constant::<BITS>(factor));
        }
    }
    result
}

/// `exp(x)` for the fraction `x` in `[-1/4, 0)`: a Taylor polynomial around -1/8.
fn exp_near_zero<const BITS: u32>(x: i64) -> i64 {
    let exp_of_minus_eighth = constant::<BITS>(1_895_147_668);
    let third = constant::<BITS>(715_827_883);
    let x = x + (1 << (BITS - 4));
    let x2 = mul::<BITS>(x, x);
    let x3 = mul::<BITS>(x2, x);
    let x4 = mul::<BITS>(x2, x2);
    let high = round_shift(mul::<BITS>(round_shift(x4, 2) + x3, third) + x2, 1);
    (exp_of_minus_eighth + mul::<BITS>(exp_of_minus_eighth, x + high)).min(one::<BITS>())
}

/// `1 / d` for the fraction `d` in `[1/2, 1)`, with 2 whole bits: three steps of Newton's method.
fn reciprocal<const BITS: u32>(d: i64) -> i64 {
    // The best straight line to start from: 48/17 - 32/17 d.
    let mut x = constant::<BITS>(1_515_870_810) + mul::<BITS>(d, constant::<BITS>(-1_010_580_540));
    for _ in 0..3 {
        let error = (1 << (BITS - 3)) - mul::<BITS>(d, x);
        x += saturating_shl::<BITS>(mul::<BITS>(x, error), 2);
    }
    x
}

/// `(1 + x) / 2` for the fraction `x`, which is not negative.
fn half_one_plus<const BITS: u32>(x: i64) -> i64 {
    (x + one::<BITS>() + 1) / 2
}

/// The fraction nearest to 1.
fn one<const BITS: u32>() -> i64 {
    (1 << (BITS - 1)) - 1
}

/// Rounds a constant of 32 bits to `BITS` bits.
fn constant<const BITS: u32>(value: i64) -> i64 {
    round_shift(value, 32 - BITS)
}

/// The product, rounded to nearest and saturated.
fn mul<const BITS: u32>(a: i64, b: i64) -> i64 {
    let product = a * b;
    let half = 1i64 << (BITS - 2);
    let nudge = if product >= 0 { half } else { 1 - half };
    ((product + nudge) / (1 << (BITS - 1))).min(one::<BITS>())
}

/// `x / 2^by`, rounded to nearest, halves away from zero.
fn round_shift(x: i64, by: u32) -> i64 {
    let mask = (1i64 << by) - 1;
    (x >> by) + i64::from((x & mask) > (mask >> 1) + i64::from(x < 0))
}

fn saturating_shl<const BITS: u32>(x: i64, by: u32) -> i64 {
    (x << by).clamp(-one::<BITS>() - 1, one::<BITS>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_the_real_functions() {
        for raw in (-32_768..32_768).step_by(97) {
            let real = f64::from(raw) / 4096.0;
            let wide = raw << 16;
            let near = |got: i32, bits: u32, want: f64, within: f64| {
                let got = f64::from(got) / 2f64.powi(bits.cast_signed() - 1);
                assert!(approx::abs_diff_eq!(got, want, epsilon = within), "{real}: {got} is not {want}");
            };
            near(tanh::<16>(raw, 3), 16, real.tanh(), 2e-3);
            near(tanh::<32>(wide, 3), 32, real.tanh(), 1e-6);
            near(logistic::<16>(raw, 3), 16, 1.0 / (1.0 + (-real).exp()), 2e-3);
            near(logistic::<32>(wide, 3), 32, 1.0 / (1.0 + (-real).exp()), 1e-6);
        }
    }
}
