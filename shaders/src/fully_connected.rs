//! Fully connected layers: convolutions over an image of one row.

use crate::conv_2d;
use crate::epilogue::Epilogue;
use crate::{Caps, Kernel, ShaderError};

/// `output = epilogue(input · transpose(filter) + bias)`, with constant weights. Weights that are computed
/// by the model take a [`batch_matmul`](crate::batch_matmul) with a transposed second operand.
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
    /// What happens to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When an extent is zero or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let kernel = self.convolution().kernel(caps)?;
        Ok(Kernel { name: "fully_connected", ..kernel })
    }

    /// Lays `filter` (`[outputs, inputs]`) and `bias` (one per output; none: zeros) out as the kernel reads
    /// them. Values missing from the slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        self.convolution().pack_weights(filter, bias)
    }

    /// Lays out integer weights, as [convolutions](crate::conv_2d::Spec::pack_integers) do.
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
