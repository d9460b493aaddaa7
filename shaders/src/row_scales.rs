//! Scales with which rows of floats are quantized to 8-bit integers.

use crate::binding::bindings;
use crate::kernel::{linear_dispatch, looped};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "row_scales";
const WORKGROUP: u32 = 64;

/// Four floats per row of the input: the scale of its integers, their zero point, the reciprocal of the scale, and 0.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Rows of the input.
    pub rows: u32,
    /// Elements of a row.
    pub depth: u32,
    /// Whether the integers cover the range from the minimum to the maximum of the row. Otherwise the largest magnitude
    /// becomes 127.
    pub asymmetric: bool,
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.depth])?;
        let template = Template::new(NAME, include_str!("wgsl/row_scales.wgsl"))
            .number("WORKGROUP", WORKGROUP)
            .flag("ASYMMETRIC", self.asymmetric);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: Uniform::default().u32s([self.rows, self.depth, 0]).finish(),
            dispatch: linear_dispatch(NAME, caps, self.rows.into(), 1)?,
            iterations: looped(self.depth.div_ceil(WORKGROUP), 0) + looped(WORKGROUP.ilog2(), 0),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
