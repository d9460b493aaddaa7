//! Composites and functions, and inlining of their bodies.

mod inline;

pub(crate) use inline::{Bounds, CONTROL, Inlinable, Inlined, Inliner, Origin, Place, kernel_key, moved};
