//! Conversion of integers from one scale to another: QUANTIZE between integers, and the sums of MEAN and SUM.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "rescale";

/// A real factor as `multiplier * 2^(shift - 31)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Factor {
    /// Non-negative.
    pub multiplier: i32,
    /// From -31 to 30.
    pub shift: i32,
}

/// The factor of a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum By {
    /// In fixed point: `(x - before) * factor`, rounded twice.
    Fixed {
        /// Subtracted before the product.
        before: i32,
        /// The factor.
        factor: Factor,
        /// `[size, count]`: in each group of `size` neighbouring elements, the first `count` round halves upwards after
        /// the shift, and the others away from zero.
        up: [u32; 2],
    },
    /// In single precision: `x * scale + bias`, rounded after each operation and finally to the nearest integer, halves
    /// away from zero.
    Real {
        /// The factor.
        scale: f32,
        /// Added to the product.
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
    /// Added to the product. A sum beyond 32 bits saturates or wraps, see `saturates`.
    pub after: i32,
    /// Whether adding `after` saturates; otherwise it wraps.
    pub saturates: bool,
    /// Minimum of the results.
    pub low: i32,
    /// Maximum of the results.
    pub high: i32,
    /// Elements of input and output.
    pub elements: u32,
}

impl Shader for Spec {
    /// # Errors
    /// For elements that do not come in whole groups, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.elements])?;
        let (before, factor, [of, up], scale, bias) = match self.by {
            By::Fixed { before, factor, up } => (before, factor, up, 0.0, 0.0),
            By::Real { scale, bias } => (0, Factor::default(), [self.elements, 0], scale, bias),
        };
        if of == 0 || !self.elements.is_multiple_of(of) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let vec4 = Threshold::VECTORS.holds(of) && Threshold::VECTORS.holds(up);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::new(NAME, caps, &[self.elements / of, of / unit])?;
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/rescale.wgsl")))
            .flag("VEC4", vec4)
            .flag("REAL", matches!(self.by, By::Real { .. }))
            .flag("SATURATES", self.saturates);
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .i32s([before, factor.multiplier, factor.shift])
            .u32(up / unit)
            .i32s([self.after, self.low, self.high])
            .f32s([scale, bias])
            .u32(0);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::VECTORS])
    }
}
