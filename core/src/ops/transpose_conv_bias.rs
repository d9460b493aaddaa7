//! The custom op `Convolution2DTransposeBias`: a transposed convolution with a bias.
//!
//! Inputs: activations `[batch, height, width, in]`, weights `[out, kernel_h, kernel_w, in]`, bias `[out]`.

use super::{InferError, Padding};
use crate::error::counted;

/// The name of the op in models.
pub const NAME: &str = "Convolution2DTransposeBias";

/// Params of `Convolution2DTransposeBias`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TransposeConvBiasParams {
    /// `Same` crops the output so that a convolution over it would have the input's size; `Valid` crops nothing.
    pub padding: Padding,
    /// Output columns between two input columns.
    pub stride_w: usize,
    /// Output rows between two input rows.
    pub stride_h: usize,
}

impl TransposeConvBiasParams {
    /// Reads the node's options: padding, horizontal and vertical stride as 32-bit integers.
    ///
    /// # Errors
    /// If they are too short, or a stride is not positive.
    pub fn read(options: &[u8]) -> Result<Self, InferError> {
        let fields = options.as_chunks().0;
        let [padding, stride_w, stride_h, ..] = fields else {
            return Err(InferError::new(format!(
                "{} of options, expected 12",
                counted(options.len(), "byte")
            )));
        };
        let stride = |bytes: &[u8; 4]| {
            let stride = i32::from_le_bytes(*bytes);
            usize::try_from(stride)
                .ok()
                .filter(|&s| s > 0)
                .ok_or_else(|| InferError::new(format!("stride {stride} is not positive")))
        };
        let padding = if i32::from_le_bytes(*padding) == 1 { Padding::Same } else { Padding::Valid };
        Ok(TransposeConvBiasParams { padding, stride_w: stride(stride_w)?, stride_h: stride(stride_h)? })
    }

    /// Returns the output's shape, and the number of rows and columns that are cut off before its first.
    ///
    /// # Errors
    /// If the shapes do not fit each other.
    pub fn output(
        &self,
        input: &[usize],
        weights: &[usize],
        bias: &[usize],
    ) -> Result<([usize; 4], [usize; 2]), InferError> {
        let (&[batch, height, width, channels], &[out, kernel_h, kernel_w, weights_channels]) =
            (input, weights)
        else {
            return Err(InferError::new(format!("expected ranks of 4, got {input:?} and {weights:?}")));
        };
        if channels != weights_channels || bias != [out] {
            return Err(InferError::new(format!(
                "weights {weights:?} and a bias {bias:?} do not fit an input {input:?}"
            )));
        }
        let (height, top) = self.along(height, kernel_h, self.stride_h)?;
        let (width, left) = self.along(width, kernel_w, self.stride_w)?;
        Ok(([batch, height, width, out], [top, left]))
    }

    /// Output size and the number of elements cut off in front, along one dimension.
    fn along(&self, input: usize, kernel: usize, stride: usize) -> Result<(usize, usize), InferError> {
        let Some(steps) = input.checked_sub(1) else { return Ok((0, 0)) };
        let cut = match self.padding {
            Padding::Same => kernel.saturating_sub(steps % stride + 1),
            Padding::Valid => 0,
        };
        let full = steps.checked_mul(stride).and_then(|n| n.checked_add(kernel));
        let full = full.ok_or_else(|| InferError::new("the output's size overflows"))?;
        Ok((full - cut, cut / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(padding: i32, stride: i32) -> Result<TransposeConvBiasParams, InferError> {
        let options: Vec<u8> = [padding, stride, stride].iter().flat_map(|v| v.to_le_bytes()).collect();
        TransposeConvBiasParams::read(&options)
    }

    #[test]
    fn output_sizes() {
        let same = params(1, 2).unwrap();
        let output = |p: &TransposeConvBiasParams, size, kernel| {
            p.output(&[1, size, size, 3], &[5, kernel, kernel, 3], &[5])
        };
        assert_eq!(output(&same, 16, 2), Ok(([1, 32, 32, 5], [0, 0])));
        assert_eq!(output(&same, 4, 3), Ok(([1, 8, 8, 5], [0, 0])));
        assert_eq!(output(&same, 5, 3), Ok(([1, 9, 9, 5], [1, 1])));
        assert_eq!(output(&params(2, 2).unwrap(), 4, 3), Ok(([1, 9, 9, 5], [0, 0])));
        assert!(same.output(&[1, 4, 4, 3], &[5, 3, 3, 4], &[5]).is_err());
        assert!(params(1, 0).is_err());
        assert!(TransposeConvBiasParams::read(&[1, 0, 0, 0]).is_err());
    }
}
