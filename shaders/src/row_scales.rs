//! Scales with which rows of floats are quantized to 8-bit integers.

use crate::binding::bindings;
use crate::kernel::{linear_dispatch, looped};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Variant};

const NAME: &str = "row_scales";
const WORKGROUP: u32 = 64;
/// Rows that occupy a device with one invocation each, and that take long if each has a workgroup, however short it is.
const MANY_ROWS: u32 = 1 << 16;

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

impl Spec {
    /// `alone`: whether an invocation computes a row.
    fn variant(&self, alone: bool) -> Variant {
        Template::new(NAME, include_str!("wgsl/row_scales.wgsl"))
            .number("WORKGROUP", WORKGROUP)
            .number("STEP", if alone { 1 } else { WORKGROUP })
            .flag("ALONE", alone)
            .flag("ASYMMETRIC", self.asymmetric)
            .variant(NAME, bindings(1))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.depth])?;
        let alone = self.depth <= WORKGROUP || self.rows >= MANY_ROWS;
        let (per_group, iterations) = match alone {
            true => (WORKGROUP, looped(self.depth, 0)),
            false => (1, looped(self.depth.div_ceil(WORKGROUP), 0) + looped(WORKGROUP.ilog2(), 0)),
        };
        Ok(Kernel {
            variant: self.variant(alone),
            uniform: Uniform::default().u32s([self.rows, self.depth, 0]).finish(),
            dispatch: linear_dispatch(NAME, caps, self.rows.into(), per_group.into())?,
            iterations,
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        match self.depth <= WORKGROUP {
            true => OtherSizes::SAME,
            false => OtherSizes::variants([true, false].map(|alone| self.variant(alone))),
        }
    }
}
