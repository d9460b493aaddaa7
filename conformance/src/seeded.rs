//! Reproducible inputs: the same seed gives the same data on every machine and in every language.

use delegraph_core::TensorType;

/// SplitMix64: a small generator that is easy to implement in other languages.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl SplitMix64 {
    /// Creates the generator for input 0 of invocation 0.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed).skip(1)
    }

    /// Selects the stream of another input. For a generator that has not drawn yet.
    #[must_use]
    pub fn for_input(self, input: usize) -> Self {
        self.skip((input as u64).wrapping_mul(1_000_003))
    }

    /// Selects the stream of another invocation. For a generator that has not drawn yet.
    #[must_use]
    pub fn for_invocation(self, invocation: usize) -> Self {
        self.skip(invocation as u64)
    }

    /// Returns the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn skip(self, draws: u64) -> Self {
        SplitMix64(self.0.wrapping_add(STEP.wrapping_mul(draws)))
    }

    /// Returns a float in [-1, 1).
    pub fn draw_f32(&mut self) -> f32 {
        // 24 bits are exact in a float.
        (self.draw() >> 40) as f32 * 2f32.powi(-23) - 1.0
    }
}

/// Fills the bytes of a tensor: floats uniform in [-1, 1), 8- and 16-bit integers over their range, wider integers from
/// 0 to 3 (they are often indices), booleans with equal probability.
pub fn fill(ty: TensorType, bytes: &mut [u8], generator: &mut SplitMix64) {
    fn each<const N: usize>(bytes: &mut [u8], mut next: impl FnMut() -> [u8; N]) {
        bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|chunk| *chunk = next());
    }
    let g = generator;
    match ty {
        // Strings stay empty.
        TensorType::String => {}
        TensorType::Float32 => each(bytes, || g.draw_f32().to_le_bytes()),
        TensorType::Float64 => each(bytes, || f64::from(g.draw_f32()).to_le_bytes()),
        TensorType::Complex64 => each(bytes, || g.draw_f32().to_le_bytes()),
        TensorType::Complex128 => each(bytes, || f64::from(g.draw_f32()).to_le_bytes()),
        TensorType::Float16 => each(bytes, || half::f16::from_f32(g.draw_f32()).to_le_bytes()),
        TensorType::BFloat16 => each(bytes, || half::bf16::from_f32(g.draw_f32()).to_le_bytes()),
        TensorType::Int32 | TensorType::UInt32 => each(bytes, || ((g.draw() % 4) as u32).to_le_bytes()),
        TensorType::Int64 | TensorType::UInt64 => each(bytes, || (g.draw() % 4).to_le_bytes()),
        TensorType::Int16 | TensorType::UInt16 => each(bytes, || ((g.draw() >> 48) as u16).to_le_bytes()),
        TensorType::Bool => each(bytes, || [(g.draw() >> 63) as u8]),
        _ => each(bytes, || [(g.draw() >> 56) as u8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_fixed() {
        // The script that writes the goldens tests the same numbers.
        let mut g = SplitMix64::new(0);
        let first: Vec<u64> = (0..2).map(|_| g.draw()).collect();
        let mut again = SplitMix64::new(0);
        assert_eq!(first, [again.draw(), again.draw()]);
        assert_ne!(SplitMix64::new(0).for_input(1).draw(), SplitMix64::new(0).for_invocation(1).draw());
        assert_eq!(SplitMix64::new(7).for_input(2).for_invocation(3).draw(), 0x1543_C4DB_1B9E_430C);
        assert!((0..1000).map(|_| g.draw_f32()).all(|v| (-1.0..1.0).contains(&v)));
    }
}
