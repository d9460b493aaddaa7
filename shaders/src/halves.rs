//! Float weights in 16 bits.

use half::f16;

/// Returns whether all weights are exact in 16 bits. Subnormal numbers are not, since devices may flush them to zero.
pub fn are_halves(weights: &[f32]) -> bool {
    weights.iter().all(|&weight| {
        let half = f16::from_f32(weight);
        half.to_f32() == weight && (half.is_normal() || weight == 0.0)
    })
}

/// Returns the `packed` weights of a convolution for an [`Epilogue`](crate::Epilogue) with halves: all but the last
/// `bias` floats are converted to 16 bits and stored in pairs, the first in the low bits.
pub fn halves(packed: &[f32], bias: usize) -> Vec<u32> {
    let (weights, bias) = packed.split_at(packed.len().saturating_sub(bias));
    let half = |weight: Option<&f32>| u32::from(weight.map_or(0, |&w| f16::from_f32(w).to_bits()));
    let pair = |pair: &[f32]| half(pair.first()) | half(pair.get(1)) << 16;
    weights.chunks(2).map(pair).chain(bias.iter().map(|b| b.to_bits())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_paired_and_the_bias_stays() {
        assert_eq!(halves(&[1.0, -2.0, 0.5, 0.0, 3.0], 1), [0xc000_3c00, 0x3800, 3.0_f32.to_bits()]);
        assert!(are_halves(&[0.0, -0.0, 1.5, 65_504.0, 0.000_061_035_156]));
        for weight in [0.1, 65_536.0, f32::NAN, f32::INFINITY, 0.000_000_059_604_645] {
            assert!(!are_halves(&[weight]), "{weight}");
        }
    }
}
