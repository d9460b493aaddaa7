//! Composites and functions, and inlining of their bodies.

mod inline;

pub(crate) use inline::{Bounds, CONTROL, Inlined, Inliner, Origin, Place, can_inline, kernel_key, moved};
