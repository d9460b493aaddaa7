//! L2_NORMALIZATION.

use crate::binding::bindings;
use crate::kernel::linear_dispatch;
use crate::reduce::RowSplit;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "l2_normalization";

/// `x / max(sqrt(sum(x^2)), 1e-6)` along rows.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent.
    pub depth: u32,
    /// Present for integers, in the fixed-point arithmetic of CPU kernels.
    pub integers: Option<Bytes>,
}

/// Quantization of 8-bit input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Zero point of the input.
    pub input_zero: i32,
    /// Zero point of the output, whose scale is 1/128.
    pub zero: i32,
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
        let vec4 = Threshold::VECTORS.holds(self.depth) && self.integers.is_none();
        let depth = if vec4 { self.depth / 4 } else { self.depth };
        let split = RowSplit::new(caps, depth);
        let template = split
            .apply(Template::new(NAME, include_str!("wgsl/l2_normalization.wgsl")))
            .flag("VEC4", vec4)
            .flag("INTEGERS", self.integers.is_some())
            .flag("UNSIGNED", self.integers.is_some_and(|bytes| bytes.range[0] == 0));
        let uniform = Uniform::default().u32s([self.rows, depth]);
        let uniform = match self.integers {
            Some(bytes) => uniform.i32s([bytes.input_zero, bytes.zero]).i32s(bytes.range),
            None => uniform,
        };
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), split.rows())?,
            iterations: split.iterations(3, depth),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::thresholds(RowSplit::thresholds(caps).iter().chain(&[Threshold::VECTORS]))
    }
}
