//! SCATTER_ND.

use crate::element::Element;
use crate::shape::{MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "scatter";

/// Tuples that all elements may look at together: what takes a device about a second.
const MOST: u64 = 1 << 33;

/// Zeros, to which the updates `[tuples, inner…]` are added at 32-bit index tuples, in their order; booleans are or-ed.
/// A tuple that lies outside of the output is left out.
///
/// Bindings: `Input(0)` (the indices), `Input(1)` (the updates), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What updates and output hold.
    pub element: Element,
    /// Shape of the output.
    pub output: Vec<u32>,
    /// How many index tuples there are.
    pub tuples: u32,
    /// How many leading dimensions of the output a tuple has indices for.
    pub depth: usize,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When tuples have more indices than the output has dimensions, for more than six, and when it takes too long.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let bad = || ShaderError::invalid(NAME, format!("{self:?}"));
        let (sizes, inner) = self.output.split_at_checked(self.depth).ok_or_else(bad)?;
        let count = elements(NAME, &self.output)?;
        if count == 0 {
            return Err(bad());
        }
        if self.depth > MAX_RANK {
            return Err(ShaderError::unsupported(NAME, format!("tuples of {} indices", self.depth)));
        }
        if u64::from(count) * u64::from(self.tuples) > MOST {
            let text = format!("{} updates of {count} elements", self.tuples);
            return Err(ShaderError::unsupported(NAME, text));
        }
        let (places, inner) = (elements(NAME, sizes)?, elements(NAME, inner)?);
        elements(NAME, &[self.tuples, inner])?;
        let walk = Walk::new(NAME, caps, &[places, inner])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/scatter.wgsl")))
            .number("UNIFORM", 3)
            .number("DEPTH", u32::try_from(self.depth).unwrap_or(u32::MAX))
            .flag("OR", self.element == Element::Bool)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl())
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(self.tuples);
        let indexed = sizes.iter().zip(dense_strides(sizes));
        let uniform = indexed.fold(uniform, |uniform, (size, stride)| uniform.u32s([*size, stride]));
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
