//! Finding the kernel for an op at the version that the model asks for.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::{Result, UnresolvedOp, UnresolvedOps, UnresolvedReason};
use crate::graph::Model;
use crate::kernel::{InitContext, Kernel};
use crate::op::{BuiltinOp, Op};
use crate::ops;

type Init = dyn Fn(&InitContext<'_>) -> Result<Box<dyn Kernel>> + Send + Sync;

/// How to make the kernel of a node.
#[derive(Clone)]
pub struct Registration {
    init: Arc<Init>,
    side_effects: bool,
    overrides_builtin: bool,
}

impl Registration {
    /// A registration whose kernels `init` makes, one per node.
    pub fn new<K, F>(init: F) -> Self
    where
        K: Kernel + 'static,
        F: Fn(&InitContext<'_>) -> Result<K> + Send + Sync + 'static,
    {
        let init = move |cx: &InitContext<'_>| init(cx).map(|k| Box::new(k) as Box<dyn Kernel>);
        Registration { init: Arc::new(init), side_effects: false, overrides_builtin: false }
    }

    /// Says that running the node does more than compute its outputs from its inputs: it reads or writes variables,
    /// or gives another result every time. Such nodes keep their order and are never computed ahead of `invoke`.
    #[must_use]
    pub fn with_side_effects(mut self) -> Self {
        self.side_effects = true;
        self
    }

    /// Says that this is an application's own kernel for a builtin op. Delegates that assume the builtin's meaning
    /// leave its nodes alone.
    #[must_use]
    pub fn overriding_builtin(mut self) -> Self {
        self.overrides_builtin = true;
        self
    }

    /// Makes the kernel of a node.
    pub fn init(&self, cx: &InitContext<'_>) -> Result<Box<dyn Kernel>> {
        (self.init)(cx)
    }

    /// Whether running the node does more than compute its outputs.
    pub fn has_side_effects(&self) -> bool {
        self.side_effects
    }

    /// Whether this is an application's own kernel for a builtin op.
    pub fn overrides_builtin(&self) -> bool {
        self.overrides_builtin
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("side_effects", &self.side_effects).finish_non_exhaustive()
    }
}

/// Finds registrations by op **and version**.
pub trait OpResolver: Send + Sync {
    /// The registration for `op` at `version`.
    fn find(&self, op: &Op, version: u32) -> Option<&Registration>;

    /// The version ranges registered for `op`, for error messages and the support table.
    fn versions(&self, op: &Op) -> Vec<(u32, u32)>;
}

/// A resolver that registrations are added to. A later registration wins for the versions that it names; what is
/// not found here is looked up in the resolver that this one extends.
#[derive(Default, Clone)]
pub struct MutableOpResolver {
    table: HashMap<Op, Vec<(RangeInclusive<u32>, Registration)>>,
    next: Option<Arc<dyn OpResolver>>,
}

impl MutableOpResolver {
    /// A resolver without registrations.
    pub fn new() -> Self {
        Self::default()
    }

    /// A resolver that adds to, or overrides, what `next` has.
    pub fn extending(next: impl OpResolver + 'static) -> Self {
        MutableOpResolver { table: HashMap::new(), next: Some(Arc::new(next)) }
    }

    /// Registers a kernel for these versions of a builtin op.
    pub fn add_builtin(
        &mut self,
        op: BuiltinOp,
        registration: Registration,
        versions: impl VersionRange,
    ) -> &mut Self {
        self.add(Op::Builtin(op), registration, versions.range())
    }

    /// Registers a kernel for these versions of a custom op.
    pub fn add_custom(
        &mut self,
        name: &str,
        registration: Registration,
        versions: impl VersionRange,
    ) -> &mut Self {
        self.add(Op::custom(name), registration, versions.range())
    }

    fn add(&mut self, op: Op, mut registration: Registration, versions: RangeInclusive<u32>) -> &mut Self {
        // Whatever replaces a builtin of the resolver underneath may mean something else by it.
        if op.builtin().is_some() && self.next.as_ref().is_some_and(|next| !next.versions(&op).is_empty()) {
            registration.overrides_builtin = true;
        }
        self.table.entry(op).or_default().push((versions, registration));
        self
    }
}

impl OpResolver for MutableOpResolver {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        let own =
            self.table.get(op).and_then(|ranges| ranges.iter().rev().find(|(r, _)| r.contains(&version)));
        own.map(|(_, registration)| registration).or_else(|| self.next.as_ref()?.find(op, version))
    }

    fn versions(&self, op: &Op) -> Vec<(u32, u32)> {
        let own = self.table.get(op).into_iter().flatten().map(|(r, _)| (*r.start(), *r.end()));
        let mut all: Vec<_> = own.chain(self.next.iter().flat_map(|next| next.versions(op))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Versions that a registration holds for: `1..=2`, a single version, or `()` for version 1 alone.
pub trait VersionRange {
    /// The range.
    fn range(self) -> RangeInclusive<u32>;
}

impl VersionRange for RangeInclusive<u32> {
    fn range(self) -> RangeInclusive<u32> {
        self
    }
}

impl VersionRange for u32 {
    fn range(self) -> RangeInclusive<u32> {
        self..=self
    }
}

impl VersionRange for () {
    fn range(self) -> RangeInclusive<u32> {
        1..=1
    }
}

/// The newest TFLite release that the op table reaches.
pub fn newest_runtime() -> &'static str {
    let releases = ops::DEFS.iter().flat_map(|d| d.history.iter().map(|(_, release)| *release));
    releases.max_by_key(|r| dotted(r)).unwrap_or("0")
}

fn dotted(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// Every op of `model` that `resolver` has no kernel for, as one error.
pub fn check_resolved(model: &Model, resolver: &dyn OpResolver) -> Result<(), UnresolvedOps> {
    let mut unresolved: Vec<UnresolvedOp> = Vec::new();
    let mut index: HashMap<(&Op, u32), Option<usize>> = HashMap::new();
    for (g, subgraph) in model.subgraphs.iter().enumerate() {
        for id in subgraph.node_ids() {
            let node = subgraph.node(id);
            let slot = *index.entry((&node.op, node.version)).or_insert_with(|| {
                if resolver.find(&node.op, node.version).is_some() {
                    return None;
                }
                unresolved.push(describe(&node.op, node.version, resolver));
                Some(unresolved.len() - 1)
            });
            if let Some(op) = slot.and_then(|i| unresolved.get_mut(i)) {
                op.nodes.push((g, id));
            }
        }
    }
    let newer =
        model.min_runtime_version().filter(|v| dotted(v) > dotted(newest_runtime())).map(str::to_owned);
    if unresolved.is_empty() {
        if let Some(version) = newer {
            log::warn!(
                "the model says that it needs runtime {version}; every op resolves, so it runs all the same"
            );
        }
        return Ok(());
    }
    Err(UnresolvedOps { model: model.path().map(Into::into), ops: unresolved, newer_runtime: newer })
}

fn describe(op: &Op, version: u32, resolver: &dyn OpResolver) -> UnresolvedOp {
    let registered = resolver.versions(op);
    let definition = op.builtin().and_then(ops::definition);
    let reason = match op {
        Op::Custom(_) if registered.is_empty() => UnresolvedReason::MissingCustom,
        Op::Builtin(code) if code.variant_name().is_none() => UnresolvedReason::UnknownBuiltin,
        _ if registered.is_empty() => UnresolvedReason::NotImplemented,
        _ => UnresolvedReason::Version,
    };
    UnresolvedOp {
        op: op.clone(),
        version,
        reason,
        registered,
        min_runtime: definition.and_then(|d| d.min_runtime(version)),
        nodes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{InvokeContext, PrepareContext};

    struct Nothing;
    impl Kernel for Nothing {
        fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
            Ok(())
        }
        fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn later_registrations_win_for_their_versions() {
        let registration = || Registration::new(|_| Ok(Nothing));
        let mut base = MutableOpResolver::new();
        base.add_builtin(BuiltinOp::ADD, registration(), 1..=3);
        let mut resolver = MutableOpResolver::extending(base);
        resolver.add_builtin(BuiltinOp::ADD, registration(), 2).add_custom("Sin", registration(), ());
        let add = Op::Builtin(BuiltinOp::ADD);
        assert!(!resolver.find(&add, 1).unwrap().overrides_builtin());
        assert!(resolver.find(&add, 2).unwrap().overrides_builtin());
        assert!(resolver.find(&add, 4).is_none());
        assert_eq!(resolver.versions(&add), [(1, 3), (2, 2)]);
        assert!(resolver.find(&Op::custom("Sin"), 1).is_some());
        assert!(resolver.find(&Op::custom("Sin"), 2).is_none());
    }

    #[test]
    fn dotted_versions_compare_by_number() {
        assert!(dotted("2.10.0") > dotted("2.9.1"));
        assert!(dotted("1.14.0") < dotted("2.0"));
    }
}
