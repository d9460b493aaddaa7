//! Sums, differences and products of quantized bytes.
//!
//! TFLite rescales the operands of sums, and all results, each with a rounding, in 64-bit arithmetic. For a given
//! quantization the result is a function of two bytes, and there is nearly always a short formula of 32 bits with the
//! same value for all 65 536 pairs. [`ByteBinaryOp::new`] looks for one and compares all pairs; without one, loops
//! follow TFLite step by step, in scalar code that the compiler vectorizes for each instruction set.

use std::marker::PhantomData;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::error::{ComputeError, Result};
use crate::base::isa::Isa;
use crate::base::requant::{ByteQuant, Factor, Multiplier, Ties};
use crate::elementwise::broadcast::{Blocks, Broadcast};
use crate::simd::int8::{Dot8, Dot8Task, dispatch as dispatch_bytes};
use crate::simd::{Simd, SimdTask, dispatch};

/// Fractional bits of operands that are rescaled to a common scale.
const SPARE: u32 = 20;

/// A function of two bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByteBinary {
    /// Each operand minus its zero point, shifted left by 20, times its factor, which is less than 1; then the sum.
    Add([Multiplier; 2]),
    /// As `Add`, with the difference.
    Sub([Multiplier; 2]),
    /// The product of both operands minus their zero points.
    Mul,
}

/// Quantization of a function of two bytes. Right shifts round ties away from zero.
#[derive(Clone, Copy, Debug)]
pub struct ByteBinaryQuant {
    /// Interpretation of the operands.
    pub operands: [ByteQuant; 2],
    /// Factor of sums or products.
    pub output: Multiplier,
    /// Zero point of the output.
    pub zero_point: i32,
    /// Minimum by type and fused activation.
    pub low: i32,
    /// Maximum by type and fused activation.
    pub high: i32,
}

/// A function of two bytes, prepared for its quantization.
#[derive(Clone, Copy, Debug)]
pub struct ByteBinaryOp {
    /// Masks that convert operands to unsigned bytes by an exclusive or.
    flips: [u8; 2],
    formula: Formula,
}

#[derive(Clone, Copy, Debug)]
enum Formula {
    ShortSum(ShortSum),
    ShortProduct(ShortProduct),
    Sum(Sum),
    Product(Product),
}

/// A function of two unsigned bytes.
trait Pairs: Copy {
    fn apply(self, a: u8, b: u8) -> u8;
}

impl ByteBinaryOp {
    /// For a function and its quantization.
    ///
    /// # Errors
    /// Fails if a factor or zero point is out of range.
    pub fn new(isa: Isa, function: ByteBinary, q: ByteBinaryQuant) -> Result<Self> {
        for operand in &q.operands {
            operand.zero_byte()?;
        }
        let range = |what| ComputeError::Range { what };
        if q.output.multiplier < 0 || !(-31..=30).contains(&q.output.shift) {
            return Err(range("multiplier"));
        }
        let zeros = q.operands.map(|operand| operand.zero_in(true));
        let finish = Finish {
            factor: Factor::new(q.output, Ties::Away),
            zero_point: q.zero_point,
            low: q.low,
            high: q.high,
        };
        let formula = match function {
            ByteBinary::Add(factors) | ByteBinary::Sub(factors) => {
                if factors.iter().any(|f| f.multiplier < 0 || !(-31..=0).contains(&f.shift)) {
                    return Err(range("factor of an operand"));
                }
                let negative = matches!(function, ByteBinary::Sub(_));
                let sum =
                    Sum { operands: [0, 1].map(|i| Rescale::new(zeros[i], factors[i])), negative, finish };
                // The row in which the last candidate differed is compared first, because it rejects most other
                // candidates.
                let mut row = 0;
                let agrees = |short: &ShortSum| match disagreement(isa, sum, *short, row) {
                    None => true,
                    Some(other) => {
                        row = other;
                        false
                    }
                };
                let short = ShortSum::candidates(&sum, factors, &q).find(agrees);
                short.map_or(Formula::Sum(sum), Formula::ShortSum)
            }
            ByteBinary::Mul => {
                let product = Product { zeros, finish };
                let short = ShortProduct::new(zeros, &q)
                    .filter(|short| disagreement(isa, product, *short, 0).is_none());
                short.map_or(Formula::Product(product), Formula::ShortProduct)
            }
        };
        Ok(ByteBinaryOp { flips: q.operands.map(|operand| if operand.signed { 0x80 } else { 0 }), formula })
    }

    /// Computes `out` of operands that broadcast. At most one operand may be omitted: it is the content of `out`, which
    /// must have its shape.
    ///
    /// # Errors
    /// Fails if the length of an operand or of `out` does not match its shape, or both operands are omitted.
    pub fn run(
        &self,
        isa: Isa,
        shape: &Broadcast,
        a: Option<&[u8]>,
        b: Option<&[u8]>,
        out: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        shape.check([a.map(<[u8]>::len), b.map(<[u8]>::len)], out.len())?;
        let out = SharedMut::new(out);
        shape.pieces(par, |rows, columns| {
            dispatch_bytes(isa, PairsTask { op: self, shape, operands: [a, b], out, part: (rows, columns) });
        });
        Ok(())
    }
}

struct PairsTask<'a> {
    op: &'a ByteBinaryOp,
    shape: &'a Broadcast,
    operands: [Option<&'a [u8]>; 2],
    out: SharedMut<'a, u8>,
    /// Rows and columns.
    part: (std::ops::Range<usize>, std::ops::Range<usize>),
}

impl Dot8Task for PairsTask<'_> {
    #[inline(always)]
    unsafe fn run<D: Dot8>(self) {
        let flips = self.op.flips;
        // SAFETY: the instructions exist by the caller's contract; scalar code requires none. `Broadcast::pieces` gives
        // each task a piece of the output of its own.
        unsafe {
            match self.op.formula {
                Formula::ShortSum(f) if f.away => {
                    self.short::<D>(f.vectors::<D, true>(), f.zero_point, f.bounds);
                }
                Formula::ShortSum(f) => self.short::<D>(f.vectors::<D, false>(), f.zero_point, f.bounds),
                Formula::ShortProduct(f) => self.short::<D>(f.vectors::<D>(), f.zero_point, f.bounds),
                Formula::Sum(f) => self.shape.blocks(self.part, self.operands, self.out, Scalar { f, flips }),
                Formula::Product(f) => {
                    self.shape.blocks(self.part, self.operands, self.out, Scalar { f, flips })
                }
            }
        }
    }
}

impl PairsTask<'_> {
    /// Computes the part by a formula for vectors.
    ///
    /// # Safety
    /// The processor must have the instructions of `D`. No other thread may access this part of the output.
    #[inline(always)]
    unsafe fn short<D: Dot8>(self, f: impl Vectors<D>, zero_point: i16, bounds: [i16; 2]) {
        let f = Short { f, zero_point, bounds, flips: self.op.flips, set: PhantomData::<D> };
        // SAFETY: the caller meets the contract of this function.
        unsafe { self.shape.blocks(self.part, self.operands, self.out, f) }
    }
}

struct Scalar<F> {
    f: F,
    flips: [u8; 2],
}

impl<F: Pairs> Blocks<u8> for Scalar<F> {
    #[inline(always)]
    unsafe fn run(&self, a: &[u8], b: &[u8], out: &mut [u8]) {
        // Copies, which the output cannot alias.
        let (f, [flip_a, flip_b]) = (self.f, self.flips);
        for (o, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *o = f.apply(a ^ flip_a, b ^ flip_b);
        }
    }
}

/// A function of vectors of pairs, two unsigned bytes in the halves of each value.
trait Vectors<D: Dot8>: Copy {
    /// Returns the results minus the zero point.
    ///
    /// # Safety
    /// The processor must have the instructions of `D`.
    unsafe fn apply(self, x: D::I) -> D::I;
}

struct Short<D, F> {
    f: F,
    zero_point: i16,
    bounds: [i16; 2],
    flips: [u8; 2],
    set: PhantomData<D>,
}

impl<D: Dot8, F: Vectors<D>> Blocks<u8> for Short<D, F> {
    #[inline(always)]
    unsafe fn run(&self, a: &[u8], b: &[u8], out: &mut [u8]) {
        let len = out.len().min(a.len()).min(b.len());
        // A copy, which the output cannot alias.
        let (f, zero_point, bounds) = (self.f, self.zero_point, self.bounds);
        // SAFETY: `n` elements from `i` are inside all slices. The instructions exist by the caller's contract.
        unsafe {
            let flip = D::splat(pair(self.flips.map(i32::from)));
            let mut i = 0;
            while i + 2 * D::LANES <= len {
                let [x, y] = D::pairs(a.as_ptr().add(i), b.as_ptr().add(i), 2 * D::LANES, flip);
                let results = [f.apply(x), f.apply(y)];
                D::store_pairs(out.as_mut_ptr().add(i), results, zero_point, bounds, 2 * D::LANES);
                i += 2 * D::LANES;
            }
            if i < len {
                let [x, y] = D::pairs(a.as_ptr().add(i), b.as_ptr().add(i), len - i, flip);
                let results = [f.apply(x), f.apply(y)];
                D::store_pairs(out.as_mut_ptr().add(i), results, zero_point, bounds, len - i);
            }
        }
    }
}

/// Two values of 16 bits, the first in the lower bits.
#[inline(always)]
fn pair([a, b]: [i32; 2]) -> i32 {
    (b << 16) | (a & 0xFFFF)
}

/// Returns a first byte with which two functions differ for some second byte, `None` if they are equal for all pairs. `start`
/// is compared first.
fn disagreement(isa: Isa, f: impl Pairs, g: impl Pairs, start: u8) -> Option<u8> {
    dispatch(isa, CompareTask { f, g, start })
}

struct CompareTask<F, G> {
    f: F,
    g: G,
    start: u8,
}

impl<F: Pairs, G: Pairs> SimdTask for CompareTask<F, G> {
    type Out = Option<u8>;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Option<u8> {
        let CompareTask { f, g, start } = self;
        let all: [u8; 256] = std::array::from_fn(|b| b as u8);
        // Not an iterator with a closure, which the compiler would compile without the instructions of `S`.
        for i in 0..=255 {
            let (a, mut differences) = (start.wrapping_add(i), 0);
            for &b in &all {
                differences |= f.apply(a, b) ^ g.apply(a, b);
            }
            if differences != 0 {
                return Some(a);
            }
        }
        None
    }
}

/// Requantization to a byte.
#[derive(Clone, Copy, Debug)]
struct Finish {
    factor: Factor,
    zero_point: i32,
    low: i32,
    high: i32,
}

impl Finish {
    #[inline(always)]
    fn apply(self, x: i32) -> u8 {
        self.factor.apply(x).wrapping_add(self.zero_point).max(self.low).min(self.high) as u8
    }
}

/// A byte minus its zero point, times `2^SPARE`, times a factor.
#[derive(Clone, Copy, Debug)]
struct Rescale {
    zero: i32,
    factor: Factor,
}

impl Rescale {
    fn new(zero: i32, m: Multiplier) -> Self {
        Rescale { zero, factor: Factor::new(m, Ties::Away) }
    }

    #[inline(always)]
    fn apply(self, byte: u8) -> i32 {
        self.factor.apply((i32::from(byte) - self.zero) << SPARE)
    }
}

/// A sum or difference, as TFLite computes it.
#[derive(Clone, Copy, Debug)]
struct Sum {
    operands: [Rescale; 2],
    negative: bool,
    finish: Finish,
}

impl Pairs for Sum {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        let [a, b] = [self.operands[0].apply(a), self.operands[1].apply(b)];
        self.finish.apply(if self.negative { a.wrapping_sub(b) } else { a.wrapping_add(b) })
    }
}

/// A product, as TFLite computes it.
#[derive(Clone, Copy, Debug)]
struct Product {
    zeros: [i32; 2],
    finish: Finish,
}

impl Pairs for Product {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        self.finish.apply((i32::from(a) - self.zeros[0]) * (i32::from(b) - self.zeros[1]))
    }
}

/// `(a * x + b * y + bias) >> shift`, with coefficients of 30 bits in two halves.
#[derive(Clone, Copy, Debug)]
struct ShortSum {
    /// Upper and lower halves of the coefficients, the lower ones of `LOW` bits.
    high: [i32; 2],
    low: [i32; 2],
    /// Bits of the product that are dropped before the addition.
    dropped: u32,
    bias: i32,
    shift: u32,
    /// Whether ties round away from zero, rather than up. Most sums have no tie.
    away: bool,
    zero_point: i16,
    bounds: [i16; 2],
}

/// Bits of the lower half of a coefficient.
const LOW: u32 = 15;

impl ShortSum {
    /// Formulas that are likely to be equal to a sum, most likely first. If roundings are ties or nearly ties, the sum
    /// differs from the exact one for a few pairs of bytes; small changes of the coefficients reproduce these.
    fn candidates(sum: &Sum, factors: [Multiplier; 2], q: &ByteBinaryQuant) -> impl Iterator<Item = Self> {
        const NUDGES: [i64; 11] = [0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6];
        const CHANGES: [i64; 9] = [0, 64, -64, 128, -128, 256, -256, 512, -512];
        let base = ShortSum::exact(sum, factors, q);
        let changes = CHANGES.into_iter().flat_map(|a| CHANGES.map(|b| [a, b]));
        let changed = changes.flat_map(|change| NUDGES.map(|nudge| (change, nudge)));
        let away = changed.filter_map(move |(change, nudge)| base?.candidate(change, nudge));
        let up = |sum| ShortSum { away: false, ..sum };
        base.and_then(|base| base.candidate([0; 2], 0)).map(up).into_iter().chain(away)
    }

    /// Coefficients, zero points and bits of the exact sum; `None` if a value would not fit.
    fn exact(sum: &Sum, factors: [Multiplier; 2], q: &ByteBinaryQuant) -> Option<ExactSum> {
        let real = |m: Multiplier| f64::from(m.multiplier) * f64::from(m.shift - 31).exp2();
        let mut steps = factors.map(|m| real(m) * real(q.output) * f64::from(1 << SPARE));
        let largest = steps[0].max(steps[1]);
        // The sum has to fit 32 bits, and coefficients have to be below 2^30.
        let shift = (30.0 - ((steps[0] + steps[1]) * 256.0).log2()).floor();
        let dropped = (f64::from(2 * LOW) - largest.log2()).ceil() - 1.0 - shift;
        if !(1.0..=30.0).contains(&shift) || !(0.0..=f64::from(LOW)).contains(&dropped) {
            return None;
        }
        if sum.negative {
            steps[1] = -steps[1];
        }
        Some(ExactSum {
            coefficients: steps.map(|step| (step * (shift + dropped).exp2()).round() as i64),
            zeros: sum.operands.map(|operand| i64::from(operand.zero)),
            dropped: dropped as u32,
            shift: shift as u32,
            zero_point: i16::try_from(q.zero_point).ok()?,
            bounds: [q.low, q.high].map(sixteen),
        })
    }
}

/// A sum with undivided coefficients, from which formulas are derived.
#[derive(Clone, Copy)]
struct ExactSum {
    coefficients: [i64; 2],
    zeros: [i64; 2],
    dropped: u32,
    shift: u32,
    zero_point: i16,
    bounds: [i16; 2],
}

impl ExactSum {
    /// A formula with changed coefficients, plus `nudge` halves of a dropped unit.
    fn candidate(self, change: [i64; 2], nudge: i64) -> Option<ShortSum> {
        let coefficients = [0, 1].map(|i| self.coefficients[i] + change[i]);
        // A rounding or a change can make a coefficient too large for its two halves.
        if coefficients.iter().any(|c| c.abs() >= 1 << (2 * LOW)) {
            return None;
        }
        let at_zero = -(coefficients[0] * self.zeros[0] + coefficients[1] * self.zeros[1]);
        let bias = (at_zero + ((nudge << self.dropped) >> 1)) >> self.dropped;
        Some(ShortSum {
            high: coefficients.map(|c| (c >> LOW) as i32),
            low: coefficients.map(|c| (c & ((1 << LOW) - 1)) as i32),
            dropped: self.dropped,
            bias: i32::try_from(bias).ok()?,
            shift: self.shift,
            away: true,
            zero_point: self.zero_point,
            bounds: self.bounds,
        })
    }
}

/// A [`ShortSum`] in vectors.
#[derive(Clone, Copy)]
struct SumVectors<D: Dot8, const AWAY: bool> {
    high: D::I,
    low: D::I,
    /// With half a unit of the shift, if ties round up.
    bias: D::I,
    half: D::I,
    dropped: u32,
    shift: u32,
}

impl ShortSum {
    /// # Safety
    /// The processor must have the instructions of `D`.
    #[inline(always)]
    unsafe fn vectors<D: Dot8, const AWAY: bool>(self) -> SumVectors<D, AWAY> {
        let half = 1 << (self.shift - 1);
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            SumVectors {
                high: D::splat(pair(self.high)),
                low: D::splat(pair(self.low)),
                bias: D::splat(self.bias.wrapping_add(if AWAY { 0 } else { half })),
                half: D::splat(half),
                dropped: self.dropped,
                shift: self.shift,
            }
        }
    }
}

impl<D: Dot8, const AWAY: bool> Vectors<D> for SumVectors<D, AWAY> {
    #[inline(always)]
    unsafe fn apply(self, x: D::I) -> D::I {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let upper = D::shl(D::dot_pairs(x, self.high), LOW - self.dropped);
            let lower = D::sar(D::dot_pairs(x, self.low), self.dropped);
            let sum = D::add(D::add(upper, lower), self.bias);
            if !AWAY {
                return D::sar(sum, self.shift);
            }
            D::sar(D::add(D::add(sum, self.half), D::sar(sum, 31)), self.shift)
        }
    }
}

impl Pairs for ShortSum {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        let (a, b) = (i32::from(a), i32::from(b));
        let upper = (a * self.high[0] + b * self.high[1]) << (LOW - self.dropped);
        let lower = (a * self.low[0] + b * self.low[1]) >> self.dropped;
        // Intermediate sums wrap.
        let sum = upper.wrapping_add(lower).wrapping_add(self.bias);
        let away = if self.away { sum >> 31 } else { 0 };
        let rounded = sum.wrapping_add(1 << (self.shift - 1)).wrapping_add(away) >> self.shift;
        let [low, high] = self.bounds.map(i32::from);
        (rounded + i32::from(self.zero_point)).max(low).min(high) as u8
    }
}

/// A product times a factor of 30 bits in two halves, rounded twice.
#[derive(Clone, Copy, Debug)]
struct ShortProduct {
    zeros: [i32; 2],
    high: i32,
    low: i32,
    shift: u32,
    zero_point: i16,
    bounds: [i16; 2],
}

/// A [`ShortProduct`] in vectors.
#[derive(Clone, Copy)]
struct ProductVectors<D: Dot8> {
    zeros: [D::I; 2],
    first: D::I,
    high: D::I,
    low: D::I,
    unit: D::I,
    half: D::I,
    shift: u32,
}

impl ShortProduct {
    fn new(zeros: [i32; 2], q: &ByteBinaryQuant) -> Option<Self> {
        let shift = u32::try_from(-q.output.shift).ok().filter(|shift| (1..=31).contains(shift))?;
        let factor = q.output.multiplier >> 1;
        Some(ShortProduct {
            zeros,
            high: factor >> LOW,
            low: factor & ((1 << LOW) - 1),
            shift,
            zero_point: i16::try_from(q.zero_point).ok()?,
            bounds: [q.low, q.high].map(sixteen),
        })
    }

    /// # Safety
    /// The processor must have the instructions of `D`.
    #[inline(always)]
    unsafe fn vectors<D: Dot8>(self) -> ProductVectors<D> {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            ProductVectors {
                zeros: [D::splat(-self.zeros[0]), D::splat(-self.zeros[1])],
                first: D::splat(0xFFFF),
                high: D::splat(self.high),
                low: D::splat(self.low),
                unit: D::splat(1 << (LOW - 1)),
                half: D::splat(1 << (self.shift - 1)),
                shift: self.shift,
            }
        }
    }
}

impl<D: Dot8> Vectors<D> for ProductVectors<D> {
    #[inline(always)]
    unsafe fn apply(self, x: D::I) -> D::I {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let a = D::add(D::and(x, self.first), self.zeros[0]);
            let b = D::add(D::sar(x, 16), self.zeros[1]);
            let product = D::mul(a, b);
            let upper = D::add(D::mul(product, self.high), self.unit);
            let lower = D::sar(D::mul(product, self.low), LOW);
            let scaled = D::sar(D::add(upper, lower), LOW);
            D::sar(D::add(D::add(scaled, self.half), D::sar(scaled, 31)), self.shift)
        }
    }
}

impl Pairs for ShortProduct {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        // At most 255 * 255 in magnitude, so that products with 15 bits fit.
        let product = (i32::from(a) - self.zeros[0]) * (i32::from(b) - self.zeros[1]);
        let scaled = product * self.high + (1 << (LOW - 1)) + ((product * self.low) >> LOW);
        let scaled = scaled >> LOW;
        let rounded = scaled.wrapping_add(1 << (self.shift - 1)).wrapping_add(scaled >> 31) >> self.shift;
        let [low, high] = self.bounds.map(i32::from);
        (rounded + i32::from(self.zero_point)).max(low).min(high) as u8
    }
}

/// The nearest 16-bit integer.
fn sixteen(x: i32) -> i16 {
    x.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::random::Rng;

    fn random_op(rng: &mut Rng, kind: usize) -> ByteBinaryOp {
        let real = |rng: &mut Rng| 2f64.powf(f64::from(rng.float()) * 3.0);
        let operands = [0, 1].map(|_| ByteQuant { signed: true, zero_point: rng.range(0, 255) as i32 - 128 });
        let (a, b, out) = (real(rng), real(rng), real(rng));
        let twice = 2.0 * a.max(b);
        let factors = [a, b].map(|scale| Multiplier::from_real(scale / twice));
        let output = match kind {
            2 => Multiplier::from_real(out / 100.0),
            _ => Multiplier::from_real(twice / f64::from(1 << SPARE) / out),
        };
        let function = [ByteBinary::Add(factors), ByteBinary::Sub(factors), ByteBinary::Mul][kind];
        let q = ByteBinaryQuant { operands, output, zero_point: 5, low: -128, high: 127 };
        ByteBinaryOp::new(Isa::best(), function, q).unwrap()
    }

    #[test]
    fn short_formulas_are_found() {
        let mut rng = Rng::new(61);
        let mut short = [0; 3];
        for round in 0..300 {
            let op = random_op(&mut rng, round % 3);
            let is_short = matches!(op.formula, Formula::ShortSum(_) | Formula::ShortProduct(_));
            short[round % 3] += usize::from(is_short);
        }
        assert!(short.iter().all(|&n| n >= 95), "{short:?} of 100 sums, differences and products");
    }

    #[test]
    fn all_pairs_on_all_sets() {
        let mut rng = Rng::new(62);
        let all = |f: fn(usize) -> usize| (0..1 << 16).map(|i| f(i) as u8).collect::<Vec<u8>>();
        let (a, b) = (all(|i| i >> 8), all(|i| i & 255));
        let shape = Broadcast::new(&[a.len()], &[b.len()]).unwrap();
        for round in 0..9 {
            let op = random_op(&mut rng, round % 3);
            let [flip_a, flip_b] = op.flips;
            let expected: Vec<u8> = std::iter::zip(&a, &b)
                .map(|(&a, &b)| match op.formula {
                    Formula::ShortSum(f) => f.apply(a ^ flip_a, b ^ flip_b),
                    Formula::ShortProduct(f) => f.apply(a ^ flip_a, b ^ flip_b),
                    Formula::Sum(f) => f.apply(a ^ flip_a, b ^ flip_b),
                    Formula::Product(f) => f.apply(a ^ flip_a, b ^ flip_b),
                })
                .collect();
            for &isa in Isa::available() {
                // All elements but one, for an incomplete vector.
                for len in [a.len(), a.len() - 1] {
                    let shape = if len == a.len() { shape } else { Broadcast::new(&[len], &[len]).unwrap() };
                    let mut out = vec![0; len];
                    op.run(isa, &shape, Some(&a[..len]), Some(&b[..len]), &mut out, &Serial).unwrap();
                    assert!(out == expected[..len], "{} {:?}", isa.name(), op.formula);
                }
            }
        }
    }
}
