//! SOFTMAX and LOG_SOFTMAX.

use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

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

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When a row is empty, `beta` isn't positive, or a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.rows, self.depth])?;
        if self.depth == 0 || self.beta.is_nan() || self.beta <= 0.0 {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let vec4 = self.depth.is_multiple_of(4);
        let depth = if vec4 { self.depth / 4 } else { self.depth };
        // Side by side, so that a row's reads are neighbours; on a CPU a row to an invocation is best.
        let (split, workgroup) = match () {
            () if caps.software => (1, 8),
            () if depth < 32 => (1, 64),
            () => (64, 64),
        };
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/softmax.wgsl"))
            .number("UNIFORM", 2)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", split)
            .flag("ALONG", true)
            .flag("VEC4", vec4)
            .flag("LOG", self.log)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: Uniform::default().u32s([self.rows, depth]).f32(self.beta).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), u64::from(workgroup / split))?,
            features: Features::default(),
        })
    }
}
