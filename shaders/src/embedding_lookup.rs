//! EMBEDDING_LOOKUP in tables of small integers.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "embedding_lookup";

/// `output[i, j] = table[ids[i], j] * scale`, for signed integers of which a word holds several, the first in the lowest
/// bits. An id that no row has gives zeros.
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
    /// Ids.
    pub ids: u32,
    /// Whether each row has a scale of its own.
    pub scale_per_row: bool,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the table has no rows, for integers of other sizes, and when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.columns])?;
        if self.rows == 0 || ![2, 4, 8].contains(&self.bits) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let walk = Walk::new(NAME, caps, &[self.ids, self.columns])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/embedding_lookup.wgsl")))
            .number("UNIFORM", 4)
            .number("BITS", self.bits)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![
                Binding::Input(0),
                Binding::Input(1),
                Binding::Input(2),
                Binding::Output,
                Binding::Uniform,
            ],
            uniform: uniform.u32s([self.rows, u32::from(self.scale_per_row)]).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
