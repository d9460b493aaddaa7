//! Vectors of 8-bit products and 32-bit sums.

use crate::base::clamp::Clamp;
use crate::base::isa::{Bytes, Isa};
use crate::base::requant::{FloatPart, Records, RequantPart, record};

/// Products of four activations with four weights, separately for each of several channels, and operations on their
/// sums. "Columns" are the channels here, and the columns of a matrix in [`Product8`].
///
/// Activations are bytes in the *domain* of the instruction set, signed or unsigned. Bytes of the other domain are
/// converted by flipping their top bit, which adds 128 to the values and to their zero point.
///
/// # Safety
/// As for [`crate::simd::Simd`].
pub(crate) trait Dot8: Copy + 'static {
    /// Mask that converts bytes to the domain.
    type Flip: Copy;
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
    /// The kind of records of [`RequantPart`].
    const RECORDS: Records = Records::Plain;
    /// Maximum number of accumulators that are useful at a time, together with their operands.
    const PIXELS: usize = 4;

    unsafe fn zero() -> Self::Acc;
    /// Returns the mask for bytes of the other domain if `flip` is true, and of the own domain otherwise.
    unsafe fn flip(flip: bool) -> Self::Flip;
    /// Loads weights `[column][4]`.
    unsafe fn b(p: *const i8) -> Self::B;
    /// Loads activations of each column, from the first `n` bytes at each of four addresses.
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: Self::Flip) -> Self::Q;
    /// Adds the four products of each column.
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
    /// Scales, rounds, adds the zero point and clamps, by the record of the vector of columns from `at` on.
    unsafe fn requant(x: Self::I, q: &RequantPart, at: usize) -> Self::I;
    /// Stores the low byte of the first `n` columns.
    unsafe fn store_bytes(p: *mut u8, x: Self::I, n: usize);
    /// Stores the first `n` columns.
    unsafe fn store(p: *mut i32, x: Self::I, n: usize);
}

/// Products of matrices: activations of one or two rows with weights of several columns. A type may have two kinds,
/// with groups of four and, `DEEP`, of eight elements.
///
/// # Safety
/// As for [`Dot8`].
pub(crate) trait Product8<const DEEP: bool = false>: Dot8 {
    /// Activations of `GROUPS` groups, of each row.
    type A: Copy;
    /// A group of weights of each column.
    type Cols: Copy;
    /// Accumulators of all rows and columns.
    type Sums: Copy;
    /// Elements of a group, whose products are added at once: 2, 4 or 8.
    const DEPTH: usize;
    /// Groups that are loaded at a time; `DEPTH * GROUPS` is at most 16.
    const GROUPS: usize = 1;
    /// Rows that share an accumulator: 1 or 2.
    const ROWS: usize = 1;
    /// Whether [`Product8::a`] loads activations that [`Widen`] has widened. Other constants then have their defaults.
    const WIDENED: bool = false;
    /// Whether sums can begin with the bias.
    const BIASED: bool = false;

    unsafe fn start() -> Self::Sums;
    /// The sums of a vector of columns with this bias, if they are `BIASED`; otherwise as [`Product8::start`].
    #[inline(always)]
    unsafe fn start_at(_bias: *const i32) -> Self::Sums {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::start() }
    }
    /// Loads `DEPTH * GROUPS` bytes at each address. Only the first one counts if `ROWS` is 1.
    unsafe fn a(rows: [*const u8; 2], flip: Self::Flip) -> Self::A;
    /// Loads weights `[column][DEPTH]`.
    unsafe fn columns(p: *const i8) -> Self::Cols;
    /// Adds the products of group `G` of the activations.
    unsafe fn product<const G: usize>(sums: Self::Sums, a: Self::A, columns: Self::Cols) -> Self::Sums;
    /// The sums of row 0 or 1.
    unsafe fn row(sums: Self::Sums, row: usize) -> Self::I;
    /// Requantizes the sums of rows for the vector of columns from `at` on, and stores the first `n` bytes of each row,
    /// which are `stride` apart.
    #[inline(always)]
    unsafe fn requant_rows(
        sums: &[Self::I],
        q: &RequantPart,
        at: usize,
        out: *mut u8,
        stride: usize,
        n: usize,
    ) {
        for (i, sums) in sums.iter().enumerate() {
            // SAFETY: the caller meets the contract of this function.
            unsafe { Self::store_bytes(out.add(i * stride), Self::requant(*sums, q, at), n) }
        }
    }
    /// Scales the sums of rows for the vector of columns from `at` on to floats, and stores the first `n` of each row, which
    /// are `stride` apart.
    #[inline(always)]
    unsafe fn float_rows(sums: &[Self::I], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) {
        let (mut lanes, mut floats) = ([0i32; 16], [0f32; 16]);
        for (i, sums) in sums.iter().enumerate() {
            // SAFETY: no vector has more than 16 lanes. `f` has values of these rows and of whole vectors of columns; `out`
            // is valid for `n` values of each row by the caller's contract.
            unsafe {
                Self::store(lanes.as_mut_ptr(), *sums, Self::LANES);
                let scale = *f.row_scales.add(i * f.row_step);
                let zero_point = *f.row_zero_points.add(i * f.row_step);
                let Clamp { low, high } = f.clamp;
                for c in 0..Self::LANES {
                    let sum = lanes[c].wrapping_sub(zero_point.wrapping_mul(*f.totals.add(at + c))) as f32;
                    let x = sum * (scale * *f.scales.add(at + c)) + *f.bias.add(at + c);
                    let x = if x < low { low } else { x };
                    floats[c] = if x > high { high } else { x };
                }
                let out = out.add(i * stride);
                if n >= Self::LANES {
                    std::ptr::copy_nonoverlapping(floats.as_ptr(), out, Self::LANES);
                } else {
                    for (c, x) in floats.iter().enumerate().take(n) {
                        out.add(c).write(*x);
                    }
                }
            }
        }
    }
}

/// Products of pairs of 16 bits, whose activations are widened once for all columns of a tile.
///
/// # Safety
/// As for [`Dot8`].
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
    allow(dead_code, reason = "other targets have products of bytes")
)]
pub(crate) trait Widen: Product8 {
    /// Widens `n` bytes of each of several rows. `rows` are their addresses, whose provenance is exposed, and their
    /// number; `to` is the target of the first row, and the distance to that of the next. Up to 16 values after `n` may
    /// be written; after an odd `n`, the first of these is 0. Adds the sum of each row to an element of `sums`, if
    /// given.
    unsafe fn widen(
        rows: (*const usize, usize),
        n: usize,
        signed: bool,
        to: (*mut i16, usize),
        sums: Option<&mut [i32]>,
    );
}

/// Activations of two rows of a window, widened to 16 bits and interleaved, for [`Dot8::dot_pairs`].
///
/// # Safety
/// As for [`Dot8`].
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
    allow(dead_code, reason = "other targets have products of bytes")
)]
pub(crate) trait TwoRows: Dot8 {
    /// Number of neighbouring pixels whose sums fit the registers: 4 or 8.
    const RUN: usize;
    /// Whether a last row without a second one takes less time as pairs of columns.
    const PAIRS_COLUMNS: bool;

    /// Loads the first `n` bytes of each row, at most `LANES`, and flips top bits before they are widened as signed values.
    unsafe fn two_rows(a: *const u8, b: *const u8, n: usize, flip: Self::Flip) -> Self::I;
    /// As [`TwoRows::two_rows`], for one row; the values of the other one are unspecified.
    unsafe fn one_row(a: *const u8, n: usize, flip: Self::Flip) -> Self::I;
    /// Requantizes the sums of pixels, which are `stride` apart, and stores the first `n` bytes of each.
    unsafe fn requant_pixels(sums: &[Self::I], q: &RequantPart, out: *mut u8, stride: usize, n: usize);
    /// Runs a task in a function of its own.
    unsafe fn call<T: OwnFunction>(task: T);
}

/// A task for a function of its own with the instructions of a set: in one large function, the compiler would allocate
/// registers worse.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
    allow(dead_code, reason = "other targets have products of bytes")
)]
pub(crate) trait OwnFunction {
    /// Runs the task. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor must have the instructions.
    unsafe fn run(self);
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
    match isa.bytes() {
        Bytes::Portable => portable(task),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a value of `Isa` proves that the processor has these instructions.
        Bytes::Sse41 => unsafe { sse::sse41(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Bytes::Avx2 => unsafe { avx2::avx2(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Bytes::AvxVnni => unsafe { vnni256::avxvnni(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Bytes::VnniVl => unsafe { vnni256::vl(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Bytes::Vnni => unsafe { vnni::vnni(task) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: see above.
        Bytes::Neon => unsafe { neon::plain(task) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: see above.
        Bytes::NeonDot | Bytes::NeonI8mm => unsafe { neon::dotprod(task) },
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        // SAFETY: the module is compiled with these instructions.
        Bytes::Simd128 => unsafe { wasm::simd128(task) },
        #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
        // SAFETY: see above; a value of `Isa` proves that the products are those of `vpdpbusd`.
        Bytes::RelaxedDot => unsafe { relaxed::relaxed_dot(task) },
    }
}

/// Not inlined, which keeps `dispatch` short for the other instruction sets.
#[inline(never)]
fn portable<T: Dot8Task>(task: T) {
    // SAFETY: the portable set needs no particular instructions.
    unsafe { task.run::<Portable8>() }
}

/// Properties of the vectors that [`dispatch`] uses.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Columns of a vector.
    pub(crate) lanes: usize,
    /// The kind of records of requantization.
    pub(crate) records: Records,
    /// Whether activations must be unsigned.
    pub(crate) unsigned: bool,
}

impl Layout {
    /// Returns the properties of a vector type.
    pub(crate) fn of<D: Dot8>() -> Self {
        Self { lanes: D::LANES, records: D::RECORDS, unsigned: D::UNSIGNED }
    }

    /// Returns the properties of an instruction set.
    pub(crate) fn new(isa: Isa) -> Self {
        match isa.bytes() {
            Bytes::Portable => Self::of::<Portable8>(),
            #[cfg(target_arch = "x86_64")]
            Bytes::Sse41 => Self::of::<Sse41Pairs<2>>(),
            #[cfg(target_arch = "x86_64")]
            Bytes::Avx2 => Self::of::<Avx2Pairs>(),
            #[cfg(target_arch = "x86_64")]
            Bytes::AvxVnni => Self::of::<AvxVnni>(),
            #[cfg(target_arch = "x86_64")]
            Bytes::VnniVl => Self::of::<VnniVl>(),
            #[cfg(target_arch = "x86_64")]
            Bytes::Vnni => Self::of::<Vnni>(),
            #[cfg(target_arch = "aarch64")]
            Bytes::Neon => Self::of::<NeonWiden<2>>(),
            #[cfg(target_arch = "aarch64")]
            Bytes::NeonDot | Bytes::NeonI8mm => Self::of::<NeonDot<4>>(),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Bytes::Simd128 => Self::of::<Simd128Pairs<2>>(),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Bytes::RelaxedDot => Self::of::<RelaxedDot<2>>(),
        }
    }
}

/// Four columns in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable8;

impl Dot8 for Portable8 {
    type Flip = u8;
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
    unsafe fn b(p: *const i8) -> [[i8; 4]; 4] {
        // SAFETY: valid for 16 bytes by the trait's contract.
        unsafe { p.cast::<[[i8; 4]; 4]>().read_unaligned() }
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
            let record = q.records.add(at * record(Self::RECORDS));
            [0, 1, 2, 3].map(|i| Self::load(record.add(i * Self::LANES)))
        };
        std::array::from_fn(|i| requant_one(x[i], [multiplier[i], left[i], right[i], away[i]], q))
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

/// Reads 0 to 15 bytes, followed by zeros, as the lower and the upper half of a vector, without a call of `memcpy`.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
pub(crate) unsafe fn first_bytes(p: *const u8, n: usize) -> [u64; 2] {
    // SAFETY: reads are inside the bytes: the second one of each pair ends at the last byte.
    unsafe {
        let word = |at: usize| u64::from(p.add(at).cast::<u32>().read_unaligned());
        if n >= 8 {
            let last = p.add(n - 8).cast::<u64>().read_unaligned();
            // For eight bytes nothing is left.
            let rest = if n == 8 { 0 } else { last >> (8 * (16 - n)) };
            [p.cast::<u64>().read_unaligned(), rest]
        } else if n >= 4 {
            [word(0) | word(n - 4) << (8 * (n - 4)), 0]
        } else {
            let at = |i: usize| if i < n { u64::from(*p.add(i)) << (8 * i) } else { 0 };
            [at(0) | at(1) | at(2), 0]
        }
    }
}

/// Writes the first `n` of 16 bytes, at most 15, without a call of `memcpy`.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
#[allow(dead_code, reason = "the portable set has no vectors to store")]
pub(crate) unsafe fn store_first_bytes(p: *mut u8, [low, high]: [u64; 2], n: usize) {
    // SAFETY: writes are inside the bytes: the second one of each pair ends at the last byte.
    unsafe {
        if n >= 8 {
            let all = u128::from(high) << 64 | u128::from(low);
            p.cast::<u64>().write_unaligned(low);
            p.add(n - 8).cast::<u64>().write_unaligned((all >> (8 * (n - 8))) as u64);
        } else if n >= 4 {
            p.cast::<u32>().write_unaligned(low as u32);
            p.add(n - 4).cast::<u32>().write_unaligned((low >> (8 * (n - 4))) as u32);
        } else {
            for i in 0..n {
                p.add(i).write((low >> (8 * i)) as u8);
            }
        }
    }
}

/// Requantizes one sum with the values of a plain record.
#[inline(always)]
fn requant_one(x: i32, [multiplier, left, right, away]: [i32; 4], q: &RequantPart) -> i32 {
    let x = x.wrapping_shl(left as u32);
    let high = ((i64::from(x) * i64::from(multiplier) + (1 << 30)) >> 31) as i32;
    let half = if right == 0 { 0 } else { (1i32 << (right - 1)).wrapping_add((high >> 31) & away) };
    let y = high.wrapping_add(half) >> right;
    y.wrapping_add(q.zero_point).max(q.low).min(q.high)
}

impl Product8 for Portable8 {
    type A = [i32; 4];
    type Cols = [[i8; 4]; 4];
    type Sums = [i32; 4];
    const DEPTH: usize = 4;

    #[inline(always)]
    unsafe fn start() -> [i32; 4] {
        [0; 4]
    }
    #[inline(always)]
    unsafe fn a(rows: [*const u8; 2], flip: u8) -> [i32; 4] {
        // SAFETY: valid for four bytes by the trait's contract.
        unsafe { rows[0].cast::<[u8; 4]>().read_unaligned() }.map(|b| i32::from((b ^ flip) as i8))
    }
    #[inline(always)]
    unsafe fn columns(p: *const i8) -> [[i8; 4]; 4] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::b(p) }
    }
    #[inline(always)]
    unsafe fn product<const G: usize>(sums: [i32; 4], a: [i32; 4], columns: [[i8; 4]; 4]) -> [i32; 4] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::dot_each(sums, [a; 4], columns) }
    }
    #[inline(always)]
    unsafe fn row(sums: [i32; 4], _row: usize) -> [i32; 4] {
        sums
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{NeonDot, NeonMatrix, NeonWiden};
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
pub(crate) use relaxed::RelaxedDot;
#[cfg(target_arch = "x86_64")]
pub(crate) use sse::Sse41Pairs;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) use wasm::Simd128Pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) use {
    avx2::Avx2Pairs,
    vnni::{Vnni, scaled, scaled_wide},
    vnni256::{AvxVnni, VnniVl},
};

#[cfg(target_arch = "x86_64")]
#[path = "int8_avx2.rs"]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[path = "int8_deep.rs"]
mod deep;
#[cfg(target_arch = "aarch64")]
#[path = "int8_neon.rs"]
mod neon;
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
#[path = "int8_pairs.rs"]
mod pairs;
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
#[path = "int8_relaxed.rs"]
mod relaxed;
#[cfg(target_arch = "x86_64")]
#[path = "int8_sse.rs"]
mod sse;
#[cfg(target_arch = "x86_64")]
#[path = "int8_vnni.rs"]
mod vnni;
#[cfg(target_arch = "x86_64")]
#[path = "int8_vnni256.rs"]
mod vnni256;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[path = "int8_wasm.rs"]
mod wasm;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::requant::{ChannelTies, Multiplier, OutputQuant, Requant};
    use crate::random::Rng;

    /// Requantizes one sum per column.
    struct RequantTask<'a>(&'a Requant, &'a [i32], &'a mut [u8]);

    impl Dot8Task for RequantTask<'_> {
        #[inline(always)]
        unsafe fn run<D: Dot8>(self) {
            let RequantTask(requant, sums, out) = self;
            let part = requant.part(0, sums.len());
            for at in (0..sums.len()).step_by(D::LANES) {
                let n = (out.len() - at).min(D::LANES);
                // SAFETY: whole vectors of sums, and `n` bytes; the instructions exist by the caller's contract.
                unsafe {
                    let x = D::requant(D::load(sums.as_ptr().add(at)), &part, at);
                    D::store_bytes(out.as_mut_ptr().add(at), x, n);
                }
            }
        }
    }

    #[test]
    fn every_set_requantizes_like_a_multiplier() {
        let rng = &mut Rng::new(11);
        for round in 0..200 {
            let columns = rng.range(1, 70);
            // Usual factors, any factors, and both in one tensor.
            let multipliers: Vec<_> = (0..columns)
                .map(|_| {
                    let usual = round % 3 == 0 || (round % 3 == 1 && rng.range(0, 1) == 0);
                    let shift = if usual { -(rng.range(1, 20) as i32) } else { rng.range(0, 61) as i32 - 31 };
                    Multiplier { multiplier: (1 << 30) + rng.range(0, (1 << 30) - 1) as i32, shift }
                })
                .collect();
            let ties =
                [ChannelTies::Up, ChannelTies::Away, ChannelTies::AwayFrom(columns / 2)][round / 3 % 3];
            let out = OutputQuant { multipliers: &multipliers, zero_point: 5, low: -120, high: 127, ties };
            // Results in and around the range of a byte, with ties, or only one or two different results.
            let bits = if round % 2 == 0 { 9 } else { -1 };
            let bounds = |c: usize| {
                let bound = 1i64 << (bits - multipliers.get(c).map_or(0, |m| m.shift)).clamp(1, 28);
                [1 - bound, bound - 1]
            };
            for &isa in Isa::available() {
                let layout = Layout::new(isa);
                let padded = columns.next_multiple_of(layout.lanes);
                let requant =
                    Requant::new(&out, (1, columns, padded), (layout.lanes, layout.records), bounds).unwrap();
                let sums: Vec<i32> =
                    (0..padded).map(|c| (rng.next() as i64 % (bounds(c)[1] + 1)) as i32).collect();
                let mut got = vec![0; columns];
                dispatch(isa, RequantTask(&requant, &sums, &mut got));
                for (c, m) in multipliers.iter().enumerate() {
                    let expected = m.apply(sums[c], ties.of(c)).saturating_add(5).clamp(-120, 127) as u8;
                    assert_eq!(got[c], expected, "{} {m:?} {:?} of {}", isa.name(), ties.of(c), sums[c]);
                }
            }
        }
    }

    #[test]
    fn parts_of_vectors_are_read_and_written() {
        let from: Vec<u8> = (1..=16).collect();
        for n in 0..16 {
            // SAFETY: slices of `n` bytes.
            let read = unsafe { first_bytes(from[..n].as_ptr(), n) };
            let bytes: Vec<u8> = read.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(bytes[..n] == from[..n] && bytes[n..].iter().all(|&b| b == 0), "{n}: {bytes:?}");
            let all = [0, 8].map(|at| u64::from_le_bytes(from[at..at + 8].try_into().unwrap()));
            let mut to = vec![0; 16];
            // SAFETY: a slice of `n` bytes.
            unsafe { store_first_bytes(to[..n].as_mut_ptr(), all, n) };
            assert!(to[..n] == from[..n] && to[n..].iter().all(|&b| b == 0), "{n}: {to:?}");
        }
    }
}
