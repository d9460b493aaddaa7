//! SLICE, STRIDED_SLICE, REVERSE, and with them SPLIT and UNPACK, whose outputs are slices.

use crate::copy::{self, Copy, signed};
use crate::shape::{MAX_RANK, Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError, Variant};

const NAME: &str = "slice";

/// `output[i, j, …] = input[begin[0] + i * step[0], begin[1] + j * step[1], …]`, for elements of 32 bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Shape of the output, of the same rank (dimensions that a slice drops have an extent of one).
    pub output: Vec<u32>,
    /// First index per dimension.
    pub begin: Vec<u32>,
    /// Step per dimension; a negative one reverses the order.
    pub step: Vec<i32>,
}

/// Returns the variants of all slices of tensors of up to `rank` dimensions.
pub fn variants(caps: &Caps, rank: usize) -> impl Iterator<Item = Variant> {
    let caps = *caps;
    let of_rank =
        move |rank| [true, false].map(|vec4| copy::variant(NAME, &caps, Binding::Input(0), rank, vec4));
    (1..=rank.min(MAX_RANK)).flat_map(of_rank)
}

impl Shader for Spec {
    /// # Errors
    /// For different ranks, an index outside of the input, more than six dimensions after merging those that are copied
    /// whole, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &self.input)?;
        elements(NAME, &self.output)?;
        let rank = self.input.len();
        let inside = |d: usize| -> Option<bool> {
            let (begin, extent) = (i64::from(*self.begin.get(d)?), i64::from(*self.input.get(d)?));
            let (step, count) = (i64::from(*self.step.get(d)?), i64::from(*self.output.get(d)?));
            let last = begin + (count - 1) * step;
            Some(count == 0 || (begin < extent && (0..extent).contains(&last)))
        };
        if [self.output.len(), self.begin.len(), self.step.len()] != [rank; 3]
            || !(0..rank).all(|d| inside(d) == Some(true))
        {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let dense = dense_strides(&self.input);
        let from = dense.iter().zip(&self.begin).map(|(s, b)| i64::from(*s) * i64::from(*b)).sum();
        let steps = dense.iter().zip(&self.step).map(|(s, step)| i64::from(*s) * i64::from(*step)).collect();
        let nest =
            Nest { extents: self.output.clone(), strides: [steps, signed(&dense_strides(&self.output))] };
        Copy { name: NAME, input: Binding::Input(0), nest, from, to: 0 }.kernel(caps)
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        copy::other_sizes()
    }
}
