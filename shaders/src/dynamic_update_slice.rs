//! DYNAMIC_UPDATE_SLICE.

use crate::binding::bindings;
use crate::shape::{MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "dynamic_update_slice";

/// The input, in which an update replaces the elements from computed 32-bit indices on, one per dimension. Indices are
/// clamped so that the update is inside of the input. For elements of 32 bits.
///
/// Bindings: `Input(0)` (the input), `Input(1)` (the update), `Input(2)` (the indices), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input; at least one dimension.
    pub input: Vec<u32>,
    /// Shape of the update, of the same rank.
    pub update: Vec<u32>,
}

impl Shader for Spec {
    /// # Errors
    /// For an update that is empty or exceeds the input, more than six dimensions, and a tensor larger than one
    /// dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let rank = self.input.len();
        let fits = rank > 0
            && rank == self.update.len()
            && self.update.iter().zip(&self.input).all(|(update, input)| (1..=*input).contains(update));
        if !fits {
            return Err(ShaderError::contradiction(NAME, self));
        }
        if rank > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("an update in {rank} dimensions; {MAX_RANK} are supported"),
            ));
        }
        elements(NAME, &self.input)?;
        let walk = Walk::new(NAME, caps, &self.input)?;
        let template = walk.apply(Template::new(NAME, include_str!("wgsl/dynamic_update_slice.wgsl")));
        let strides = dense_strides(&self.update);
        let uniform = walk.dimensions(walk.uniform(), |uniform, d| {
            uniform.u32s([&self.update, &strides].map(|of| of.get(d).copied().unwrap_or(1)))
        });
        Ok(Kernel {
            variant: template.variant(NAME, bindings(3)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
