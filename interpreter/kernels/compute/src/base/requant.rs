//! Requantization of 32-bit sums to 8 bits.
//!
//! A real factor is represented by a 32-bit fixed-point number and a power of two. LiteRT's optimized kernels round
//! twice: when they drop the 31 fractional bits of the product, and in the shift. The rounding of ties in the shift
//! depends on the kernel: up in matrix libraries and vector instructions, away from zero in scalar code.

use crate::base::buffer::AlignedVec;
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, product};

/// Interpretation of the bytes of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteQuant {
    /// `int8` rather than `uint8`.
    pub signed: bool,
    /// The value that represents 0.
    pub zero_point: i32,
}

impl ByteQuant {
    /// Returns the zero point as a byte.
    pub(crate) fn zero_byte(&self) -> Result<u8> {
        let byte = if self.signed {
            i8::try_from(self.zero_point).map(|z| z as u8).ok()
        } else {
            u8::try_from(self.zero_point).ok()
        };
        byte.ok_or(ComputeError::Range { what: "zero point" })
    }

    /// Returns the zero point of the bytes in the unsigned or the signed domain.
    #[inline]
    pub(crate) fn zero_in(&self, unsigned: bool) -> i32 {
        match (self.signed, unsigned) {
            (true, true) => self.zero_point + 128,
            (false, false) => self.zero_point - 128,
            _ => self.zero_point,
        }
    }

    /// Returns the minimum and the maximum of the sum of `start` and products of activations with these weights.
    pub(crate) fn sums(&self, start: i64, weights: impl Iterator<Item = i32>) -> [i64; 2] {
        let bytes = if self.signed { [-128, 127] } else { [0, 255] };
        weights.fold([start; 2], |[least, greatest], w| {
            let products = bytes.map(|a| i64::from(w) * (a - i64::from(self.zero_point)));
            [least + products[0].min(products[1]), greatest + products[0].max(products[1])]
        })
    }

    /// Returns whether the top bit of each byte must be flipped to convert it to the unsigned or the signed domain.
    #[inline]
    pub(crate) fn flip(&self, unsigned: bool) -> bool {
        self.signed == unsigned
    }
}

/// A real factor: `multiplier · 2^(shift - 31)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multiplier {
    /// 0, or at least 2^30: the fraction, with 31 fractional bits.
    pub multiplier: i32,
    /// Power of two, -31..=30.
    pub shift: i32,
}

/// Rounding of ties in a right shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Towards positive infinity.
    Up,
    /// Away from zero.
    Away,
}

/// Rounding of ties, per output channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelTies {
    /// Up, for all channels.
    Up,
    /// Away from zero, for all channels.
    Away,
    /// Away from zero for this channel and all later ones, up for the others.
    AwayFrom(usize),
}

impl ChannelTies {
    /// Returns the rounding for `channel`.
    pub fn of(self, channel: usize) -> Ties {
        match self {
            ChannelTies::Up => Ties::Up,
            ChannelTies::Away => Ties::Away,
            ChannelTies::AwayFrom(first) => {
                if channel < first {
                    Ties::Up
                } else {
                    Ties::Away
                }
            }
        }
    }
}

impl Multiplier {
    /// Returns the nearest factor. Factors that are too small, negative factors and NaN become 0; factors that are too
    /// large saturate.
    pub fn from_real(real: f64) -> Self {
        if real.is_nan() || real <= 0.0 {
            return Self::default();
        }
        let (fraction, mut shift) = frexp(real);
        let mut multiplier = (fraction * f64::from(1u32 << 31)).round() as i64;
        if multiplier == 1 << 31 {
            multiplier /= 2;
            shift += 1;
        }
        if shift < -31 {
            return Self::default();
        }
        if shift > 30 {
            return Self { multiplier: i32::MAX, shift: 30 };
        }
        Self { multiplier: multiplier as i32, shift }
    }

    /// `x` times the factor, rounded.
    pub fn apply(self, x: i32, ties: Ties) -> i32 {
        let left = x.wrapping_shl(self.shift.max(0) as u32);
        let high = ((i64::from(left) * i64::from(self.multiplier) + (1 << 30)) >> 31) as i32;
        let right = (-self.shift).clamp(0, 31) as u32;
        if right == 0 {
            return high;
        }
        let correction = if ties == Ties::Away && high < 0 { 1 } else { 0 };
        ((i64::from(high) + (1i64 << (right - 1)) - correction) >> right) as i32
    }
}

/// A [`Multiplier`] as loops apply it: without branches.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    multiplier: i32,
    left: u32,
    right: u32,
    /// Half a unit of the right shift.
    half: i64,
    /// -1 if negative ties round down.
    away: i64,
}

impl Factor {
    /// The factor with a rounding of ties.
    pub fn new(m: Multiplier, ties: Ties) -> Self {
        let right = (-m.shift).clamp(0, 31).cast_unsigned();
        Factor {
            multiplier: m.multiplier,
            left: m.shift.clamp(0, 31).cast_unsigned(),
            right,
            half: (1 << right) >> 1,
            away: if ties == Ties::Away && right > 0 { -1 } else { 0 },
        }
    }

    /// As [`Multiplier::apply`].
    #[inline(always)]
    pub fn apply(self, x: i32) -> i32 {
        let left = x.wrapping_shl(self.left);
        let high = (i64::from(left) * i64::from(self.multiplier) + (1 << 30)) >> 31;
        ((high + self.half + ((high >> 63) & self.away)) >> self.right) as i32
    }
}

/// `x = fraction · 2^exponent` with the fraction in 0.5..1, for positive numbers. Infinity has the maximum exponent.
fn frexp(x: f64) -> (f64, i32) {
    if x.is_infinite() {
        return (0.5, i32::MAX);
    }
    let scaled = if x < f64::MIN_POSITIVE { x * (1u64 << 54) as f64 } else { x };
    let bits = scaled.to_bits();
    let exponent = ((bits >> 52) & 0x7FF) as i32 - 1022;
    let fraction = f64::from_bits((bits & !(0x7FF << 52)) | (1022 << 52));
    (fraction, if scaled == x { exponent } else { exponent - 54 })
}

/// The minimum and the maximum of sums of which nothing is known.
pub(crate) const ANY_SUM: [i64; 2] = [i32::MIN as i64, i32::MAX as i64];

/// Requantization of sums, per column of a product.
pub(crate) struct Requant {
    /// One record per vector of columns: see [`RequantPart`].
    records: AlignedVec<i32>,
    /// Whether each record is of the kind of the instruction set, rather than plain.
    special: Vec<bool>,
    lanes: usize,
    /// Capacity of a record, in values.
    each: usize,
    zero_point: i32,
    low: i32,
    high: i32,
    away: bool,
}

/// The kind of record that an instruction set has for vectors with usual factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// Plain records only.
    Plain,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AVX-512 has shifts per 64 bits"))]
    Wide,
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "other targets have no shifts of 64 bits")
    )]
    Biased,
    #[cfg_attr(
        not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
        allow(dead_code, reason = "only SSE4.1 and WebAssembly lack shifts per 32 bits")
    )]
    Products,
}

/// The part of a [`Requant`] that a micro-kernel reads, beginning at the first column of a vector.
#[derive(Clone, Copy)]
pub(crate) struct RequantPart {
    /// One record per vector, plain or of the kind of the instruction set.
    ///
    /// A plain record has the multiplier of each column, then its left shift, its right shift, and -1 if ties round
    /// away from zero. For instruction sets with records of products, three values follow if all shifts to the right
    /// are by at most 30, otherwise zeros: the left shift as a factor, 2^(30 - right shift), and half a unit of the
    /// right shift times that power. Multiplying by the power and shifting by 30 bits is a shift by a different number
    /// of bits per column.
    ///
    /// A record of products supports vectors whose shifts are all to the right by 0 to 20, for outputs that are bytes. Sums are
    /// clamped to those whose outputs are the bounds, and multiplied by 2^(22 - shift), so that all columns have the same shift by
    /// 53 bits. Both roundings are one addition, of a multiple of 2^32: the lower half of the product is never computed. The
    /// record has each column's multiplier; the minimum and the maximum of sums; that power of two; the addend, with the zero
    /// point; and the unit of the first rounding, negative, if ties round away from zero: negative sums get it added. Columns with
    /// other shifts may have values, too, that give the same outputs: see `two_outputs`.
    ///
    /// A wide record supports vectors whose shifts are all to the right by 1 to 22, for instruction sets that use such
    /// records. It combines the two roundings and the zero point into one 64-bit addition, `(x · multiplier + addend) >>
    /// shift`. It has, in 64 bits each: multipliers of the even columns, multipliers of the odd columns, addends likewise,
    /// shifts of the even columns, and shifts of the odd columns less 32, which leaves their results in the upper halves.
    /// The top bit of a multiplier is set if ties round away from zero: the unit of the first rounding, 2^31, is then
    /// subtracted from products of negative sums. Products are those of the lower 32 bits.
    ///
    /// A biased record is for instruction sets whose shifts of 64 bits are unsigned. It supports vectors whose shifts are all to
    /// the right by at least 1, for outputs that are bytes. Multipliers, addends and shifts are as in a wide record, but 2^63
    /// is added to addends, and nothing for the zero point. A value per column follows, which is added to the shifted sum: the
    /// zero point less the shifted 2^63. The last value has the top bit set if ties round away from zero: the unit of the first
    /// rounding, 2^31, is then subtracted from products of negative sums.
    ///
    /// All records of an instruction set have the size of its largest kind, so that offsets are constant.
    pub(crate) records: *const i32,
    /// Whether each vector's record is of the kind of the instruction set, rather than plain.
    #[cfg_attr(
        not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
        allow(dead_code, reason = "kernels of other targets have only plain records")
    )]
    pub(crate) special: *const bool,
    pub(crate) zero_point: i32,
    pub(crate) low: i32,
    pub(crate) high: i32,
    /// Whether ties of any channel round away from zero.
    #[cfg_attr(
        not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
        allow(dead_code, reason = "only some kinds of records distinguish the cases")
    )]
    pub(crate) away: bool,
}

/// Scaling of the sums of rows to floats, beginning at the first column and row: `clamp((sum - zero_point · total) · (row_scale ·
/// scale) + bias)`.
#[derive(Clone, Copy)]
pub(crate) struct FloatPart {
    /// Scale of the first row.
    pub(crate) row_scales: *const f32,
    /// Zero point of the first row.
    pub(crate) row_zero_points: *const i32,
    /// Elements to the scale and the zero point of the next row; 0 if all rows share them.
    pub(crate) row_step: usize,
    /// Scale of each column of the panel.
    pub(crate) scales: *const f32,
    /// Factor of the zero point for each column: the sum of its weights.
    pub(crate) totals: *const i32,
    /// Bias of each column.
    pub(crate) bias: *const f32,
    pub(crate) clamp: Clamp,
}

/// Values per column of a record of products.
pub(crate) const PRODUCT_FIELDS: usize = 7;
/// Exponent of the power of two by which sums are multiplied that have no shift. With a shift of `s` bits, clamped sums
/// are below 2^(9 + s), and those times 2^(22 - s) fit 32 bits.
const PRODUCT_BITS: u32 = 22;
/// The shift of upper halves of products.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
    allow(dead_code, reason = "only SSE4.1 and WebAssembly lack shifts per 32 bits")
)]
pub(crate) const PRODUCT_SHIFT: u32 = PRODUCT_BITS - 1;

/// Returns the size of a record, in vectors of 32-bit values.
#[inline]
pub(crate) const fn record(kind: Records) -> usize {
    match kind {
        Records::Plain => 4,
        Records::Wide => 6,
        Records::Biased => 8,
        Records::Products => PRODUCT_FIELDS,
    }
}

/// Quantization of an output.
#[derive(Clone, Copy, Debug)]
pub struct OutputQuant<'a> {
    /// One factor for all channels, or one per channel: input scale × filter scale / output scale.
    pub multipliers: &'a [Multiplier],
    /// Zero point, in the type of the output.
    pub zero_point: i32,
    /// Minimum by type and fused activation.
    pub low: i32,
    /// Maximum by type and fused activation.
    pub high: i32,
    /// Rounding of ties in the right shift.
    pub ties: ChannelTies,
}

impl Requant {
    /// For `groups` of `columns` columns, each padded to `padded`, a multiple of `lanes`. `kind` is the kind of the
    /// instruction set, and `sums` returns the minimum and the maximum of the sums of a channel.
    pub(crate) fn new(
        out: &OutputQuant<'_>,
        (groups, columns, padded): (usize, usize, usize),
        (lanes, kind): (usize, Records),
        sums: impl Fn(usize) -> [i64; 2],
    ) -> Result<Self> {
        let channel = move |i: usize| (i % padded < columns).then(|| i / padded * columns + i % padded);
        let count = product("multipliers", &[groups, padded])?;
        Self::ordered(out, (groups * columns, count), (lanes, kind), channel, sums)
    }

    /// For channels in another order: column `i` of `count`, a multiple of `lanes`, is channel `channel(i)`, or
    /// missing.
    pub(crate) fn ordered(
        out: &OutputQuant<'_>,
        (channels, count): (usize, usize),
        (lanes, kind): (usize, Records),
        channel: impl Fn(usize) -> Option<usize>,
        sums: impl Fn(usize) -> [i64; 2],
    ) -> Result<Self> {
        if out.multipliers.len() != 1 && out.multipliers.len() != channels {
            let got = out.multipliers.len();
            return Err(ComputeError::Length { what: "multipliers", needed: channels, got });
        }
        if out.low > out.high {
            return Err(ComputeError::Range { what: "bounds of the output" });
        }
        let is_byte = |x: i32| i8::MIN as i32 <= x && x <= u8::MAX as i32;
        let fits = match kind {
            Records::Plain => false,
            Records::Wide => is_byte(out.zero_point),
            Records::Biased => [out.zero_point, out.low, out.high].into_iter().all(is_byte),
            Records::Products => {
                [out.zero_point, out.low, out.high].into_iter().all(is_byte)
                    && [out.low, out.high].iter().all(|bound| bound.abs_diff(out.zero_point) <= 255)
            }
        };
        let of = |i: usize| {
            let channel = channel(i).filter(|&c| c < channels);
            let multiplier =
                channel.map(|c| if let [one] = out.multipliers { *one } else { out.multipliers[c] });
            // Missing columns have neither multiplier nor shift.
            (multiplier.unwrap_or_default(), channel.is_some_and(|c| out.ties.of(c) == Ties::Away))
        };
        let mut kinds = Vec::new();
        let too_large = ComputeError::TooLarge { what: "multipliers" };
        kinds.try_reserve_exact(count / lanes).map_err(|_| too_large)?;
        let mut records = AlignedVec::zeroed(product("multipliers", &[count, record(kind)])?)?;
        let each = record(kind) * lanes;
        for (vector, record) in records.as_mut_slice().chunks_exact_mut(each).enumerate() {
            let columns = || (vector * lanes..(vector + 1) * lanes).map(of);
            let mut simple = fits;
            for (m, _) in columns() {
                if m.multiplier < 0 || !(-31..=30).contains(&m.shift) {
                    return Err(ComputeError::Range { what: "multiplier" });
                }
                simple &= match kind {
                    Records::Plain => false,
                    // Beyond 22 bits the sum of the product and the shifted zero point does not fit.
                    Records::Wide => m.multiplier == 0 || (-22..=-1).contains(&m.shift),
                    Records::Biased => m.multiplier == 0 || m.shift < 0,
                    Records::Products => m.multiplier == 0 || m.multiplier >= 1 << 30,
                };
            }
            if simple && kind == Records::Products {
                let reach = |i: usize| channel(vector * lanes + i).map_or([0; 2], &sums);
                simple = scaled_products(record, columns(), reach, out);
                if simple {
                    kinds.push(true);
                    continue;
                }
            }
            kinds.push(simple);
            if simple && kind == Records::Wide {
                widen(record, columns(), lanes, out.zero_point);
                continue;
            }
            if simple && kind == Records::Biased {
                bias(record, columns(), lanes, out.zero_point);
                continue;
            }
            for (i, (m, away)) in columns().enumerate() {
                record[i] = m.multiplier;
                record[lanes + i] = m.shift.max(0);
                record[2 * lanes + i] = (-m.shift).max(0);
                record[3 * lanes + i] = if away { -1 } else { 0 };
            }
            if kind == Records::Products {
                let all = columns().all(|(m, _)| m.shift >= -30);
                for (i, (m, _)) in columns().enumerate().filter(|_| all) {
                    record[3 * lanes + i] *= i32::from(m.shift < 0);
                    record[4 * lanes + i] = 1 << m.shift.max(0);
                    record[5 * lanes + i] = 1 << (30 + m.shift.min(0));
                    record[6 * lanes + i] = i32::from(m.shift < 0) << 29;
                }
            }
        }
        let (zero_point, low, high) = (out.zero_point, out.low, out.high);
        let away = (0..count).any(|i| of(i).1);
        Ok(Self { records, special: kinds, lanes, each, zero_point, low, high, away })
    }

    /// Returns whether the records of all vectors are of the kind of the instruction set.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_special(&self) -> bool {
        self.special.iter().all(|special| *special)
    }

    /// Returns the values of `count` columns, beginning with `first`, which must be the first of a vector.
    #[inline]
    pub(crate) fn part(&self, first: usize, count: usize) -> RequantPart {
        let vectors = first / self.lanes..(first + count) / self.lanes;
        RequantPart {
            records: self.records.as_slice()[vectors.start * self.each..vectors.end * self.each].as_ptr(),
            special: self.special[vectors].as_ptr(),
            zero_point: self.zero_point,
            low: self.low,
            high: self.high,
            away: self.away,
        }
    }
}

/// Writes a record of products. Returns whether each column has values in such a record.
fn scaled_products(
    record: &mut [i32],
    columns: impl ExactSizeIterator<Item = (Multiplier, bool)>,
    sums: impl Fn(usize) -> [i64; 2],
    out: &OutputQuant<'_>,
) -> bool {
    let lanes = columns.len();
    for (i, (m, away)) in columns.enumerate() {
        let ties = if away { Ties::Away } else { Ties::Up };
        let values = match -m.shift {
            _ if m.multiplier == 0 => Some(constant(out.zero_point.clamp(out.low, out.high))),
            0..=MAX_PRODUCT_SHIFT => Some(scaled_product(m, ties, out)),
            right if right > MAX_PRODUCT_SHIFT => two_outputs(m, ties, sums(i), out),
            _ => None,
        };
        let Some(values) = values else {
            record.fill(0);
            return false;
        };
        for (field, value) in values.into_iter().enumerate() {
            record[field * lanes + i] = value;
        }
    }
    true
}

/// The values of a column in a record of products: see [`RequantPart::records`].
type ProductFields = [i32; PRODUCT_FIELDS];

/// The maximum shift to the right of products with a power of two.
const MAX_PRODUCT_SHIFT: i32 = PRODUCT_BITS as i32 - 2;

/// The values of a column whose output is always the same.
fn constant(output: i32) -> ProductFields {
    [0, 0, 0, 0, output << PRODUCT_SHIFT, 0, 0]
}

/// The values of a column with a shift to the right by at most [`MAX_PRODUCT_SHIFT`].
fn scaled_product(m: Multiplier, ties: Ties, out: &OutputQuant<'_>) -> ProductFields {
    let right = -m.shift;
    let power = 1 << (PRODUCT_BITS as i32 - right);
    // In units of 2^32, where the first rounding adds 2^30 · power.
    let (first, unit) = (power >> 2, power >> 1);
    let half = if right > 0 { 1 << (PRODUCT_SHIFT - 1) } else { 0 };
    let away = if ties == Ties::Away && right > 0 { -unit } else { 0 };
    // The factor is less than one, so that there are sums for each output.
    let min = least(m, ties, out.low - out.zero_point);
    let max = least(m, ties, out.high - out.zero_point + 1) - 1;
    let addend = first + half + (out.zero_point << PRODUCT_SHIFT);
    [m.multiplier, min, max, power, addend, away, 0]
}

/// The values of a column with a larger shift to the right whose sums have only one or two outputs, as those of channels that are
/// always zero: their filters, however small, have scales that make use of all bytes.
fn two_outputs(m: Multiplier, ties: Ties, sums: [i64; 2], out: &OutputQuant<'_>) -> Option<ProductFields> {
    let [mut least, mut greatest] = [i32::try_from(sums[0]).ok()?, i32::try_from(sums[1]).ok()?];
    let output = |x: i32| (m.apply(x, ties) + out.zero_point).clamp(out.low, out.high);
    let (low, high) = (output(least), output(greatest));
    if low == high {
        return Some(constant(low));
    }
    if high - low > 1 {
        return None;
    }
    // The greatest sum with the lower output, and the least one with the higher output, are neighbours.
    while i64::from(greatest) - i64::from(least) > 1 {
        let middle = ((i64::from(least) + i64::from(greatest)) >> 1) as i32;
        if output(middle) == low {
            least = middle;
        } else {
            greatest = middle;
        }
    }
    // One of them is odd: modulo 2^32 its product with the power is -2^31, and that of the other one 0.
    let step = 1 << (PRODUCT_SHIFT + 1);
    let (multiplier, even) = if greatest % 2 == 0 { (step, high) } else { (-step, low) };
    Some([multiplier, least, greatest, i32::MIN, even << PRODUCT_SHIFT, 0, 0])
}

/// Returns the least sum whose product is at least `to`, between -256 and 256, for a shift to the right by at most
/// [`MAX_PRODUCT_SHIFT`].
fn least(m: Multiplier, ties: Ties, to: i32) -> i32 {
    let right = -m.shift;
    let half = if right > 0 { 1i64 << (right - 1) } else { 0 };
    let exact = (i64::from(to) << (31 + right)) - (1 << 30) - (half << 31);
    let mut x = exact.div_euclid(m.multiplier.into()) as i32;
    while m.apply(x, ties) >= to {
        x -= 1;
    }
    while m.apply(x, ties) < to {
        x += 1;
    }
    x
}

/// The shift of a column in a wide or a biased record. Columns without a factor may have any shift.
fn right_shift(m: Multiplier) -> i32 {
    if m.multiplier == 0 { 1 } else { -m.shift }
}

/// Writes a wide record.
fn widen(
    record: &mut [i32],
    columns: impl Iterator<Item = (Multiplier, bool)>,
    lanes: usize,
    zero_point: i32,
) {
    let mut set = |at: usize, value: i64| {
        // The lower half comes first on processors with wide or biased records.
        (record[2 * at], record[2 * at + 1]) = (value as i32, (value >> 32) as i32);
    };
    for (i, (m, away)) in columns.enumerate() {
        let right = i64::from(right_shift(m));
        let half = i % 2 * (lanes / 2) + i / 2;
        set(half, i64::from(m.multiplier) | if away { i64::MIN } else { 0 });
        set(lanes + half, (1 << 30) + (1 << (30 + right)) + (i64::from(zero_point) << (31 + right)));
        set(2 * lanes + half, if i % 2 == 0 { 31 + right } else { right - 1 });
    }
}

/// Writes a biased record.
fn bias(
    record: &mut [i32],
    columns: impl Iterator<Item = (Multiplier, bool)> + Clone,
    lanes: usize,
    zero_point: i32,
) {
    widen(record, columns.clone().map(|(m, _)| (m, false)), lanes, 0);
    for (i, (m, away)) in columns.enumerate() {
        let half = i % 2 * (lanes / 2) + i / 2;
        // The upper half of the addend.
        let addend = &mut record[2 * (lanes + half) + 1];
        *addend = addend.wrapping_add(i32::MIN);
        let right = right_shift(m).cast_unsigned();
        record[6 * lanes + i] = zero_point.wrapping_sub(1i32.wrapping_shl(32 - right));
        record[7 * lanes + i] = if away { i32::MIN } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a column in a record of products, as vector instructions compute it.
    fn product_output(x: i32, [multiplier, min, max, power, addend, away, _]: ProductFields) -> i32 {
        let x = x.max(min).min(max).wrapping_mul(power);
        let high = ((i64::from(x) * i64::from(multiplier)) >> 32) as i32;
        high.wrapping_add(addend).wrapping_add((high >> 31) & away) >> PRODUCT_SHIFT
    }

    #[test]
    fn records_of_products_are_exact_around_each_output() {
        for (zero_point, low, high) in
            [(0, -128, 127), (-128, -128, 127), (127, -128, 127), (255, 0, 255), (3, 3, 9)]
        {
            let out = OutputQuant { multipliers: &[], zero_point, low, high, ties: ChannelTies::Up };
            for shift in (0..=MAX_PRODUCT_SHIFT).map(|right| -right) {
                for multiplier in [1 << 30, (1 << 30) + 1, 0x5A82_7999, i32::MAX] {
                    let m = Multiplier { multiplier, shift };
                    for ties in [Ties::Up, Ties::Away] {
                        let fields = scaled_product(m, ties, &out);
                        let expected = |x: i32| m.apply(x, ties).saturating_add(zero_point).clamp(low, high);
                        for to in low - zero_point - 1..=high - zero_point + 1 {
                            let x = least(m, ties, to);
                            for x in [x - 2, x - 1, x, x + 1, i32::MIN, i32::MAX] {
                                assert_eq!(product_output(x, fields), expected(x), "{m:?} {ties:?} {x}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn columns_of_two_outputs_are_exact() {
        let out =
            OutputQuant { multipliers: &[], zero_point: 7, low: -128, high: 127, ties: ChannelTies::Up };
        let mut steps = 0;
        for shift in -31..-MAX_PRODUCT_SHIFT {
            for multiplier in [1 << 30, 0x5A82_7999, i32::MAX] {
                let m = Multiplier { multiplier, shift };
                // The sum where the output changes from 0 to 1, or 0 if that sum is out of range.
                let half = (1i64 << (30 - shift)) / i64::from(multiplier);
                let half = if half < 1 << 30 { half } else { 0 };
                for (start, ties) in
                    [(half, Ties::Up), (half, Ties::Away), (-half, Ties::Up), (-half, Ties::Away)]
                {
                    let expected = |x: i32| (m.apply(x, ties) + 7).clamp(-128, 127);
                    let sums = [start - (1 << 18), start + (1 << 18)];
                    let fields = two_outputs(m, ties, sums, &out).unwrap();
                    let [first, last] = sums.map(|x| x as i32);
                    steps += i32::from(expected(first) != expected(last));
                    let around = [fields[1], fields[2]].map(|x| x.clamp(first, last));
                    for x in (first..=last).step_by(61).chain(around) {
                        assert_eq!(product_output(x, fields), expected(x), "{m:?} {ties:?} {x}");
                    }
                }
                assert_eq!(two_outputs(m, Ties::Up, [0, i64::from(i32::MAX) + 1], &out), None);
            }
        }
        assert!(steps > 10, "{steps}");
        let m = Multiplier { multiplier: 1 << 30, shift: -21 };
        assert_eq!(two_outputs(m, Ties::Up, [0, 1 << 24], &out), None);
    }

    #[test]
    fn factors_are_exact_where_they_can_be() {
        for (real, multiplier, shift) in [
            (0.5, 1 << 30, 0),
            (1.0, 1 << 30, 1),
            (0.25, 1 << 30, -1),
            (0.75, 3 << 29, 0),
            (1e-20, 0, 0),
            (0.0, 0, 0),
            (f64::NAN, 0, 0),
            (1e30, i32::MAX, 30),
            (f64::INFINITY, i32::MAX, 30),
            (5e-324, 0, 0),
            (0.999_999_999_9, 1 << 30, 1),
        ] {
            assert_eq!(Multiplier::from_real(real), Multiplier { multiplier, shift }, "{real}");
        }
    }

    #[test]
    fn ties_go_where_they_are_told() {
        let half = Multiplier { multiplier: 1 << 30, shift: 0 };
        // The first rounding always goes up.
        assert_eq!([-3, -1, 1, 3].map(|x| half.apply(x, Ties::Away)), [-1, 0, 1, 2]);
        let quarter = Multiplier::from_real(0.25);
        assert_eq!([-6, -2, 2, 6].map(|x| quarter.apply(x, Ties::Up)), [-1, 0, 1, 2]);
        assert_eq!([-6, -2, 2, 6].map(|x| quarter.apply(x, Ties::Away)), [-2, -1, 1, 2]);
        let eight = Multiplier::from_real(8.0);
        assert_eq!(eight.apply(-5, Ties::Up), -40);
    }
}
