//! [`Dot8`] and [`Product8`] with vectors of 128 bits whose widest product is that of pairs of 16 bits: SSE4.1 and
//! WebAssembly.

use std::marker::PhantomData;

use super::{Dot8, OwnFunction, Product8, TwoRows, Widen, first_bytes, requant_one, store_first_bytes};
use crate::base::requant::{PRODUCT_FIELDS, PRODUCT_SHIFT, Records, RequantPart, record};

/// Operations on vectors of 128 bits. Suffixes are the bits of a lane.
///
/// # Safety
/// All methods require that the processor has their instructions. Pointers must be valid for the bytes that are
/// accessed; alignment is not required.
pub(crate) trait Words: Copy + 'static {
    type V: Copy;

    unsafe fn load(p: *const u8) -> Self::V;
    unsafe fn store(p: *mut u8, v: Self::V);
    /// Stores the first eight bytes.
    unsafe fn store_half(p: *mut u8, v: Self::V);
    /// Stores the last eight bytes.
    unsafe fn store_high_half(p: *mut u8, v: Self::V);
    /// Sign-extends eight bytes to 16 bits.
    unsafe fn widen(p: *const u8) -> Self::V;
    /// Zero-extends eight bytes to 16 bits.
    unsafe fn widen_unsigned(p: *const u8) -> Self::V;
    unsafe fn splat_16(x: i16) -> Self::V;
    unsafe fn splat_32(x: i32) -> Self::V;
    unsafe fn add_32(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul_32(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn min_32(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn max_32(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn shl_32(a: Self::V, by: u32) -> Self::V;
    unsafe fn sar_32(a: Self::V, by: u32) -> Self::V;
    unsafe fn add_saturating_16(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn min_16(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn max_16(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn and(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn xor(a: Self::V, b: Self::V) -> Self::V;
    /// Products of signed 16 bits, summed in pairs.
    unsafe fn dot_16(a: Self::V, b: Self::V) -> Self::V;
    /// Interleaves the first four lanes of 16 bits.
    unsafe fn interleave_low_16(a: Self::V, b: Self::V) -> Self::V;
    /// Interleaves the last four lanes of 16 bits.
    unsafe fn interleave_high_16(a: Self::V, b: Self::V) -> Self::V;
    /// Lanes 0 and 2 of both operands.
    unsafe fn even_32(a: Self::V, b: Self::V) -> Self::V;
    /// Lanes 1 and 3 of both operands.
    unsafe fn odd_32(a: Self::V, b: Self::V) -> Self::V;
    /// The upper 16 bits of each lane of 32 bits of both operands.
    unsafe fn odd_16(a: Self::V, b: Self::V) -> Self::V;
    /// The upper 8 bits of each lane of 16 bits of both operands.
    unsafe fn odd_8(a: Self::V, b: Self::V) -> Self::V;
    /// Loads four bytes, and repeats them four times.
    unsafe fn repeat_32(p: *const u8) -> Self::V;
    /// Saturates to signed 16 bits.
    unsafe fn narrow_16(a: Self::V, b: Self::V) -> Self::V;
    /// Saturates signed 16 bits to unsigned 8 bits.
    unsafe fn narrow_8(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn shl_16<const S: u32>(a: Self::V) -> Self::V;
    /// `(a · b + c) >> S` per lane in 64 bits, of which the lower 32 bits are the result; `c` is not negative.
    unsafe fn mul_add_shift<const S: u32>(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The upper 32 bits of products of 64 bits.
    unsafe fn mul_high_32(a: Self::V, b: Self::V) -> Self::V;
    /// Runs a task in a function of its own.
    unsafe fn call<T: OwnFunction>(task: T);
}

/// `V` vectors of four columns.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<W, const V: usize>(PhantomData<W>);

impl<W: Words, const V: usize> Pairs<W, V> {
    /// Applies an operation to each vector.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn each(mut a: [W::V; V], f: impl Fn(W::V) -> W::V) -> [W::V; V] {
        for a in &mut a {
            *a = f(*a);
        }
        a
    }

    /// Applies an operation to each pair of vectors.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn both(mut a: [W::V; V], b: [W::V; V], f: impl Fn(W::V, W::V) -> W::V) -> [W::V; V] {
        for (a, b) in a.iter_mut().zip(b) {
            *a = f(*a, b);
        }
        a
    }

    /// The values of a record of products for four columns.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`, and the record [`PRODUCT_FIELDS`] values for each of `4 * V`
    /// columns.
    #[inline(always)]
    unsafe fn fields(record: *const i32, v: usize) -> [W::V; PRODUCT_FIELDS] {
        // SAFETY: the record has these values for each column.
        unsafe {
            let mut fields = [W::splat_32(0); PRODUCT_FIELDS];
            for (i, field) in fields.iter_mut().enumerate() {
                *field = W::load(record.add(i * 4 * V + 4 * v).cast());
            }
            fields
        }
    }

    /// Requantizes four sums by the values of a record of products: see [`RequantPart::records`]. Results have
    /// [`PRODUCT_SHIFT`] fractional bits. Without `AWAY`, all ties round up.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn scale<const AWAY: bool>(x: W::V, fields: &[W::V; PRODUCT_FIELDS]) -> W::V {
        let [multiplier, min, max, power, addend, away, _] = *fields;
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let x = W::mul_32(W::min_32(W::max_32(x, min), max), power);
            let high = W::mul_high_32(x, multiplier);
            let rounded = W::add_32(high, addend);
            // The product has the sign of the sum.
            if AWAY { W::add_32(rounded, W::and(W::sar_32(high, 31), away)) } else { rounded }
        }
    }

    /// The bytes of 16 results of [`Pairs::scale`], extracted without saturation, which they do not need: in
    /// WebAssembly, LLVM replaces narrowing with saturation by longer sequences.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn to_bytes(y: [W::V; 4]) -> W::V {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let words = [W::odd_16(y[0], y[1]), W::odd_16(y[2], y[3])];
            let [low, high] = words.map(|words| W::shl_16::<{ 24 - PRODUCT_SHIFT }>(words));
            W::odd_8(low, high)
        }
    }

    /// Requantizes and stores the sums of rows with a plain record.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`. The record must be that of these columns, and `out` valid for
    /// `n` bytes of each row.
    #[cold]
    #[inline(never)]
    unsafe fn requant_plain_rows(
        sums: &[[W::V; V]],
        q: &RequantPart,
        record: *const i32,
        (out, stride): (*mut u8, usize),
        n: usize,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            for (i, sums) in sums.iter().enumerate() {
                Self::store_bytes(out.add(i * stride), Self::requant_plain(*sums, q, record), n);
            }
        }
    }

    /// Requantizes the sums of a vector whose record is plain.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`, and the record must be that of these columns.
    #[inline(never)]
    unsafe fn requant_plain(x: [W::V; V], q: &RequantPart, record: *const i32) -> [W::V; V] {
        let mut out = x;
        for (v, (x, out)) in x.iter().zip(&mut out).enumerate() {
            // SAFETY: the caller's contract; four lanes have 16 bytes.
            unsafe {
                let [multiplier, .., away, left, right, half] = Self::fields(record, v);
                if *record.add(4 * 4 * V) != 0 {
                    let high = W::mul_add_shift::<31>(W::mul_32(*x, left), multiplier, W::splat_32(1 << 30));
                    let away = W::and(W::sar_32(high, 31), away);
                    let shifted = W::mul_add_shift::<30>(W::add_32(high, away), right, half);
                    let moved = W::add_32(shifted, W::splat_32(q.zero_point));
                    *out = W::min_32(W::max_32(moved, W::splat_32(q.low)), W::splat_32(q.high));
                    continue;
                }
                let mut lanes = [0i32; 4];
                W::store(lanes.as_mut_ptr().cast(), *x);
                for (i, lane) in lanes.iter_mut().enumerate() {
                    let value = |field: usize| *record.add(field * 4 * V + v * 4 + i);
                    *lane = requant_one(*lane, [value(0), value(1), value(2), value(3)], q);
                }
                *out = W::load(lanes.as_ptr().cast());
            }
        }
        out
    }
}

/// Evaluates `$f` with `$name`, a pointer to at least `$needed` bytes (16 or less), the first `$n` of which are those
/// at `$p`.
macro_rules! padded {
    ($p:expr, $n:expr, $needed:expr, $name:ident => $f:expr) => {
        if $n >= $needed {
            let $name = $p;
            $f
        } else {
            let bytes = first_bytes($p, $n);
            let $name = bytes.as_ptr().cast::<u8>();
            $f
        }
    };
}

/// Stores the first `n` bytes, at most eight, of each half: one or two pixels that are `stride` apart.
///
/// # Safety
/// The processor must have the instructions of `W`, and `out` must be valid for these bytes.
#[inline(always)]
unsafe fn store_pixels<W: Words>(out: *mut u8, bytes: W::V, (pixels, stride): (usize, usize), n: usize) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        if n >= 8 {
            W::store_half(out, bytes);
            if pixels > 1 {
                W::store_high_half(out.add(stride), bytes);
            }
            return;
        }
        let mut halves = [0u64; 2];
        W::store(halves.as_mut_ptr().cast(), bytes);
        for (i, half) in halves.into_iter().enumerate().take(pixels) {
            store_first_bytes(out.add(i * stride), [half, 0], n);
        }
    }
}

impl<W: Words, const V: usize> Dot8 for Pairs<W, V> {
    /// Applied after sign extension.
    type Flip = W::V;
    /// For each four columns: weights of the first two rows, and of the last two.
    type B = [[W::V; 2]; V];
    type Q = [[W::V; 2]; V];
    type Acc = [W::V; V];
    type I = [W::V; V];
    const LANES: usize = 4 * V;
    const UNSIGNED: bool = false;
    const RECORDS: Records = Records::Products;

    #[inline(always)]
    unsafe fn zero() -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::splat(0) }
    }
    #[inline(always)]
    unsafe fn flip(flip: bool) -> W::V {
        // SAFETY: the caller meets the contract of this function.
        unsafe { W::splat_16(if flip { !0x7F } else { 0 }) }
    }
    #[inline(always)]
    unsafe fn b(p: *const i8) -> [[W::V; 2]; V] {
        // SAFETY: valid for 16 bytes per vector by the trait's contract.
        unsafe {
            let mut b = [[W::splat_32(0); 2]; V];
            for (v, b) in b.iter_mut().enumerate() {
                let p = p.cast::<u8>().add(16 * v);
                let (first, second) = (W::widen(p), W::widen(p.add(8)));
                *b = [W::even_32(first, second), W::odd_32(first, second)];
            }
            b
        }
    }
    #[inline(always)]
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: W::V) -> [[W::V; 2]; V] {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let mut r = [W::splat_32(0); 4];
            for (r, p) in r.iter_mut().zip(rows) {
                *r = W::xor(padded!(p, n, 8, from => W::widen(from)), flip);
            }
            let mut q = [[W::interleave_low_16(r[0], r[1]), W::interleave_low_16(r[2], r[3])]; V];
            if V == 2 {
                q[V - 1] = [W::interleave_high_16(r[0], r[1]), W::interleave_high_16(r[2], r[3])];
            }
            q
        }
    }
    #[inline(always)]
    unsafe fn dot_each(mut acc: [W::V; V], q: [[W::V; 2]; V], b: [[W::V; 2]; V]) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            for v in 0..V {
                acc[v] = W::add_32(acc[v], W::dot_16(q[v][0], b[v][0]));
                acc[v] = W::add_32(acc[v], W::dot_16(q[v][1], b[v][1]));
            }
            acc
        }
    }
    #[inline(always)]
    unsafe fn finish(acc: [W::V; V]) -> [W::V; V] {
        acc
    }
    #[inline(always)]
    unsafe fn load(p: *const i32) -> [W::V; V] {
        // SAFETY: valid for all lanes by the trait's contract.
        unsafe {
            let mut x = [W::splat_32(0); V];
            for (v, x) in x.iter_mut().enumerate() {
                *x = W::load(p.add(4 * v).cast());
            }
            x
        }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { [W::splat_32(x); V] }
    }
    #[inline(always)]
    unsafe fn add(a: [W::V; V], b: [W::V; V]) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::both(a, b, |a, b| W::add_32(a, b)) }
    }
    #[inline(always)]
    unsafe fn mul(a: [W::V; V], b: [W::V; V]) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::both(a, b, |a, b| W::mul_32(a, b)) }
    }
    #[inline(always)]
    unsafe fn and(a: [W::V; V], b: [W::V; V]) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::both(a, b, |a, b| W::and(a, b)) }
    }
    #[inline(always)]
    unsafe fn shl(x: [W::V; V], by: u32) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::each(x, |x| W::shl_32(x, by)) }
    }
    #[inline(always)]
    unsafe fn sar(x: [W::V; V], by: u32) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::each(x, |x| W::sar_32(x, by)) }
    }
    #[inline(always)]
    unsafe fn pairs(a: *const u8, b: *const u8, n: usize, flip: [W::V; V]) -> [[W::V; V]; 2] {
        // SAFETY: valid for `n` bytes, at most `8 * V`, by the trait's contract.
        unsafe {
            let mut values = [[W::splat_32(0); V]; 2];
            padded!(a, n, 8 * V, first => padded!(b, n, 8 * V, second => {
                for v in 0..V {
                    let (a, b) = (W::widen_unsigned(first.add(8 * v)), W::widen_unsigned(second.add(8 * v)));
                    let both = [W::interleave_low_16(a, b), W::interleave_high_16(a, b)];
                    for (i, x) in both.into_iter().enumerate() {
                        values[(2 * v + i) / V][(2 * v + i) % V] = W::xor(x, flip[0]);
                    }
                }
            }));
            values
        }
    }
    #[inline(always)]
    unsafe fn dot_pairs(x: [W::V; V], y: [W::V; V]) -> [W::V; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::both(x, y, |x, y| W::dot_16(x, y)) }
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u8, x: [[W::V; V]; 2], zero_point: i16, bounds: [i16; 2], n: usize) {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let mut halves = [W::splat_32(0); V];
            for (v, half) in halves.iter_mut().enumerate() {
                let of = |i: usize| x[i / V][i % V];
                let y = W::add_saturating_16(W::narrow_16(of(2 * v), of(2 * v + 1)), W::splat_16(zero_point));
                let y = W::min_16(W::max_16(y, W::splat_16(bounds[0])), W::splat_16(bounds[1]));
                *half = W::and(y, W::splat_16(0xFF));
            }
            let y = W::narrow_8(halves[0], halves[V - 1]);
            store(p, n, y, |p, y| W::store(p, y), (V == 2, |p, y| W::store_half(p, y)));
        }
    }
    #[inline(always)]
    unsafe fn requant(x: [W::V; V], q: &RequantPart, at: usize) -> [W::V; V] {
        // SAFETY: `q` covers the columns from `at` on.
        unsafe {
            let values = q.records.add(at * record(Self::RECORDS));
            if !*q.special.add(at / Self::LANES) {
                return Self::requant_plain(x, q, values);
            }
            let mut y = x;
            for (v, y) in y.iter_mut().enumerate() {
                *y = W::sar_32(Self::scale::<true>(*y, &Self::fields(values, v)), PRODUCT_SHIFT);
            }
            y
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: [W::V; V], n: usize) {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let x = Self::each(x, |x| W::and(x, W::splat_32(0xFF)));
            let words = W::narrow_16(x[0], x[V - 1]);
            let bytes = W::narrow_8(words, words);
            if V == 2 && n >= 8 {
                return W::store_half(p, bytes);
            }
            let mut all = [0u64; 2];
            W::store(all.as_mut_ptr().cast(), bytes);
            if V == 1 && n >= 4 {
                p.cast::<u32>().write_unaligned(all[0] as u32);
            } else {
                store_first_bytes(p, all, n);
            }
        }
    }
    #[inline(always)]
    unsafe fn store(p: *mut i32, x: [W::V; V], n: usize) {
        // SAFETY: valid for `n` values by the trait's contract.
        unsafe {
            let mut all = [0i32; 8];
            for (v, x) in x.iter().enumerate() {
                W::store(all.as_mut_ptr().add(4 * v).cast(), *x);
            }
            std::ptr::copy_nonoverlapping(all.as_ptr().cast::<u8>(), p.cast(), 4 * n.min(4 * V));
        }
    }
}

/// Stores the first `n` bytes: all 16 by `whole`, or eight by `half`, if that many are wanted.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
unsafe fn store<T: Copy>(
    p: *mut u8,
    n: usize,
    x: T,
    whole: impl Fn(*mut u8, T),
    (wide, half): (bool, impl Fn(*mut u8, T)),
) {
    if wide && n >= 16 {
        whole(p, x);
    } else if !wide && n >= 8 {
        half(p, x);
    } else {
        let mut bytes = [0u64; 2];
        whole(bytes.as_mut_ptr().cast(), x);
        // SAFETY: valid for `n` bytes by the caller's contract, fewer than 16.
        unsafe { store_first_bytes(p, bytes, n.min(15)) };
    }
}

impl<W: Words> Pairs<W, 1> {
    /// [`Product8::requant_rows`] of at most four rows, which loads the record once and stores all rows together.
    ///
    /// # Safety
    /// As for that function.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
    pub(super) unsafe fn requant_rows_at_once(
        sums: &[[W::V; 1]],
        q: &RequantPart,
        at: usize,
        out: *mut u8,
        stride: usize,
        n: usize,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let record = q.records.add(at * record(Self::RECORDS));
            if !*q.special.add(at / Self::LANES) {
                // A copy: if a function received the address of the sums, they would always be in memory.
                let mut copy = [[W::splat_32(0)]; 4];
                for (to, from) in copy.iter_mut().zip(sums) {
                    *to = *from;
                }
                return Self::requant_plain_rows(&copy[..sums.len()], q, record, (out, stride), n);
            }
            let fields = Self::fields(record, 0);
            // Without a loop, out of which the compiler would move parts of products.
            let mut y = [W::splat_32(0); 4];
            macro_rules! rows {
                ($away:literal: $($i:literal)*) => { $(
                    if sums.len() > $i {
                        y[$i] = Self::scale::<$away>(sums[$i][0], &fields);
                    }
                )* };
            }
            if q.away {
                rows!(true: 0 1 2 3);
            } else {
                rows!(false: 0 1 2 3);
            }
            let mut bytes = [0u32; 4];
            W::store(bytes.as_mut_ptr().cast(), Self::to_bytes(y));
            for i in 0..sums.len() {
                let out = out.add(i * stride);
                if n >= 4 {
                    out.cast::<u32>().write_unaligned(bytes[i]);
                } else {
                    store_first_bytes(out, [bytes[i].into(), 0], n);
                }
            }
        }
    }
}

impl<W: Words> TwoRows for Pairs<W, 2> {
    const RUN: usize = 4;
    const PAIRS_COLUMNS: bool = true;

    #[inline(always)]
    unsafe fn two_rows(a: *const u8, b: *const u8, n: usize, flip: W::V) -> [W::V; 2] {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let (a, b) = (padded!(a, n, 8, p => W::widen(p)), padded!(b, n, 8, p => W::widen(p)));
            let (a, b) = (W::xor(a, flip), W::xor(b, flip));
            [W::interleave_low_16(a, b), W::interleave_high_16(a, b)]
        }
    }

    /// The values of the other row are those of this one.
    #[inline(always)]
    unsafe fn one_row(a: *const u8, n: usize, flip: W::V) -> [W::V; 2] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::two_rows(a, a, n, flip) }
    }

    #[inline(always)]
    unsafe fn requant_pixels(sums: &[[W::V; 2]], q: &RequantPart, out: *mut u8, stride: usize, n: usize) {
        // SAFETY: the caller meets the contract of this function; its records begin with those of this vector.
        unsafe {
            if !*q.special {
                let mut copy = [[W::splat_32(0); 2]; 4];
                for (to, from) in copy.iter_mut().zip(sums) {
                    *to = *from;
                }
                return Self::requant_plain_rows(&copy[..sums.len()], q, q.records, (out, stride), n);
            }
            // Without a loop, out of which the compiler would move parts of products.
            macro_rules! two {
                ($away:literal: $i:literal) => {
                    if let Some([first, others @ ..]) = sums.get($i..) {
                        let second = others.first().unwrap_or(first);
                        let mut y = [W::splat_32(0); 4];
                        for v in 0..2 {
                            let fields = Self::fields(q.records, v);
                            y[v] = Self::scale::<$away>(first[v], &fields);
                            y[2 + v] = Self::scale::<$away>(second[v], &fields);
                        }
                        let pixels = 1 + others.len().min(1);
                        store_pixels::<W>(out.add($i * stride), Self::to_bytes(y), (pixels, stride), n);
                    }
                };
            }
            if q.away {
                two!(true: 0);
                two!(true: 2);
            } else {
                two!(false: 0);
                two!(false: 2);
            }
        }
    }

    #[inline(always)]
    unsafe fn call<T: OwnFunction>(task: T) {
        // SAFETY: the caller meets the contract of this function.
        unsafe { W::call(task) }
    }
}

/// [`Widen::widen`].
struct WidenTask<'a, W, const SIGNED: bool, const SUMMED: bool> {
    rows: (*const usize, usize),
    n: usize,
    to: (*mut i16, usize),
    sums: &'a mut [i32],
    words: PhantomData<W>,
}

impl<W: Words, const SIGNED: bool, const SUMMED: bool> OwnFunction for WidenTask<'_, W, SIGNED, SUMMED> {
    #[inline(always)]
    unsafe fn run(self) {
        let ((table, rows), n, (to, stride)) = (self.rows, self.n, self.to);
        // SAFETY: the caller meets the contract of `Widen::widen`.
        unsafe {
            let widen = |p: *const u8| if SIGNED { W::widen(p) } else { W::widen_unsigned(p) };
            let ones = W::splat_16(1);
            for i in 0..rows {
                let from = std::ptr::with_exposed_provenance::<u8>(*table.add(i));
                let to = to.add(i * stride);
                let mut total = W::splat_32(0);
                let mut k = 0;
                while k + 8 <= n {
                    let words = widen(from.add(k));
                    W::store(to.add(k).cast(), words);
                    if SUMMED {
                        total = W::add_32(total, W::dot_16(words, ones));
                    }
                    k += 8;
                }
                if k < n {
                    // Missing bytes are zero.
                    let words = widen(first_bytes(from.add(k), n - k).as_ptr().cast());
                    W::store(to.add(k).cast(), words);
                    total = W::add_32(total, W::dot_16(words, ones));
                }
                if SUMMED {
                    let mut lanes = [0i32; 4];
                    W::store(lanes.as_mut_ptr().cast(), total);
                    let sum = &mut self.sums[i];
                    *sum = lanes.into_iter().fold(*sum, i32::wrapping_add);
                }
            }
        }
    }
}

impl<W: Words> Widen for Pairs<W, 1> {
    #[inline(always)]
    unsafe fn widen(
        rows: (*const usize, usize),
        n: usize,
        signed: bool,
        to: (*mut i16, usize),
        sums: Option<&mut [i32]>,
    ) {
        macro_rules! task {
            ($signed:literal, $summed:literal, $sums:expr) => {{
                let (sums, words) = ($sums, PhantomData);
                W::call(WidenTask::<W, $signed, $summed> { rows, n, to, sums, words })
            }};
        }
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            match (signed, sums) {
                (true, None) => task!(true, false, &mut []),
                (true, Some(sums)) => task!(true, true, sums),
                (false, None) => task!(false, false, &mut []),
                (false, Some(sums)) => task!(false, true, sums),
            }
        }
    }
}

impl<W: Words> Product8 for Pairs<W, 1> {
    /// A pair of widened activations, repeated for each column.
    type A = W::V;
    /// A pair of weights of each column.
    type Cols = W::V;
    type Sums = W::V;
    const DEPTH: usize = 2;
    const WIDENED: bool = true;
    const BIASED: bool = true;

    #[inline(always)]
    unsafe fn start() -> W::V {
        // SAFETY: the caller meets the contract of this function.
        unsafe { W::splat_32(0) }
    }
    #[inline(always)]
    unsafe fn start_at(bias: *const i32) -> W::V {
        // SAFETY: valid for all columns by the trait's contract.
        unsafe { W::load(bias.cast()) }
    }
    #[inline(always)]
    unsafe fn a(rows: [*const u8; 2], _flip: W::V) -> W::V {
        // SAFETY: valid for a pair by the trait's contract.
        unsafe { W::repeat_32(rows[0]) }
    }
    #[inline(always)]
    unsafe fn columns(p: *const i8) -> W::V {
        // SAFETY: valid for eight bytes by the trait's contract.
        unsafe { W::widen(p.cast()) }
    }
    #[inline(always)]
    unsafe fn product<const G: usize>(sums: W::V, a: W::V, columns: W::V) -> W::V {
        // SAFETY: the caller meets the contract of this function.
        unsafe { W::add_32(sums, W::dot_16(a, columns)) }
    }
    #[inline(always)]
    unsafe fn row(sums: W::V, _row: usize) -> [W::V; 1] {
        [sums]
    }
    #[inline(always)]
    unsafe fn requant_rows(
        sums: &[[W::V; 1]],
        q: &RequantPart,
        at: usize,
        out: *mut u8,
        stride: usize,
        n: usize,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let (first, others) = sums.split_at(sums.len().min(4));
            Self::requant_rows_at_once(first, q, at, out, stride, n);
            if !others.is_empty() {
                Self::requant_rows_at_once(others, q, at, out.add(4 * stride), stride, n);
            }
        }
    }
}
