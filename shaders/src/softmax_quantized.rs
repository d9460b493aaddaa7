//! SOFTMAX of 8-bit integers.

use crate::binding::bindings;
use crate::kernel::{linear_dispatch, looped};
use crate::reduce::RowSplit;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "softmax_quantized";

/// `exp(x - max) / sum(exp(x - max))` of each row, quantized. Exponentials come from a table. Sums and products are rounded
/// in the order of the CPU kernels.
///
/// Bindings: `Input(0)`, `Input(1)` (256 floats: the exponential of each difference to the maximum), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent.
    pub depth: u32,
    /// Scale of the output.
    pub scale: f32,
    /// Zero point of the output. `None`: the zero point is 0, and results are truncated after adding a half instead of
    /// rounded.
    pub zero: Option<i32>,
    /// Minimum and maximum of the results.
    pub range: [i32; 2],
}

impl Shader for Spec {
    /// # Errors
    /// For an empty input, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.depth])? == 0 {
            let why = format!("{} rows of {} elements", self.rows, self.depth);
            return Err(ShaderError::invalid(NAME, why));
        }
        let split = RowSplit::new(caps, self.depth);
        let template = split
            .apply(Template::new(NAME, include_str!("wgsl/softmax_quantized.wgsl")))
            .flag("CUT", self.zero.is_none());
        let uniform = Uniform::default().u32s([self.rows, self.depth]).f32(self.scale);
        let uniform = uniform.i32(self.zero.unwrap_or(0)).i32s(self.range).u32(0);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), split.rows())?,
            // The exponentials of a row are added one after the other.
            iterations: split.iterations(3, self.depth) + looped(self.depth, 0),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::thresholds(RowSplit::thresholds(caps))
    }
}
