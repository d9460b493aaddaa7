//! GATHER_ND.

use crate::shape::{MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "gather_nd";

/// `output[tuple, inner…] = input[indices[tuple, 0], …, indices[tuple, depth - 1], inner…]`, for elements of 32 bits
/// and 32-bit indices. A tuple that lies outside the input gives zeros.
///
/// Bindings: `Input(0)` (the input), `Input(1)` (the indices), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// How many index tuples there are.
    pub tuples: u32,
    /// How many leading dimensions of the input a tuple has indices for; at least one.
    pub depth: usize,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When tuples have more indices than the input has dimensions, and for more than six.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let bad = || ShaderError::invalid(NAME, format!("{self:?}"));
        let (sizes, inner) = self.input.split_at_checked(self.depth).ok_or_else(bad)?;
        if elements(NAME, &self.input)? == 0 || self.depth == 0 {
            return Err(bad());
        }
        if self.depth > MAX_RANK {
            return Err(ShaderError::unsupported(NAME, format!("tuples of {} indices", self.depth)));
        }
        let inner = elements(NAME, inner)?;
        elements(NAME, &[self.tuples, inner])?;
        let vec4 = inner.is_multiple_of(4);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::new(NAME, caps, &[self.tuples, inner / unit])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/gather_nd.wgsl")))
            .number("UNIFORM", 3)
            .number("DEPTH", u32::try_from(self.depth).unwrap_or(u32::MAX))
            .flag("VEC4", vec4)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        let strides = dense_strides(&self.input);
        let places = sizes.iter().zip(&strides);
        let uniform = places.fold(uniform, |uniform, (size, stride)| uniform.u32s([*size, stride / unit]));
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
