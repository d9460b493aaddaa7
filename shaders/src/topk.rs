//! TOPK_V2.

use crate::element::Element;
use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "topk";

/// Elements that a workgroup may look at, over all of its rounds: what takes a device about a second.
const MOST: u64 = 1 << 31;

/// The 32-bit indices of the largest elements of each row, from the largest down, the first of equals first; what is
/// no number comes last. The elements themselves are a [gather](crate::gather) away.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What is compared.
    pub element: Element,
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent.
    pub size: u32,
    /// How many of each row.
    pub wanted: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When a row is empty or has fewer elements than wanted, when a tensor is larger than one dispatch reaches, and
    /// when it takes too long.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.size])? == 0 || self.wanted > self.size {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        if u64::from(self.size) * u64::from(self.wanted) > MOST {
            let text = format!("{} of {} elements of a row", self.wanted, self.size);
            return Err(ShaderError::unsupported(NAME, text));
        }
        let workgroup = if caps.software { 8 } else { 256 };
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/topk.wgsl"))
            .number("UNIFORM", 2)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", workgroup)
            .flag("ALONG", true)
            .flag("FLOAT", self.element == Element::F32)
            .flag("LARGEST", true)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: Uniform::default().u32s([self.rows, self.size, self.wanted]).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), 1)?,
            features: Features::default(),
        })
    }
}
