//! SOFTMAX of 16-bit integers.

use crate::binding::bindings;
use crate::kernel::linear_dispatch;
use crate::reduce::RowSplit;
use crate::rescale::Factor;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "softmax_wide";

/// `exp(x - max) / sum(exp(x - max))` of each row, in TFLite's 16-bit arithmetic.
///
/// Bindings: `Input(0)`, `Input(1)` (513 points of `exp(x)`, then 513 of `1 / (1 + x)`, 128 values apart), `Output`,
/// `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent, at most 65535.
    pub depth: u32,
    /// From the input's scale to that of `exp`.
    pub to_table: Factor,
}

impl Shader for Spec {
    /// # Errors
    /// For an empty input, rows of more than 65535 elements, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.depth])? == 0 || self.depth > u16::MAX.into() {
            let (rows, depth) = (self.rows, self.depth);
            let why = format!(
                "shape [{rows}, {depth}]; only rows of 1 to 65535 elements are supported, at least one"
            );
            return Err(ShaderError::invalid(NAME, why));
        }
        let split = RowSplit::new(caps, self.depth);
        let template = split.apply(Template::new(NAME, include_str!("wgsl/softmax_wide.wgsl")));
        let uniform = Uniform::default().u32s([self.rows, self.depth]);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.i32s([self.to_table.multiplier, self.to_table.shift]).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), split.rows())?,
            iterations: split.iterations(3, self.depth),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::thresholds(RowSplit::thresholds(caps))
    }
}
