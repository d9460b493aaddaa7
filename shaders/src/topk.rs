//! TOPK_V2.

use crate::binding::bindings;
use crate::element::Element;
use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "topk";

/// Maximum number of elements that a workgroup compares in all rounds, which takes a device about a second.
const MAX_COMPARISONS: u64 = 1 << 31;

/// The 32-bit indices of the largest elements of each row, in descending order, equal elements by ascending index, NaN last.
/// A [gather](crate::gather) with these indices returns the elements.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Element type.
    pub element: Element,
    /// Rows: the product of all extents but the last.
    pub rows: u32,
    /// Elements of a row: the last extent.
    pub size: u32,
    /// Number of indices per row.
    pub wanted: u32,
}

impl Shader for Spec {
    /// # Errors
    /// For a row that is empty or has fewer elements than wanted, for more than 2^31 comparisons per row, and for a tensor
    /// larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.size])? == 0 || self.wanted > self.size {
            return Err(ShaderError::contradiction(NAME, self));
        }
        if u64::from(self.size) * u64::from(self.wanted) > MAX_COMPARISONS {
            let text = format!(
                "{} of {} elements of a row; products up to 2^31 are supported",
                self.wanted, self.size
            );
            return Err(ShaderError::unsupported(NAME, text));
        }
        let workgroup = if caps.software { 8 } else { 256 };
        let template = Template::new(NAME, include_str!("wgsl/topk.wgsl"))
            .number("WORKGROUP", workgroup)
            .number("SPLIT", workgroup)
            .flag("ALONG", true)
            .flag("FLOAT", self.element == Element::F32)
            .flag("LARGEST", true);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: Uniform::default().u32s([self.rows, self.size, self.wanted]).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(self.rows), 1)?,
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
