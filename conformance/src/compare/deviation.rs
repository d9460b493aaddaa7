//! The elements of an output that are further from the expected ones than a tolerance allows.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use delegraph_core::TensorType;

use super::{ElementDifference, Tolerance, compare, shown};

/// How an output deviates from the expected one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Deviation {
    /// The largest difference; infinite where one side is NaN and the other is not, or infinities differ.
    pub max_abs: f64,
    /// The allowed difference.
    pub allowed: f64,
    /// The positions of the deviating elements, in row-major order.
    pub at: Vec<usize>,
    /// The number of elements.
    pub count: usize,
    /// The classes of the deviating elements, as "NaN for max": computed, expected.
    pub classes: BTreeSet<(&'static str, &'static str)>,
    /// The first deviating element.
    pub first: ElementDifference,
}

impl Deviation {
    /// Compares elements of a type, given as numbers; `None` if all are within the tolerance, which is relative to the
    /// largest number below the end of the type's range: an overflow does not excuse other elements.
    pub fn of(ty: TensorType, got: &[f64], expected: &[f64], tolerance: Tolerance) -> Option<Self> {
        let most = range(ty).1;
        let below = expected.iter().copied().filter(|v| v.abs() < most);
        let largest = below.fold(0f64, |m, v| m.max(v.abs()));
        let allowed = (tolerance.abs + tolerance.rel * largest).max(tolerance.quantum.into());
        let absolute = Tolerance { abs: allowed, rel: 0.0, quantum: 0 };
        let off = |g: f64, e: f64| compare(&[g], &[e], absolute).max_abs;
        let pairs = || got.iter().copied().zip(expected.iter().copied());
        let at: Vec<usize> =
            pairs().enumerate().filter(|(_, (g, e))| off(*g, *e) > allowed).map(|(i, _)| i).collect();
        let index = *at.first()?;
        let class = |&i: &usize| Some((class(ty, *got.get(i)?), class(ty, *expected.get(i)?)));
        Some(Deviation {
            max_abs: pairs().map(|(g, e)| off(g, e)).fold(0.0, f64::max),
            allowed,
            classes: at.iter().filter_map(class).collect(),
            count: expected.len(),
            first: ElementDifference { index, got: got[index], want: expected[index] },
            at,
        })
    }
}

impl Display for Deviation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let classes: Vec<String> =
            self.classes.iter().map(|(got, expected)| format!("{got} for {expected}")).collect();
        let (off, allowed) = (shown(self.max_abs), shown(self.allowed));
        let (at, count, classes) = (self.at.len(), self.count, classes.join(", "));
        let ElementDifference { index, got, want } = self.first;
        write!(
            f,
            "off by {off}, allowed {allowed}, at {at} of {count} [{classes}]; element {index} is {got}, expected {want}"
        )
    }
}

impl std::error::Error for Deviation {}

/// Returns the ends of a type's range.
fn range(ty: TensorType) -> (f64, f64) {
    let most = match ty {
        TensorType::Float16 => 65_504.0,
        TensorType::Float64 | TensorType::Complex128 => f64::MAX,
        TensorType::BFloat16 => half::bf16::MAX.into(),
        _ if ty.is_float() || ty == TensorType::Complex64 => f32::MAX.into(),
        TensorType::UInt8 => return (0.0, 255.0),
        TensorType::UInt16 => return (0.0, 65_535.0),
        TensorType::UInt32 => return (0.0, u32::MAX.into()),
        _ => {
            let half = 2f64.powi(ty.bits().unwrap_or(64) as i32 - 1);
            return (-half, half - 1.0);
        }
    };
    (-most, most)
}

fn class(ty: TensorType, value: f64) -> &'static str {
    let (min, max) = range(ty);
    match value {
        v if v.is_nan() => "NaN",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        v if v == max => "max",
        v if v == min => "min",
        _ => "number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_do_not_excuse_other_elements() {
        let tolerance = Tolerance::of(TensorType::Float32, false);
        let max = f64::from(f32::MAX);
        let of = |got: &[f64], expected: &[f64]| Deviation::of(TensorType::Float32, got, expected, tolerance);
        assert_eq!(of(&[max, 1.0], &[max, 1.0]), None);
        let text = of(&[f64::INFINITY, f64::NAN, 1.0, 2.0], &[max, -max, 1.5, 2.0]).unwrap().to_string();
        assert!(text.starts_with("off by inf, allowed "), "{text}");
        assert!(
            text.contains("at 3 of 4 [NaN for min, inf for max, number for number]; element 0"),
            "{text}"
        );
    }

    #[test]
    fn ends_of_integers() {
        let tolerance = Tolerance::of(TensorType::Int8, true);
        let text =
            Deviation::of(TensorType::Int8, &[127.0, 3.0], &[-128.0, 4.0], tolerance).unwrap().to_string();
        assert!(text.starts_with("off by 255, allowed 1, at 1 of 2 [max for min]; element 0"), "{text}");
    }
}
