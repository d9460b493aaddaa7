//! Floats of eight bits: E4M3FN (four bits of exponent, no infinities) and E5M2 (the upper half of a float16).

use std::sync::OnceLock;

use delegraph_core::TensorType;

/// One of the two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float8 {
    /// Exponents from -6 to 8, maximum 448, one NaN, no infinities.
    E4M3FN,
    /// Exponents from -14 to 15, maximum 57,344, infinities and NaNs.
    E5M2,
}

impl Float8 {
    /// Returns the format of a tensor type.
    pub(crate) fn of(ty: TensorType) -> Option<Self> {
        match ty {
            TensorType::Float8E4M3FN => Some(Float8::E4M3FN),
            TensorType::Float8E5M2 => Some(Float8::E5M2),
            _ => None,
        }
    }

    fn mantissa_bits(self) -> i32 {
        match self {
            Float8::E4M3FN => 3,
            Float8::E5M2 => 2,
        }
    }

    fn bias(self) -> i32 {
        match self {
            Float8::E4M3FN => 7,
            Float8::E5M2 => 15,
        }
    }

    /// The first code, sign bit excluded, that is not a finite number.
    fn first_special(self) -> u8 {
        match self {
            Float8::E4M3FN => 0x7f,
            Float8::E5M2 => 0x7c,
        }
    }

    /// Decodes `code`.
    pub(crate) fn decode(self, code: u8) -> f32 {
        let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
        let code = code & 0x7f;
        if code >= self.first_special() {
            let infinite = self == Float8::E5M2 && code == self.first_special();
            return if infinite { sign * f32::INFINITY } else { f32::NAN.copysign(sign) };
        }
        sign * self.magnitude(code)
    }

    /// Decodes `code`, which has no sign bit, as if no code were special.
    fn magnitude(self, code: u8) -> f32 {
        let bits = self.mantissa_bits();
        let (exponent, mantissa) = (i32::from(code) >> bits, i32::from(code) & ((1 << bits) - 1));
        let (significand, exponent) = match exponent {
            0 => (mantissa, 1),
            e => (mantissa + (1 << bits), e),
        };
        significand as f32 * ((exponent - self.bias() - bits) as f32).exp2()
    }

    /// All magnitudes in ascending order, up to the value that the first special code would have.
    fn magnitudes(self) -> &'static [f32] {
        static TABLES: [OnceLock<Vec<f32>>; 2] = [OnceLock::new(), OnceLock::new()];
        TABLES[self as usize].get_or_init(|| (0..=self.first_special()).map(|c| self.magnitude(c)).collect())
    }

    /// Encodes `value` to the nearest code, ties to even. Values that are too large become infinity, or NaN where the
    /// format has no infinities.
    pub(crate) fn encode(self, value: f32) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return sign | if self == Float8::E5M2 { 0x7e } else { 0x7f };
        }
        let (magnitude, table) = (value.abs(), self.magnitudes());
        let above = table.partition_point(|&m| m < magnitude);
        let code = match (above.checked_sub(1), table.get(above)) {
            (None, _) => 0,
            (Some(below), None) => below + 1,
            (Some(below), Some(&high)) => {
                let middle = (f64::from(table[below]) + f64::from(high)) / 2.0;
                match f64::from(magnitude).total_cmp(&middle) {
                    std::cmp::Ordering::Less => below,
                    std::cmp::Ordering::Greater => above,
                    std::cmp::Ordering::Equal => below + below % 2,
                }
            }
        };
        sign | (code as u8).min(self.first_special())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives() {
        for format in [Float8::E4M3FN, Float8::E5M2] {
            for code in 0..=255u8 {
                let value = format.decode(code);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), code, "{format:?} {value}");
                }
            }
        }
    }

    #[test]
    fn known_numbers() {
        assert_eq!(Float8::E4M3FN.decode(0x7e), 448.0);
        assert_eq!(Float8::E4M3FN.decode(0x01), 1.0 / 512.0);
        assert_eq!(Float8::E5M2.decode(0x7b), 57344.0);
        assert!(Float8::E4M3FN.decode(0xff).is_nan() && Float8::E5M2.decode(0x7d).is_nan());
    }

    #[test]
    fn ties_go_to_even_and_too_much_to_the_special_codes() {
        assert_eq!(Float8::E4M3FN.encode(464.0), 0x7e);
        assert_eq!(Float8::E4M3FN.encode(464.1), 0x7f);
        assert_eq!(Float8::E4M3FN.encode(f32::NEG_INFINITY), 0xff);
        assert_eq!(Float8::E5M2.encode(61440.0), 0x7c);
        assert_eq!(Float8::E5M2.encode(-1e9), 0xfc);
        assert_eq!(Float8::E4M3FN.encode(1.0625), Float8::E4M3FN.encode(1.0));
        assert_eq!(Float8::E4M3FN.encode(-0.0), 0x80);
        assert_eq!(Float8::E4M3FN.encode(1.0 / 1024.0), 0);
    }
}
