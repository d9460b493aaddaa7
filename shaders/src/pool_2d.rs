//! AVERAGE_POOL_2D and MAX_POOL_2D.

use crate::element::Element;
use crate::epilogue::Activation;
use crate::reduce::{self, Reduce};
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "pool_2d";

/// What becomes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// The average of what lies inside the image.
    Average,
    /// The largest.
    Max,
}

/// `output = activation(pool of each window)`.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What becomes of a window.
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
    /// Of integers: the lowest and the highest result. Averages round halves away from zero, and nothing activates.
    pub integers: Option<[i32; 2]>,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the shapes contradict each other or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let Self { input, output, window, .. } = self;
        let fits = ![*input, *output].as_flattened().contains(&0)
            && ![*window, self.stride].as_flattened().contains(&0)
            && (input[0], input[3]) == (output[0], output[3])
            && self.activation != Activation::Prelu
            && (self.integers.is_none() || self.activation == Activation::None);
        if !fits {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let whole = *output == [input[0], 1, 1, input[3]] && *window == [input[1], input[2]];
        if self.padding == [0; 2] && whole && self.integers.is_none() {
            return self.whole_image(caps);
        }
        elements(NAME, output)?;
        elements(NAME, input)?;
        let vec4 = input[3].is_multiple_of(4);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::columns(NAME, caps, &[output[2], output[3] / unit], output[0] * output[1])?;
        let start = match self.op {
            Pool::Average => "T()",
            Pool::Max => "input[((image + u32(y0)) * u32(p.in_w) + u32(x0)) * p.extent_0 + digit_0]",
        };
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/pool_2d.wgsl")))
            .number("UNIFORM", 2)
            .flag("VEC4", vec4)
            .flag("AVERAGE", self.op == Pool::Average)
            .flag("INTEGERS", self.integers.is_some())
            .text("START", "", start)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"))
            .render()?;
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([input[1], input[2], output[1]])
            .u32s(*window)
            .u32s(self.stride)
            .i32s(self.padding)
            .f32s(self.activation.params())
            .i32s(self.integers.unwrap_or_default());
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch_rows(caps, output[1], output[0])?,
            features: Features::default(),
        })
    }

    /// One window that is the whole image: a reduction, which several invocations can share.
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
