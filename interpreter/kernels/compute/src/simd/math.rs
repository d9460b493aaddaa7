//! Vectorized functions. Errors are a few units in the last place, except for [`gelu`].

use crate::simd::Simd;

/// `e^x`; overflows to infinity and underflows to 0.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let x = S::clamp(x, S::splat(-104.0), S::splat(89.0));
        let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        // ln 2 in two parts; the product of the first part and `n` is exact.
        let r = S::fma(n, S::splat(-0.693_359_4), x);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        // e^r for |r| <= ln(2) / 2: the Taylor series, with the last coefficients adjusted for the interval.
        let mut p = S::splat(1.987_569_1e-4);
        for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = S::fma(p, r, S::splat(c));
        }
        let p = S::add(S::fma(p, S::mul(r, r), r), S::splat(1.0));
        // In two steps, as 2^n may be out of range even if the result is not.
        let half = S::round(S::mul(n, S::splat(0.5)));
        S::mul(S::mul(p, S::exp2_int(half)), S::exp2_int(S::sub(n, half)))
    }
}

/// `e^x` for `x <= 0`, with fewer instructions than [`exp`]; 0 where that would be below the normal numbers. The result
/// for a positive `x` may be any number.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn exp_negative<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        // 2^-127 is 0 here.
        let x = S::max(S::splat(-88.0), x);
        let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        // As in `exp`.
        let r = S::fma(n, S::splat(-0.693_359_4), x);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        // e^r for |r| <= ln(2) / 2: the polynomial with the least relative error, a ten millionth.
        let mut p = S::splat(8.312_478e-3);
        for c in [4.189_055e-2, 1.666_711_6e-1, 4.999_923e-1, 1.0, 1.0] {
            p = S::fma(p, r, S::splat(c));
        }
        S::mul(p, S::exp2_int(n))
    }
}

/// `1 / (1 + e^-x)`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn logistic<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let e = exp::<S>(S::sub(S::splat(0.0), x));
        S::div(S::splat(1.0), S::add(S::splat(1.0), e))
    }
}

/// Hyperbolic tangent.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let a = S::abs(x);
        // Far from 0: 1 - 2 / (e^2a + 1).
        let e = exp::<S>(S::add(a, a));
        let far = S::sub(S::splat(1.0), S::div(S::splat(2.0), S::add(e, S::splat(1.0))));
        // Near 0 that formula cancels: a + a³·P(a²).
        let z = S::mul(a, a);
        let mut p = S::splat(-5.704_988_7e-3);
        for c in [2.063_909e-2, -5.373_972e-2, 1.333_144_2e-1, -3.333_328e-1] {
            p = S::fma(p, z, S::splat(c));
        }
        let near = S::fma(S::mul(p, z), a, a);
        let y = S::select(S::lt(a, S::splat(0.625)), near, far);
        S::copysign(y, x)
    }
}

/// `x / 2 · erfc(-x / √2)`, with an absolute error of a few millionths.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn gelu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let z = S::mul(S::abs(x), S::splat(std::f32::consts::FRAC_1_SQRT_2));
        // erfc(z) for z >= 0: a polynomial in 1 / (1 + p·z) times e^-z², after Abramowitz and Stegun 7.1.26.
        let t = S::div(S::splat(1.0), S::fma(S::splat(0.327_591_1), z, S::splat(1.0)));
        let mut p = S::splat(1.061_405_4);
        for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
            p = S::fma(p, t, S::splat(c));
        }
        let below = S::mul(S::mul(p, t), exp::<S>(S::mul(S::sub(S::splat(0.0), z), z)));
        // The product of infinity and 0 would be NaN.
        let part = S::mul(S::mul(S::splat(0.5), S::min(x, S::splat(f32::MAX))), below);
        S::select(S::lt(x, S::splat(0.0)), part, S::sub(x, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::{SimdTask, dispatch};

    struct All<'a>(&'a [f32], &'a mut Vec<[f32; 4]>);

    impl SimdTask for All<'_> {
        type Out = ();

        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            for x in self.0.chunks(S::LANES) {
                let mut out = [[0.0; 16]; 4];
                // SAFETY: chunks are not longer than a vector; the instructions exist by the caller's contract.
                unsafe {
                    let v = S::load_n(x.as_ptr(), x.len());
                    S::store_n(out[0].as_mut_ptr(), exp::<S>(v), x.len());
                    S::store_n(out[1].as_mut_ptr(), logistic::<S>(v), x.len());
                    S::store_n(out[2].as_mut_ptr(), tanh::<S>(v), x.len());
                    let negative = S::min(S::splat(0.0), v);
                    S::store_n(out[3].as_mut_ptr(), exp_negative::<S>(negative), x.len());
                }
                self.1.extend((0..x.len()).map(|i| [out[0][i], out[1][i], out[2][i], out[3][i]]));
            }
        }
    }

    #[test]
    fn functions_are_good_to_a_millionth() {
        let mut xs: Vec<f32> = (-120_000..=120_000).map(|i| i as f32 * 1e-3).collect();
        xs.extend((1..60).flat_map(|i| [0.7f32.powi(i), -(0.7f32.powi(i))]));
        for &isa in Isa::available() {
            let mut got = Vec::new();
            dispatch(isa, All(&xs, &mut got));
            for (&x, got) in xs.iter().zip(&got) {
                let d = f64::from(x);
                let expected = [d.exp(), 1.0 / (1.0 + (-d).exp()), d.tanh(), d.min(0.0).exp()];
                for (f, (&g, e)) in got.iter().zip(expected).enumerate() {
                    let e = e as f32;
                    let ok = g == e || approx::abs_diff_eq!(g, e, epsilon = 1e-6 * e.abs() + 1e-38);
                    assert!(ok, "{} function {f} of {x} is {g}, expected {e}", isa.name());
                }
            }
        }
    }

    #[test]
    fn special_values() {
        for &isa in Isa::available() {
            let mut got = Vec::new();
            dispatch(isa, All(&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0], &mut got));
            assert_eq!(got[0], [f32::INFINITY, 1.0, 1.0, 1.0], "{}", isa.name());
            assert_eq!(got[1], [0.0, 0.0, -1.0, 0.0], "{}", isa.name());
            assert!(got[2].iter().all(|x| x.is_nan()), "{}", isa.name());
            assert_eq!(got[3], [1.0, 0.5, 0.0, 1.0], "{}", isa.name());
            assert!(got[4][2].is_sign_negative(), "{}", isa.name());
        }
    }
}
