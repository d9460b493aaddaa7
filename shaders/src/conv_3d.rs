//! CONV_3D and CONV_3D_TRANSPOSE.

use crate::binding::bindings;
use crate::epilogue::Activation;
use crate::kernel::nested;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "conv_3d";

/// Convolution in three dimensions, or its transpose. The filter has the model's layout: `[depth, height, width, in, out]`,
/// for the transpose `[depth, height, width, out, in]`.
///
/// Bindings: `Input(0)` (the input), `Input(1)` (the filter), `Input(2)` (the bias, where there is one), `Output`,
/// `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Whether this is the transpose of a convolution from the output to the input.
    pub transposed: bool,
    /// `[batch, depth, height, width, channels]`
    pub input: [u32; 5],
    /// `[batch, depth, height, width, channels]`
    pub output: [u32; 5],
    /// `[depth, height, width]`
    pub window: [u32; 3],
    /// `[depth, height, width]`
    pub stride: [u32; 3],
    /// `[depth, height, width]`
    pub dilation: [u32; 3],
    /// Before the input, or for the transpose before the output: `[depth, height, width]`
    pub padding: [i32; 3],
    /// Whether a bias is added.
    pub bias: bool,
    /// Applied to the result. Not [`Activation::Prelu`].
    pub activation: Activation,
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, positions beyond 2^30, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let Self { input, output, window, stride, dilation, .. } = self;
        let empty = [*window, *stride, *dilation].as_flattened().contains(&0)
            || [*input, *output].as_flattened().contains(&0);
        if empty || input[0] != output[0] || self.activation == Activation::Prelu {
            return Err(ShaderError::contradiction(NAME, self));
        }
        elements(NAME, input)?;
        elements(NAME, output)?;
        let [depth, height, width] = *window;
        elements(NAME, &[depth, height, width, input[4], output[4]])?;
        // The maximum distance of a tap from the input; positions are signed.
        let reach = |d: usize| {
            let taps = u64::from(window[d]) * u64::from(dilation[d]);
            taps + u64::from(output[d + 1]) * u64::from(stride[d]) + u64::from(self.padding[d].unsigned_abs())
        };
        if (0..3).any(|d| reach(d) > 1 << 30) {
            return Err(ShaderError::unsupported(NAME, format!("positions beyond 2^30: {self:?}")));
        }
        let vec4 = !self.transposed && Threshold::VECTORS.holds(output[4]);
        let unit = if vec4 { 4 } else { 1 };
        let [n, z, y, x, c] = *output;
        let loops = nested([depth, height, width, input[4]]);
        let walk = Walk::new(NAME, caps, &[n, z, y, x, c / unit])?.looping(caps, loops);
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/conv_3d.wgsl")))
            .flag("BIAS", self.bias)
            .flag("TRANSPOSED", self.transposed)
            .flag("VEC4", vec4)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        let uniform = (0..3).rev().fold(uniform, |uniform, d| {
            uniform.u32s([input[d + 1], window[d], stride[d], dilation[d]]).i32(self.padding[d])
        });
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2 + u8::from(self.bias))),
            uniform: uniform.u32(input[4]).f32s(self.activation.params()).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::VECTORS])
    }
}
