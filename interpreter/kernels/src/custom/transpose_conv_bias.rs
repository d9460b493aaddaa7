//! The custom op `Convolution2DTransposeBias`.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::transpose_conv_bias::{NAME, TransposeConvBiasParams};
use delegraph_core::ops::{InferError, TensorType};
use delegraph_core::{Error, MutableOpResolver, Registration, Result};

use crate::common::pace::Pace;
use crate::common::prepared::unsupported_type;
use crate::reference::{Scatter, repeat_bias};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let registration = Registration::new(|cx| {
        let params = TransposeConvBiasParams::read(cx.custom_options).map_err(invalid)?;
        Ok(TransposeConvBias { params, scatter: Scatter::default() })
    });
    resolver.add_custom(NAME, registration, 1);
}

struct TransposeConvBias {
    params: TransposeConvBiasParams,
    scatter: Scatter,
}

impl Kernel for TransposeConvBias {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let (input, weights, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        for (what, tensor) in
            [("input", input), ("weights", weights), ("bias", bias), ("output", cx.output(0)?)]
        {
            if tensor.ty() != TensorType::Float32 {
                return Err(unsupported_type(what, tensor));
            }
        }
        let output = self.params.output(input.shape(), weights.shape(), bias.shape());
        let (shape, padding) = output.map_err(invalid)?;
        let strides = [self.params.stride_h, self.params.stride_w];
        self.scatter = Scatter::new(input.shape(), weights.shape(), &shape, strides, padding);
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, weights, bias) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.input::<f32>(2)?);
        let output = cx.output::<f32>(0)?;
        repeat_bias(bias, output, &mut Pace::new(cx))?;
        self.scatter.run(cx.parallel(), input, weights, output, |sum, x, w| sum + x * w);
        Ok(())
    }
}

fn invalid(error: InferError) -> Error {
    Error::InvalidNode(error.to_string())
}
