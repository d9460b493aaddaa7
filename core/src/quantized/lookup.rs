//! Functions of one quantized value as tables, filled in floating point as in TFLite.

use super::Steps;

/// Scale and zero point.
type Affine<F> = (F, i32);

/// A real function between quantized values of one type: a table of all results for 8 bits, of some for 16 bits.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The lowest value, and the results from it on.
    Bytes(i32, Vec<i32>),
    /// Points with lines in between.
    Wide(Table16),
}

impl Lookup {
    /// Creates the table of `f`.
    pub fn new(from: Steps, to: Steps, f: impl Fn(f32) -> f32) -> Self {
        if from.is_wide() {
            return Lookup::Wide(Table16::single((from.scale, from.zero), (to.scale, to.zero), f));
        }
        let inverse = 1.0 / to.scale;
        let entry = |value: i32| {
            let rounded = (f(from.scale * value.saturating_sub(from.zero) as f32) * inverse).round();
            to.clamp((rounded + to.zero as f32) as i32)
        };
        Lookup::Bytes(from.low, (from.low..=from.high).map(entry).collect())
    }

    /// Returns the function at `value`, which is one of its type.
    pub fn at(&self, value: i32) -> i32 {
        match self {
            Lookup::Bytes(lowest, results) => {
                let index = usize::try_from(value.saturating_sub(*lowest)).unwrap_or(0);
                results.get(index).copied().unwrap_or(0)
            }
            Lookup::Wide(table) => table.at(value as i16).into(),
        }
    }
}

/// A function of a 16-bit value: 513 points, with straight lines in between.
#[derive(Debug, Clone)]
pub struct Table16(Vec<i16>);

macro_rules! fill {
    ($($(#[$doc:meta])* $name:ident: $float:ty;)*) => { $(
        $(#[$doc])*
        pub fn $name(input: Affine<$float>, output: Affine<$float>, f: impl Fn($float) -> $float) -> Self {
            const STEPS: i32 = 512;
            let (lowest, highest) = (i32::from(i16::MIN), i32::from(i16::MAX));
            let real = |(scale, zero_point): Affine<$float>, v: i32| scale * v.saturating_sub(zero_point) as $float;
            let (start, end) = (real(input, lowest), real(input, highest));
            let step = (end - start) / STEPS as $float;
            let half_step = step / 2.0;
            let scale = 65536.0 / (real(output, highest) - real(output, lowest));
            let stored = |value: $float| value.max(lowest as $float).min(highest as $float) as i16;
            let point = |i: i32| {
                let at = start + i as $float * step;
                let sample = (f(at) * scale).round();
                // Half of the error of a straight line at its middle is subtracted at its ends.
                let middle = (f(at + half_step) * scale).round();
                let line = ((f(start + (i + 1) as $float * step) * scale + sample) / 2.0).round();
                let correction = ((line - middle) / 2.0).round();
                // Beyond the range of floats there is no error to subtract.
                stored(if correction.is_finite() { sample - correction } else { sample })
            };
            let last = stored((f(end) * scale).round());
            Table16((0..STEPS).map(point).chain([last]).collect())
        }
    )* };
}

impl Table16 {
    fill! {
        /// The table of `f`, computed in single precision.
        single: f32;
        /// The table of `f`, computed in double precision.
        double: f64;
    }

    /// Returns the 513 points, 128 values apart, from the lowest value on.
    pub fn points(&self) -> &[i16] {
        &self.0
    }

    /// Returns the function at `value`.
    pub fn at(&self, value: i16) -> i16 {
        let (value, index) = (i32::from(value), (256 + (value >> 7)) as usize);
        let base = i32::from(self.0[index]);
        // The difference of two neighbours wraps, as TFLite's does.
        let slope = i32::from(self.0[index + 1].wrapping_sub(self.0[index]));
        (base + ((slope * (value & 0x7f) + 64) >> 7)) as i16
    }
}

/// The logistic function and `tanh` of 16-bit values of any scale, from one table of the former at multiples of 1/24.
#[derive(Debug, Clone)]
pub struct SigmoidTable(Vec<u16>);

impl Default for SigmoidTable {
    fn default() -> Self {
        let point = |i: i32| {
            const STEP: f64 = 1.0 / 24.0;
            let y = 1.0 / (1.0 + (f64::from(-i) * STEP).exp());
            // Half of the error of the straight line between two points, at its middle, is added to both points.
            let curvature = y * (1.0 - y) * (1.0 - 2.0 * y);
            (65536.0 * (y - curvature * STEP * STEP / 16.0)).round().min(65535.0) as u16
        };
        SigmoidTable((0..255).map(point).chain([u16::MAX]).collect())
    }
}

impl SigmoidTable {
    /// Returns the logistic function: `x` is in units of 1/12288, the result in units of 1/32768.
    pub fn logistic(&self, x: i32) -> i16 {
        let result = self.interpolated(x, 9).unwrap_or(0x7fff << 10);
        let result = if x >= 0 { result + (1 << 9) } else { (1 << 25) - result + (1 << 9) - 1 };
        (result >> 10) as i16
    }

    /// `tanh`: `x` is in units of 1/12288, the result in units of 1/32768.
    pub fn tanh(&self, x: i32) -> i16 {
        let result = self.interpolated(x, 8).unwrap_or(0xffff << 8);
        let result = if x >= 0 { result - (1 << 23) + (1 << 7) } else { -result + (1 << 23) + (1 << 7) - 1 };
        (result >> 8) as i16
    }

    /// The value at the magnitude of `x`, whose low `bits` bits are the position between two points; `None` beyond the
    /// table.
    fn interpolated(&self, x: i32, bits: u32) -> Option<i32> {
        let magnitude = x.unsigned_abs();
        let index = (magnitude >> bits) as usize;
        let (from, to) = (i32::from(*self.0.get(index)?), i32::from(*self.0.get(index + 1)?));
        let between = (magnitude & ((1 << bits) - 1)) as i32;
        Some((from << bits) + between * (to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TensorType;

    #[test]
    fn tables_are_near_the_functions() {
        let table = Table16::single((10.0 / 65536.0, 0), (2.0 / 65536.0, 0), |x| x.sin() * 0.9);
        for v in (-32_768..=32_767).step_by(61) {
            let v = v as i16;
            let want = (f64::from(v) * 10.0 / 65536.0).sin() * 0.9;
            let got = f64::from(table.at(v)) / 32768.0;
            assert!(approx::abs_diff_eq!(got, want, epsilon = 2e-4), "{v}");
        }
        let sigmoid = SigmoidTable::default();
        for x in (-200_000..200_000).step_by(977) {
            let real = f64::from(x) / 12288.0;
            let logistic = f64::from(sigmoid.logistic(x)) / 32768.0;
            assert!(approx::abs_diff_eq!(logistic, 1.0 / (1.0 + (-real).exp()), epsilon = 2e-4), "{x}");
            let tanh = f64::from(sigmoid.tanh(x)) / 32768.0;
            assert!(approx::abs_diff_eq!(tanh, real.tanh(), epsilon = 2e-4), "{x}");
        }
        let bytes = |scale, zero| Steps::new(TensorType::Int8, scale, zero).unwrap();
        let table = Lookup::new(bytes(0.1, 0), bytes(1.0, -1), |x| x * 10.0);
        assert_eq!(table.at(5), 4);
        assert_eq!(table.at(-128), -128, "saturates");
    }
}
