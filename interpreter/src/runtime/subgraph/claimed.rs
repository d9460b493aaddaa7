//! The second step of preparing: delegates claim nodes.

use delegraph_core::error::{Error, Result};
use delegraph_delegate_api::{NodeReport, Policy, Rejection, Report, Runner};

use super::composites;
use super::inferred::{Inference, Inferred};
use super::parts::{Failed, Parts};
use crate::runtime::delegation::{self, Claims, Partition, Unit, claim};
use crate::runtime::host::Env;

/// Prefix of subgraphs that hold an application's own tests of a delegate; they run on the CPU.
const VALIDATION: &str = "VALIDATION:";

/// Whether a call of a subgraph may block until a delegate's device is done. In a web page it may not: called subgraphs
/// run on the CPU there, unless a delegate claims the calling node.
const CALLS_MAY_BLOCK: bool = cfg!(not(all(target_arch = "wasm32", target_os = "unknown")));

/// The use for which a subgraph is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The application invokes it.
    Entry,
    /// A node of another subgraph calls it.
    Callee,
}

/// A subgraph whose nodes have runners.
pub(crate) struct Claimed {
    pub(super) parts: Box<Parts>,
    pub(super) inference: Inference,
    pub(super) report: Report,
    pub(super) partitions: Vec<Partition>,
    /// Nodes and partitions in execution order.
    pub(super) units: Vec<Unit>,
}

impl Inferred {
    /// Lets delegates claim nodes, and creates the kernels of their partitions.
    ///
    /// # Errors
    /// [`Error::Delegate`] for a delegate that fails; the caller prepares the model again without it.
    /// [`Error::NotDelegated`] if the policy requires that every node is delegated, and one is not.
    pub(crate) fn claim(self, env: &mut Env<'_>, role: Role) -> Result<Claimed, Failed> {
        let Inferred { parts, inference } = self;
        match ask(&parts, &inference, env, role) {
            Ok(Claims { report, partitions, units }) => {
                Ok(Claimed { parts, inference, report, partitions, units })
            }
            Err(error) => Err(Failed { parts, error }),
        }
    }
}

fn ask(parts: &Parts, inference: &Inference, env: &mut Env<'_>, role: Role) -> Result<Claims> {
    let (candidate, delegates) = (inference.candidate(parts), &mut *env.services.delegates);
    let on_cpu = if parts.subgraph().name().starts_with(VALIDATION) {
        Some("a subgraph whose name begins with \"VALIDATION:\" runs on the CPU")
    } else if role == Role::Callee && !CALLS_MAY_BLOCK {
        Some("a called subgraph; where calls cannot wait for a device, it runs on the CPU")
    } else {
        None
    };
    let delegated = !delegates.is_empty();
    let mut claims = if on_cpu.is_some() || !delegated {
        let units = parts.subgraph().node_ids().map(Unit::Node).collect();
        let mut report = delegation::report(candidate, delegates);
        if let Some(reason) = on_cpu {
            reject_all(&mut report, reason);
        }
        Claims { report, partitions: Vec::new(), units }
    } else {
        let budget = env.services.budget;
        match claim(candidate, delegates, &*env.subgraphs, budget) {
            Ok(claims) => claims,
            Err((index, error)) => {
                // A delegate that was interrupted has not failed.
                budget.check()?;
                return Err(delegates.fail(index, "", error));
            }
        }
    };
    let origins = env.services.inlined.get(parts.index).map_or(&[][..], Vec::as_slice);
    claims.report.composites = composites::report(parts, &claims.report, origins, env.services.delegates);
    if delegated && role == Role::Entry && env.services.delegates.policy == Policy::Require {
        // Composites that no delegate claimed are offered again, node by node.
        let complete = composites::unclaimed(parts, &claims.report).next().is_none();
        if complete {
            require(&claims.report)?;
        }
    }
    Ok(claims)
}

/// Rejects every node that is not folded, for all delegates.
fn reject_all(report: &mut Report, reason: &str) {
    let delegates = report.delegates.len();
    for node in report.nodes.iter_mut().filter(|node| node.runner == Runner::Cpu) {
        node.rejections = (0..delegates).map(|i| (i, Rejection::Excluded(reason.into()))).collect();
    }
}

/// Requires that all nodes are delegated.
///
/// # Errors
/// [`Error::NotDelegated`] with the nodes that are not delegated, and the reasons.
fn require(report: &Report) -> Result<()> {
    let left: Vec<_> = report.nodes.iter().filter(|n| !matches!(n.runner, Runner::Delegate { .. })).collect();
    if left.is_empty() {
        return Ok(());
    }
    let reason = |node: &NodeReport| {
        let of = |delegate: usize, reason: String| match &report.delegates[..] {
            [_] => reason,
            names => format!("{}: {reason}", names.get(delegate).map_or("", String::as_str)),
        };
        let own = node.rejections.iter().map(|(delegate, reason)| of(*delegate, reason.to_string()));
        let composites = report.composites.iter().filter(|c| c.is_inlined() && c.nodes.contains(&node.node));
        let whole = composites.flat_map(|composite| {
            composite.refusals().map(|(delegate, reason)| of(*delegate, composite.describe(reason)))
        });
        let reasons: Vec<String> = own.chain(whole).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        format!("node {} ({} v{}){reasons}", node.node.0, node.op, node.version)
    };
    let reasons = left.iter().copied().take(8).map(reason).collect();
    Err(Error::not_delegated(report.nodes.len(), left.len(), reasons))
}
