//! Advice on what to support next: the partitions of a graph if rejected nodes were claimed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use delegraph_core::{NodeId, Op};

use crate::limits::bytes;
use crate::partition::Partitioner;
use crate::{GraphView, Rejection, Report, Runner};

/// Maximum number of blockers that are tried, those with most nodes first, and of pairs. The limit keeps the time for
/// large graphs well under a second.
const MAX_TRIALS: usize = 32;

/// Number of blockers of which every pair is tried. Pairs of other blockers are tried only if their nodes are adjacent.
const PAIRED: usize = 8;

/// Totals over the partitions of a graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Split {
    /// Partitions of all delegates.
    pub partitions: usize,
    /// Nodes in these partitions.
    pub nodes: usize,
    /// Multiply-adds of one run of these nodes.
    pub multiply_adds: u64,
    /// Bytes of the inputs and outputs of each partition.
    pub boundary_bytes: u64,
}

impl Split {
    /// Returns how many more partitions `before` has than this split; 0 if it has fewer.
    pub fn merged(&self, before: &Split) -> usize {
        before.partitions.saturating_sub(self.partitions)
    }
}

/// A reason for which a delegate rejected nodes of one op and version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// The index of the delegate.
    pub delegate: usize,
    /// The op.
    pub op: Op,
    /// Its version.
    pub version: u32,
    /// The reason, as given for the first of the nodes.
    pub reason: Rejection,
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// The partitions if the delegate claimed the nodes. `None` for rare blockers of a graph with many blockers, which
    /// were not tried.
    pub without: Option<Split>,
}

/// Two blockers: claiming the nodes of both merges more partitions than claiming those of each separately.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockerPair {
    /// Indices into [`Advice::blockers`].
    pub blockers: [usize; 2],
    /// The partitions if the delegates claimed the nodes of both.
    pub without: Split,
}

/// The effect of claiming rejected nodes, computed with the partitioner.
///
/// Nodes that were not delegated because of limits (too few nodes in their partition, too many partitions, not worth
/// the copies) are not blockers. A trial includes them if it joins them to a partition.
///
/// ```
/// # use delegraph_delegate_api::{Advice, GraphView, Report};
/// # fn print(graph: &GraphView<'_>, report: &Report) {
/// let advice = Advice::new(graph, report);
/// for blocker in &advice.blockers {
///     let merged = blocker.without.map_or(0, |without| without.merged(&advice.now));
///     println!("{} v{}: {}: merges {merged}", blocker.op, blocker.version, blocker.reason);
/// }
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The current partitions, computed as if each delegate had made a single claim.
    pub now: Split,
    /// The blockers, sorted by gain: by partitions merged, then by multiply-adds delegated, then by nodes.
    pub blockers: Vec<Blocker>,
    /// Pairs that merge more partitions together than individually, largest gain first.
    pub pairs: Vec<BlockerPair>,
    /// The partitions without any of the blockers, if there are several.
    pub all: Option<Split>,
}

impl Advice {
    /// Tries the blockers of `graph`, as its `report` lists them.
    pub fn new(graph: &GraphView<'_>, report: &Report) -> Self {
        let trial = Trial::new(*graph, report);
        let mut blockers = blockers(report);
        blockers.sort_by_key(|o| Reverse(o.nodes.len()));
        let now = trial.split(&trial.owners);
        for blocker in blockers.iter_mut().take(MAX_TRIALS) {
            blocker.without = Some(trial.without(&[&*blocker]));
        }
        blockers.sort_by_key(|o| {
            let gain = o.without.map(|w| (w.merged(&now), w.multiply_adds.saturating_sub(now.multiply_adds)));
            Reverse((gain, o.nodes.len()))
        });
        let merged = |o: &Blocker| o.without.map_or(0, |without| without.merged(&now));
        let mut pairs: Vec<BlockerPair> = candidates(graph, &blockers)
            .into_iter()
            .filter_map(|[a, b]| {
                let (first, second) = (blockers.get(a)?, blockers.get(b)?);
                let without = trial.without(&[first, second]);
                let gains = without.merged(&now) > merged(first) + merged(second);
                gains.then_some(BlockerPair { blockers: [a, b], without })
            })
            .collect();
        pairs.sort_by_key(|p| Reverse((p.without.merged(&now), p.without.multiply_adds)));
        let all = (blockers.len() > 1).then(|| {
            // The delegate that comes first claims a node that several reject.
            let mut all: Vec<&Blocker> = blockers.iter().collect();
            all.sort_by_key(|blocker| Reverse(blocker.delegate));
            trial.without(&all)
        });
        Advice { now, blockers, pairs, all }
    }
}

/// Returns whether a limit on partitions is the reason. The delegate supports the node in that case.
fn is_limit(reason: &Rejection) -> bool {
    matches!(
        reason,
        Rejection::PartitionTooSmall { .. } | Rejection::TooManyPartitions { .. } | Rejection::CostModel(_)
    )
}

/// Returns the distinct reasons of each delegate for which nodes run on the CPU. Limits and failures of delegates are
/// excluded, since they do not concern the node itself.
fn blockers(report: &Report) -> Vec<Blocker> {
    let mut blockers: Vec<Blocker> = Vec::new();
    let mut known = HashMap::new();
    let left = report.nodes.iter().filter(|node| node.runner == Runner::Cpu);
    for (node, (delegate, reason)) in left.flat_map(|node| node.rejections.iter().map(move |r| (node, r))) {
        if is_limit(reason) || matches!(reason, Rejection::DelegateFailed(_)) {
            continue;
        }
        // The text names a tensor, so it differs between nodes.
        let dynamic = matches!(reason, Rejection::DynamicShape { .. });
        let text = if dynamic { String::new() } else { reason.to_string() };
        let key = (*delegate, &node.op, node.version, reason.kind(), text);
        let at = *known.entry(key).or_insert_with(|| {
            blockers.push(Blocker {
                delegate: *delegate,
                op: node.op.clone(),
                version: node.version,
                reason: reason.clone(),
                nodes: Vec::new(),
                without: None,
            });
            blockers.len() - 1
        });
        if let Some(blocker) = blockers.get_mut(at) {
            blocker.nodes.push(node.node);
        }
    }
    blockers
}

/// Returns the pairs to try: blockers whose nodes feed each other, most frequent first, then those with the largest
/// gain.
fn candidates(graph: &GraphView<'_>, blockers: &[Blocker]) -> Vec<[usize; 2]> {
    let mut of_node = HashMap::new();
    for (i, blocker) in blockers.iter().enumerate().filter(|(_, o)| o.without.is_some()) {
        of_node.extend(blocker.nodes.iter().map(|&id| (id, i)));
    }
    let producers = graph.producers();
    let mut touching: BTreeMap<[usize; 2], usize> = BTreeMap::new();
    for (id, &own) in &of_node {
        for input in graph.node(*id).inputs() {
            let producer = producers.get(input.id().0).copied().flatten();
            if let Some(&other) = producer.and_then(|p| of_node.get(&p)).filter(|&&other| other != own) {
                *touching.entry([own.min(other), own.max(other)]).or_default() += 1;
            }
        }
    }
    let mut pairs: Vec<_> = touching.iter().map(|(pair, times)| (Reverse(*times), *pair)).collect();
    pairs.sort_unstable();
    let mut pairs: Vec<[usize; 2]> = pairs.into_iter().map(|(_, pair)| pair).collect();
    let paired = blockers.iter().take_while(|o| o.without.is_some()).count().min(PAIRED);
    let others = (0..paired).flat_map(|a| (a + 1..paired).map(move |b| [a, b]));
    pairs.extend(others.filter(|pair| !touching.contains_key(pair)));
    pairs.truncate(MAX_TRIALS);
    pairs
}

/// Splits the graph as if more nodes were claimed.
struct Trial<'a> {
    graph: GraphView<'a>,
    partitioner: Partitioner<'a>,
    multiply_adds: Vec<u64>,
    /// Per node: 0 for the CPU, otherwise the index of the delegate plus 1.
    owners: Vec<usize>,
    /// Nodes that a delegate supports and that only limits keep on the CPU, with the owner that they would have.
    limited: Vec<(NodeId, usize)>,
}

impl<'a> Trial<'a> {
    fn new(graph: GraphView<'a>, report: &Report) -> Self {
        let mut owners = vec![0; graph.subgraph().nodes().len()];
        let mut limited = Vec::new();
        for node in &report.nodes {
            match (&node.runner, node.rejections.last()) {
                (Runner::Delegate { delegate, .. }, _) => {
                    owners.iter_mut().skip(node.node.0).take(1).for_each(|o| *o = delegate + 1);
                }
                (Runner::Cpu, Some((delegate, reason))) if is_limit(reason) => {
                    limited.push((node.node, delegate + 1));
                }
                _ => {}
            }
        }
        let multiply_adds = graph.nodes().map(|n| n.cost().multiply_adds).collect();
        Trial { graph, partitioner: Partitioner::new(graph), multiply_adds, owners, limited }
    }

    /// Returns the split if the nodes of these blockers were claimed, too.
    fn without(&self, blockers: &[&Blocker]) -> Split {
        let mut owners = self.owners.clone();
        let own = |owners: &mut [usize], id: NodeId, owner: usize| {
            owners.iter_mut().skip(id.0).take(1).for_each(|o| *o = owner);
        };
        for blocker in blockers {
            blocker.nodes.iter().for_each(|&id| own(&mut owners, id, blocker.delegate + 1));
        }
        let joining = self.limited.iter().filter(|(id, _)| owners.get(id.0) == Some(&0));
        let joining: HashMap<NodeId, usize> = joining.copied().collect();
        if !joining.is_empty() {
            joining.iter().for_each(|(&id, &owner)| own(&mut owners, id, owner));
            for group in self.partitioner.partition(&owners) {
                if group.nodes.iter().all(|id| joining.contains_key(id)) {
                    group.nodes.iter().for_each(|&id| own(&mut owners, id, 0));
                }
            }
        }
        self.split(&owners)
    }

    fn split(&self, owners: &[usize]) -> Split {
        let groups = self.partitioner.partition(owners);
        groups.iter().filter(|g| g.owner != 0).fold(Split::default(), |sum, group| {
            let multiply_adds = group.nodes.iter().filter_map(|id| self.multiply_adds.get(id.0));
            let boundary = group.inputs.iter().chain(&group.outputs).map(|&id| bytes(&self.graph, id));
            Split {
                partitions: sum.partitions + 1,
                nodes: sum.nodes + group.nodes.len(),
                multiply_adds: multiply_adds.fold(sum.multiply_adds, |sum, n| sum.saturating_add(*n)),
                boundary_bytes: boundary.fold(sum.boundary_bytes, u64::saturating_add),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::kernel::RuntimeTensor;
    use delegraph_core::ops::Params;
    use delegraph_core::ops::binary::AddParams;
    use delegraph_core::{BuiltinOp, Model, ModelBuilder, SubgraphBuilder, TensorId, TensorType};

    use super::*;
    use crate::{NodeReport, NodeState};

    const ABS: BuiltinOp = BuiltinOp::ABS;
    const ADD: BuiltinOp = BuiltinOp::ADD;
    const NEG: BuiltinOp = BuiltinOp::NEG;
    const SQRT: BuiltinOp = BuiltinOp::SQRT;

    /// Elements of every tensor: 4 KiB.
    const ELEMENTS: usize = 1024;

    /// A graph whose nodes read earlier ones (0 is the input), written `op: inputs`.
    fn model(nodes: &[(BuiltinOp, &[usize])]) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let mut values = vec![graph.input("x", TensorType::Float32, [ELEMENTS])];
        for (i, (op, inputs)) in nodes.iter().enumerate() {
            let inputs: Vec<TensorId> = inputs.iter().map(|&i| values[i]).collect();
            let params = match *op {
                ADD => Params::from(AddParams::default()),
                _ => Params::None,
            };
            values.push(graph.node(*op, params).inputs(inputs).output(&format!("y{i}")));
        }
        graph.outputs(values.last().copied());
        ModelBuilder::new().subgraph(graph).build().unwrap()
    }

    /// Advice for a delegate 0 that claims the nodes for which `reason` returns `None`.
    fn advise(model: &Model, reason: impl Fn(usize, &Op) -> Option<Rejection>) -> Advice {
        let subgraph = &model.subgraphs()[0];
        let tensors: Vec<RuntimeTensor> = subgraph.tensors().iter().map(RuntimeTensor::new).collect();
        let known = vec![true; tensors.len()];
        let states = vec![NodeState::default(); subgraph.nodes().len()];
        let node = |(i, node): (usize, &delegraph_core::Node)| {
            let rejection = reason(i, node.op());
            let delegated = Runner::Delegate { delegate: 0, partition: 0 };
            NodeReport {
                node: NodeId(i),
                op: node.op().clone(),
                version: node.version(),
                runner: if rejection.is_some() { Runner::Cpu } else { delegated },
                rejections: rejection.map(|r| (0, r)).into_iter().collect(),
            }
        };
        let nodes = subgraph.nodes().iter().enumerate().map(node).collect();
        let report = Report { delegates: vec!["test".into()], nodes, ..Report::default() };
        Advice::new(&GraphView::new(model, 0, &tensors, &known, &states), &report)
    }

    /// Rejects these ops.
    fn all_but(ops: &[BuiltinOp]) -> impl Fn(usize, &Op) -> Option<Rejection> {
        move |_, op| {
            let left = op.builtin().is_some_and(|op| ops.contains(&op));
            left.then(|| Rejection::UnsupportedOp { op: op.clone() })
        }
    }

    const TENSOR: u64 = 4 * ELEMENTS as u64;

    #[test]
    fn an_op_in_the_middle_of_a_chain_keeps_two_partitions_apart() {
        let model = model(&[(NEG, &[0]), (NEG, &[1]), (SQRT, &[2]), (NEG, &[3]), (ABS, &[4])]);
        let advice = advise(&model, all_but(&[SQRT, ABS]));
        let now = Split { partitions: 2, nodes: 3, multiply_adds: 0, boundary_bytes: 4 * TENSOR };
        assert_eq!(advice.now, Split { multiply_adds: advice.now.multiply_adds, ..now });
        let [first, second] = &advice.blockers[..] else { panic!("{:?}", advice.blockers) };
        assert_eq!((&first.op, &first.nodes[..]), (&SQRT.into(), &[NodeId(2)][..]));
        let without = first.without.unwrap();
        assert_eq!((without.partitions, without.nodes, without.boundary_bytes), (1, 4, 2 * TENSOR));
        assert_eq!(without.merged(&advice.now), 1);
        // The last node extends a partition without removing a boundary.
        let without = second.without.unwrap();
        assert_eq!((without.partitions, without.nodes, without.boundary_bytes), (2, 4, 4 * TENSOR));
        let all = advice.all.unwrap();
        assert_eq!((all.partitions, all.nodes, all.boundary_bytes), (1, 5, 2 * TENSOR));
        assert_eq!(advice.pairs, []);
    }

    #[test]
    fn blockers_that_keep_partitions_apart_together_are_a_pair() {
        // In sequence, and in parallel.
        let chain = model(&[(NEG, &[0]), (SQRT, &[1]), (ABS, &[2]), (NEG, &[3])]);
        let diamond = model(&[(NEG, &[0]), (SQRT, &[1]), (ABS, &[1]), (ADD, &[2, 3])]);
        for model in [chain, diamond] {
            let advice = advise(&model, all_but(&[SQRT, ABS]));
            assert_eq!(advice.now.partitions, 2);
            let alone = advice.blockers.iter().map(|o| o.without.unwrap().partitions);
            assert_eq!(alone.collect::<Vec<_>>(), [2, 2]);
            let [pair] = &advice.pairs[..] else { panic!("{:?}", advice.pairs) };
            assert_eq!((pair.blockers, pair.without.partitions), ([0, 1], 1));
            assert_eq!(advice.all, Some(pair.without));
        }
    }

    #[test]
    fn the_same_reason_of_several_nodes_is_one_blocker() {
        let model = model(&[(SQRT, &[0]), (NEG, &[1]), (SQRT, &[2]), (SQRT, &[3])]);
        let advice = advise(&model, |i, op| match (i, op.builtin()) {
            (2 | 3, _) => Some(Rejection::DynamicShape { tensor: format!("y{i}") }),
            (_, Some(SQRT)) => Some(Rejection::UnsupportedParam("a".into())),
            _ => None,
        });
        let nodes: Vec<_> = advice.blockers.iter().map(|o| (o.reason.kind(), o.nodes.len())).collect();
        assert_eq!(nodes, [("DynamicShape", 2), ("UnsupportedParam", 1)]);
    }

    #[test]
    fn each_delegate_that_gave_a_reason_is_advised() {
        let model = model(&[(NEG, &[0]), (SQRT, &[1]), (NEG, &[2])]);
        let tensors: Vec<RuntimeTensor> =
            model.subgraphs()[0].tensors().iter().map(RuntimeTensor::new).collect();
        let (known, states) = (vec![true; tensors.len()], vec![NodeState::default(); 3]);
        let graph = GraphView::new(&model, 0, &tensors, &known, &states);
        // Delegate 0 has the first node, delegate 1 the last one.
        let advise = |rejections: Vec<(usize, Rejection)>| {
            let node = |(i, node): (usize, &delegraph_core::Node)| NodeReport {
                node: NodeId(i),
                op: node.op().clone(),
                version: node.version(),
                runner: match i {
                    1 => Runner::Cpu,
                    _ => Runner::Delegate { delegate: i / 2, partition: i / 2 },
                },
                rejections: if i == 1 { rejections.clone() } else { Vec::new() },
            };
            let nodes = model.subgraphs()[0].nodes().iter().enumerate().map(node).collect();
            let delegates = vec!["a".into(), "b".into()];
            Advice::new(&graph, &Report { delegates, nodes, ..Report::default() })
        };
        let op = Op::from(SQRT);
        let unsupported = |delegate| (delegate, Rejection::UnsupportedOp { op: op.clone() });
        let advice = advise(vec![unsupported(0), unsupported(1)]);
        assert_eq!((advice.now.partitions, advice.now.boundary_bytes), (2, 4 * TENSOR));
        let gains = advice.blockers.iter().map(|o| (o.delegate, o.without.unwrap().partitions));
        assert_eq!(gains.collect::<Vec<_>>(), [(0, 2), (1, 2)]);
        // Only one of them would claim the node.
        assert_eq!(advice.all.map(|all| (all.partitions, all.nodes)), Some((2, 3)));
        // A failed delegate gives no reason for the node.
        let failed = |delegate| (delegate, Rejection::DelegateFailed("lost".into()));
        let advice = advise(vec![unsupported(0), failed(1)]);
        assert_eq!(advice.blockers.iter().map(|o| o.delegate).collect::<Vec<_>>(), [0]);
        assert_eq!(advise(vec![failed(0), failed(1)]).blockers, []);
    }

    #[test]
    fn nodes_that_limits_alone_leave_join() {
        let ops: [(BuiltinOp, &[usize]); 5] =
            [(NEG, &[0]), (SQRT, &[1]), (NEG, &[2]), (SQRT, &[0]), (NEG, &[4])];
        let model = model(&ops);
        let advice = advise(&model, |i, op| match (i, op.builtin()) {
            (3, _) => Some(Rejection::UnsupportedParam("other".into())),
            (_, Some(SQRT)) => Some(Rejection::UnsupportedOp { op: op.clone() }),
            _ => Some(Rejection::PartitionTooSmall { nodes: 1, min: 2 }),
        });
        assert_eq!((advice.now, advice.blockers.len()), (Split::default(), 2));
        let split = |kind: &str| {
            let blocker = advice.blockers.iter().find(|o| o.reason.kind() == kind).unwrap();
            blocker.without.map(|w| (w.partitions, w.nodes))
        };
        // All nodes except the other SQRT in one partition; then that SQRT with its neighbours, while the NEG at the
        // end of the first chain remains separate.
        assert_eq!(split("UnsupportedOp"), Some((1, 4)));
        assert_eq!(split("UnsupportedParam"), Some((1, 3)));
    }

    #[test]
    fn graphs_of_many_blockers_are_bounded() {
        let nodes: Vec<_> = (0..3000).map(|i| (NEG, vec![i])).collect();
        let nodes: Vec<_> = nodes.iter().map(|(op, inputs)| (*op, &inputs[..])).collect();
        let model = model(&nodes);
        let advice = advise(&model, |i, _| {
            (i % 3 == 0).then(|| Rejection::UnsupportedParam(format!("number {}", i % 600)))
        });
        assert_eq!(advice.blockers.len(), 200);
        assert_eq!(advice.blockers.iter().filter(|o| o.without.is_some()).count(), MAX_TRIALS);
        assert!(advice.blockers[..MAX_TRIALS].iter().all(|o| o.without.is_some()));
        assert_eq!(advice.all.map(|all| (all.partitions, all.nodes)), Some((1, 3000)));
    }
}
