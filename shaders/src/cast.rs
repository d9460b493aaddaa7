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
    /// Bits of an integer output, and whether it is signed, where it holds less than a word.
    pub narrow: Option<(u32, bool)>,
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
            (Element::F32, Element::I32) if self.narrow.is_some() => {
                let (bits, signed) = self.narrow.unwrap_or_default();
                let (low, high) = if signed { (-(1 << (bits - 1)), 1 << (bits - 1)) } else { (0, 1 << bits) };
                // Not a number becomes the highest.
                let number = format!("clamp(v, A({low}.0), A({}.0))", high - 1);
                (format!("float{bits}{signed}"), format!("B(select(A({}.0), {number}, v == v))", high - 1))
            }
            (_, Element::I32) if self.narrow.is_some() => {
                let (bits, signed) = self.narrow.unwrap_or_default();
                let low = if signed {
                    format!("extractBits(B(v), 0u, {bits}u)")
                } else {
                    format!("B(v) & B({})", (1 << bits) - 1)
                };
                (format!("low{bits}{signed}"), low)
            }
            (_, Element::Bool) => ("truth".into(), "select(B(1u), B(0u), v == A(0))".into()),
            _ => ("value".into(), "B(v)".into()),
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
