//! Fully connected layers: convolutions over an image of one row.

use crate::conv_2d;
use crate::epilogue::Epilogue;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "fully_connected";

/// `output = epilogue(input · transpose(filter) + bias)`, with constant weights. Weights that the model computes take a
/// [`batch_matmul`](crate::batch_matmul) with a transposed second operand.
///
/// Bindings: `Input(0)`, `Weights`, `Output`, `Uniform`, then those of the epilogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Rows of input and output: the product of all extents but the last.
    pub rows: u32,
    /// Elements of an input row.
    pub inputs: u32,
    /// Elements of an output row.
    pub outputs: u32,
    /// Applied to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    /// Returns `filter` (`[outputs, inputs]`) and `bias` (one value per output; `None` for zeros) as the kernel reads
    /// them. Values missing from the slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        self.convolution().pack_weights(filter, bias)
    }

    /// Returns integer weights (`[outputs, inputs]`), packed as by [convolutions](crate::conv_2d::Spec::pack_integers).
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        self.convolution().pack_integers(filter, channels)
    }

    fn convolution(&self) -> conv_2d::Spec {
        conv_2d::Spec {
            input: [1, 1, self.rows, self.inputs],
            output: [1, 1, self.rows, self.outputs],
            filter: [self.outputs, 1, 1, self.inputs],
            stride: [1; 2],
            dilation: [1; 2],
            padding: [0; 2],
            epilogue: self.epilogue,
        }
    }
}

impl Shader for Spec {
    /// # Errors
    /// For an extent of zero, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let mut kernel = self.convolution().kernel(caps)?;
        kernel.variant.name = NAME;
        Ok(kernel)
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        let mut sizes = self.convolution().other_sizes(caps);
        if let OtherSizes::Variants(variants) = &mut sizes {
            variants.iter_mut().for_each(|variant| variant.name = NAME);
        }
        sizes
    }
}
