//! SOFTMAX of 8-bit integers.

use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "softmax_quantized";

/// Of each row, `exp(x - max) / sum(exp(x - max))` in steps, where a table has the exponentials of differences. Sums and
/// products are rounded in the order in which kernels on CPUs compute them.
///
/// Bindings: `Input(0)`, `Input(1)` (256 floats: the exponential of each difference to the largest), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent.
    pub depth: u32,
    /// The step of the output.
    pub scale: f32,
    /// What stands for zero in the output; `None`: 0, and a half is added and the rest cut off instead of rounding.
    pub zero: Option<i32>,
    /// The lowest and the highest result.
    pub range: [i32; 2],
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When a row is empty or a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.depth])? == 0 {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let (split, workgroup) = match () {
            () if caps.software => (1, 8),
            () if self.depth < 32 => (1, 64),
            () => (64, 64),
        };
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/softmax_quantized.wgsl"))
            .number("UNIFORM", 3)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", split)
            .flag("ALONG", true)
            .flag("CUT", self.zero.is_none())
            .render()?;
        let uniform = Uniform::default().u32s([self.rows, self.depth]).f32(self.scale);
        let uniform = uniform.i32(self.zero.unwrap_or(0)).i32s(self.range).u32(0);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), u64::from(workgroup / split))?,
            features: Features::default(),
        })
    }
}
