//! AVERAGE_POOL_2D and MAX_POOL_2D.

use crate::binding::bindings;
use crate::element::Element;
use crate::epilogue::Activation;
use crate::kernel::nested;
use crate::reduce::{self, Reduce};
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "pool_2d";

/// The operation that combines the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Average of the elements inside of the image.
    Average,
    /// Maximum.
    Max,
}

/// `output = activation(pool of each window)`.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The operation.
    pub op: Pool,
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// `[height, width]`
    pub window: [u32; 2],
    /// `[height, width]`
    pub stride: [u32; 2],
    /// Rows above and columns left of the input.
    pub padding: [i32; 2],
    /// Applied to the result. Not [`Activation::Prelu`].
    pub activation: Activation,
    /// Minimum and maximum of the results, for integers: averages round halves away from zero, and there is no activation.
    pub integers: Option<[i32; 2]>,
}

impl Spec {
    /// Returns the kernel of one window that covers the image: a reduction, which several invocations can share.
    fn whole_image(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let op = match self.op {
            Pool::Average => Reduce::Mean,
            Pool::Max => Reduce::Max,
        };
        reduce::Spec {
            op,
            element: Element::F32,
            input: self.input.to_vec(),
            axes: vec![1, 2],
            activation: self.activation,
        }
        .kernel(caps)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let Self { input, output, window, .. } = self;
        let fits = ![*input, *output].as_flattened().contains(&0)
            && ![*window, self.stride].as_flattened().contains(&0)
            && (input[0], input[3]) == (output[0], output[3])
            && self.activation != Activation::Prelu
            && (self.integers.is_none() || self.activation == Activation::None);
        if !fits {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let whole = *output == [input[0], 1, 1, input[3]] && *window == [input[1], input[2]];
        if self.padding == [0; 2] && whole && self.integers.is_none() {
            return self.whole_image(caps);
        }
        elements(NAME, output)?;
        elements(NAME, input)?;
        let vec4 = Threshold::VECTORS.holds(input[3]);
        let unit = if vec4 { 4 } else { 1 };
        let loops = nested([window[0].min(input[1]), window[1].min(input[2])]);
        let walk = Walk::columns(NAME, caps, &[output[2], output[3] / unit], output[0] * output[1])?;
        let walk = walk.looping(caps, loops);
        let start = match self.op {
            Pool::Average => "T()",
            Pool::Max => "input[((image + u32(y0)) * u32(p.in_w) + u32(x0)) * p.extent_0 + digit_0]",
        };
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/pool_2d.wgsl")))
            .flag("VEC4", vec4)
            .flag("AVERAGE", self.op == Pool::Average)
            .flag("INTEGERS", self.integers.is_some())
            .text("START", "", start)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([input[1], input[2], output[1]])
            .u32s(*window)
            .u32s(self.stride)
            .i32s(self.padding)
            .f32s(self.activation.params())
            .i32s(self.integers.unwrap_or_default());
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch_rows(caps, output[1], output[0])?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        // A window that covers the image is a reduction.
        let image = self.window.map(Threshold::Exactly);
        OtherSizes::thresholds(reduce::thresholds(caps).iter().chain(&image))
    }
}
