//! Rows of floats as integers of 8 bits, with the scales that `row_scales` found.

use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

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
    /// The lowest integer.
    pub low: i32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = self.depth.is_multiple_of(4);
        let depth = if vec4 { self.depth / 4 } else { self.depth };
        let walk = Walk::new(NAME, caps, &[self.rows, depth])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/row_steps.wgsl")))
            .number("UNIFORM", 3)
            .flag("VEC4", vec4)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).i32(self.low).u32(0).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
