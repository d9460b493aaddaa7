//! Builds uniform blocks: 32-bit scalars in the order of the WGSL struct, padded to 16 bytes.

/// A uniform block under construction.
#[derive(Default)]
pub(crate) struct Uniform(Vec<u8>);

impl Uniform {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32s(self, values: impl IntoIterator<Item = u32>) -> Self {
        values.into_iter().fold(self, Self::u32)
    }

    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn i32s(self, values: impl IntoIterator<Item = i32>) -> Self {
        values.into_iter().fold(self, Self::i32)
    }

    pub(crate) fn f32(mut self, value: f32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn f32s(self, values: impl IntoIterator<Item = f32>) -> Self {
        values.into_iter().fold(self, Self::f32)
    }

    /// Returns the bytes, padded to a multiple of 16, the granularity of uniform bindings.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(16), 0);
        self.0
    }
}
