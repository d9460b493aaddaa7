//! CONCATENATION, and with it PACK, whose inputs have an extent of one along the axis.

use crate::copy::{Copy, signed};
use crate::shape::{Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, ShaderError};

const NAME: &str = "concatenation";

/// Inputs one after the other along an axis, for elements of 32 bits. One dispatch per input, in any
/// order, all writing parts of the same output.
///
/// Bindings of the kernel of input `i`: `Input(i)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shapes of the inputs, equal but for the axis.
    pub inputs: Vec<Vec<u32>>,
    /// The dimension along which they are joined.
    pub axis: usize,
}

impl Spec {
    /// Shape of the output.
    ///
    /// # Errors
    /// When the inputs don't fit together.
    pub fn output(&self) -> Result<Vec<u32>, ShaderError> {
        let bad = || ShaderError::invalid(NAME, format!("{self:?}"));
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

    /// A kernel per input.
    ///
    /// # Errors
    /// When the inputs don't fit together, and when there are more than 256 of them.
    pub fn kernels(&self, caps: &Caps) -> Result<Vec<Kernel>, ShaderError> {
        let strides = dense_strides(&self.output()?);
        let step = i64::from(strides.get(self.axis).copied().unwrap_or(0));
        let mut to = 0;
        let mut kernels = Vec::with_capacity(self.inputs.len());
        for (i, input) in self.inputs.iter().enumerate() {
            let number = u8::try_from(i)
                .map_err(|_| ShaderError::unsupported(NAME, format!("{} inputs", self.inputs.len())))?;
            let nest =
                Nest { extents: input.clone(), strides: [signed(&dense_strides(input)), signed(&strides)] };
            kernels.push(Copy { name: NAME, input: Binding::Input(number), nest, from: 0, to }.kernel(caps)?);
            to += step * i64::from(input.get(self.axis).copied().unwrap_or(0));
        }
        Ok(kernels)
    }
}
