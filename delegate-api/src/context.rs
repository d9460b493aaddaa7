//! What a delegate sees and says in `prepare`.

use delegraph_core::{NodeId, Result};

use crate::{
    Capabilities, DelegateKernel, DelegateParams, GraphView, Group, NodeView, PartitionOptions, Rejection,
    VersionTable, partition,
};

/// Makes the kernel of a partition.
pub type KernelFactory<'a> =
    Box<dyn FnMut(&DelegateParams, &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> + 'a>;

/// Nodes that a delegate claims, and how their kernels are made.
pub struct Claim<'a> {
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// Makes the kernel of each partition that they fall into.
    pub factory: KernelFactory<'a>,
}

/// What a delegate sees and says in `prepare`. It does not exist outside of it.
pub struct DelegateContext<'a> {
    graph: GraphView<'a>,
    versions: VersionTable,
    capabilities: Capabilities,
    /// The application's limits, beside the delegate's own.
    limits: PartitionOptions,
    claims: Vec<Claim<'a>>,
    rejections: Vec<Option<Rejection>>,
    claimed: Vec<bool>,
}

impl<'a> DelegateContext<'a> {
    /// A context over `graph` for a delegate with these versions.
    pub fn new(graph: GraphView<'a>, versions: VersionTable) -> Self {
        let nodes = graph.subgraph().nodes.len();
        let (claims, rejections, claimed) = (Vec::new(), vec![None; nodes], vec![false; nodes]);
        let (capabilities, limits) = Default::default();
        DelegateContext { graph, versions, capabilities, limits, claims, rejections, claimed }
    }

    /// With what the delegate can do.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// With limits that hold whatever the delegate claims.
    #[must_use]
    pub fn with_limits(mut self, limits: PartitionOptions) -> Self {
        self.limits = limits;
        self
    }

    /// The graph.
    pub fn graph(&self) -> GraphView<'a> {
        self.graph
    }

    /// Ok when the node may be claimed: its version is not above the declared maximum, the application neither
    /// replaced its kernel nor excluded it, no delegate has it yet, and its shapes are known (unless the delegate takes
    /// dynamic ones).
    pub fn may_claim(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let state = node.state();
        if state.taken || self.claimed[node.id().0] {
            return Err(Rejection::Other("another delegate has it".into()));
        }
        if state.overridden {
            return Err(Rejection::Overridden { op: node.op().clone() });
        }
        if state.folded && node.outputs().any(|t| t.is_variable()) {
            return Err(Rejection::Other("it gives a variable its first value, once".into()));
        }
        match node.composite() {
            Some(composite) => self.versions.check_composite(&composite)?,
            None => self.versions.check(node.op(), node.version())?,
        }
        self.limits.check(node)?;
        if self.capabilities.dynamic_shapes { Ok(()) } else { node.check_static() }
    }

    /// Says why a node is not claimed.
    pub fn reject(&mut self, node: NodeId, reason: Rejection) {
        self.rejections[node.0] = Some(reason);
    }

    /// The partitions that these nodes would fall into if they were claimed now.
    pub fn preview_partitions(&self, nodes: &[NodeId]) -> Vec<DelegateParams> {
        let mut owners = vec![0; self.claimed.len()];
        nodes.iter().for_each(|n| owners[n.0] = 1);
        partition(&self.graph, &owners).into_iter().filter(|g| g.owner == 1).map(Group::into_params).collect()
    }

    /// Those of `nodes` that are within the limits. The others are rejected.
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

    /// Claims nodes; `factory` makes a kernel for each partition that they fall into. Nodes that may not be claimed
    /// (see [`DelegateContext::may_claim`]) are left out and rejected, whatever the delegate thinks.
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

    /// What was said: the claims, and per node the reason why it was not claimed.
    pub fn finish(mut self) -> (Vec<Claim<'a>>, Vec<Option<Rejection>>) {
        if self.limits.limits_partitions() {
            let all: Vec<NodeId> = self.claims.iter().flat_map(|c| c.nodes.iter().copied()).collect();
            let limits = std::mem::take(&mut self.limits);
            let kept = self.limit(&all, &limits);
            self.claimed.fill(false);
            kept.iter().for_each(|id| self.claimed[id.0] = true);
            let claimed = &self.claimed;
            self.claims.iter_mut().for_each(|claim| claim.nodes.retain(|id| claimed[id.0]));
            self.claims.retain(|claim| !claim.nodes.is_empty());
        }
        let claimed = self.claimed;
        let unsaid =
            |(i, r): (usize, Option<Rejection>)| r.or((!claimed[i]).then_some(Rejection::NotClaimed));
        (self.claims, self.rejections.into_iter().enumerate().map(unsaid).collect())
    }
}
