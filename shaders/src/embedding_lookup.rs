//! EMBEDDING_LOOKUP in tables of small integers.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "embedding_lookup";

/// `output[i, j] = table[ids[i], j] * scale`, for signed integers that are packed into words, the first in the lowest bits.
/// The result is zero for an id outside of the table.
///
/// Bindings: `Input(0)` (the table), `Input(1)` (the ids), `Input(2)` (a scale for each row, or one), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Bits of an integer: 2, 4 or 8.
    pub bits: u32,
    /// Rows of the table.
    pub rows: u32,
    /// Elements of a row.
    pub columns: u32,
    /// Number of ids.
    pub ids: u32,
    /// Whether each row has a scale of its own.
    pub scale_per_row: bool,
}

impl Shader for Spec {
    /// # Errors
    /// For a table without rows, integers of other sizes, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.columns])?;
        if self.rows == 0 || ![2, 4, 8].contains(&self.bits) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let walk = Walk::new(NAME, caps, &[self.ids, self.columns])?;
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/embedding_lookup.wgsl")))
            .number("BITS", self.bits);
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(3)),
            uniform: uniform.u32s([self.rows, u32::from(self.scale_per_row)]).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
