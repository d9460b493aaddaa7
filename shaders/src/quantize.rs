//! QUANTIZE and DEQUANTIZE: between integers with a scale and the real numbers that they stand for.

use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "quantize";

/// What integers stand for: `real = scale * (integer - zero)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// One step.
    pub scale: f32,
    /// What stands for zero.
    pub zero: i32,
    /// The lowest integer.
    pub low: i32,
    /// The highest integer.
    pub high: i32,
}

/// The direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// [`Element::I32`](crate::Element::I32) to [`Element::F32`](crate::Element::F32).
    ToReal,
    /// To the nearest integer by the inverse of the scale, of two equally near ones the even one. But those elements
    /// that are left of eights are divided by the scale, and go to the one away from zero: what the field's kernel does.
    ToEven,
    /// To the nearest integer, of two equally near ones the one away from zero.
    Away,
}

/// `output[i] = scale * (input[i] - zero)`, or `input[i] / scale + zero` rounded and limited to the range.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// What the integers stand for.
    pub affine: Affine,
    /// Which side is the input.
    pub direction: Direction,
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
        let walk = Walk::new(NAME, caps, &[count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/quantize.wgsl")))
            .number("UNIFORM", 2)
            .flag("VEC4", vec4)
            .flag("TO_REAL", self.direction == Direction::ToReal)
            .flag("AWAY", self.direction == Direction::Away)
            .flag("LEFT", self.direction == Direction::ToEven && !self.elements.is_multiple_of(8))
            .render()?;
        let Affine { scale, zero, low, high } = self.affine;
        let factor = match self.direction {
            Direction::ToReal => scale,
            _ => (1.0 / f64::from(scale)) as f32,
        };
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: walk
                .dimensions(walk.uniform(), |uniform, _| uniform)
                .f32(factor)
                .i32s([zero, low, high])
                .f32(scale)
                .u32(self.elements / 8 * 8 / if vec4 { 4 } else { 1 })
                .finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
