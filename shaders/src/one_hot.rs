//! ONE_HOT.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "one_hot";

/// `output[outer, class, inner] = indices[outer, inner] == class ? on : off`, for elements of 32 bits.
///
/// Bindings: `Input(0)` (32-bit indices), `Input(1)` (on, one element), `Input(2)` (off, one element), `Output`,
/// `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Product of the indices' extents before the new dimension.
    pub outer: u32,
    /// Extent of the new dimension.
    pub depth: u32,
    /// Product of the indices' extents after the new dimension.
    pub inner: u32,
}

impl Shader for Spec {
    /// # Errors
    /// For an output larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let extents = [self.outer, self.depth, self.inner];
        elements(NAME, &extents)?;
        let walk = Walk::new(NAME, caps, &extents)?;
        let template = walk.apply(Template::new(NAME, include_str!("wgsl/one_hot.wgsl")));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(3)),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
