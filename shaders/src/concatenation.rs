//! CONCATENATION, and with it PACK, whose inputs have an extent of one along the axis.

use crate::copy::{self, Copy, signed};
use crate::shape::{Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, OtherSizes, ShaderError};

const NAME: &str = "concatenation";

/// Inputs joined along an axis, for elements of 32 bits. One dispatch per input, in any order; each writes its part of the
/// output.
///
/// Bindings of the kernel of input `i`: `Input(i)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shapes of the inputs, equal in all dimensions but the axis.
    pub inputs: Vec<Vec<u32>>,
    /// The dimension along which inputs are joined.
    pub axis: usize,
}

impl Spec {
    /// Returns the shape of the output.
    ///
    /// # Errors
    /// For no inputs, shapes that contradict each other, and an output of 2^31 elements or more.
    pub fn output(&self) -> Result<Vec<u32>, ShaderError> {
        let bad = || ShaderError::contradiction(NAME, self);
        let mut output = self.inputs.first().cloned().ok_or_else(bad)?;
        let mut total = 0_u32;
        for input in &self.inputs {
            let along = *input.get(self.axis).ok_or_else(bad)?;
            total = total.checked_add(along).ok_or_else(bad)?;
            let same = |(d, (a, b)): (usize, (&u32, &u32))| d == self.axis || a == b;
            if input.len() != output.len() || !input.iter().zip(&output).enumerate().all(same) {
                return Err(bad());
            }
        }
        *output.get_mut(self.axis).ok_or_else(bad)? = total;
        elements(NAME, &output)?;
        Ok(output)
    }

    /// Returns a kernel per input.
    ///
    /// # Errors
    /// For shapes that contradict each other, more than 256 inputs, and a tensor larger than one dispatch reaches.
    pub fn kernels(&self, caps: &Caps) -> Result<Vec<Kernel>, ShaderError> {
        (0..self.inputs.len()).map(|part| self.kernel(part, caps)).collect()
    }

    /// Returns the variants that the kernels of other sizes need.
    pub fn other_sizes(&self) -> OtherSizes {
        copy::other_sizes()
    }

    /// Returns the kernel of one input.
    ///
    /// # Errors
    /// See [`Spec::kernels`]; also for a `part` that is not the index of an input.
    pub fn kernel(&self, part: usize, caps: &Caps) -> Result<Kernel, ShaderError> {
        let strides = dense_strides(&self.output()?);
        let missing = || ShaderError::invalid(NAME, format!("input {part} of {}", self.inputs.len()));
        let input = self.inputs.get(part).ok_or_else(missing)?;
        let last = self.inputs.len().saturating_sub(1);
        let (Ok(number), Ok(_)) = (u8::try_from(part), u8::try_from(last)) else {
            return Err(ShaderError::unsupported(
                NAME,
                format!("{} inputs; 256 are supported", self.inputs.len()),
            ));
        };
        let step = i64::from(strides.get(self.axis).copied().unwrap_or(0));
        let before = self.inputs.iter().take(part).filter_map(|input| input.get(self.axis));
        let to = step * before.copied().map(i64::from).sum::<i64>();
        let nest =
            Nest { extents: input.clone(), strides: [signed(&dense_strides(input)), signed(&strides)] };
        Copy { name: NAME, input: Binding::Input(number), nest, from: 0, to }.kernel(caps)
    }
}
