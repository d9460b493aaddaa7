//! The trait of all shader families.

use crate::{Caps, Kernel, ShaderError, Threshold, Variant};

/// The computation of one dispatch, described by each module's `Spec`.
pub trait Shader {
    /// Returns the variant that a device with `caps` runs, with its uniforms and workgroups.
    ///
    /// # Errors
    /// [`ShaderError::Invalid`] for shapes and parameters that contradict each other, [`ShaderError::Unsupported`] for
    /// a use that no variant covers or that exceeds the device's limits.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError>;

    /// Returns the variants that the same use needs for other sizes of tensors, with unchanged ranks.
    ///
    /// Sizes that constants of the model fix (such as those of a filter) do not change.
    fn other_sizes(&self, caps: &Caps) -> OtherSizes;
}

/// The variants that other sizes need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherSizes {
    /// These variants, and that of the present sizes.
    Variants(Vec<Variant>),
    /// The variants of the spec for sizes on either side of these thresholds. Which of them occur depends on the sizes
    /// that the model's tensors can have.
    Thresholds(Vec<Threshold>),
}

impl OtherSizes {
    /// All sizes share the variant of the present ones.
    pub const SAME: Self = Self::Variants(Vec::new());

    pub(crate) fn thresholds<'t>(thresholds: impl IntoIterator<Item = &'t Threshold>) -> Self {
        Self::Thresholds(thresholds.into_iter().copied().collect())
    }

    pub(crate) fn variants(variants: impl IntoIterator<Item = Variant>) -> Self {
        Self::Variants(variants.into_iter().collect())
    }
}
