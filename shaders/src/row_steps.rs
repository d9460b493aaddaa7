//! Quantization of rows of floats to 8-bit integers, with the scales of `row_scales`.

use crate::binding::bindings;
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "row_steps";

/// The integers nearest to the elements of the input.
///
/// Bindings: `Input(0)`, `Input(1)` (the rows' scales), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Rows of the input.
    pub rows: u32,
    /// Elements of a row.
    pub depth: u32,
    /// Minimum of the integers.
    pub low: i32,
}

impl Spec {
    fn variant(&self, caps: &Caps, vec4: bool) -> Variant {
        let template = Template::new(NAME, include_str!("wgsl/row_steps.wgsl")).flag("VEC4", vec4);
        walk::apply(template, caps, 2).variant(NAME, bindings(2))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = Threshold::VECTORS.holds(self.depth);
        let depth = if vec4 { self.depth / 4 } else { self.depth };
        let walk = Walk::new(NAME, caps, &[self.rows, depth])?;
        Ok(Kernel {
            variant: self.variant(caps, vec4),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).i32(self.low).u32(0).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants([true, false].map(|vec4| self.variant(caps, vec4)))
    }
}
