//! Elementwise functions of one and two operands in single precision.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::clamp::Clamp;
use crate::base::error::{Result, check_len};
use crate::base::isa::Isa;
use crate::elementwise::broadcast::Broadcast;
use crate::simd::{Simd, SimdTask, dispatch, math};
use crate::threads::share::{chunk_len, is_one_task, threads_for};

/// A function of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `min(max(x, low), high)`: RELU, RELU6, RELU_N1_TO_1.
    Clamp(Clamp),
    /// `x · min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `1 / (1 + e^-x)`.
    Logistic,
    /// Hyperbolic tangent.
    Tanh,
    /// `e^x`.
    Exp,
    /// `x < 0 ? alpha · x : x`.
    LeakyRelu(f32),
    /// `x < 0 ? e^x - 1 : x`.
    Elu,
    /// `x` times the standard normal distribution function of `x`.
    Gelu,
    /// The approximation of `Gelu` by `tanh`.
    GeluByTanh,
    /// Absolute value.
    Abs,
    /// `-x`.
    Neg,
    /// `x · x`.
    Square,
    /// Square root.
    Sqrt,
    /// `1 / √x`.
    Rsqrt,
}

/// A function of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a · b`.
    Mul,
    /// `a / b`.
    Div,
    /// `a > b ? a : b`.
    Maximum,
    /// `a < b ? a : b`.
    Minimum,
    /// `(a - b)²`.
    SquaredDifference,
    /// `a < 0 ? a · b : a`.
    Prelu,
}

/// Applies a function to each element; in place if `input` is `None`.
///
/// # Errors
/// Fails if the lengths differ.
pub fn unary(
    isa: Isa,
    function: Unary,
    input: Option<&[f32]>,
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    let len = out.len();
    check_len("input", input.map_or(len, <[f32]>::len), len)?;
    if is_one_task(len) {
        dispatch(isa, UnaryTask { function, input, out });
        return Ok(());
    }
    let shared = SharedMut::new(out);
    let par = threads_for(par, len);
    let piece = chunk_len(par, len, 1);
    par.run(len.div_ceil(piece), &|task| {
        let start = task * piece;
        let end = (start + piece).min(len);
        let input = input.map(|input| &input[start..end]);
        // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(start, end - start) };
        dispatch(isa, UnaryTask { function, input, out });
    });
    Ok(())
}

struct UnaryTask<'a> {
    function: Unary,
    input: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl SimdTask for UnaryTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        /// Evaluates a vector expression for all elements.
        macro_rules! map {
            ($x:ident => $body:expr) => {{
                let (to, len) = (self.out.as_mut_ptr(), self.out.len());
                let from = self.input.map_or(to.cast_const(), <[f32]>::as_ptr);
                let mut i = 0;
                while i + S::LANES <= len {
                    let $x = S::load(from.add(i));
                    S::store(to.add(i), $body);
                    i += S::LANES;
                }
                if i < len {
                    let $x = S::load_n(from.add(i), len - i);
                    S::store_n(to.add(i), $body, len - i);
                }
            }};
        }
        // SAFETY: both slices have the same length or are one slice, of which each vector is read before it is written.
        // The instructions exist by the caller's contract.
        unsafe {
            let zero = S::splat(0.0);
            let one = S::splat(1.0);
            match self.function {
                Unary::Clamp(c) => {
                    let (low, high) = (S::splat(c.low), S::splat(c.high));
                    map!(x => S::clamp(x, low, high))
                }
                Unary::HardSwish => {
                    let (three, six, sixth) = (S::splat(3.0), S::splat(6.0), S::splat(1.0 / 6.0));
                    map!(x => S::mul(S::mul(x, sixth), S::clamp(S::add(x, three), zero, six)))
                }
                Unary::Logistic => map!(x => math::logistic::<S>(x)),
                Unary::Tanh => map!(x => math::tanh::<S>(x)),
                Unary::Exp => map!(x => math::exp::<S>(x)),
                Unary::LeakyRelu(alpha) => {
                    let alpha = S::splat(alpha);
                    map!(x => S::select(S::lt(x, zero), S::mul(x, alpha), x))
                }
                Unary::Elu => map!(x => {
                    // Near 0, e^x - 1 cancels; tanh(x/2) · (e^x + 1) is the same value.
                    let half = math::tanh::<S>(S::mul(x, S::splat(0.5)));
                    let below = S::mul(half, S::add(math::exp::<S>(x), one));
                    S::select(S::lt(x, zero), below, x)
                }),
                Unary::Gelu => map!(x => math::gelu::<S>(x)),
                Unary::GeluByTanh => {
                    const SQRT_2_PI: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
                    let (scale, cubic, half) = (S::splat(SQRT_2_PI), S::splat(0.044_715), S::splat(0.5));
                    map!(x => {
                        let inner = S::fma(S::mul(cubic, x), S::mul(x, x), x);
                        S::mul(S::mul(half, x), S::add(one, math::tanh::<S>(S::mul(scale, inner))))
                    })
                }
                Unary::Abs => map!(x => S::abs(x)),
                Unary::Neg => map!(x => S::mul(x, S::splat(-1.0))),
                Unary::Square => map!(x => S::mul(x, x)),
                Unary::Sqrt => map!(x => S::sqrt(x)),
                Unary::Rsqrt => map!(x => S::div(one, S::sqrt(x))),
            }
        }
    }
}

impl Broadcast {
    /// Applies `function` and clamps. At most one operand may be omitted: it stands for the content of `out`, which
    /// must have its shape.
    ///
    /// # Errors
    /// Fails if the length of an operand or of `out` does not match its shape, or both operands are omitted.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn run(
        &self,
        isa: Isa,
        function: Binary,
        a: Option<&[f32]>,
        b: Option<&[f32]>,
        out: &mut [f32],
        clamp: Clamp,
        par: &dyn Parallel,
    ) -> Result<()> {
        self.check([a.map(<[f32]>::len), b.map(<[f32]>::len)], out.len())?;
        let shared = SharedMut::new(out);
        self.pieces(par, |rows, columns| {
            dispatch(isa, BinaryTask { shape: self, function, a, b, out: shared, clamp, rows, columns });
        });
        Ok(())
    }
}

struct BinaryTask<'a> {
    shape: &'a Broadcast,
    function: Binary,
    a: Option<&'a [f32]>,
    b: Option<&'a [f32]>,
    out: SharedMut<'a, f32>,
    clamp: Clamp,
    /// Rows of the innermost dimension.
    rows: std::ops::Range<usize>,
    /// Elements of each of these rows.
    columns: std::ops::Range<usize>,
}

impl SimdTask for BinaryTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the instructions exist by the caller's contract. `Broadcast::pieces` gives each task a piece of the
        // output of its own.
        unsafe {
            match self.function {
                Binary::Add => self.rows::<S, { Binary::Add as u8 }>(),
                Binary::Sub => self.rows::<S, { Binary::Sub as u8 }>(),
                Binary::Mul => self.rows::<S, { Binary::Mul as u8 }>(),
                Binary::Div => self.rows::<S, { Binary::Div as u8 }>(),
                Binary::Maximum => self.rows::<S, { Binary::Maximum as u8 }>(),
                Binary::Minimum => self.rows::<S, { Binary::Minimum as u8 }>(),
                Binary::SquaredDifference => self.rows::<S, { Binary::SquaredDifference as u8 }>(),
                Binary::Prelu => self.rows::<S, { Binary::Prelu as u8 }>(),
            }
        }
    }
}

impl BinaryTask<'_> {
    /// Computes these rows and columns.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`. No other thread may access these rows and columns of the
    /// output.
    #[inline(always)]
    unsafe fn rows<S: Simd, const F: u8>(&self) {
        let (steps, len) = (self.shape.steps(), self.columns.len());
        for [at_a, at_b, at] in self.shape.rows(self.rows.clone(), self.columns.start) {
            // SAFETY: strides and extents address both operands within their lengths, which `Broadcast::check` checked.
            // Rows and columns of tasks are disjoint. An operand that is the output has its layout
            // (`Broadcast::check`), and each vector of it is read before it is written. The instructions exist by the
            // caller's contract.
            unsafe {
                let out = self.out.ptr(at);
                let operand = |all: Option<&[f32]>, at: usize| {
                    all.map_or(out.cast_const(), |all| all.as_ptr().wrapping_add(at))
                };
                let (a, b) = (operand(self.a, at_a), operand(self.b, at_b));
                match steps {
                    [0, _] => run::<S, F, 0, 1>(a, b, out, len, self.clamp),
                    [_, 0] => run::<S, F, 1, 0>(a, b, out, len, self.clamp),
                    _ => run::<S, F, 1, 1>(a, b, out, len, self.clamp),
                }
            }
        }
    }
}

/// One row; an operand with step 0 is a single element.
///
/// # Safety
/// The processor must have the instructions of `S`. `out` and operands with step 1 must be valid for `len` elements,
/// other operands for one.
#[inline(always)]
unsafe fn run<S: Simd, const F: u8, const A: usize, const B: usize>(
    a: *const f32,
    b: *const f32,
    out: *mut f32,
    len: usize,
    clamp: Clamp,
) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let (low, high) = (S::splat(clamp.low), S::splat(clamp.high));
        let (one_a, one_b) = (S::splat(*a), S::splat(*b));
        let mut i = 0;
        while i + S::LANES <= len {
            let x = if A == 0 { one_a } else { S::load(a.add(i)) };
            let y = if B == 0 { one_b } else { S::load(b.add(i)) };
            S::store(out.add(i), S::clamp(apply::<S, F>(x, y), low, high));
            i += S::LANES;
        }
        if i < len {
            let x = if A == 0 { one_a } else { S::load_n(a.add(i), len - i) };
            let y = if B == 0 { one_b } else { S::load_n(b.add(i), len - i) };
            S::store_n(out.add(i), S::clamp(apply::<S, F>(x, y), low, high), len - i);
        }
    }
}

/// Applies function `F` to vectors.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
unsafe fn apply<S: Simd, const F: u8>(a: S::F, b: S::F) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        if F == Binary::Add as u8 {
            S::add(a, b)
        } else if F == Binary::Sub as u8 {
            S::sub(a, b)
        } else if F == Binary::Mul as u8 {
            S::mul(a, b)
        } else if F == Binary::Div as u8 {
            S::div(a, b)
        } else if F == Binary::Maximum as u8 {
            S::max(a, b)
        } else if F == Binary::Minimum as u8 {
            S::min(a, b)
        } else if F == Binary::SquaredDifference as u8 {
            let d = S::sub(a, b);
            S::mul(d, d)
        } else {
            S::select(S::lt(a, S::splat(0.0)), S::mul(a, b), a)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::{Serial, ThreadPool};

    type Plain1 = fn(f32) -> f32;
    type Plain2 = fn(f32, f32) -> f32;

    #[test]
    fn functions_of_one_operand() {
        let mut rng = Rng::new(21);
        let pool = ThreadPool::new(2);
        let plain: [(Unary, Plain1); 14] = [
            (Unary::Clamp(Clamp::RELU6), |x| x.clamp(0.0, 6.0)),
            (Unary::HardSwish, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
            (Unary::Logistic, |x| 1.0 / (1.0 + (-x).exp())),
            (Unary::Tanh, f32::tanh),
            (Unary::Exp, f32::exp),
            (Unary::LeakyRelu(0.3), |x| if x < 0.0 { 0.3 * x } else { x }),
            (Unary::Elu, |x| if x < 0.0 { x.exp_m1() } else { x }),
            (Unary::Gelu, |x| 0.5 * x * libm::erfcf(-x * std::f32::consts::FRAC_1_SQRT_2)),
            (Unary::GeluByTanh, |x| {
                let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }),
            (Unary::Abs, f32::abs),
            (Unary::Neg, |x| -x),
            (Unary::Square, |x| x * x),
            (Unary::Sqrt, f32::sqrt),
            (Unary::Rsqrt, |x| 1.0 / x.sqrt()),
        ];
        for &isa in Isa::available() {
            for (function, plain) in plain {
                let far = [f32::INFINITY, f32::NEG_INFINITY];
                let mut out = [0.0; 2];
                unary(isa, function, Some(&far), &mut out, &pool).unwrap();
                for (x, (g, e)) in far.iter().zip(out.iter().zip(far.map(plain))) {
                    let ok = *g == e || g.is_nan() && e.is_nan();
                    assert!(ok, "{} {function:?} of {x} is {g}, expected {e}", isa.name());
                }
                for len in (0..40).chain([crate::threads::share::PER_TASK * 2 + 3]) {
                    let positive = matches!(function, Unary::Sqrt | Unary::Rsqrt);
                    let input: Vec<f32> = rng
                        .floats(len)
                        .iter()
                        .map(|x| if positive { x.abs() + 0.01 } else { x * 8.0 })
                        .collect();
                    let mut out = vec![f32::NAN; len];
                    unary(isa, function, Some(&input), &mut out, &pool).unwrap();
                    let mut in_place = input.clone();
                    unary(isa, function, None, &mut in_place, &pool).unwrap();
                    assert_eq!(in_place, out, "{} {function:?} in place", isa.name());
                    for (x, (&g, e)) in input.iter().zip(out.iter().zip(input.iter().map(|&x| plain(x)))) {
                        // A sum with 1 loses precision far below 0.
                        let near_zero =
                            if matches!(function, Unary::Gelu | Unary::GeluByTanh) { 2e-6 } else { 1e-30 };
                        let ok = approx::abs_diff_eq!(g, e, epsilon = 2e-6 * e.abs() + near_zero);
                        assert!(ok, "{} {function:?} of {x} is {g}, expected {e}", isa.name());
                    }
                }
            }
        }
        assert!(unary(Isa::best(), Unary::Abs, Some(&[0.0]), &mut [], &Serial).is_err());
    }

    #[test]
    fn functions_of_two_operands_broadcast() {
        let mut rng = Rng::new(22);
        let pool = ThreadPool::new(2);
        let plain: [(Binary, Plain2); 8] = [
            (Binary::Add, |a, b| a + b),
            (Binary::Sub, |a, b| a - b),
            (Binary::Mul, |a, b| a * b),
            (Binary::Div, |a, b| a / b),
            (Binary::Maximum, f32::max),
            (Binary::Minimum, f32::min),
            (Binary::SquaredDifference, |a, b| (a - b) * (a - b)),
            (Binary::Prelu, |a, b| if a < 0.0 { a * b } else { a }),
        ];
        for round in 0..300 {
            let rank = rng.range(0, 5);
            let full: Vec<usize> = (0..rank).map(|_| rng.range(1, 9)).collect();
            let mut part = |full: &[usize]| -> Vec<usize> {
                let skip = if rng.range(0, 2) == 0 { rng.range(0, full.len()) } else { 0 };
                full[skip..].iter().map(|&d| if rng.range(0, 2) == 0 { 1 } else { d }).collect()
            };
            let (a, b) = (part(&full), part(&full));
            // A dimension that both operands omit or repeat is missing from the output, too.
            let shape = Broadcast::new(&a, &b).unwrap();
            let dim = |s: &[usize], i: usize| (s.len() + i).checked_sub(rank).map_or(1, |i| s[i]);
            let out_dims: Vec<usize> = (0..rank).map(|i| dim(&a, i).max(dim(&b, i))).collect();
            let len: usize = out_dims.iter().product();
            let offset = |s: &[usize], mut index: usize| {
                let (mut at, mut stride) = (0, 1);
                for i in (0..rank).rev() {
                    let here = index % out_dims[i];
                    index /= out_dims[i];
                    at += if dim(s, i) == 1 { 0 } else { here * stride };
                    stride *= dim(s, i);
                }
                at
            };
            let (va, vb) = (rng.floats(a.iter().product()), rng.floats(b.iter().product()));
            let (function, plain) = plain[round % plain.len()];
            let clamp = if round % 3 == 0 { Clamp::RELU } else { Clamp::NONE };
            for &isa in Isa::available() {
                let mut out = vec![f32::NAN; len];
                shape.run(isa, function, Some(&va), Some(&vb), &mut out, clamp, &pool).unwrap();
                for (operand, rest) in [(&va, [None, Some(&*vb)]), (&vb, [Some(&*va), None])] {
                    let mut in_place = operand.clone();
                    in_place.resize(len, 0.0);
                    let done = shape.run(isa, function, rest[0], rest[1], &mut in_place, clamp, &pool);
                    assert_eq!(done.is_ok(), operand.len() == len);
                    assert!(done.is_err() || in_place == out, "{} {function:?} in place", isa.name());
                }
                for (i, &g) in out.iter().enumerate() {
                    let e = plain(va[offset(&a, i)], vb[offset(&b, i)]).max(clamp.low).min(clamp.high);
                    assert_eq!(g, e, "{} {function:?} {a:?} {b:?} element {i}", isa.name());
                }
            }
        }
        assert!(Broadcast::new(&[2, 3], &[2]).is_err());
        let shape = Broadcast::new(&[2, 3], &[3]).unwrap();
        let mut out = [0.0; 6];
        assert!(
            shape
                .run(
                    Isa::best(),
                    Binary::Add,
                    Some(&[0.0; 5]),
                    Some(&[0.0; 3]),
                    &mut out,
                    Clamp::NONE,
                    &Serial
                )
                .is_err()
        );
        assert!(
            Broadcast::new(&[0, 3], &[1, 3])
                .unwrap()
                .run(Isa::best(), Binary::Add, Some(&[]), Some(&[0.0; 3]), &mut [], Clamp::NONE, &Serial)
                .is_ok()
        );
    }

    #[test]
    fn long_rows_are_cut_up() {
        let pool = ThreadPool::new(3);
        let a: Vec<f32> = (0..100_001).map(|i| i as f32).collect();
        for (b, step) in [(a.clone(), 1), (vec![2.0], 0)] {
            let shape = Broadcast::new(&[a.len()], &[b.len()]).unwrap();
            let mut out = vec![0.0; a.len()];
            shape.run(Isa::best(), Binary::Add, Some(&a), Some(&b), &mut out, Clamp::NONE, &pool).unwrap();
            assert!(out.iter().enumerate().all(|(i, &o)| o == a[i] + b[i * step]));
        }
    }
}
