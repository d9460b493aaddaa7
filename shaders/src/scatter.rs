//! SCATTER_ND.

use crate::binding::bindings;
use crate::element::Element;
use crate::kernel::looped;
use crate::shape::{INDEX_DEPTHS, MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "scatter";

/// Returns the maximum number of comparisons of elements with tuples, which take a device about a second.
const fn max_comparisons(caps: &Caps) -> u64 {
    if caps.software { 1 << 29 } else { 1 << 33 }
}

/// Zeros, to which the updates `[tuples, inner…]` are added at 32-bit index tuples, in order; booleans are or-ed. Tuples
/// outside of the output are ignored.
///
/// Bindings: `Input(0)` (the indices), `Input(1)` (the updates), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Element type of updates and output.
    pub element: Element,
    /// Shape of the output.
    pub output: Vec<u32>,
    /// Number of index tuples.
    pub tuples: u32,
    /// Number of indices of a tuple, for the output's leading dimensions.
    pub depth: usize,
}

impl Shader for Spec {
    /// # Errors
    /// For an empty output, tuples of more indices than the output has dimensions or more than six, more than 2^33
    /// comparisons (2^29 on a software device), and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let bad = || ShaderError::contradiction(NAME, self);
        let (sizes, inner) = self.output.split_at_checked(self.depth).ok_or_else(bad)?;
        let count = elements(NAME, &self.output)?;
        if count == 0 {
            return Err(bad());
        }
        if self.depth > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("tuples of {} indices; {MAX_RANK} are supported", self.depth),
            ));
        }
        let most = max_comparisons(caps);
        if u64::from(count) * u64::from(self.tuples) > most {
            let text =
                format!("{} updates of {count} elements; products up to {most} are supported", self.tuples);
            return Err(ShaderError::unsupported(NAME, text));
        }
        let (places, inner) = (elements(NAME, sizes)?, elements(NAME, inner)?);
        elements(NAME, &[self.tuples, inner])?;
        let walk = Walk::new(NAME, caps, &[places, inner])?.looping(caps, looped(self.tuples, 0));
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/scatter.wgsl")))
            .number("DEPTH", u32::try_from(self.depth).unwrap_or(u32::MAX))
            .flag("OR", self.element == Element::Bool)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl());
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(self.tuples);
        let indexed = sizes.iter().zip(dense_strides(sizes));
        let uniform = indexed.fold(uniform, |uniform, (size, stride)| uniform.u32s([*size, stride]));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&INDEX_DEPTHS)
    }
}
