//! CAST between elements of one 32-bit word.

use std::borrow::Cow;

use crate::binding::bindings;
use crate::element::Element;
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "cast";

/// `output[i] = input[i]`, as another element. Floats become integers by rounding towards zero, within the range of the
/// integer; integers wrap to fewer bits; every value but zero is true.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Element type of the input.
    pub input: Element,
    /// Element type of the output.
    pub output: Element,
    /// For integer outputs below 32 bits: their bits, and whether they are signed.
    pub narrow: Option<(u32, bool)>,
    /// Elements of input and output.
    pub elements: u32,
}

impl Spec {
    /// Returns the conversion's name in keys, and its WGSL expression of `v`.
    fn conversion(&self) -> (Cow<'static, str>, Cow<'static, str>) {
        match (self.input, self.output, self.narrow) {
            // WGSL converts a float above the range to the largest float within it.
            (Element::F32, Element::I32, None) => {
                ("value".into(), "select(B(v), B(2147483647), v >= A(2147483648.0))".into())
            }
            (Element::F32, Element::U32, _) => {
                ("value".into(), "select(B(v), B(4294967295u), v >= A(4294967296.0))".into())
            }
            (Element::F32, Element::I32, Some((bits, signed))) => {
                let (low, high) = if signed { (-(1 << (bits - 1)), 1 << (bits - 1)) } else { (0, 1 << bits) };
                // NaN becomes the maximum.
                let number = format!("clamp(v, A({low}.0), A({}.0))", high - 1);
                let text = format!("B(select(A({}.0), {number}, v == v))", high - 1);
                (format!("float{bits}{signed}").into(), text.into())
            }
            (_, Element::I32, Some((bits, signed))) => {
                let low = if signed {
                    format!("extractBits(B(v), 0u, {bits}u)")
                } else {
                    format!("B(v) & B({})", (1 << bits) - 1)
                };
                (format!("low{bits}{signed}").into(), low.into())
            }
            (_, Element::Bool, _) => ("truth".into(), "select(B(1u), B(0u), v == A(0))".into()),
            _ => ("value".into(), "B(v)".into()),
        }
    }

    fn variant(&self, caps: &Caps, vec4: bool) -> Variant {
        let (from, to) = (self.input.wgsl(), self.output.wgsl());
        let (short, conversion) = self.conversion();
        let template = Template::new(NAME, include_str!("wgsl/cast.wgsl"))
            .flag("VEC4", vec4)
            .text("FROM", from, from)
            .text("TO", to, to)
            .text("CONVERSION", short, conversion);
        walk::apply(template, caps, 1).variant(NAME, bindings(1))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = Threshold::VECTORS.holds(self.elements);
        let count = if vec4 { self.elements / 4 } else { self.elements };
        let walk = Walk::new(NAME, caps, &[count])?;
        Ok(Kernel {
            variant: self.variant(caps, vec4),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants([true, false].map(|vec4| self.variant(caps, vec4)))
    }
}
