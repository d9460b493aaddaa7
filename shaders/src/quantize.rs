//! QUANTIZE and DEQUANTIZE: between quantized integers and the real numbers that they represent.

use crate::binding::bindings;
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "quantize";

/// Number of elements that TFLite's kernel converts at once.
const TOGETHER: u32 = 8;
/// Whether TFLite's kernel converts all elements in groups of eight.
const EIGHTS: Threshold = Threshold::MultipleOf(TOGETHER);

/// A quantization: `real = scale * (integer - zero)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Difference between neighbouring integers.
    pub scale: f32,
    /// Zero point.
    pub zero: i32,
    /// Minimum of the integers.
    pub low: i32,
    /// Maximum of the integers.
    pub high: i32,
}

/// The direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// [`Element::I32`](crate::Element::I32) to [`Element::F32`](crate::Element::F32).
    ToReal,
    /// To the nearest integer, as TFLite's kernel computes it: multiplied by the reciprocal of the scale, halves to even.
    /// The elements after the last group of eight are divided by the scale, halves away from zero.
    ToEven,
    /// To the nearest integer, halves away from zero.
    Away,
}

/// `output[i] = scale * (input[i] - zero)`, or `input[i] / scale + zero` rounded and limited to the range.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Quantization of the integers.
    pub affine: Affine,
    /// From integers or to them.
    pub direction: Direction,
    /// Elements of input and output.
    pub elements: u32,
}

impl Spec {
    /// Returns the variant. With `eights`, the number of elements is a multiple of eight.
    fn variant(&self, caps: &Caps, vec4: bool, eights: bool) -> Variant {
        let template = Template::new(NAME, include_str!("wgsl/quantize.wgsl"))
            .flag("VEC4", vec4)
            .flag("TO_REAL", self.direction == Direction::ToReal)
            .flag("AWAY", self.direction == Direction::Away)
            .flag("LEFT", self.direction == Direction::ToEven && !eights);
        walk::apply(template, caps, 1).variant(NAME, bindings(1))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = Threshold::VECTORS.holds(self.elements);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::new(NAME, caps, &[self.elements / unit])?;
        let Affine { scale, zero, low, high } = self.affine;
        let factor = match self.direction {
            Direction::ToReal => scale,
            _ => (1.0 / f64::from(scale)) as f32,
        };
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .f32(factor)
            .i32s([zero, low, high])
            .f32(scale)
            .u32(self.elements / TOGETHER * TOGETHER / unit);
        Ok(Kernel {
            variant: self.variant(caps, vec4, EIGHTS.holds(self.elements)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        // A multiple of eight is also a multiple of four.
        let kinds = [(true, true), (true, false), (false, false)];
        OtherSizes::variants(kinds.map(|(vec4, eights)| self.variant(caps, vec4, eights)))
    }
}
