//! TILE and BROADCAST_TO.

use crate::copy::{self, Copy, signed};
use crate::shape::{Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "tile";

/// The input repeated `multiples[d]` times along each dimension, for elements of 32 bits. Broadcasting to a shape repeats
/// dimensions of extent one.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Repetitions per dimension.
    pub multiples: Vec<u32>,
}

impl Shader for Spec {
    /// # Errors
    /// For different ranks, more than six dimensions after merging those that are not repeated, and a tensor larger
    /// than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if self.input.len() != self.multiples.len() {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let too_large = || {
            ShaderError::unsupported(
                NAME,
                format!(
                    "{:?} times {:?} has 2^31 elements or more; fewer are supported",
                    self.input, self.multiples
                ),
            )
        };
        let output: Option<Vec<u32>> =
            self.input.iter().zip(&self.multiples).map(|(n, times)| n.checked_mul(*times)).collect();
        let output = output.ok_or_else(too_large)?;
        elements(NAME, &output)?;
        // Every dimension is divided into two: repetitions, with a stride of 0 in the input, and the input's elements.
        let (from, to) = (dense_strides(&self.input), dense_strides(&output));
        let pairs = |outer: Vec<u32>, inner: &[u32]| -> Vec<u32> {
            outer.iter().zip(inner).flat_map(|(o, i)| [*o, *i]).collect()
        };
        let still = vec![0; from.len()];
        let leaps = to.iter().zip(&self.input).map(|(s, n)| s.saturating_mul(*n)).collect();
        let nest = Nest {
            extents: pairs(self.multiples.clone(), &self.input),
            strides: [signed(&pairs(still, &from)), signed(&pairs(leaps, &to))],
        };
        Copy { name: NAME, input: Binding::Input(0), nest, from: 0, to: 0 }.kernel(caps)
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        copy::other_sizes()
    }
}
