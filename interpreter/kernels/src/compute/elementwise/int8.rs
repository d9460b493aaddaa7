//! Elementwise functions of bytes: quantized sums and products, tables, and conversions to and from floats.
//!
//! The loops are scalar code that the compiler vectorizes for each instruction set.

use delegraph_core::kernel::Parallel;

use crate::compute::base::buffer::{Parts, SharedMut};
use crate::compute::base::error::{ComputeError, Result, check_len};
use crate::compute::base::isa::Isa;
use crate::compute::base::requant::{ByteQuant, Multiplier};
use crate::compute::elementwise::broadcast::Broadcast;
use crate::compute::simd::{Simd, SimdTask, dispatch};
use crate::compute::threads::share::{chunk_len, threads_for};

/// Fractional bits of operands that are rescaled to a common scale.
const SPARE: u32 = 20;

/// A function of two bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByteBinary {
    /// Each operand, less its zero point and shifted left by 20, times its factor, which is at most 1; then the sum.
    Add([Multiplier; 2]),
    /// As `Add`, with the difference.
    Sub([Multiplier; 2]),
    /// The product of both operands, less their zero points.
    Mul,
}

/// A function of two bytes with its quantization. Right shifts round ties away from zero.
#[derive(Clone, Copy, Debug)]
pub struct ByteBinaryOp {
    /// The function.
    pub function: ByteBinary,
    /// Interpretation of the operands.
    pub operands: [ByteQuant; 2],
    /// Factor of sums or products.
    pub output: Multiplier,
    /// Added to the result.
    pub zero_point: i32,
    /// Minimum by type and fused activation.
    pub low: i32,
    /// Maximum by type and fused activation.
    pub high: i32,
}

impl ByteBinaryOp {
    /// Computes `out` of operands that broadcast. At most one operand may be omitted: it is the content of `out`, which
    /// must have its shape.
    ///
    /// # Errors
    /// Fails if an operand's length does not match its shape, or a factor or zero point is out of range.
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
        for q in &self.operands {
            q.zero_byte()?;
        }
        let factors = match self.function {
            ByteBinary::Add(f) | ByteBinary::Sub(f) => f,
            ByteBinary::Mul => [Multiplier::default(); 2],
        };
        let range = |what| ComputeError::Range { what };
        if self.output.multiplier < 0 || !(-31..=30).contains(&self.output.shift) {
            return Err(range("multiplier"));
        }
        if factors.iter().any(|f| f.multiplier < 0 || !(-31..=0).contains(&f.shift)) {
            return Err(range("factor of an operand"));
        }
        let shared = SharedMut::new(out);
        shape.pieces(par, |rows, columns| {
            dispatch(isa, BinaryTask { op: self, factors, shape, a, b, out: shared, rows, columns });
        });
        Ok(())
    }
}

struct BinaryTask<'a> {
    op: &'a ByteBinaryOp,
    factors: [Multiplier; 2],
    shape: &'a Broadcast,
    a: Option<&'a [u8]>,
    b: Option<&'a [u8]>,
    out: SharedMut<'a, u8>,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
}

/// `x * 2^SPARE * multiplier / 2^31`, rounded, for a difference of two bytes: the product in two parts that fit 32
/// bits, then the shift.
#[derive(Clone, Copy)]
struct Widen {
    zero: i32,
    high: i32,
    low: i32,
    shift: Shift,
}

/// A right shift that rounds ties away from zero.
#[derive(Clone, Copy)]
struct Shift {
    right: u32,
    mask: i32,
}

impl Shift {
    #[inline(always)]
    fn new(right: u32) -> Self {
        Shift { right, mask: ((1i64 << right) - 1) as i32 }
    }

    #[inline(always)]
    fn apply(self, x: i32) -> i32 {
        let threshold = (self.mask >> 1) + i32::from(x < 0);
        (x >> self.right) + i32::from((x & self.mask) > threshold)
    }
}

impl Widen {
    fn new(quant: ByteQuant, m: Multiplier) -> Self {
        const BITS: u32 = 31 - SPARE;
        Widen {
            zero: quant.zero_in(true),
            high: m.multiplier >> BITS,
            low: m.multiplier & ((1 << BITS) - 1),
            shift: Shift::new((-m.shift).clamp(0, 31).cast_unsigned()),
        }
    }

    #[inline(always)]
    fn apply(self, byte: u8) -> i32 {
        let x = i32::from(byte) - self.zero;
        self.shift.apply(x * self.high + ((x * self.low + (1 << (30 - SPARE))) >> (31 - SPARE)))
    }
}

/// Requantization of a sum or product to a byte.
#[derive(Clone, Copy)]
struct Finish {
    multiplier: i32,
    left: u32,
    shift: Shift,
    zero_point: i32,
    low: i32,
    high: i32,
}

impl Finish {
    #[inline(always)]
    fn new(m: Multiplier, zero_point: i32, low: i32, high: i32) -> Self {
        Finish {
            multiplier: m.multiplier,
            left: m.shift.max(0).cast_unsigned(),
            shift: Shift::new((-m.shift).max(0).cast_unsigned()),
            zero_point,
            low,
            high,
        }
    }

    #[inline(always)]
    fn apply(self, x: i32) -> u8 {
        let x = x.wrapping_shl(self.left);
        let high = ((i64::from(x) * i64::from(self.multiplier) + (1 << 30)) >> 31) as i32;
        let y = self.shift.apply(high).wrapping_add(self.zero_point);
        y.max(self.low).min(self.high) as u8
    }
}

/// Bytes that are computed at a time.
const BLOCK: usize = 1024;

impl<'a> SimdTask for BinaryTask<'a> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let op = self.op;
        let finish = Finish::new(op.output, op.zero_point, op.low, op.high);
        let [flip_a, flip_b] = op.operands.map(|q| if q.signed { 0x80 } else { 0 });
        let [widen_a, widen_b] = [0, 1].map(|i| Widen::new(op.operands[i], self.factors[i]));
        /// One row of a function of two bytes; an operand with step 0 is a single byte.
        macro_rules! rows {
            ($x:ident, $y:ident => $f:expr) => {{
                let (len, steps) = (self.columns.len(), self.shape.steps());
                // A block of an operand that is overwritten is copied first.
                let mut before = [0; BLOCK];
                for [at_a, at_b, at] in self.shape.rows(self.rows.clone(), self.columns.start) {
                    for from in (0..len).step_by(BLOCK) {
                        let n = BLOCK.min(len - from);
                        // SAFETY: rows and columns of tasks are disjoint, and `Parallel::run` calls each task at most
                        // once.
                        let out = unsafe { self.out.slice(at + from, n) };
                        if self.a.is_none() || self.b.is_none() {
                            before[..n].copy_from_slice(out);
                        }
                        let operand = |all: Option<&'a [u8]>, at: usize, step: usize| match all {
                            Some(all) => &all[at + from * step..][..if step == 0 { 1 } else { n }],
                            None => &before[..n],
                        };
                        let (a, b) = (operand(self.a, at_a, steps[0]), operand(self.b, at_b, steps[1]));
                        match steps {
                            [0, _] => {
                                let $x = a[0] ^ flip_a;
                                for (o, &y) in out.iter_mut().zip(b) {
                                    let $y = y ^ flip_b;
                                    *o = finish.apply($f);
                                }
                            }
                            [_, 0] => {
                                let $y = b[0] ^ flip_b;
                                for (o, &x) in out.iter_mut().zip(a) {
                                    let $x = x ^ flip_a;
                                    *o = finish.apply($f);
                                }
                            }
                            _ => {
                                for (o, (&x, &y)) in out.iter_mut().zip(a.iter().zip(b)) {
                                    let ($x, $y) = (x ^ flip_a, y ^ flip_b);
                                    *o = finish.apply($f);
                                }
                            }
                        }
                    }
                }
            }};
        }
        match op.function {
            ByteBinary::Add(_) => rows!(x, y => widen_a.apply(x).wrapping_add(widen_b.apply(y))),
            ByteBinary::Sub(_) => rows!(x, y => widen_a.apply(x).wrapping_sub(widen_b.apply(y))),
            ByteBinary::Mul => rows!(x, y => (i32::from(x) - widen_a.zero) * (i32::from(y) - widen_b.zero)),
        }
    }
}

/// Requantizes integers: multiplies by a factor with ties away from zero, adds `zero_point`, clamps to `bounds`.
///
/// # Errors
/// Fails if the lengths differ or the factor is out of range.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn requantize(
    isa: Isa,
    factor: Multiplier,
    zero_point: i32,
    [low, high]: [i32; 2],
    sums: &[f32],
    out: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    if factor.multiplier < 0 || !(-31..=30).contains(&factor.shift) {
        return Err(ComputeError::Range { what: "multiplier" });
    }
    let finish = Finish::new(factor, zero_point, low, high);
    split(isa, sums, out, par, |sums, out| RequantizeTask { finish, sums, out })
}

struct RequantizeTask<'a> {
    finish: Finish,
    sums: &'a [f32],
    out: &'a mut [u8],
}

impl SimdTask for RequantizeTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (o, sum) in self.out.iter_mut().zip(self.sums) {
            *o = self.finish.apply(*sum as i32);
        }
    }
}

/// `out[i] = table[input[i]]`; in place if `input` is `None`.
///
/// # Errors
/// Fails if the lengths differ.
pub fn lookup(
    isa: Isa,
    table: &[u8; 256],
    input: Option<&[u8]>,
    out: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    match input {
        Some(input) => split(isa, input, out, par, |input, out| LookupTask { table, input, out }),
        None => {
            let par = threads_for(par, out.len());
            let parts = Parts::new(out, chunk_len(par, out.len(), 1));
            par.run(parts.count(), &|index| {
                // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
                let part = unsafe { parts.get(index) };
                part.iter_mut().for_each(|x| *x = table[usize::from(*x)]);
            });
            Ok(())
        }
    }
}

/// Quantizes floats as TFLite does: complete groups of eight are multiplied by the inverse scale with ties to even, and
/// the rest is divided in double precision with ties away from zero. Values beyond the type's range are clamped, and
/// NaN becomes the zero point.
///
/// # Errors
/// Fails if the lengths differ or the zero point is out of range.
pub fn quantize(
    isa: Isa,
    scale: f32,
    quant: ByteQuant,
    input: &[f32],
    out: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    quant.zero_byte()?;
    split(isa, input, out, par, |input, out| QuantizeTask { scale, quant, input, out })
}

/// Dequantizes to floats.
///
/// # Errors
/// Fails if the lengths differ or the zero point is out of range.
pub fn dequantize(
    isa: Isa,
    scale: f32,
    quant: ByteQuant,
    input: &[u8],
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    quant.zero_byte()?;
    split(isa, input, out, par, |input, out| DequantizeTask { scale, quant, input, out })
}

/// Runs a task on each of several parts.
fn split<'a, I: Sync, O: Send, T: SimdTask<Out = ()>>(
    isa: Isa,
    input: &'a [I],
    out: &'a mut [O],
    par: &dyn Parallel,
    task: impl Fn(&'a [I], &'a mut [O]) -> T + Sync,
) -> Result<()> {
    check_len("input", input.len(), out.len())?;
    let (len, par) = (input.len(), threads_for(par, input.len()));
    // Only the last part may have an incomplete group.
    let piece = chunk_len(par, len, 1).next_multiple_of(GROUP);
    let shared = SharedMut::new(out);
    par.run(len.div_ceil(piece), &|index| {
        let start = index * piece;
        let input = &input[start..(start + piece).min(len)];
        // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(start, input.len()) };
        dispatch(isa, task(input, out));
    });
    Ok(())
}

struct LookupTask<'a> {
    table: &'a [u8; 256],
    input: &'a [u8],
    out: &'a mut [u8],
}

impl SimdTask for LookupTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (o, &x) in self.out.iter_mut().zip(self.input) {
            *o = self.table[usize::from(x)];
        }
    }
}

/// Elements that TFLite's kernel quantizes at once.
const GROUP: usize = 8;

struct QuantizeTask<'a> {
    scale: f32,
    quant: ByteQuant,
    input: &'a [f32],
    out: &'a mut [u8],
}

impl SimdTask for QuantizeTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (zero, flip) = (self.quant.zero_in(true), if self.quant.signed { 0x80 } else { 0 });
        let finish = |steps: f32| {
            let steps = if steps.is_nan() { 0.0 } else { steps };
            // SAFETY: finite and within the range of an i32: NaN was replaced and the value is clamped, to bounds that
            // are beyond every result.
            let steps: i32 = unsafe { steps.clamp(-512.0, 512.0).to_int_unchecked() };
            (steps + zero).clamp(0, 255) as u8 ^ flip
        };
        let whole = self.input.len() / GROUP * GROUP;
        let ((out, out_rest), (input, input_rest)) =
            (self.out.split_at_mut(whole), self.input.split_at(whole));
        let inverse = (1.0 / f64::from(self.scale)) as f32;
        for (o, &x) in out.iter_mut().zip(input) {
            *o = finish((x * inverse).round_ties_even());
        }
        for (o, &x) in out_rest.iter_mut().zip(input_rest) {
            *o = finish((f64::from(x) / f64::from(self.scale)).round() as f32);
        }
    }
}

struct DequantizeTask<'a> {
    scale: f32,
    quant: ByteQuant,
    input: &'a [u8],
    out: &'a mut [f32],
}

impl SimdTask for DequantizeTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (zero, flip) = (self.quant.zero_in(true), if self.quant.signed { 0x80 } else { 0 });
        for (o, &x) in self.out.iter_mut().zip(self.input) {
            *o = self.scale * (i32::from(x ^ flip) - zero) as f32;
        }
    }
}
