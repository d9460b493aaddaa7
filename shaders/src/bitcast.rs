//! BITCAST between elements of 8, 16 and 32 bits.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "bitcast";

/// The bits of integers (or of 32-bit floats) as those of other ones. The first of several elements has the lowest bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Bits of an element of the input: 8, 16 or 32.
    pub from: u32,
    /// Bits of an element of the output.
    pub to: u32,
    /// Whether the output's elements have signs, where they have fewer bits than a word.
    pub signed: bool,
    /// Elements of the output.
    pub elements: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// For elements of other sizes, when those of the output are no whole number of the input's, and when a tensor is
    /// larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let Self { from, to, signed, elements: count } = *self;
        elements(NAME, &[count, 4])?;
        if ![from, to].iter().all(|bits| [8, 16, 32].contains(bits))
            || !count.is_multiple_of(from.div_ceil(to))
        {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let walk = Walk::new(NAME, caps, &[count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/bitcast.wgsl")))
            .number("UNIFORM", 2)
            .flag("WIDENS", from <= to)
            .render()?;
        let unused = 32 - to;
        let mask = if signed { u32::MAX } else { u32::MAX >> unused };
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([from, to, unused, mask]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
