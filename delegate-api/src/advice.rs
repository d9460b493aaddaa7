//! What to support next: how a graph would be split if nodes that were left to the CPU were claimed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use delegraph_core::{NodeId, Op};

use crate::limits::bytes;
use crate::partition::Partitioner;
use crate::{GraphView, Rejection, Report, Runner};

/// So many obstacles are tried out, those of most nodes, and so many pairs of them: graphs of any size are answered
/// in well under a second.
const TRIED: usize = 32;

/// Obstacles of which every pair is tried. Of the others, only those next to each other.
const PAIRED: usize = 8;

/// How a graph is split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    /// Partitions of all delegates.
    pub partitions: usize,
    /// Nodes in them.
    pub nodes: usize,
    /// Multiply-adds of one run of them.
    pub multiply_adds: u64,
    /// Bytes of the inputs and outputs of each partition.
    pub boundary_bytes: u64,
}

impl Split {
    /// How many partitions fewer these are than in `before`; 0 where there are more.
    pub fn merged(&self, before: &Split) -> usize {
        before.partitions.saturating_sub(self.partitions)
    }
}

/// One reason for which a delegate left nodes of one op and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The delegate: the last one that gave a reason.
    pub delegate: usize,
    /// The op.
    pub op: Op,
    /// Its version.
    pub version: u32,
    /// The reason, as given for the first of the nodes.
    pub reason: Rejection,
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// How the graph would be split if the delegate claimed them. `None` for rare obstacles of a graph that has very
    /// many: they were not tried.
    pub without: Option<Split>,
}

/// Two obstacles that keep partitions apart together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Which of [`Advice::obstacles`].
    pub obstacles: [usize; 2],
    /// How the graph would be split without both.
    pub without: Split,
}

/// What would change if delegates claimed what they left, tried out with the real partitioner.
///
/// Nodes that were left only because of limits (too few in their partition, too many partitions, not worth the copies)
/// are no obstacles: they are taken along where a tried claim joins them.
///
/// ```
/// # use delegraph_delegate_api::{Advice, GraphView, Report};
/// # fn print(graph: &GraphView<'_>, report: &Report) {
/// let advice = Advice::new(graph, report);
/// for obstacle in &advice.obstacles {
///     let merged = obstacle.without.map_or(0, |without| without.merged(&advice.now));
///     println!("{} v{}: {}: merges {merged}", obstacle.op, obstacle.version, obstacle.reason);
/// }
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// How the graph is split now, each delegate's nodes claimed together.
    pub now: Split,
    /// The obstacles, what gains most first: by partitions merged, then by multiply-adds delegated, then by nodes.
    pub obstacles: Vec<Obstacle>,
    /// Pairs that merge more partitions than their obstacles do one by one; those that merge most first.
    pub pairs: Vec<Pair>,
    /// How the graph would be split without any of the obstacles, where there are several.
    pub all: Option<Split>,
}

impl Advice {
    /// Tries out what keeps nodes of `graph` from being delegated, according to the `report` on it.
    pub fn new(graph: &GraphView<'_>, report: &Report) -> Self {
        let trial = Trial::new(*graph, report);
        let mut obstacles = obstacles(report);
        obstacles.sort_by_key(|o| Reverse(o.nodes.len()));
        let now = trial.split(&trial.owners);
        for obstacle in obstacles.iter_mut().take(TRIED) {
            obstacle.without = Some(trial.without(&[&*obstacle]));
        }
        obstacles.sort_by_key(|o| {
            let gain = o.without.map(|w| (w.merged(&now), w.multiply_adds.saturating_sub(now.multiply_adds)));
            Reverse((gain, o.nodes.len()))
        });
        let merged = |o: &Obstacle| o.without.map_or(0, |without| without.merged(&now));
        let mut pairs: Vec<Pair> = candidates(graph, &obstacles)
            .into_iter()
            .filter_map(|[a, b]| {
                let (first, second) = (obstacles.get(a)?, obstacles.get(b)?);
                let without = trial.without(&[first, second]);
                let gains = without.merged(&now) > merged(first) + merged(second);
                gains.then_some(Pair { obstacles: [a, b], without })
            })
            .collect();
        pairs.sort_by_key(|p| Reverse((p.without.merged(&now), p.without.multiply_adds)));
        let all = (obstacles.len() > 1).then(|| trial.without(&obstacles.iter().collect::<Vec<_>>()));
        Advice { now, obstacles, pairs, all }
    }
}

/// Whether a limit on partitions is the reason: the delegate runs the node.
fn is_limit(reason: &Rejection) -> bool {
    matches!(
        reason,
        Rejection::PartitionTooSmall { .. } | Rejection::TooManyPartitions { .. } | Rejection::CostModel(_)
    )
}

/// The distinct reasons for which nodes run on the CPU. Neither limits nor a delegate's failure are among them: both
/// follow from something else.
fn obstacles(report: &Report) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = Vec::new();
    let mut known = HashMap::new();
    for node in report.nodes.iter().filter(|n| n.runner == Runner::Cpu) {
        let said = |(_, reason): &&(usize, Rejection)| !matches!(reason, Rejection::DelegateFailed(_));
        let Some((delegate, reason)) = node.rejections.iter().rev().find(said) else { continue };
        if is_limit(reason) {
            continue;
        }
        // It names a tensor, so that its text differs from node to node.
        let dynamic = matches!(reason, Rejection::DynamicShape { .. });
        let text = if dynamic { String::new() } else { reason.to_string() };
        let key = (*delegate, &node.op, node.version, reason.kind(), text);
        let at = *known.entry(key).or_insert_with(|| {
            obstacles.push(Obstacle {
                delegate: *delegate,
                op: node.op.clone(),
                version: node.version,
                reason: reason.clone(),
                nodes: Vec::new(),
                without: None,
            });
            obstacles.len() - 1
        });
        if let Some(obstacle) = obstacles.get_mut(at) {
            obstacle.nodes.push(node.node);
        }
    }
    obstacles
}

/// Pairs worth trying: obstacles whose nodes feed each other, most often first, then those that gain most.
fn candidates(graph: &GraphView<'_>, obstacles: &[Obstacle]) -> Vec<[usize; 2]> {
    let mut of_node = HashMap::new();
    for (i, obstacle) in obstacles.iter().enumerate().filter(|(_, o)| o.without.is_some()) {
        of_node.extend(obstacle.nodes.iter().map(|&id| (id, i)));
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
    let paired = obstacles.iter().take_while(|o| o.without.is_some()).count().min(PAIRED);
    let others = (0..paired).flat_map(|a| (a + 1..paired).map(move |b| [a, b]));
    pairs.extend(others.filter(|pair| !touching.contains_key(pair)));
    pairs.truncate(TRIED);
    pairs
}

/// Splits the graph as if more were claimed.
struct Trial<'a> {
    graph: GraphView<'a>,
    partitioner: Partitioner<'a>,
    multiply_adds: Vec<u64>,
    /// Per node, 0 for the CPU, otherwise one more than the delegate.
    owners: Vec<usize>,
    /// Nodes that a delegate runs and that limits alone keep from it, with who would own them.
    limited: Vec<(NodeId, usize)>,
}

impl<'a> Trial<'a> {
    fn new(graph: GraphView<'a>, report: &Report) -> Self {
        let mut owners = vec![0; graph.subgraph().nodes.len()];
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

    /// The split if the nodes of these obstacles were claimed, too.
    fn without(&self, obstacles: &[&Obstacle]) -> Split {
        let mut owners = self.owners.clone();
        let own = |owners: &mut [usize], id: NodeId, owner: usize| {
            owners.iter_mut().skip(id.0).take(1).for_each(|o| *o = owner);
        };
        for obstacle in obstacles {
            obstacle.nodes.iter().for_each(|&id| own(&mut owners, id, obstacle.delegate + 1));
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

    /// A graph of nodes that each read earlier ones (0 is the input), written `op: inputs`.
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

    /// Advice where delegate 0 takes what `reason` finds nothing against.
    fn advise(model: &Model, reason: impl Fn(usize, &Op) -> Option<Rejection>) -> Advice {
        let subgraph = &model.subgraphs[0];
        let tensors: Vec<RuntimeTensor> = subgraph.tensors.iter().map(RuntimeTensor::new).collect();
        let known = vec![true; tensors.len()];
        let states = vec![NodeState::default(); subgraph.nodes.len()];
        let node = |(i, node): (usize, &delegraph_core::Node)| {
            let rejection = reason(i, &node.op);
            let delegated = Runner::Delegate { delegate: 0, partition: 0 };
            NodeReport {
                node: NodeId(i),
                op: node.op.clone(),
                version: node.version,
                runner: if rejection.is_some() { Runner::Cpu } else { delegated },
                rejections: rejection.map(|r| (0, r)).into_iter().collect(),
            }
        };
        let nodes = subgraph.nodes.iter().enumerate().map(node).collect();
        let report = Report { delegates: vec!["test".into()], nodes, ..Report::default() };
        Advice::new(&GraphView::new(model, 0, &tensors, &known, &states), &report)
    }

    /// Leaves these ops to the CPU.
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
        let [first, second] = &advice.obstacles[..] else { panic!("{:?}", advice.obstacles) };
        assert_eq!((&first.op, &first.nodes[..]), (&SQRT.into(), &[NodeId(2)][..]));
        let without = first.without.unwrap();
        assert_eq!((without.partitions, without.nodes, without.boundary_bytes), (1, 4, 2 * TENSOR));
        assert_eq!(without.merged(&advice.now), 1);
        // The last node makes a partition longer, and no border shorter.
        let without = second.without.unwrap();
        assert_eq!((without.partitions, without.nodes, without.boundary_bytes), (2, 4, 4 * TENSOR));
        let all = advice.all.unwrap();
        assert_eq!((all.partitions, all.nodes, all.boundary_bytes), (1, 5, 2 * TENSOR));
        assert_eq!(advice.pairs, []);
    }

    #[test]
    fn obstacles_that_keep_partitions_apart_together_are_a_pair() {
        // One after the other, and side by side.
        let chain = model(&[(NEG, &[0]), (SQRT, &[1]), (ABS, &[2]), (NEG, &[3])]);
        let diamond = model(&[(NEG, &[0]), (SQRT, &[1]), (ABS, &[1]), (ADD, &[2, 3])]);
        for model in [chain, diamond] {
            let advice = advise(&model, all_but(&[SQRT, ABS]));
            assert_eq!(advice.now.partitions, 2);
            let alone = advice.obstacles.iter().map(|o| o.without.unwrap().partitions);
            assert_eq!(alone.collect::<Vec<_>>(), [2, 2]);
            let [pair] = &advice.pairs[..] else { panic!("{:?}", advice.pairs) };
            assert_eq!((pair.obstacles, pair.without.partitions), ([0, 1], 1));
            assert_eq!(advice.all, Some(pair.without));
        }
    }

    #[test]
    fn the_same_reason_of_several_nodes_is_one_obstacle() {
        let model = model(&[(SQRT, &[0]), (NEG, &[1]), (SQRT, &[2]), (SQRT, &[3])]);
        let advice = advise(&model, |i, op| match (i, op.builtin()) {
            (2 | 3, _) => Some(Rejection::DynamicShape { tensor: format!("y{i}") }),
            (_, Some(SQRT)) => Some(Rejection::UnsupportedParam("a".into())),
            _ => None,
        });
        let nodes: Vec<_> = advice.obstacles.iter().map(|o| (o.reason.kind(), o.nodes.len())).collect();
        assert_eq!(nodes, [("DynamicShape", 2), ("UnsupportedParam", 1)]);
    }

    #[test]
    fn the_last_delegate_that_gave_a_reason_is_advised() {
        let model = model(&[(NEG, &[0]), (SQRT, &[1]), (NEG, &[2])]);
        let tensors: Vec<RuntimeTensor> = model.subgraphs[0].tensors.iter().map(RuntimeTensor::new).collect();
        let (known, states) = (vec![true; tensors.len()], vec![NodeState::default(); 3]);
        let graph = GraphView::new(&model, 0, &tensors, &known, &states);
        // Delegate 0 has the first node, delegate 1 the last one.
        let advise = |rejections: Vec<(usize, Rejection)>| {
            let node = |(i, node): (usize, &delegraph_core::Node)| NodeReport {
                node: NodeId(i),
                op: node.op.clone(),
                version: node.version,
                runner: match i {
                    1 => Runner::Cpu,
                    _ => Runner::Delegate { delegate: i / 2, partition: i / 2 },
                },
                rejections: if i == 1 { rejections.clone() } else { Vec::new() },
            };
            let nodes = model.subgraphs[0].nodes.iter().enumerate().map(node).collect();
            let delegates = vec!["a".into(), "b".into()];
            Advice::new(&graph, &Report { delegates, nodes, ..Report::default() })
        };
        let op = Op::from(SQRT);
        let unsupported = |delegate| (delegate, Rejection::UnsupportedOp { op: op.clone() });
        let advice = advise(vec![unsupported(0), unsupported(1)]);
        assert_eq!((advice.now.partitions, advice.now.boundary_bytes), (2, 4 * TENSOR));
        let [obstacle] = &advice.obstacles[..] else { panic!("{:?}", advice.obstacles) };
        assert_eq!((obstacle.delegate, obstacle.without.unwrap().partitions), (1, 2));
        // One that failed said nothing of the node.
        let failed = |delegate| (delegate, Rejection::DelegateFailed("lost".into()));
        assert_eq!(advise(vec![unsupported(0), failed(1)]).obstacles[0].delegate, 0);
        assert_eq!(advise(vec![failed(0), failed(1)]).obstacles, []);
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
        assert_eq!((advice.now, advice.obstacles.len()), (Split::default(), 2));
        let split = |kind: &str| {
            let obstacle = advice.obstacles.iter().find(|o| o.reason.kind() == kind).unwrap();
            obstacle.without.map(|w| (w.partitions, w.nodes))
        };
        // All but the other SQRT in one partition; then that one with what comes before and after it, while the NEG at the
        // end of the first chain stays alone.
        assert_eq!(split("UnsupportedOp"), Some((1, 4)));
        assert_eq!(split("UnsupportedParam"), Some((1, 3)));
    }

    #[test]
    fn graphs_of_many_obstacles_are_bounded() {
        let nodes: Vec<_> = (0..3000).map(|i| (NEG, vec![i])).collect();
        let nodes: Vec<_> = nodes.iter().map(|(op, inputs)| (*op, &inputs[..])).collect();
        let model = model(&nodes);
        let advice = advise(&model, |i, _| {
            (i % 3 == 0).then(|| Rejection::UnsupportedParam(format!("number {}", i % 600)))
        });
        assert_eq!(advice.obstacles.len(), 200);
        assert_eq!(advice.obstacles.iter().filter(|o| o.without.is_some()).count(), TRIED);
        assert!(advice.obstacles[..TRIED].iter().all(|o| o.without.is_some()));
        assert_eq!(advice.all.map(|all| (all.partitions, all.nodes)), Some((1, 3000)));
    }
}
