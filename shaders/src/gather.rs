//! GATHER.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "gather";

/// `output[batch…, outer…, index…, inner…] = input[batch…, outer…, indices[batch…, index…], inner…]`, for
/// elements of 32 bits and 32-bit indices. Negative indices count from the end. The result is zero for an index outside of
/// the input.
///
/// Bindings: `Input(0)` (the input), `Input(1)` (the indices), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Shape of the indices.
    pub indices: Vec<u32>,
    /// The dimension of the input that is indexed.
    pub axis: usize,
    /// Number of leading dimensions that input and indices share.
    pub batch_dims: usize,
}

impl Shader for Spec {
    /// # Errors
    /// For shapes, axis and batch dimensions that contradict each other, an empty axis, and a tensor larger than one
    /// dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let bad = || ShaderError::contradiction(NAME, self);
        elements(NAME, &self.input)?;
        elements(NAME, &self.indices)?;
        let batch = self.input.get(..self.batch_dims).ok_or_else(bad)?;
        let outer = self.input.get(self.batch_dims..self.axis).ok_or_else(bad)?;
        let axis = *self.input.get(self.axis).ok_or_else(bad)?;
        let inner = self.input.get(self.axis + 1..).ok_or_else(bad)?;
        let picked = self.indices.get(self.batch_dims..).ok_or_else(bad)?;
        if self.indices.get(..self.batch_dims) != Some(batch) || axis == 0 {
            return Err(bad());
        }
        elements(NAME, &[batch, outer, picked, inner].concat())?;
        let [batch, outer, picked, inner] =
            [elements(NAME, batch)?, elements(NAME, outer)?, elements(NAME, picked)?, elements(NAME, inner)?];
        let vec4 = Threshold::VECTORS.holds(inner);
        let inner = if vec4 { inner / 4 } else { inner };
        let walk = Walk::new(NAME, caps, &[batch, outer, picked, inner])?;
        let template = walk.apply(Template::new(NAME, include_str!("wgsl/gather.wgsl"))).flag("VEC4", vec4);
        let uniform = walk.dimensions(walk.uniform().u32(axis), |uniform, _| uniform);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::VECTORS])
    }
}
