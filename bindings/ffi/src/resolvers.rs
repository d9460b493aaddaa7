//! The kernels that all interpreters of a process share: their tables take about 60 KiB.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use delegraph::core::{Op, OpResolver};
use delegraph::{BuiltinOpResolver, MutableOpResolver, ReferenceOpResolver, Registration};

/// A resolver of the process.
struct Shared(&'static dyn OpResolver);

impl OpResolver for Shared {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        self.0.find(op, version)
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.0.versions(op)
    }
}

/// Returns a resolver of all kernels, reference or optimized, to which others can be added.
pub fn resolver(reference: bool) -> MutableOpResolver {
    static BUILTIN: LazyLock<BuiltinOpResolver> = LazyLock::new(BuiltinOpResolver::new);
    static REFERENCE: LazyLock<ReferenceOpResolver> = LazyLock::new(ReferenceOpResolver::new);
    let shared: &'static dyn OpResolver = if reference { &*REFERENCE } else { &*BUILTIN };
    MutableOpResolver::extending(Shared(shared))
}

#[cfg(test)]
mod tests {
    use delegraph::core::BuiltinOp;

    use super::*;

    #[test]
    fn all_kernels_are_found() {
        let op = Op::Builtin(BuiltinOp::CONV_2D);
        for (reference, own) in
            [(false, &BuiltinOpResolver::new() as &dyn OpResolver), (true, &ReferenceOpResolver::new())]
        {
            let found = resolver(reference);
            assert_eq!(found.versions(&op), own.versions(&op));
            assert!(found.find(&op, 1).is_some() && found.find(&op, 99).is_none());
        }
    }
}
