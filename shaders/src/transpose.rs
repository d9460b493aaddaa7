//! Transposition.

use crate::copy::{self, Copy, signed};
use crate::shape::{Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "transpose";

/// Output dimension `d` is input dimension `permutation[d]`, for elements of 32 bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// The input dimension of each output dimension.
    pub permutation: Vec<usize>,
}

impl Shader for Spec {
    /// # Errors
    /// For an invalid `permutation`, and for more than six dimensions after merging neighbours that stay together.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &self.input)?;
        let strides = dense_strides(&self.input);
        let mut used = self.permutation.clone();
        used.sort_unstable();
        if !used.iter().copied().eq(0..self.input.len()) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let pick = |from: &[u32]| -> Vec<u32> {
            self.permutation.iter().filter_map(|d| from.get(*d).copied()).collect()
        };
        let extents = pick(&self.input);
        let nest = Nest { strides: [signed(&pick(&strides)), signed(&dense_strides(&extents))], extents };
        Copy { name: NAME, input: Binding::Input(0), nest, from: 0, to: 0 }.kernel(caps)
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        copy::other_sizes()
    }
}
