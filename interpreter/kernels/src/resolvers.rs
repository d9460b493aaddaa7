//! The resolvers that come with the interpreter.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use delegraph_core::{MutableOpResolver, Op, OpResolver, Registration};

#[cfg(feature = "optimized")]
use crate::optimized;
use crate::{custom, reference};

/// The default kernels: optimized ones, the reference kernel for every node that they do not support, and the kernels
/// of custom ops. Without the Cargo feature `optimized`, the kernels are those of [`ReferenceOpResolver`]. Results
/// agree within the tolerances of the conformance suite.
pub struct BuiltinOpResolver(&'static MutableOpResolver);

/// The kernels of every [`BuiltinOpResolver`], shared because registering a thousand kernels takes longer than
/// preparing a small model.
static BUILTIN: LazyLock<MutableOpResolver> = LazyLock::new(|| {
    let mut resolver = MutableOpResolver::new();
    reference::register(&mut resolver);
    custom::register(&mut resolver);
    #[cfg(feature = "optimized")]
    optimized::register(&mut resolver);
    resolver
});

/// The reference kernels, which are slow and simple and the standard for all other kernels, and the kernels of custom
/// ops.
pub struct ReferenceOpResolver(MutableOpResolver);

impl BuiltinOpResolver {
    /// Returns a resolver of all optimized, reference and custom kernels.
    pub fn new() -> Self {
        BuiltinOpResolver(&BUILTIN)
    }
}

impl ReferenceOpResolver {
    /// Creates a resolver of all reference and custom kernels.
    pub fn new() -> Self {
        let mut resolver = MutableOpResolver::new();
        reference::register(&mut resolver);
        custom::register(&mut resolver);
        ReferenceOpResolver(resolver)
    }
}

impl Default for BuiltinOpResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for ReferenceOpResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for BuiltinOpResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinOpResolver").finish_non_exhaustive()
    }
}

impl fmt::Debug for ReferenceOpResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceOpResolver").finish_non_exhaustive()
    }
}

impl OpResolver for BuiltinOpResolver {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        self.0.find(op, version)
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.0.versions(op)
    }
}

impl OpResolver for ReferenceOpResolver {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        self.0.find(op, version)
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.0.versions(op)
    }
}
