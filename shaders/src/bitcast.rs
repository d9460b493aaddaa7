//! BITCAST between elements of 8, 16 and 32 bits.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "bitcast";

/// Reinterprets the bits of integers (or 32-bit floats). The first of several elements has the lowest bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Bits of an element of the input: 8, 16 or 32.
    pub from: u32,
    /// Bits of an element of the output.
    pub to: u32,
    /// Whether the output's elements are signed, where they have fewer bits than a word.
    pub signed: bool,
    /// Elements of the output.
    pub elements: u32,
}

impl Shader for Spec {
    /// # Errors
    /// For elements of other sizes, an output that is not a whole number of input elements, and a tensor larger than one
    /// dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let Self { from, to, signed, elements: count } = *self;
        elements(NAME, &[count, 4])?;
        if ![from, to].iter().all(|bits| [8, 16, 32].contains(bits))
            || !count.is_multiple_of(from.div_ceil(to))
        {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let walk = Walk::new(NAME, caps, &[count])?;
        let template =
            walk.apply(Template::new(NAME, include_str!("wgsl/bitcast.wgsl"))).flag("WIDENS", from <= to);
        let unused = 32 - to;
        let mask = if signed { u32::MAX } else { u32::MAX >> unused };
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([from, to, unused, mask]);
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
