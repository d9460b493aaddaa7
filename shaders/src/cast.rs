//! CAST between the elements that take a 32-bit word.

use crate::element::Element;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "cast";

/// `output[i] = input[i]`, as another element. Floats become integers by rounding towards zero, within the
/// range of an `i32`; anything but zero is true.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What the input holds.
    pub input: Element,
    /// What the output holds.
    pub output: Element,
    /// Elements of each.
    pub elements: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = self.elements.is_multiple_of(4);
        let count = if vec4 { self.elements / 4 } else { self.elements };
        let (from, to) = (self.input.wgsl(), self.output.wgsl());
        let (short, conversion) = match (self.input, self.output) {
            (_, Element::Bool) => ("truth", "select(B(0u), B(1u), v != A(0))"),
            _ => ("value", "B(v)"),
        };
        let walk = Walk::new(NAME, caps, &[count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/cast.wgsl")))
            .number("UNIFORM", 2)
            .flag("VEC4", vec4)
            .text("FROM", from, from)
            .text("TO", to, to)
            .text("CONVERSION", short, conversion)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
