//! LOCAL_RESPONSE_NORMALIZATION.

use crate::binding::bindings;
use crate::kernel::looped;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "local_response_normalization";

/// `x / (bias + alpha * sum of the squares of the neighbours along the channels)^beta`.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Product of all extents but the last.
    pub pixels: u32,
    /// The last extent.
    pub channels: u32,
    /// Number of neighbours on either side that are summed.
    pub radius: u32,
    /// Added to the sum.
    pub bias: f32,
    /// Factor of the sum of squares.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let extents = [self.pixels, self.channels];
        elements(NAME, &extents)?;
        let window = looped((2 * u64::from(self.radius) + 1).min(self.channels.into()), 0);
        let walk = Walk::new(NAME, caps, &extents)?.looping(caps, window);
        let template =
            walk.apply(Template::new(NAME, include_str!("wgsl/local_response_normalization.wgsl")));
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32(self.radius.min(self.channels))
            .f32s([self.bias, self.alpha, self.beta]);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
