//! The allowed difference between an output and that of the reference kernels: by the kind of computation, the number
//! of summed terms, and the guarantees of the arithmetic.
//!
//! | kind | bound, in units of the last place (ULP) of the narrowest float type involved | reason |
//! |---|---|---|
//! | movement | none; bits, any NaN for a NaN | nothing is computed |
//! | exact | none; values, zeros of either sign being equal | one correctly rounded result exists, and all find it |
//! | arithmetic | 4 of the element | a division or root of a GPU may be 2.5 off, and an activation follows |
//! | function | 32 of the element and 16 of the largest one | series and tables differ; GPUs are granted four times as much |
//! | accumulating | 4 of the element and 8 + 2√K of the largest one or of the largest term | rounding errors of K sums are a random walk; the order is free |
//! | quantized | one step in at most a fifth of the elements | a value between two steps; truncating would move half of them |
//! | the same in 16 bits | one step in at most a quarter of the elements, and more at the ends | see `wide_share` |
//! | statistical | mean, deviation and the correlation of neighbours within six standard errors; distributions that a Kolmogorov-Smirnov test does not distinguish | the numbers are random |
//!
//! For comparison: sums kept in 16 bits are 8192 ULP off, an activation of another formula hundreds.
//!
//! With values stored in 16 bits ([`Arithmetic::GpuHalves`]) the units are those of 16-bit floats, and movement may round
//! once.
//!
//! GPUs may treat denormals as zeros, and may assume that there is neither NaN nor infinity ([`Arithmetic::Gpu`]);
//! [`Value::demanded`] lists the requirements that remain.

use delegraph_core::TensorType;
use delegraph_core::error::counted;
use delegraph_core::types::rounded;

use super::numbers;

/// The guarantees of a backend's arithmetic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Arithmetic {
    /// IEEE 754, denormals, infinities and NaN included: CPUs.
    #[default]
    Ieee,
    /// Denormals may be zeros, NaN and infinities may be assumed absent, functions are less precise: GPUs.
    Gpu,
    /// As [`Arithmetic::Gpu`], with values and constants stored as 16-bit floats.
    GpuHalves,
}

/// The kind of computation that an output results from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ComputationKind {
    /// Elements are copied.
    Movement,
    /// Compared, selected, rounded, counted, or computed in integers.
    Exact,
    /// One or two correctly rounded operations per element.
    Arithmetic,
    /// Exponentials, roots of sums, sines.
    Function,
    /// Sums and products of many terms.
    Accumulating,
    /// Random numbers.
    Statistical,
}

impl ComputationKind {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ComputationKind::Movement => "movement",
            ComputationKind::Exact => "exact",
            ComputationKind::Arithmetic => "arithmetic",
            ComputationKind::Function => "function",
            ComputationKind::Accumulating => "accumulating",
            ComputationKind::Statistical => "statistical",
        }
    }
}

/// A class of values that not all arithmetic handles equally.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Value {
    /// Not a number.
    Nan,
    /// Positive or negative infinity.
    Infinity,
    /// A float too small to be normal.
    Denormal,
    /// A zero that is a divisor.
    Divisor,
}

impl Value {
    /// Returns whether a case with such values in its data is required: always for IEEE arithmetic. For GPUs, NaN and
    /// infinities are required only in copies, which need no arithmetic: comparisons, minima, sums and functions may
    /// assume that there are none. Denormals are never required of GPUs, since each load may flush them, nor is
    /// division by zero, whose result is undefined in shading languages.
    ///
    /// Zeros of either sign, the largest and smallest finite numbers, and the ends of quantized ranges are not classes:
    /// they are required of all backends.
    pub fn demanded(self, kind: ComputationKind, arithmetic: Arithmetic) -> bool {
        match (arithmetic, self) {
            (Arithmetic::Ieee, _) => true,
            (_, Value::Denormal | Value::Divisor) => false,
            (_, Value::Nan | Value::Infinity) => kind == ComputationKind::Movement,
        }
    }

    /// Returns the class's name for messages, as a plural.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Value::Nan => "NaNs",
            Value::Infinity => "infinities",
            Value::Denormal => "denormals",
            Value::Divisor => "zero divisors",
        }
    }

    /// Returns the classes that occur among the elements of a tensor.
    pub fn among(ty: TensorType, bytes: &[u8]) -> Vec<Value> {
        let Some(least) = least_normal(ty) else { return Vec::new() };
        let elements = numbers(ty, bytes).unwrap_or_default();
        let holds = |value: &Value| {
            elements.iter().any(|&v| match value {
                Value::Nan => v.is_nan(),
                Value::Infinity => v.is_infinite(),
                Value::Denormal => v != 0.0 && v.abs() < least,
                // Only the op determines its divisor.
                Value::Divisor => false,
            })
        };
        [Value::Nan, Value::Infinity, Value::Denormal].into_iter().filter(holds).collect()
    }
}

/// Returns the bits of a float type's fraction and its smallest normal number.
fn format(ty: TensorType) -> Option<(i32, f64)> {
    Some(match ty {
        TensorType::Float32 | TensorType::Complex64 => (23, 2f64.powi(-126)),
        TensorType::Float64 | TensorType::Complex128 => (52, f64::MIN_POSITIVE),
        TensorType::Float16 => (10, 2f64.powi(-14)),
        TensorType::BFloat16 => (7, 2f64.powi(-126)),
        _ => return None,
    })
}

fn least_normal(ty: TensorType) -> Option<f64> {
    format(ty).map(|(_, least)| least)
}

/// The requirement for an output.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Check {
    /// The kind of computation.
    pub kind: ComputationKind,
    /// The total number of terms summed on the longest path to the output.
    pub terms: u64,
    /// The number of functions on the longest path to the output.
    pub functions: u32,
    /// The largest magnitude of a single term; 0 if it is not known in advance.
    pub term: f64,
    /// The narrowest float type on the path.
    pub precision: TensorType,
    /// Number of steps by which a quantized output may differ.
    pub steps: u32,
    /// Allowed difference of a float output, because intermediate values are quantized.
    pub quantum: f64,
    /// The guarantees of the arithmetic.
    pub arithmetic: Arithmetic,
}

/// The largest share of the elements of a quantized output that may differ.
const SHARE: f64 = 0.2;

/// The distance between 16-bit floats from 1 on.
const HALF_ULP: f64 = 1.0 / 1024.0;
/// The smallest normal 16-bit float.
const LEAST_NORMAL_HALF: f64 = 1.0 / 16_384.0;

/// Returns the number of these 16-bit elements that may differ by a step. TFLite's kernels round a product twice, which
/// changes up to a quarter of the results. They multiply long sums by 16-bit factors, which moves results at the ends
/// of the range by half a step. The number of differences of an exact kernel is random, so two and a half deviations
/// are added. Truncation changes half of the elements.
fn wide_share(want: &[f64]) -> f64 {
    let n = want.len() as f64;
    let coarse: f64 = want.iter().map(|v| v.abs() / 65_536.0).sum();
    (n / 4.0 + coarse + 2.5 * (n * 3.0 / 16.0).sqrt()).min(n * 0.75)
}

impl Check {
    /// Creates the requirement for one float operation of this kind.
    pub fn new(kind: ComputationKind, arithmetic: Arithmetic) -> Self {
        Check {
            kind,
            terms: 1,
            functions: u32::from(kind == ComputationKind::Function),
            term: 0.0,
            precision: TensorType::Float32,
            steps: 1,
            quantum: 0.0,
            arithmetic,
        }
    }

    /// Returns the allowed difference, in ULPs of the element and of the tensor's largest magnitude.
    fn ulps(&self) -> (f64, f64) {
        let functions = 16.0 * f64::from(self.functions);
        // A sum of few operations has no random walk of errors.
        let sums = if self.kind >= ComputationKind::Accumulating {
            8.0 + 2.0 * (self.terms as f64).sqrt()
        } else {
            0.0
        };
        let factor = if self.arithmetic == Arithmetic::Ieee { 1.0 } else { 4.0 };
        let own = 4.0 + 28.0 * f64::from(u32::from(self.functions > 0)) * factor;
        (own, factor * (functions + sums))
    }

    /// Compares the bytes of an output with the expected ones.
    pub fn compare(&self, ty: TensorType, quantized: bool, got: &[u8], want: &[u8]) -> Difference {
        let (Some(g), Some(w)) = (numbers(ty, got), numbers(ty, want)) else {
            return Difference::of_bytes(got, want);
        };
        if g.len() != w.len() {
            return Difference { wrong: w.len().max(g.len()), ..Difference::empty(w.len()) };
        }
        if self.kind == ComputationKind::Statistical {
            return self.moments(&g, &w);
        }
        let parts = if matches!(ty, TensorType::Complex64 | TensorType::Complex128) { 2 } else { 1 };
        let largest = w.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
        let bounds = self.bounds(ty, quantized, largest);
        let mut difference = Difference::empty(w.len() / parts);
        let width = ty.bits().unwrap_or(8) / 8;
        for (i, (&g, &w)) in g.iter().zip(&w).enumerate() {
            let bits = |bytes| piece(bytes, i, width / parts);
            let apart = match (g == w, g.is_nan() && w.is_nan()) {
                (_, true) => 0.0,
                // Large integers and zeros are compared by their bits.
                (true, _) if bounds.bits && bits(got) != bits(want) => f64::INFINITY,
                (true, _) => 0.0,
                _ => Some((g - w).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
            };
            let allowed = bounds.floor + bounds.own * w.abs();
            difference.add(
                ElementDifference { index: i / parts, got: g, want: w },
                apart,
                allowed,
                largest,
                ty,
            );
        }
        // A step is allowed for values between two steps.
        let most = match ty {
            TensorType::Int16 => wide_share(&w),
            _ => w.len() as f64 * SHARE,
        };
        let most = (most as usize).max(3);
        if bounds.shared && difference.off > most && difference.wrong == 0 {
            difference.wrong = difference.off;
            difference.first_bad = difference.worst;
            difference.too_often = true;
        }
        difference
    }

    fn bounds(&self, ty: TensorType, quantized: bool, largest: f64) -> Bounds {
        let none = Bounds { floor: 0.0, own: 0.0, bits: true, shared: false };
        let exact = self.kind <= ComputationKind::Exact;
        let Some((fraction, least)) = format(ty) else {
            return match quantized && !exact {
                true => Bounds { floor: self.steps.into(), bits: false, shared: self.steps == 1, ..none },
                false => none,
            };
        };
        let flushed = match self.arithmetic {
            Arithmetic::Ieee => 0.0,
            Arithmetic::Gpu => least,
            Arithmetic::GpuHalves => LEAST_NORMAL_HALF,
        };
        let halves = self.arithmetic == Arithmetic::GpuHalves;
        match self.kind {
            // Operands are rounded to 11 significant bits, wherever they are stored.
            _ if halves => {
                let (own, of_largest) = if exact { (0.5, 0.0) } else { self.ulps() };
                let scale = largest.max(self.term);
                let floor = HALF_ULP * of_largest * scale + self.quantum + flushed;
                Bounds { floor, own: own * HALF_ULP, bits: false, shared: false }
            }
            ComputationKind::Movement => Bounds { floor: flushed, ..none },
            ComputationKind::Exact => Bounds { floor: flushed, bits: false, ..none },
            _ => {
                let fraction = format(self.precision).map_or(fraction, |(narrow, _)| narrow.min(fraction));
                let ulp = 2f64.powi(-fraction);
                let (own, of_largest) = self.ulps();
                // A narrow type is the rounded result of a wider computation.
                let (own, of_largest) =
                    if fraction < 23 { (own.min(8.0) / 4.0, of_largest / 8.0) } else { (own, of_largest) };
                let scale = largest.max(self.term);
                let floor = ulp * of_largest * scale + self.quantum + flushed.max(least * 2f64.powi(-8));
                Bounds { floor, own: own * ulp, bits: false, shared: false }
            }
        }
    }

    /// Compares mean, deviation, distribution and the correlation of neighbours instead of elements.
    fn moments(&self, got: &[f64], want: &[f64]) -> Difference {
        let n = want.len().max(1) as f64;
        let mean = |v: &[f64]| v.iter().sum::<f64>() / n;
        let deviation = |v: &[f64], mean: f64| (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        let (a, b) = (mean(got), mean(want));
        let (da, db) = (deviation(got, a), deviation(want, b));
        let error = da.max(db) * (2.0 / n).sqrt();
        let mut difference = Difference::empty(want.len());
        let apart = (a - b).abs().max((da - db).abs());
        let apart = if apart.is_nan() { f64::INFINITY } else { apart };
        difference.add(
            ElementDifference { index: 0, got: a, want: b },
            apart,
            6.0 * error,
            b.abs(),
            TensorType::Float64,
        );
        // For two samples of one distribution, the distance is larger in one of thirty million pairs.
        let steps = steps_apart(got, want);
        let element = ElementDifference { index: 0, got: steps, want: 0.0 };
        difference.add(element, steps, 3.0 * (2.0 / n).sqrt(), 1.0, TensorType::Float64);
        // A repeated row or a counter may have the right distribution but is not random.
        let (a, b) = (neighbours(got, a), neighbours(want, b));
        let element = ElementDifference { index: 0, got: a, want: b };
        difference.add(element, (a - b).abs(), 6.0 * (2.0 / n).sqrt(), 1.0, TensorType::Float64);
        difference
    }
}

/// Returns the largest distance between the cumulative distributions of two samples.
fn steps_apart(a: &[f64], b: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let (a, b) = (sorted(a), sorted(b));
    let share = |values: &[f64], below: f64| {
        values.partition_point(|v| v.total_cmp(&below).is_le()) as f64 / values.len().max(1) as f64
    };
    a.iter().chain(&b).map(|&v| (share(&a, v) - share(&b, v)).abs()).fold(0.0, f64::max)
}

/// Returns the correlation of each number with the next one; 1 if all are equal.
fn neighbours(values: &[f64], mean: f64) -> f64 {
    let all: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let pairs: f64 = values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    if all > 0.0 { pairs / all } else { 1.0 }
}

/// The bounds of a tensor's differences.
struct Bounds {
    floor: f64,
    /// The bound relative to the element.
    own: f64,
    /// Whether equal numbers must have equal bits.
    bits: bool,
    /// Whether only some elements may differ.
    shared: bool,
}

fn piece(bytes: &[u8], index: usize, width: usize) -> Option<&[u8]> {
    bytes.get(index * width..(index + 1) * width)
}

/// An element with its expected value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ElementDifference {
    /// Its position in row-major order.
    pub index: usize,
    /// The computed value.
    pub got: f64,
    /// The expected value.
    pub want: f64,
}

/// The distribution of differences, relative to the largest expected magnitude.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// Elements that are equal.
    pub equal: usize,
    /// Elements that differ: index 0 counts those below 10⁻⁹, index `i` those from 10^(i - 10) to below 10^(i - 9), and
    /// the last one all others.
    pub decades: [usize; 12],
    /// Elements without a finite difference: a value is NaN or infinite, or equal numbers must have equal bits and do
    /// not.
    pub not_finite: usize,
}

/// The differences of an output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Number of elements.
    pub elements: usize,
    /// Elements whose difference exceeds the bound; 0 if the output passes.
    pub wrong: usize,
    /// Elements that differ.
    pub off: usize,
    /// Largest absolute difference; infinite if an element counts as [`Histogram::not_finite`].
    pub max_abs: f64,
    /// Largest difference relative to the element.
    pub max_rel: f64,
    /// Largest distance in representable numbers of the type.
    pub max_ulp: u64,
    /// The first element whose difference exceeds the bound.
    pub first_bad: Option<ElementDifference>,
    /// The element with the largest difference.
    pub worst: Option<ElementDifference>,
    /// Whether each element is within a step, but too many differ.
    pub too_often: bool,
    /// The distribution of the differences.
    pub histogram: Histogram,
}

impl Difference {
    /// Creates the differences of an output in which no element differs so far.
    pub fn empty(elements: usize) -> Self {
        Difference {
            elements,
            wrong: 0,
            off: 0,
            max_abs: 0.0,
            max_rel: 0.0,
            max_ulp: 0,
            first_bad: None,
            worst: None,
            too_often: false,
            histogram: Histogram::default(),
        }
    }

    /// Returns whether the output is as expected.
    pub fn passes(&self) -> bool {
        self.wrong == 0
    }

    fn of_bytes(got: &[u8], want: &[u8]) -> Self {
        let differ = got.iter().zip(want).filter(|(g, w)| g != w).count() + got.len().abs_diff(want.len());
        let max_abs = if differ > 0 { f64::INFINITY } else { 0.0 };
        Difference { wrong: differ, off: differ, max_abs, ..Self::empty(want.len()) }
    }

    fn add(&mut self, element: ElementDifference, apart: f64, allowed: f64, largest: f64, ty: TensorType) {
        if apart == 0.0 {
            self.histogram.equal += 1;
            return;
        }
        self.off += 1;
        if apart.is_infinite() {
            self.histogram.not_finite += 1;
        } else {
            let decade = (apart / largest.max(f64::MIN_POSITIVE)).log10().floor() + 10.0;
            let last = self.histogram.decades.len() - 1;
            self.histogram.decades[(decade.max(0.0) as usize).min(last)] += 1;
        }
        if self.worst.is_none() || apart > self.max_abs {
            self.worst = Some(element);
        }
        self.max_abs = self.max_abs.max(apart);
        self.max_rel = self.max_rel.max(apart / element.want.abs().max(f64::MIN_POSITIVE));
        self.max_ulp = self.max_ulp.max(ulps(ty, element.got, element.want));
        // NaN is never within the bounds.
        if apart.is_infinite() || apart > allowed {
            self.wrong += 1;
            self.first_bad = self.first_bad.or(Some(element));
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.passes() {
            return write!(f, "at most {} off ({} ULP)", rounded(self.max_abs), self.max_ulp);
        }
        let why = if self.too_often { "off by a step, which is too often" } else { "wrong" };
        let most = rounded(self.max_abs);
        let verb = if self.elements == 1 { "is" } else { "are" };
        let elements = counted(self.elements, "element");
        write!(f, "{} of {elements} {verb} {why}, at most by {most}", self.wrong)?;
        match self.first_bad {
            Some(e) => write!(f, "; element {} is {}, expected {}", e.index, e.got, e.want),
            None => Ok(()),
        }
    }
}

/// Returns the distance of two numbers, in representable numbers of a type.
fn ulps(ty: TensorType, a: f64, b: f64) -> u64 {
    /// Maps bits to integers in the order of the numbers, negative ones first.
    fn ordered(bits: u64, width: u32) -> i64 {
        let sign = 1u64 << (width - 1);
        let magnitude = (bits & (sign - 1)) as i64;
        if bits & sign == 0 { magnitude } else { -magnitude }
    }
    let place = |v: f64| match ty {
        TensorType::Float32 | TensorType::Complex64 => ordered((v as f32).to_bits().into(), 32),
        TensorType::Float16 => ordered(half::f16::from_f64(v).to_bits().into(), 16),
        TensorType::BFloat16 => ordered(half::bf16::from_f64(v).to_bits().into(), 16),
        TensorType::Float64 | TensorType::Complex128 => ordered(v.to_bits(), 64),
        _ => v as i64,
    };
    place(a).abs_diff(place(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(v: &[f32]) -> Vec<u8> {
        v.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn check(kind: ComputationKind) -> Check {
        Check::new(kind, Arithmetic::Ieee)
    }

    fn passes(check: Check, got: &[f32], want: &[f32]) -> bool {
        check.compare(TensorType::Float32, false, &floats(got), &floats(want)).passes()
    }

    #[test]
    fn movement_is_exact_to_the_bit() {
        let moved = check(ComputationKind::Movement);
        assert!(passes(moved, &[f32::NAN, -0.0], &[-f32::NAN, -0.0]));
        assert!(!passes(moved, &[0.0], &[-0.0]));
        assert!(passes(check(ComputationKind::Exact), &[0.0], &[-0.0]));
        assert!(!passes(check(ComputationKind::Exact), &[1.0], &[1.0000001]));
        let (a, b) = ((1i64 << 60).to_le_bytes(), ((1i64 << 60) + 1).to_le_bytes());
        assert!(!check(ComputationKind::Exact).compare(TensorType::Int64, false, &a, &b).passes());
    }

    #[test]
    fn sums_may_differ_with_their_length() {
        let sums = |terms| Check { terms, ..check(ComputationKind::Accumulating) };
        let off = 1.0 + 30.0 * f32::EPSILON;
        assert!(!passes(sums(9), &[off], &[1.0]));
        assert!(passes(sums(1024), &[off], &[1.0]));
        // Sums in 16 bits.
        assert!(!passes(sums(1024), &[1.0 + 2f32.powi(-11)], &[1.0]));
    }

    #[test]
    fn a_quantized_step_is_for_a_few() {
        let of = |got: &[u8], want: &[u8]| {
            check(ComputationKind::Arithmetic).compare(TensorType::Int8, true, got, want)
        };
        let mut want = [10u8; 40];
        let expected = want;
        want[3] = 11;
        assert!(of(&want, &expected).passes());
        want[7..27].fill(11);
        let truncated = of(&want, &expected);
        assert!(truncated.too_often && !truncated.passes());
        assert!(!of(&[12], &[10]).passes());
    }

    #[test]
    fn what_gpus_may_do() {
        let gpu = Check::new(ComputationKind::Exact, Arithmetic::Gpu);
        assert!(passes(gpu, &[0.0], &[1e-40]) && !passes(check(ComputationKind::Exact), &[0.0], &[1e-40]));
        assert!(Value::Nan.demanded(ComputationKind::Movement, Arithmetic::Gpu));
        assert!(!Value::Nan.demanded(ComputationKind::Exact, Arithmetic::Gpu));
        let special = floats(&[1.0, f32::NAN, 1e-40]);
        assert_eq!(Value::among(TensorType::Float32, &special), [Value::Nan, Value::Denormal]);
    }

    #[test]
    fn what_storage_in_16_bits_may_change() {
        let halves = |kind| Check::new(kind, Arithmetic::GpuHalves);
        let rounded = half::f16::from_f32(0.1).to_f32();
        for kind in [
            ComputationKind::Movement,
            ComputationKind::Exact,
            ComputationKind::Arithmetic,
            ComputationKind::Accumulating,
        ] {
            assert!(passes(halves(kind), &[rounded], &[0.1]), "{kind:?}");
            assert!(!passes(halves(kind), &[0.2], &[0.1]), "{kind:?}");
        }
        assert!(!passes(halves(ComputationKind::Movement), &[0.1 + 2e-4], &[0.1]));
        assert!(!passes(check(ComputationKind::Movement), &[rounded], &[0.1]));
        assert!(!halves(ComputationKind::Exact).compare(TensorType::Int8, true, &[3], &[4]).passes());
    }

    #[test]
    fn what_reports_show() {
        let d = check(ComputationKind::Arithmetic).compare(
            TensorType::Float32,
            false,
            &floats(&[1.0, 2.5, f32::NAN]),
            &floats(&[1.0, 2.0, 4.0]),
        );
        assert_eq!((d.elements, d.wrong, d.off), (3, 2, 2));
        assert_eq!(d.first_bad, Some(ElementDifference { index: 1, got: 2.5, want: 2.0 }));
        assert_eq!((d.histogram.equal, d.histogram.not_finite, d.histogram.decades[9]), (1, 1, 1));
        let one = check(ComputationKind::Arithmetic).compare(
            TensorType::Float32,
            false,
            &floats(&[1.0 + f32::EPSILON]),
            &floats(&[1.0]),
        );
        assert!(one.passes() && one.max_ulp == 1);
    }

    #[test]
    fn random_numbers_have_moments() {
        let draw = |seed: u64| {
            let mut g = crate::seeded::SplitMix64::new(seed);
            (0..2000).map(|_| g.draw_f32()).collect::<Vec<_>>()
        };
        let random = check(ComputationKind::Statistical);
        assert!(passes(random, &draw(1), &draw(2)));
        let shifted: Vec<f32> = draw(1).iter().map(|v| v + 0.2).collect();
        assert!(!passes(random, &shifted, &draw(2)));
        let half: Vec<f32> = draw(1).iter().map(|v| v * 0.5).collect();
        assert!(!passes(random, &half, &draw(2)));
        // Only two numbers, with the same mean and deviation.
        let two: Vec<f32> = draw(1).iter().map(|v| v.signum() * 0.577).collect();
        assert!(!passes(random, &two, &draw(2)));
        let mut ascending = draw(1);
        ascending.sort_by(f32::total_cmp);
        assert!(!passes(random, &ascending, &draw(2)));
        // Too few numbers for a decision.
        assert!(passes(random, &draw(1)[..9], &draw(2)[..9]));
    }
}
