//! SOFTMAX and LOG_SOFTMAX.

use crate::binding::bindings;
use crate::kernel::linear_dispatch;
use crate::reduce::RowSplit;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "softmax";

/// `exp(beta * x) / sum(exp(beta * x))` along rows, or its logarithm.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent.
    pub depth: u32,
    /// Factor of the inputs; positive.
    pub beta: f32,
    /// Whether the result is the logarithm.
    pub log: bool,
}

impl Shader for Spec {
    /// # Errors
    /// For an empty row, a `beta` that is not positive, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.depth])?;
        if self.depth == 0 || self.beta.is_nan() || self.beta <= 0.0 {
            let why = format!("rows of {} elements, beta {}", self.depth, self.beta);
            return Err(ShaderError::invalid(NAME, why));
        }
        let vec4 = Threshold::VECTORS.holds(self.depth);
        let depth = if vec4 { self.depth / 4 } else { self.depth };
        let split = RowSplit::new(caps, depth);
        let template = split
            .apply(Template::new(NAME, include_str!("wgsl/softmax.wgsl")))
            .flag("VEC4", vec4)
            .flag("LOG", self.log);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: Uniform::default().u32s([self.rows, depth]).f32(self.beta).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), split.rows())?,
            iterations: split.iterations(4, depth),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::thresholds(RowSplit::thresholds(caps).iter().chain(&[Threshold::VECTORS]))
    }
}
