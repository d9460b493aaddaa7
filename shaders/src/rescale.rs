//! Integers at one scale brought to another: QUANTIZE between integers, and what becomes of the sums of MEAN and SUM.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "rescale";

/// A real factor as `multiplier * 2^(shift - 31)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Factor {
    /// Not negative.
    pub multiplier: i32,
    /// From -31 to 30.
    pub shift: i32,
}

/// What an integer is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum By {
    /// In fixed point: `(x - before) * factor`, rounded twice.
    Fixed {
        /// Taken off in front.
        before: i32,
        /// What is left is multiplied by this.
        factor: Factor,
        /// Of so many neighbouring elements the first ones, which are so many, round halves upwards after the shift.
        up: [u32; 2],
    },
    /// In single precision: `x * scale + bias`, rounded after each operation and at last to the nearest integer, halves
    /// away from zero.
    Real {
        /// The factor.
        scale: f32,
        /// What is added.
        bias: f32,
    },
}

/// `output[i] = clamp(input[i] * by + after, low, high)` on integers.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The factor.
    pub by: By,
    /// Added to the product. A sum beyond 32 bits saturates where `saturates`, else it wraps around.
    pub after: i32,
    /// See `after`.
    pub saturates: bool,
    /// The lowest result.
    pub low: i32,
    /// The highest result.
    pub high: i32,
    /// Elements of each.
    pub elements: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When elements don't come in whole neighbourhoods, or are more than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.elements])?;
        let (before, factor, [of, up], scale, bias) = match self.by {
            By::Fixed { before, factor, up } => (before, factor, up, 0.0, 0.0),
            By::Real { scale, bias } => (0, Factor::default(), [self.elements, 0], scale, bias),
        };
        if of == 0 || !self.elements.is_multiple_of(of) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let vec4 = of.is_multiple_of(4) && up.is_multiple_of(4);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::new(NAME, caps, &[self.elements / of, of / unit])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/rescale.wgsl")))
            .number("UNIFORM", 2)
            .flag("VEC4", vec4)
            .flag("REAL", matches!(self.by, By::Real { .. }))
            .flag("SATURATES", self.saturates)
            .render()?;
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .i32s([before, factor.multiplier, factor.shift])
            .u32(up / unit)
            .i32s([self.after, self.low, self.high])
            .f32s([scale, bias])
            .u32(0);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
