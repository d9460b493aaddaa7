//! Resolution of an op at a version to a kernel.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use crate::error::{Result, UnresolvedNode, UnresolvedOp, UnresolvedOps, UnresolvedReason, tensor_name};
use crate::graph::{Model, Subgraph};
use crate::kernel::{InitContext, Kernel};
use crate::ops;
use crate::types::{BuiltinOp, Op, printable};

type Init = dyn Fn(&InitContext<'_>) -> Result<Box<dyn Kernel>> + Send + Sync;

/// A factory of kernels for the nodes of an op.
#[derive(Clone)]
pub struct Registration {
    init: Arc<Init>,
    side_effects: bool,
    overrides_builtin: bool,
}

impl Registration {
    /// Creates a registration whose kernels `init` makes, one per node.
    // Inlined, because each op has a closure of its own: otherwise a WebAssembly engine compiles hundreds of functions
    // that are called once.
    #[inline(always)]
    pub fn new<K, F>(init: F) -> Self
    where
        K: Kernel + 'static,
        F: Fn(&InitContext<'_>) -> Result<K> + Send + Sync + 'static,
    {
        let init = move |cx: &InitContext<'_>| init(cx).map(|k| Box::new(k) as Box<dyn Kernel>);
        Registration { init: Arc::new(init), side_effects: false, overrides_builtin: false }
    }

    /// Declares that running the node does more than compute its outputs from its inputs: it reads or writes variables,
    /// or gives another result every time. Such nodes keep their order and are never computed ahead of `invoke`.
    #[must_use]
    pub fn with_side_effects(mut self) -> Self {
        self.side_effects = true;
        self
    }

    /// Declares that this is an application's own kernel for a builtin op. Delegates that assume the builtin's meaning
    /// leave its nodes alone.
    #[must_use]
    pub fn with_builtin_override(mut self) -> Self {
        self.overrides_builtin = true;
        self
    }

    /// Makes the kernel of a node.
    ///
    /// # Errors
    /// The errors of the factory.
    pub fn init(&self, cx: &InitContext<'_>) -> Result<Box<dyn Kernel>> {
        (self.init)(cx)
    }

    /// Returns whether running the node does more than compute its outputs.
    pub fn has_side_effects(&self) -> bool {
        self.side_effects
    }

    /// Returns whether this is an application's own kernel for a builtin op.
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
    /// Returns the registration for `op` at `version`; `None` if there is none.
    fn find(&self, op: &Op, version: u32) -> Option<&Registration>;

    /// Returns the version ranges registered for `op`, for error messages and the support table.
    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>>;
}

/// A resolver to which registrations are added. A later registration replaces earlier ones for its versions; ops
/// without a registration are looked up in the resolver that this one extends.
#[derive(Default, Clone)]
pub struct MutableOpResolver {
    table: HashMap<Op, Vec<(RangeInclusive<u32>, Registration)>>,
    next: Option<Arc<dyn OpResolver>>,
}

impl MutableOpResolver {
    /// Creates a resolver without registrations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a resolver that extends or overrides the registrations of `next`.
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

    /// Registers the registration of `other` for an op at one version, if it has one.
    pub fn add_from(&mut self, other: &dyn OpResolver, op: impl Into<Op>, version: u32) -> &mut Self {
        let op = op.into();
        match other.find(&op, version).cloned() {
            Some(registration) => self.add(op, registration, version..=version),
            None => self,
        }
    }

    /// Returns the registrations that were added here, each op with its versions, in the order of their names, without
    /// those of the resolver underneath.
    pub fn registered(&self) -> impl Iterator<Item = (&Op, &RangeInclusive<u32>)> {
        let mut all: Vec<_> = self
            .table
            .iter()
            .flat_map(|(op, ranges)| ranges.iter().map(move |(range, _)| (op, range)))
            .collect();
        all.sort_by_cached_key(|(op, range)| (op.to_string(), *range.start()));
        all.into_iter()
    }

    /// Registers a fused kernel for these versions of the operation `name`. It runs composites (`STABLEHLO_COMPOSITE`)
    /// that no delegate claims, in the place of their bodies, and custom ops of that name: the two are one
    /// registration. Its options are the attributes, either way.
    pub fn add_composite(
        &mut self,
        name: &str,
        registration: Registration,
        versions: impl VersionRange,
    ) -> &mut Self {
        self.add_custom(name, registration, versions)
    }

    fn add(&mut self, op: Op, mut registration: Registration, versions: RangeInclusive<u32>) -> &mut Self {
        // A replacement of a builtin kernel of the underlying resolver may compute something else.
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

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        let own = self.table.get(op).into_iter().flatten().map(|(range, _)| range.clone());
        let mut all: Vec<_> = own.chain(self.next.iter().flat_map(|next| next.versions(op))).collect();
        all.sort_unstable_by_key(|range| (*range.start(), *range.end()));
        all.dedup();
        all
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::ops::RangeInclusive<u32> {}
    impl Sealed for u32 {}
    impl Sealed for () {}
}

/// The versions of a registration: `1..=2`, a single version, or `()` for version 1. Other crates cannot implement it.
pub trait VersionRange: sealed::Sealed {
    /// Returns the range.
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

/// Returns the newest TFLite release that the op table reaches.
pub fn newest_runtime() -> &'static str {
    // Computed once, because every loaded model needs it.
    static NEWEST: LazyLock<&str> = LazyLock::new(|| {
        let releases = ops::DEFS.iter().flat_map(|d| d.history.iter().map(|(_, release)| *release));
        releases.max_by(|a, b| compare_runtimes(a, b)).unwrap_or("0")
    });
    *NEWEST
}

/// Compares releases by their numbers: 2.9.1 comes before 2.10.0, and 2.9 is 2.9.0.
pub(crate) fn compare_runtimes(a: &str, b: &str) -> Ordering {
    let numbers = |release: &str| {
        let number = |part: &str| {
            let digits = part.bytes().take_while(u8::is_ascii_digit);
            digits.fold(0u64, |n, digit| n.saturating_mul(10).saturating_add((digit - b'0').into()))
        };
        let mut numbers: Vec<u64> = release.split('.').map(number).collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        numbers
    };
    numbers(a).cmp(&numbers(b))
}

/// The TFLite release that a model requires, as [`required_runtime`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequiredRuntime {
    /// The oldest release that runs every op; `None` if the op table contains none of the ops.
    pub release: Option<&'static str>,
    /// Whether the op table contains every builtin op at its version. Otherwise `release` is a lower bound.
    pub complete: bool,
}

/// Returns the oldest TFLite release that runs every op of `model` at its version, according to the op table.
pub fn required_runtime(model: &Model) -> RequiredRuntime {
    required_by(model.subgraphs())
}

/// As [`required_runtime`], for subgraphs.
pub(crate) fn required_by(subgraphs: &[Subgraph]) -> RequiredRuntime {
    let mut newest: Option<&'static str> = None;
    let mut complete = true;
    for node in subgraphs.iter().flat_map(Subgraph::nodes) {
        let definition = node.op().builtin().and_then(ops::definition);
        match definition.and_then(|d| d.min_runtime(node.version())) {
            Some(release) if newest.is_none_or(|n| compare_runtimes(release, n).is_gt()) => {
                newest = Some(release)
            }
            Some(_) => {}
            // A custom op needs a kernel, regardless of the release.
            None => complete &= node.op().builtin().is_none(),
        }
    }
    RequiredRuntime { release: newest, complete }
}

/// `min_runtime_version` of the model's metadata, if it is newer than the newest release of the op table.
pub fn newer_runtime(model: &Model) -> Option<&str> {
    model.min_runtime_version().filter(|version| compare_runtimes(version, newest_runtime()).is_gt())
}

/// Checks that `resolver` has a kernel for every op of `model`.
///
/// A model whose metadata requires a newer runtime than the op table contains is accepted if every op resolves: a new
/// model may use old features only. A warning is logged.
///
/// # Errors
/// [`UnresolvedOps`] with all unresolved ops.
pub fn check_resolved(model: &Model, resolver: &dyn OpResolver) -> Result<(), UnresolvedOps> {
    let mut unresolved: Vec<UnresolvedOp> = Vec::new();
    let mut index: HashMap<(&Op, u32), Option<usize>> = HashMap::new();
    for (g, subgraph) in model.subgraphs().iter().enumerate() {
        for id in subgraph.node_ids() {
            let node = subgraph.node(id);
            let slot = *index.entry((node.op(), node.version())).or_insert_with(|| {
                if resolver.find(node.op(), node.version()).is_some() {
                    return None;
                }
                unresolved.push(describe(node.op(), node.version(), resolver));
                Some(unresolved.len() - 1)
            });
            if let Some(op) = slot.and_then(|i| unresolved.get_mut(i)) {
                let outputs = node.outputs().iter().map(|id| tensor_name(subgraph.tensor(*id).name(), id.0));
                let (subgraph_name, outputs) = (subgraph.name().to_owned(), outputs.collect());
                op.nodes.push(UnresolvedNode { subgraph: g, subgraph_name, node: id, outputs });
            }
        }
    }
    let newer = newer_runtime(model);
    if unresolved.is_empty() {
        if let Some(version) = newer {
            log::warn!(
                "the model's metadata asks for TFLite {}; this build's op table reaches {}",
                printable(version),
                newest_runtime()
            );
        }
        return Ok(());
    }
    let newer_runtime = newer.map(str::to_owned);
    Err(UnresolvedOps {
        model: model.path().map(Into::into),
        ops: unresolved,
        newer_runtime,
        newest_runtime: newest_runtime(),
    })
}

fn describe(op: &Op, version: u32, resolver: &dyn OpResolver) -> UnresolvedOp {
    let registered = merged_versions(resolver.versions(op));
    let definition = op.builtin().and_then(ops::definition);
    let reason = match op {
        Op::Custom(_) if registered.is_empty() => UnresolvedReason::MissingCustom,
        Op::Builtin(code) if code.variant_name().is_none() && registered.is_empty() => {
            UnresolvedReason::UnknownBuiltin
        }
        _ if registered.is_empty() => UnresolvedReason::NotImplemented,
        _ => UnresolvedReason::Version,
    };
    let known = definition.and_then(|d| Some(d.history.first()?.0..=d.history.last()?.0));
    UnresolvedOp {
        op: op.clone(),
        version,
        reason,
        registered,
        known,
        min_runtime: definition.and_then(|d| d.min_runtime(version)),
        nodes: Vec::new(),
    }
}

/// Returns the same versions in as few ranges as possible, ascending.
pub fn merged_versions(mut ranges: Vec<RangeInclusive<u32>>) -> Vec<RangeInclusive<u32>> {
    ranges.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    let mut result: Vec<RangeInclusive<u32>> = Vec::new();
    for range in ranges {
        match result.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => result.push(range),
        }
    }
    result
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
        assert_eq!(resolver.versions(&add), [1..=3, 2..=2]);
        assert!(resolver.find(&Op::custom("Sin"), 1).is_some());
        assert!(resolver.find(&Op::custom("Sin"), 2).is_none());
    }

    #[test]
    fn dotted_versions_compare_by_number() {
        assert!(compare_runtimes("2.10.0", "2.9.1").is_gt());
        assert!(compare_runtimes("1.14.0", "2.0").is_lt());
        assert!(compare_runtimes("2.10", "2.10.0").is_eq());
        assert!(compare_runtimes("2.11.0-rc1", "2.10.0").is_gt());
        assert!(compare_runtimes("no release", "1.5.0").is_lt());
        assert!(compare_runtimes("99999999999999999999999999.0", newest_runtime()).is_gt());
    }

    #[test]
    fn ranges_of_versions_merge() {
        assert_eq!(merged_versions(vec![3..=3, 1..=2, 5..=6, 1..=1]), [1..=3, 5..=6]);
    }
}
