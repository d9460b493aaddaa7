//! GATHER.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "gather";

/// `output[batch…, outer…, index…, inner…] = input[batch…, outer…, indices[batch…, index…], inner…]`, for
/// elements of 32 bits and 32-bit indices. Negative indices count from the end; one that lies outside the
/// input gives zero.
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
    /// Leading dimensions that input and indices have in common.
    pub batch_dims: usize,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When shapes, axis and batch dimensions contradict each other.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let bad = || ShaderError::invalid(NAME, format!("{self:?}"));
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
        let vec4 = inner.is_multiple_of(4);
        let inner = if vec4 { inner / 4 } else { inner };
        let walk = Walk::new(NAME, caps, &[batch, outer, picked, inner])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/gather.wgsl")))
            .number("UNIFORM", 3)
            .flag("VEC4", vec4)
            .render()?;
        let uniform = walk.dimensions(walk.uniform().u32(axis), |uniform, _| uniform);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
