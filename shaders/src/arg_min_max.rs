//! ARG_MAX and ARG_MIN.

use crate::element::Element;
use crate::kernel::linear_dispatch;
use crate::reduce;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "arg_min_max";

/// Where along a dimension the largest or smallest element is, the first of equals: the input is
/// `[outer, size, inner]`, the output `[outer, inner]` holds 32-bit indices. Any number goes before what is none.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What is compared.
    pub element: Element,
    /// The product of the extents before the dimension.
    pub outer: u32,
    /// Extent of the dimension.
    pub size: u32,
    /// The product of the extents after the dimension.
    pub inner: u32,
    /// Whether the largest element is wanted, or the smallest.
    pub largest: bool,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the input is empty or larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.outer, self.size, self.inner])? == 0 {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let lines = self.outer * self.inner;
        let split = reduce::split(caps, lines, self.size);
        let workgroup = match split {
            1 if caps.software => 16,
            1 => 64,
            _ => 256,
        };
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/arg_min_max.wgsl"))
            .number("UNIFORM", 2)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", split)
            .flag("ALONG", self.inner == 1)
            .flag("FLOAT", self.element == Element::F32)
            .flag("LARGEST", self.largest)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: Uniform::default().u32s([lines, self.size, self.inner]).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(lines), u64::from(workgroup / split))?,
            features: Features::default(),
        })
    }
}
