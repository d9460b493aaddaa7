//! SLICE, STRIDED_SLICE, REVERSE, and with them SPLIT and UNPACK, whose outputs are slices.

use crate::copy::{Copy, signed};
use crate::shape::{Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, ShaderError};

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
    /// Step per dimension; negative ones walk backwards.
    pub step: Vec<i32>,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When an index lies outside the input, and when more than six dimensions remain after merging
    /// those that are taken whole.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
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
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let dense = dense_strides(&self.input);
        let from = dense.iter().zip(&self.begin).map(|(s, b)| i64::from(*s) * i64::from(*b)).sum();
        let steps = dense.iter().zip(&self.step).map(|(s, step)| i64::from(*s) * i64::from(*step)).collect();
        let nest =
            Nest { extents: self.output.clone(), strides: [steps, signed(&dense_strides(&self.output))] };
        Copy { name: NAME, input: Binding::Input(0), nest, from, to: 0 }.kernel(caps)
    }
}
