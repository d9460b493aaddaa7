//! SOFTMAX of 16-bit integers.

use crate::kernel::linear_dispatch;
use crate::rescale::Factor;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "softmax_wide";

/// Of each row, `exp(x - max) / sum(exp(x - max))`, in the field's arithmetic for 16 bits.
///
/// Bindings: `Input(0)`, `Input(1)` (513 points of `exp`, then 513 of an inverse, 128 values apart), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent, at most 65535.
    pub depth: u32,
    /// From the input's scale to that of `exp`.
    pub to_table: Factor,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When a row is empty or too long, or a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.depth])? == 0 || self.depth > u16::MAX.into() {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let (split, workgroup) = match () {
            () if caps.software => (1, 8),
            () if self.depth < 32 => (1, 64),
            () => (64, 64),
        };
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/softmax_wide.wgsl"))
            .number("UNIFORM", 3)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", split)
            .flag("ALONG", true)
            .render()?;
        let uniform = Uniform::default().u32s([self.rows, self.depth]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.i32s([self.to_table.multiplier, self.to_table.shift]).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), u64::from(workgroup / split))?,
            features: Features::default(),
        })
    }
}
