//! GATHER_ND.

use crate::binding::bindings;
use crate::shape::{INDEX_DEPTHS, MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "gather_nd";

/// `output[tuple, inner…] = input[indices[tuple, 0], …, indices[tuple, depth - 1], inner…]`, for elements of 32 bits
/// and 32-bit indices. The result is zero for a tuple outside of the input.
///
/// Bindings: `Input(0)` (the input), `Input(1)` (the indices), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Number of index tuples.
    pub tuples: u32,
    /// Number of indices of a tuple, for the input's leading dimensions; at least one.
    pub depth: usize,
}

impl Shader for Spec {
    /// # Errors
    /// For an empty input, tuples of no indices, of more than the input has dimensions or of more than six, and for a
    /// tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let bad = || ShaderError::contradiction(NAME, self);
        let (sizes, inner) = self.input.split_at_checked(self.depth).ok_or_else(bad)?;
        if elements(NAME, &self.input)? == 0 || self.depth == 0 {
            return Err(bad());
        }
        if self.depth > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("tuples of {} indices; {MAX_RANK} are supported", self.depth),
            ));
        }
        let inner = elements(NAME, inner)?;
        elements(NAME, &[self.tuples, inner])?;
        let vec4 = Threshold::VECTORS.holds(inner);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::new(NAME, caps, &[self.tuples, inner / unit])?;
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/gather_nd.wgsl")))
            .number("DEPTH", u32::try_from(self.depth).unwrap_or(u32::MAX))
            .flag("VEC4", vec4);
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        let strides = dense_strides(&self.input);
        let places = sizes.iter().zip(&strides);
        let uniform = places.fold(uniform, |uniform, (size, stride)| uniform.u32s([*size, stride / unit]));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(INDEX_DEPTHS.iter().chain(&[Threshold::VECTORS]))
    }
}
