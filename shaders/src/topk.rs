//! TOPK_V2.

use crate::binding::bindings;
use crate::element::Element;
use crate::kernel::{linear_dispatch, looped};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "topk";

/// Returns the maximum numbers of comparisons of a workgroup and of all workgroups, which take a device about a second.
const fn max_comparisons(caps: &Caps) -> [u64; 2] {
    if caps.software { [1 << 29, 1 << 29] } else { [1 << 31, 1 << 36] }
}

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
    /// For a row that is empty or has fewer elements than wanted, for more than 2^31 comparisons per row or 2^36 in total,
    /// 2^29 in total on a software device, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.rows, self.size])? == 0 || self.wanted > self.size {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let [of_row, of_all] = max_comparisons(caps);
        let comparisons = u64::from(self.size) * u64::from(self.wanted);
        if comparisons > of_row {
            let text = format!(
                "{} of {} elements of a row; products up to {of_row} are supported",
                self.wanted, self.size
            );
            return Err(ShaderError::unsupported(NAME, text));
        }
        if comparisons.saturating_mul(u64::from(self.rows)) > of_all {
            let text = format!(
                "{} of {} elements of {} rows; products up to {of_all} are supported",
                self.wanted, self.size, self.rows
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
            iterations: looped(
                self.wanted,
                looped(self.size.div_ceil(workgroup), 0) + looped(workgroup.ilog2(), 0),
            ),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
