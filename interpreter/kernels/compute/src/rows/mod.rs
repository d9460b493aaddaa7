//! Reductions and functions of whole rows.

pub(super) mod normalize;
pub(super) mod reduce;
pub(super) mod softmax;
