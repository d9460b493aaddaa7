//! The graph in `prepare`, and the delegate's claims and rejections.

use std::fmt;
use std::sync::Arc;

use delegraph_core::kernel::Budget;
use delegraph_core::{NodeId, Result};

use crate::{
    Capabilities, DelegateKernel, DelegateParams, GraphView, Group, NodeView, PartitionOptions, Rejection,
    VersionTable, partition,
};

/// Creates the kernel of a partition.
pub type KernelFactory<'a> =
    Box<dyn FnMut(&DelegateParams, &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> + 'a>;

/// Nodes that a delegate claims, with the factory of their kernels.
#[non_exhaustive]
pub struct Claim<'a> {
    /// The nodes, in the order in which they were passed to [`DelegateContext::claim`].
    pub nodes: Vec<NodeId>,
    /// Creates the kernel of each partition of the nodes.
    pub factory: KernelFactory<'a>,
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// The graph that a delegate sees in `prepare`, and its claims and rejections.
#[derive(Debug)]
pub struct DelegateContext<'a> {
    graph: GraphView<'a>,
    versions: VersionTable,
    capabilities: Capabilities,
    /// The application's limits, in addition to the delegate's own.
    limits: PartitionOptions,
    memory_limit: Option<u64>,
    budget: Option<Arc<Budget>>,
    claims: Vec<Claim<'a>>,
    rejections: Vec<Option<Rejection>>,
    claimed: Vec<bool>,
}

impl<'a> DelegateContext<'a> {
    /// Creates a context over `graph` for a delegate with these versions, without capabilities and limits.
    pub fn new(graph: GraphView<'a>, versions: VersionTable) -> Self {
        let nodes = graph.subgraph().nodes().len();
        let (claims, rejections, claimed) = (Vec::new(), vec![None; nodes], vec![false; nodes]);
        let (capabilities, limits, memory_limit, budget) = Default::default();
        DelegateContext {
            graph,
            versions,
            capabilities,
            limits,
            memory_limit,
            budget,
            claims,
            rejections,
            claimed,
        }
    }

    /// Sets the capabilities of the delegate.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets the memory limit that the application set for the interpreter, in bytes.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: Option<u64>) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Returns the memory limit that the application set for the interpreter, in bytes. A delegate that allocates
    /// memory of its own, on a device for example, claims only what fits.
    pub fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    /// Sets the budget of the work that `prepare` is part of.
    #[must_use]
    pub fn with_budget(mut self, budget: &Arc<Budget>) -> Self {
        self.budget = Some(Arc::clone(budget));
        self
    }

    /// Checks whether the work is to stop. Delegates call this function for each node, since checking a node may read
    /// large constants.
    ///
    /// # Errors
    /// [`Cancelled`] if the application cancelled the work; [`LimitExceeded`] once its time is over.
    ///
    /// [`Cancelled`]: delegraph_core::Error::Cancelled
    /// [`LimitExceeded`]: delegraph_core::Error::LimitExceeded
    pub fn check_interrupted(&self) -> Result<()> {
        self.budget.as_ref().map_or(Ok(()), |budget| budget.check())
    }

    /// Sets limits of the application, which apply to all claims.
    #[must_use]
    pub fn with_limits(mut self, limits: PartitionOptions) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the graph.
    pub fn graph(&self) -> GraphView<'a> {
        self.graph
    }

    /// Checks whether the node may be claimed: its version, and that of the features that it uses, is not above the
    /// declared maximum, the application neither replaced its kernel nor excluded it, no delegate has claimed it, it is
    /// not a folded node that initializes a variable, and its shapes are known (unless the delegate has
    /// [`Capabilities::dynamic_shapes`]).
    ///
    /// # Errors
    /// The reason why the node may not be claimed.
    pub fn may_claim(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let state = node.state();
        if state.taken || self.claimed[node.id().0] {
            return Err(Rejection::Other("a delegate already claimed it".into()));
        }
        if state.overridden {
            return Err(Rejection::Overridden { op: node.op().clone() });
        }
        if state.folded && node.outputs().any(|t| t.is_variable()) {
            return Err(Rejection::Other("it initializes a variable".into()));
        }
        match node.composite() {
            Some(composite) => self.versions.check_composite(&composite)?,
            None => self.versions.check_use(node.op(), node.version(), node.needed_version())?,
        }
        self.limits.check(node)?;
        if self.capabilities.dynamic_shapes { Ok(()) } else { node.check_static() }
    }

    /// Rejects a node.
    pub fn reject(&mut self, node: NodeId, reason: Rejection) {
        self.rejections[node.0] = Some(reason);
    }

    /// Returns the partitions that would result from claiming these nodes now.
    pub fn preview_partitions(&self, nodes: &[NodeId]) -> Vec<DelegateParams> {
        let mut owners = vec![0; self.claimed.len()];
        nodes.iter().for_each(|n| owners[n.0] = 1);
        partition(&self.graph, &owners).into_iter().filter(|g| g.owner == 1).map(Group::into_params).collect()
    }

    /// Returns the nodes that are within the limits, in ascending order if `nodes` is, and rejects the others.
    pub fn limit(&mut self, nodes: &[NodeId], options: &PartitionOptions) -> Vec<NodeId> {
        let mut allowed = Vec::new();
        for &id in nodes {
            match options.check(&self.graph.node(id)) {
                Ok(()) => allowed.push(id),
                Err(reason) => self.reject(id, reason),
            }
        }
        if !options.limits_partitions() {
            return allowed;
        }
        let mut partitions = self.preview_partitions(&allowed);
        partitions.sort_by_key(|p| std::cmp::Reverse(p.nodes.len()));
        let (mut kept, mut count) = (Vec::new(), 0);
        for p in partitions {
            let reason = if p.nodes.len() < options.min_nodes {
                Err(Rejection::PartitionTooSmall { nodes: p.nodes.len(), min: options.min_nodes })
            } else if let Some(max) = options.max_partitions.filter(|&max| count >= max) {
                Err(Rejection::TooManyPartitions { max })
            } else {
                options.cost.map_or(Ok(()), |cost| cost.check(&p, &self.graph))
            };
            match reason {
                Ok(()) => {
                    count += 1;
                    kept.extend(p.nodes);
                }
                Err(reason) => p.nodes.into_iter().for_each(|n| self.reject(n, reason.clone())),
            }
        }
        kept.sort_unstable();
        kept
    }

    /// Claims nodes; `factory` creates a kernel for each of their partitions. Nodes that may not be claimed (see
    /// [`DelegateContext::may_claim`]) are rejected instead.
    pub fn claim<F>(&mut self, nodes: &[NodeId], factory: F)
    where
        F: FnMut(&DelegateParams, &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> + 'a,
    {
        let mut accepted = Vec::new();
        for &id in nodes {
            match self.may_claim(&self.graph.node(id)) {
                Ok(()) => {
                    self.claimed[id.0] = true;
                    self.rejections[id.0] = None;
                    accepted.push(id);
                }
                Err(reason) => self.reject(id, reason),
            }
        }
        if !accepted.is_empty() {
            self.claims.push(Claim { nodes: accepted, factory: Box::new(factory) });
        }
    }

    /// Returns the claims, and for each node the reason why it was not claimed. Called after
    /// [`Delegate::prepare`](crate::Delegate::prepare).
    pub fn finish(mut self) -> (Vec<Claim<'a>>, Vec<Option<Rejection>>) {
        if self.limits.limits_partitions() {
            let all: Vec<NodeId> = self.claims.iter().flat_map(|c| c.nodes.iter().copied()).collect();
            let limits = self.limits.clone();
            let kept = self.limit(&all, &limits);
            self.claimed.fill(false);
            kept.iter().for_each(|id| self.claimed[id.0] = true);
            let claimed = &self.claimed;
            self.claims.iter_mut().for_each(|claim| claim.nodes.retain(|id| claimed[id.0]));
            self.claims.retain(|claim| !claim.nodes.is_empty());
        }
        // A delegate that skips a node states no reason, but the context may know one.
        let skipped = |node: NodeView<'_>| self.may_claim(&node).err().unwrap_or(Rejection::NotClaimed);
        let reason = |(i, given): (usize, &Option<Rejection>)| match given {
            Some(reason) if *reason != Rejection::NotClaimed => Some(reason.clone()),
            _ => (!self.claimed[i]).then(|| skipped(self.graph.node(NodeId(i)))),
        };
        let reasons = self.rejections.iter().enumerate().map(reason).collect();
        (self.claims, reasons)
    }
}
