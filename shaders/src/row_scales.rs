//! Scales for rows of floats that are about to become integers of 8 bits.

use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "row_scales";
const WORKGROUP: u32 = 64;

/// Per row of the input four floats: the scale of its integers, what stands for zero, one over the scale, and a zero.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Rows of the input.
    pub rows: u32,
    /// Elements of a row.
    pub depth: u32,
    /// The range from the lowest to the highest element takes all integers; else the largest magnitude becomes 127.
    pub asymmetric: bool,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.depth])?;
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/row_scales.wgsl"))
            .number("UNIFORM", 2)
            .number("WORKGROUP", WORKGROUP)
            .flag("ASYMMETRIC", self.asymmetric)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: Uniform::default().u32s([self.rows, self.depth, 0]).finish(),
            dispatch: linear_dispatch(NAME, caps, self.rows.into(), 1)?,
            features: Features::default(),
        })
    }
}
