//! LOCAL_RESPONSE_NORMALIZATION.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "local_response_normalization";

/// `x / (bias + alpha * sum of the squares of the neighbours along the channels)^beta`.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The product of all extents but the last.
    pub pixels: u32,
    /// The last extent.
    pub channels: u32,
    /// How many neighbours on either side are summed.
    pub radius: u32,
    /// Added to the sum.
    pub bias: f32,
    /// What the sum of squares is multiplied by.
    pub alpha: f32,
    /// The power.
    pub beta: f32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let extents = [self.pixels, self.channels];
        elements(NAME, &extents)?;
        let walk = Walk::new(NAME, caps, &extents)?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/local_response_normalization.wgsl")))
            .number("UNIFORM", 2)
            .render()?;
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32(self.radius.min(self.channels))
            .f32s([self.bias, self.alpha, self.beta]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
