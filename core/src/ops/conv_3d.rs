//! CONV_3D, CONV_3D_TRANSPOSE.

use smallvec::smallvec;

use super::conv_2d::check_bias;
use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, Padding, Window, always_1,
    options, per_weight, size_from, windowed_output,
};
use crate::error::counted;

ops! {
    CONV_3D {
        codec: Conv3DParams::CODEC,
        infer: infer_conv,
        min_version: always_1,
        multiply_adds: multiply_adds_conv,
        history: &[(1, "2.5.0")],
    }

    CONV_3D_TRANSPOSE {
        codec: Conv3DParams::CODEC,
        infer: infer_transpose,
        min_version: always_1,
        multiply_adds: multiply_adds_transpose,
        history: &[(1, "2.6.0")],
    }
}

options! {
    /// Params of CONV_3D, CONV_3D_TRANSPOSE. A transposed convolution has the params of the convolution that it
    /// transposes.
    Conv3D(Conv3DParams) in BuiltinOptions::Conv3DOptions(builtin_options_as_conv_3_doptions, Conv3DOptionsArgs) as TfLiteConv3DParams {
        /// The padding of the borders.
        padding: Padding;
        /// Columns between two positions of the filter.
        stride_w: i32;
        /// Rows between two positions of the filter.
        stride_h: i32;
        /// Planes between two positions of the filter.
        stride_d: i32;
        /// Columns between two columns of the filter; 1 for a dense filter.
        dilation_w_factor: i32;
        /// Rows between two rows of the filter; 1 for a dense filter.
        dilation_h_factor: i32;
        /// Planes between two planes of the filter; 1 for a dense filter.
        dilation_d_factor: i32;
        /// Applied to the result.
        fused_activation_function: Activation;
    }
}

impl Conv3DParams {
    /// Strides along depth, height and width.
    pub fn strides(&self) -> [i32; 3] {
        [self.stride_d, self.stride_h, self.stride_w]
    }

    /// Dilations along depth, height and width.
    pub fn dilations(&self) -> [i32; 3] {
        [self.dilation_d_factor, self.dilation_h_factor, self.dilation_w_factor]
    }

    /// Returns the number of positions of the filter along depth, height and width.
    fn windows(&self, input: [usize; 3], filter: [usize; 3]) -> Result<[usize; 3], InferError> {
        let (strides, dilations) = (self.strides(), self.dilations());
        let mut output = [0; 3];
        for (d, size) in output.iter_mut().enumerate() {
            let window = Window { size: filter[d], stride: strides[d], dilation: dilations[d] };
            *size = windowed_output(input[d], window, self.padding)?;
        }
        Ok(output)
    }
}

/// Input `[batch, depth, height, width, in]`, filter `[filter_d, filter_h, filter_w, in, out]`, bias `[out]`.
fn infer_conv(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=3, 1)?;
    let [batch, depth, height, width, channels] = cx.shape_of_rank(0, "the input")?;
    let [filter_d, filter_h, filter_w, filter_channels, out] = cx.shape_of_rank(1, "the filter")?;
    check_channels(filter_channels, channels)?;
    check_bias(cx, 2, out)?;
    let p: &Conv3DParams = cx.params()?;
    let [depth, height, width] = p.windows([depth, height, width], [filter_d, filter_h, filter_w])?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [batch, depth, height, width, out])])
}

/// Output shape `[5]`, filter `[filter_d, filter_h, filter_w, out, in]`, input `[batch, depth, height, width, in]`,
/// bias `[out]`.
fn infer_transpose(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=4, 1)?;
    let [filter_d, filter_h, filter_w, out, filter_channels] = cx.shape_of_rank(1, "the filter")?;
    let [batch, depth, height, width, channels] = cx.shape_of_rank(2, "the input")?;
    check_channels(filter_channels, channels)?;
    check_bias(cx, 3, out)?;
    let ty = cx.input(2)?.ty;
    let Some(wanted) = cx.input(0)?.integers()? else { return cx.data_dependent(ty) };
    let wanted = wanted.iter().map(|&n| size_from(n, "an output size")).collect::<Result<Vec<_>, _>>()?;
    let &[wanted_batch, out_d, out_h, out_w, wanted_out] = wanted.as_slice() else {
        return Err(InferError::new(format!(
            "an output shape of {}, expected 5",
            counted(wanted.len(), "number")
        )));
    };
    let p: &Conv3DParams = cx.params()?;
    let windows = p.windows([out_d, out_h, out_w], [filter_d, filter_h, filter_w])?;
    if wanted_batch != batch || wanted_out != out || windows != [depth, height, width] {
        return Err(InferError::new(format!(
            "an output of shape {wanted:?} does not fit an input of {batch} x {depth} x {height} x {width} and {}",
            counted(out, "channel")
        )));
    }
    Ok(smallvec![Inferred::known(ty, wanted.as_slice())])
}

fn check_channels(filter: usize, input: usize) -> Result<(), InferError> {
    if filter == input {
        return Ok(());
    }
    let filter = counted(filter, "channel");
    Err(InferError::new(format!("a filter for {filter} does not fit an input of {input}")))
}

fn multiply_adds_conv(s: &OpSignature<'_>) -> u64 {
    per_weight(s, 1, 4)
}

fn multiply_adds_transpose(s: &OpSignature<'_>) -> u64 {
    let channels = s.input(1).and_then(|w| w.shape.get(4)).map_or(1, |&n| n as u64).max(1);
    s.input_elements(2).saturating_mul(s.input_elements(1) / channels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{T, gives, refused};
    use crate::ops::{Params, TensorType};

    fn params(padding: Padding, stride: i32, dilation: i32) -> Params {
        Params::Conv3D(
            Conv3DParams::default()
                .padding(padding)
                .stride_d(stride)
                .stride_w(1)
                .stride_h(1)
                .dilation_w_factor(dilation),
        )
    }

    const F: TensorType = TensorType::Float32;

    #[test]
    fn windows_along_three_dimensions() {
        let inputs = |filter: &[usize]| [Some(T::new(F, &[2, 5, 6, 7, 3])), Some(T::new(F, filter)), None];
        let (same, valid) = (params(Padding::Same, 2, 1), params(Padding::Valid, 2, 2));
        gives(&CONV_3D, same.clone(), &inputs(&[3, 3, 3, 3, 4]), F, &[2, 3, 6, 7, 4]);
        gives(&CONV_3D, valid, &inputs(&[3, 2, 3, 3, 4]), F, &[2, 2, 5, 3, 4]);
        refused(
            &CONV_3D,
            same.clone(),
            &inputs(&[3, 3, 3, 2, 4]),
            1,
            "2 channels does not fit an input of 3",
        );
        refused(&CONV_3D, params(Padding::Same, 0, 1), &inputs(&[3, 3, 3, 3, 4]), 1, "stride 0");
        refused(&CONV_3D, same.clone(), &inputs(&[3, 3, 3, 3]), 1, "must have rank 5");
        let mut biased = inputs(&[3, 3, 3, 3, 4]);
        biased[2] = Some(T::new(F, &[3]));
        refused(&CONV_3D, same, &biased, 1, "bias");
    }

    #[test]
    fn a_transposed_convolution_has_the_size_asked_for() {
        let inputs = |shape: &[i32]| {
            let filter = T::new(F, &[3, 3, 3, 4, 2]);
            [Some(T::list(shape)), Some(filter), Some(T::new(F, &[1, 3, 6, 7, 2]))]
        };
        let same = || params(Padding::Same, 2, 1);
        gives(&CONV_3D_TRANSPOSE, same(), &inputs(&[1, 5, 6, 7, 4]), F, &[1, 5, 6, 7, 4]);
        gives(&CONV_3D_TRANSPOSE, same(), &inputs(&[1, 6, 6, 7, 4]), F, &[1, 6, 6, 7, 4]);
        refused(&CONV_3D_TRANSPOSE, same(), &inputs(&[1, 7, 6, 7, 4]), 1, "does not fit an input of 1 x 3");
        refused(&CONV_3D_TRANSPOSE, same(), &inputs(&[1, 5, 6, 7, 3]), 1, "does not fit");
        refused(&CONV_3D_TRANSPOSE, same(), &inputs(&[1, -5, 6, 7, 4]), 1, "-5 is negative");
        refused(&CONV_3D_TRANSPOSE, same(), &inputs(&[5, 6, 7, 4]), 1, "expected 5");
    }
}
