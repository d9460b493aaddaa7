//! Vectors of 8-bit products and 32-bit sums.

use crate::compute::base::isa::{Isa, Level};
use crate::compute::base::requant::{RequantPart, record};

/// Dot products of four activations with four weights, for several columns at a time.
///
/// Activations are bytes in the *domain* of the instruction set, signed or unsigned. Bytes of the other domain are
/// converted by flipping their top bit, which adds 128 to the values and to their zero point.
///
/// # Safety
/// As for [`crate::compute::simd::Simd`].
pub(crate) trait Dot8: Copy + 'static {
    /// Mask that converts bytes to the domain.
    type Flip: Copy;
    /// Four activations.
    type A: Copy;
    /// Four weights of each column.
    type B: Copy;
    /// Four activations of each column.
    type Q: Copy;
    /// Accumulator.
    type Acc: Copy;
    /// One 32-bit sum per column.
    type I: Copy;
    /// Columns of a vector.
    const LANES: usize;
    /// Whether activations must be unsigned.
    const UNSIGNED: bool;
    /// Whether [`RequantPart`] may have wide records.
    const WIDE: bool = false;

    unsafe fn zero() -> Self::Acc;
    /// `flip` is true for bytes of the other domain.
    unsafe fn flip(flip: bool) -> Self::Flip;
    /// Loads four bytes.
    unsafe fn a(p: *const u8, flip: Self::Flip) -> Self::A;
    /// Loads weights `[column][4]`.
    unsafe fn b(p: *const i8) -> Self::B;
    unsafe fn dot(acc: Self::Acc, a: Self::A, b: Self::B) -> Self::Acc;
    /// Loads activations of each column, from the first `n` bytes at each of four addresses.
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: Self::Flip) -> Self::Q;
    /// As `dot`, with separate activations per column.
    unsafe fn dot_each(acc: Self::Acc, q: Self::Q, b: Self::B) -> Self::Acc;
    unsafe fn finish(acc: Self::Acc) -> Self::I;
    unsafe fn load(p: *const i32) -> Self::I;
    unsafe fn splat(x: i32) -> Self::I;
    unsafe fn add(a: Self::I, b: Self::I) -> Self::I;
    /// Products, modulo 2^32.
    unsafe fn mul(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts left by less than 32.
    unsafe fn shl(x: Self::I, by: u32) -> Self::I;
    /// Shifts right by less than 32, with copies of the sign.
    unsafe fn sar(x: Self::I, by: u32) -> Self::I;
    /// Loads `n` bytes of each of two operands, at most `2 * LANES`. Each value has a byte of the first operand in its
    /// lower 16 bits and one of the second in its upper 16 bits, in an order that `store_pairs` reverts; `flip` is then
    /// applied to each value by an exclusive or.
    unsafe fn pairs(a: *const u8, b: *const u8, n: usize, flip: Self::I) -> [Self::I; 2];
    /// The product of the lower 16 bits plus that of the upper 16 bits, as signed integers.
    unsafe fn dot_pairs(x: Self::I, y: Self::I) -> Self::I;
    /// Saturates to 16 bits, adds the zero point, clamps to `bounds`, and stores the low byte of the first `n` values, in
    /// the order of the operands of `pairs`.
    unsafe fn store_pairs(p: *mut u8, x: [Self::I; 2], zero_point: i16, bounds: [i16; 2], n: usize);
    /// Scales, rounds, adds the zero point and clamps.
    unsafe fn requant(x: Self::I, q: &RequantPart, at: usize) -> Self::I;
    /// Stores the low byte of the first `n` columns.
    unsafe fn store_bytes(p: *mut u8, x: Self::I, n: usize);
    /// Stores the first `n` columns.
    unsafe fn store(p: *mut i32, x: Self::I, n: usize);
}

/// A task that is compiled for every instruction set.
pub(crate) trait Dot8Task {
    /// Runs the task. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor must have the instructions of `D`.
    unsafe fn run<D: Dot8>(self);
}

/// Runs a task with the given instruction set.
#[inline]
pub(crate) fn dispatch<T: Dot8Task>(isa: Isa, task: T) {
    match isa.level() {
        Level::Portable => portable(task),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a value of `Isa` proves that the processor has these instructions.
        Level::Avx2 | Level::Avx512 => unsafe { x86::avx2(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Level::Avx512Vnni => unsafe { x86::vnni(task) },
    }
}

/// Not inlined, which keeps `dispatch` short for the other instruction sets.
#[inline(never)]
fn portable<T: Dot8Task>(task: T) {
    // SAFETY: the portable set needs no particular instructions.
    unsafe { task.run::<Portable8>() }
}

/// Columns of a vector, and whether records of requantization may be wide.
pub(crate) fn lanes(isa: Isa) -> (usize, bool) {
    fn of<D: Dot8>() -> (usize, bool) {
        (D::LANES, D::WIDE)
    }
    match isa.level() {
        Level::Portable => of::<Portable8>(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => of::<Avx2Pairs>(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => of::<Vnni>(),
    }
}

/// Four columns in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable8;

impl Dot8 for Portable8 {
    type Flip = u8;
    type A = [i32; 4];
    type B = [[i8; 4]; 4];
    type Q = [[i32; 4]; 4];
    type Acc = [i32; 4];
    type I = [i32; 4];
    const LANES: usize = 4;
    const UNSIGNED: bool = false;

    #[inline(always)]
    unsafe fn zero() -> [i32; 4] {
        [0; 4]
    }
    #[inline(always)]
    unsafe fn flip(flip: bool) -> u8 {
        if flip { 0x80 } else { 0 }
    }
    #[inline(always)]
    unsafe fn a(p: *const u8, flip: u8) -> [i32; 4] {
        // SAFETY: valid for four bytes by the trait's contract.
        unsafe { p.cast::<[u8; 4]>().read_unaligned() }.map(|b| i32::from((b ^ flip) as i8))
    }
    #[inline(always)]
    unsafe fn b(p: *const i8) -> [[i8; 4]; 4] {
        // SAFETY: valid for 16 bytes by the trait's contract.
        unsafe { p.cast::<[[i8; 4]; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot(acc: [i32; 4], a: [i32; 4], b: [[i8; 4]; 4]) -> [i32; 4] {
        std::array::from_fn(|c| {
            let products: [i32; 4] = std::array::from_fn(|i| a[i] * i32::from(b[c][i]));
            acc[c].wrapping_add((products[0] + products[1]) + (products[2] + products[3]))
        })
    }
    #[inline(always)]
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: u8) -> [[i32; 4]; 4] {
        let mut q = [[0; 4]; 4];
        for (c, q) in q.iter_mut().enumerate().take(n) {
            for (q, row) in q.iter_mut().zip(rows) {
                // SAFETY: valid for `n` bytes by the trait's contract.
                *q = i32::from((unsafe { row.add(c).read() } ^ flip) as i8);
            }
        }
        q
    }
    #[inline(always)]
    unsafe fn dot_each(acc: [i32; 4], q: [[i32; 4]; 4], b: [[i8; 4]; 4]) -> [i32; 4] {
        std::array::from_fn(|c| {
            let products: [i32; 4] = std::array::from_fn(|i| q[c][i] * i32::from(b[c][i]));
            acc[c].wrapping_add((products[0] + products[1]) + (products[2] + products[3]))
        })
    }
    #[inline(always)]
    unsafe fn finish(acc: [i32; 4]) -> [i32; 4] {
        acc
    }
    #[inline(always)]
    unsafe fn load(p: *const i32) -> [i32; 4] {
        // SAFETY: valid for four values by the trait's contract.
        unsafe { p.cast::<[i32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> [i32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn add(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    unsafe fn mul(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| a[i].wrapping_mul(b[i]))
    }
    #[inline(always)]
    unsafe fn and(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn shl(x: [i32; 4], by: u32) -> [i32; 4] {
        std::array::from_fn(|i| x[i].wrapping_shl(by))
    }
    #[inline(always)]
    unsafe fn sar(x: [i32; 4], by: u32) -> [i32; 4] {
        std::array::from_fn(|i| x[i].wrapping_shr(by))
    }
    #[inline(always)]
    unsafe fn pairs(a: *const u8, b: *const u8, n: usize, flip: [i32; 4]) -> [[i32; 4]; 2] {
        let mut pairs = [[0; 4]; 2];
        for i in 0..n {
            // SAFETY: valid for `n` bytes by the trait's contract.
            let (a, b) = unsafe { (i32::from(a.add(i).read()), i32::from(b.add(i).read())) };
            pairs[i / 4][i % 4] = (b << 16 | a) ^ flip[i % 4];
        }
        pairs
    }
    #[inline(always)]
    unsafe fn dot_pairs(x: [i32; 4], y: [i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| {
            let (low, high) = (i32::from(x[i] as i16) * i32::from(y[i] as i16), (x[i] >> 16) * (y[i] >> 16));
            low.wrapping_add(high)
        })
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u8, x: [[i32; 4]; 2], zero_point: i16, [low, high]: [i16; 2], n: usize) {
        for i in 0..n {
            let x = x[i / 4][i % 4].clamp(i16::MIN.into(), i16::MAX.into()) as i16;
            // SAFETY: valid for `n` bytes by the trait's contract.
            unsafe { p.add(i).write(x.saturating_add(zero_point).max(low).min(high) as u8) };
        }
    }
    #[inline(always)]
    unsafe fn requant(x: [i32; 4], q: &RequantPart, at: usize) -> [i32; 4] {
        // SAFETY: `q` covers the four columns from `at` on.
        let [multiplier, left, right, away] = unsafe {
            let record = q.records.add(at * record(Self::WIDE));
            [0, 1, 2, 3].map(|i| Self::load(record.add(i * Self::LANES)))
        };
        std::array::from_fn(|i| {
            let x = x[i].wrapping_shl(left[i] as u32);
            let high = ((i64::from(x) * i64::from(multiplier[i]) + (1 << 30)) >> 31) as i32;
            let half =
                if right[i] == 0 { 0 } else { (1i32 << (right[i] - 1)).wrapping_add((high >> 31) & away[i]) };
            let y = high.wrapping_add(half) >> right[i];
            y.wrapping_add(q.zero_point).clamp(q.low, q.high)
        })
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: [i32; 4], n: usize) {
        for (i, x) in x.iter().enumerate().take(n) {
            // SAFETY: valid for `n` bytes by the trait's contract.
            unsafe { p.add(i).write(*x as u8) };
        }
    }
    #[inline(always)]
    unsafe fn store(p: *mut i32, x: [i32; 4], n: usize) {
        for (i, x) in x.iter().enumerate().take(n) {
            // SAFETY: valid for `n` values by the trait's contract.
            unsafe { p.add(i).write_unaligned(*x) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2Pairs, Vnni, scaled};

#[cfg(target_arch = "x86_64")]
#[path = "int8_x86.rs"]
mod x86;
