//! Random numbers that are equal in every run.

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// Creates stream `stream` of a generator with this seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Random(seed.wrapping_add(STEP.wrapping_mul(stream.wrapping_add(1))))
    }

    /// Returns the next 64 bits.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a float in [-1, 1).
    pub(crate) fn draw_f32(&mut self) -> f32 {
        // 24 bits are exact in a float.
        (self.draw() >> 40) as f32 * 2f32.powi(-23) - 1.0
    }
}
