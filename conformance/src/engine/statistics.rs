//! The differences between an output and the expected one, element by element.

use delegraph_core::TensorType;

use super::result::{BINS, Bad, ErrorStats};
use crate::Error;
use crate::compare::{self, Tolerance, compare};
use crate::npy::trimmed;
use crate::output::Output;

/// The precision that an output must have.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// The precision of the kind of computation.
    Check(compare::Check),
    /// Within one tolerance.
    Within(Tolerance),
}

/// Compares an output with the expected one; `place` is `(output, step)`.
///
/// # Errors
/// [`Error::Mismatch`]: a difference in shape, type or strings.
pub fn judge(got: &Output, want: &Output, rule: Rule, place: (usize, usize)) -> Result<ErrorStats, Error> {
    if got.shape != want.shape {
        return Err(Error::mismatch(format_args!(
            "output {} has shape {:?}, expected {:?}",
            place.0, got.shape, want.shape
        )));
    }
    if let (Some(got), Some(want)) = (got.strings(), want.strings()) {
        let same = got.iter().map(trimmed).eq(want.iter().map(trimmed));
        return match same {
            true => Ok(ErrorStats::exact(got.iter().count(), place)),
            false => Err(Error::mismatch(format_args!("output {}: strings differ", place.0))),
        };
    }
    if got.ty == want.ty && got.bytes == want.bytes {
        return Ok(ErrorStats::exact(want.shape.iter().product(), place));
    }
    let tolerance = match rule {
        Rule::Check(check) => return checked(got, want, check, place),
        Rule::Within(tolerance) => tolerance,
    };
    let (Some(g), Some(w)) = (got.numbers(), want.numbers()) else {
        return match got.bytes == want.bytes {
            true => Ok(ErrorStats::exact(want.shape.iter().product(), place)),
            false => Err(Error::mismatch(format_args!("output {}: bytes differ ({})", place.0, want.ty))),
        };
    };
    let comparison = compare(&g, &w, tolerance);
    let same = Tolerance { abs: comparison.allowed, rel: 0.0, quantum: 0 };
    let mut stats = ErrorStats::exact(0, place);
    (stats.allowed, stats.max_abs, stats.elements) = (Some(comparison.allowed), comparison.max_abs, w.len());
    if g.len() != w.len() {
        (stats.wrong, stats.off) = (w.len(), w.len());
        return Ok(stats);
    }
    // A complex element is compared as two numbers.
    let parts = if matches!(want.ty, TensorType::Complex64 | TensorType::Complex128) { 2 } else { 1 };
    let largest = w.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let (mut worst, mut first) = (None, None);
    for (i, (&g, &w)) in g.iter().zip(&w).enumerate() {
        let one = compare(&[g], &[w], same);
        let difference = one.max_abs;
        stats.histogram[bin(difference, largest)] += 1;
        if difference > 0.0 {
            stats.off += 1;
            stats.max_rel = stats.max_rel.max(difference / w.abs().max(f64::MIN_POSITIVE));
        }
        if !one.passes() {
            stats.wrong += 1;
            first.get_or_insert((i, g, w));
        }
        if difference > 0.0 && worst.is_none_or(|(_, most)| difference > most) {
            worst = Some(((i, g, w), difference));
        }
    }
    let shown = first.or(worst.map(|(at, _)| at));
    stats.first =
        shown.map(|(i, got, expected)| Bad { index: index_of(i / parts, &want.shape), got, expected });
    Ok(stats)
}

fn checked(
    got: &Output,
    want: &Output,
    check: compare::Check,
    place: (usize, usize),
) -> Result<ErrorStats, Error> {
    if got.ty != want.ty {
        return Err(Error::mismatch(format_args!("output {} is {}, expected {}", place.0, got.ty, want.ty)));
    }
    let found = check.compare(want.ty, want.quantized, &got.bytes, &want.bytes);
    let mut stats = ErrorStats::exact(found.elements, place);
    (stats.wrong, stats.off) = (found.wrong, found.off);
    (stats.max_abs, stats.max_rel) = (found.max_abs, found.max_rel);
    stats.histogram = vec![found.histogram.equal];
    stats.histogram.extend(found.histogram.decades);
    stats.histogram.push(found.histogram.not_finite);
    let shown = found.first_bad.or(found.worst);
    stats.first = shown.map(|element| Bad {
        index: index_of(element.index, &want.shape),
        got: element.got,
        expected: element.want,
    });
    Ok(stats)
}

/// Returns the bin of a difference in [`ErrorStats::histogram`].
fn bin(difference: f64, largest: f64) -> usize {
    if difference == 0.0 {
        return 0;
    }
    if !difference.is_finite() {
        return BINS - 1;
    }
    // The next higher decade: 3e-9 is below 1e-8, which is the second bin.
    let decade = (difference / largest.max(f64::MIN_POSITIVE)).log10().floor() + 1.0;
    (decade.clamp(-9.0, 2.0) + 10.0) as usize
}

/// Returns the index of element `i` of a tensor of this shape.
pub(crate) fn index_of(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let position = i % size.max(1);
            i /= size.max(1);
            position
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(values: &[f32], shape: &[usize]) -> Output {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Output { ty: TensorType::Float32, shape: shape.to_vec(), quantized: false, bytes }
    }

    #[test]
    fn the_first_wrong_element_is_named() {
        let want = output(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
        let got = output(&[1.0, 2.0, 3.5, f32::NAN], &[2, 2]);
        let tolerance = Rule::Within(Tolerance::of(TensorType::Float32, false));
        let stats = judge(&got, &want, tolerance, (0, 1)).unwrap();
        assert_eq!((stats.wrong, stats.elements, stats.step), (2, 4, 1));
        assert_eq!(stats.first, Some(Bad { index: vec![1, 0], got: 3.5, expected: 3.0 }));
        assert_eq!(stats.max_abs, f64::INFINITY);
        assert_eq!(stats.histogram.iter().sum::<usize>(), 4);
        assert_eq!((stats.histogram[0], stats.histogram[BINS - 1]), (2, 1));
        assert!(judge(&got, &output(&[1.0], &[1]), tolerance, (0, 0)).is_err());
    }

    #[test]
    fn a_difference_within_the_tolerance_is_shown_too() {
        let want = output(&[1.0, 2.0], &[2]);
        let stats = judge(
            &output(&[1.0, 2.000001], &[2]),
            &want,
            Rule::Within(Tolerance::of(TensorType::Float32, false)),
            (0, 0),
        )
        .unwrap();
        assert_eq!((stats.wrong, stats.first.unwrap().index), (0, vec![1]));
    }

    #[test]
    fn bins_are_decades() {
        let table =
            [(0.0, 0), (1e-30, 1), (9e-10, 1), (3e-9, 2), (0.5, 10), (1.0, 11), (20.0, 12), (5e9, 12)];
        for (difference, expected) in table {
            assert_eq!(bin(difference, 1.0), expected, "{difference}");
        }
        assert_eq!(bin(5e9, 1e10), 10);
        assert_eq!(bin(1.0, 0.0), 12);
        assert_eq!(bin(f64::INFINITY, 1.0), BINS - 1);
    }

    #[test]
    fn packed_elements_are_widened() {
        let packed = |ty, bytes: &[u8], n| {
            Output { ty, shape: vec![n], quantized: false, bytes: bytes.to_vec() }.numbers().unwrap()
        };
        assert_eq!(packed(TensorType::Int4, &[0x8F, 0x07], 3), [-1.0, -8.0, 7.0]);
        assert_eq!(packed(TensorType::UInt4, &[0x8F], 2), [15.0, 8.0]);
        assert_eq!(packed(TensorType::Int2, &[0b11_10_01_00], 4), [0.0, 1.0, -2.0, -1.0]);
    }
}
