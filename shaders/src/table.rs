//! Functions of one integer by a table of all results.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "table";

/// `output[i] = table[input[i]]`, on words. Negative inputs count from the table's end.
///
/// Bindings: `Input(0)` (the table), `Input(1)` (what is looked up), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Length of the table, a power of two.
    pub entries: u32,
    /// Elements of input and output.
    pub elements: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the table's length is no power of two, or the tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.elements])?;
        if !self.entries.is_power_of_two() {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let vec4 = self.elements.is_multiple_of(4);
        let count = if vec4 { self.elements / 4 } else { self.elements };
        let walk = Walk::new(NAME, caps, &[count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/table.wgsl")))
            .number("UNIFORM", 3)
            .flag("VEC4", vec4)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(self.entries - 1);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
