//! Functions of one integer, as a table of all results.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "table";

/// `output[i] = table[input[i]]`, on words. Negative inputs count from the table's end.
///
/// Bindings: `Input(0)` (the table), `Input(1)` (its indices), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Length of the table, a power of two.
    pub entries: u32,
    /// Elements of input and output.
    pub elements: u32,
}

impl Spec {
    fn variant(&self, caps: &Caps, vec4: bool) -> Variant {
        let template = Template::new(NAME, include_str!("wgsl/table.wgsl")).flag("VEC4", vec4);
        walk::apply(template, caps, 1).variant(NAME, bindings(2))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a table whose length is not a power of two, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.elements])?;
        if !self.entries.is_power_of_two() {
            let why = format!("a table of {} entries; powers of two are supported", self.entries);
            return Err(ShaderError::invalid(NAME, why));
        }
        let vec4 = Threshold::VECTORS.holds(self.elements);
        let count = if vec4 { self.elements / 4 } else { self.elements };
        let walk = Walk::new(NAME, caps, &[count])?;
        Ok(Kernel {
            variant: self.variant(caps, vec4),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(self.entries - 1).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants([true, false].map(|vec4| self.variant(caps, vec4)))
    }
}
