//! L2_NORMALIZATION.

use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

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
    /// Of integers, in the fixed-point arithmetic of kernels on CPUs.
    pub integers: Option<Bytes>,
}

/// Bytes to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// What stands for zero in the input.
    pub input_zero: i32,
    /// What stands for zero in the output, whose step is 1/128.
    pub zero: i32,
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
        let vec4 = self.depth.is_multiple_of(4) && self.integers.is_none();
        let depth = if vec4 { self.depth / 4 } else { self.depth };
        // As for softmax: a row to an invocation on a CPU, else side by side.
        let (split, workgroup) = match () {
            () if caps.software => (1, 8),
            () if depth < 32 => (1, 64),
            () => (64, 64),
        };
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/l2_normalization.wgsl"))
            .number("UNIFORM", 2)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", split)
            .flag("ALONG", true)
            .flag("VEC4", vec4)
            .flag("INTEGERS", self.integers.is_some())
            .flag("UNSIGNED", self.integers.is_some_and(|bytes| bytes.range[0] == 0))
            .render()?;
        let uniform = Uniform::default().u32s([self.rows, depth]);
        let uniform = match self.integers {
            Some(bytes) => uniform.i32s([bytes.input_zero, bytes.zero]).i32s(bytes.range),
            None => uniform,
        };
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), u64::from(workgroup / split))?,
            features: Features::default(),
        })
    }
}
