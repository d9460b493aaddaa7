//! State of a model that keeps its value between invocations.

use std::collections::BTreeMap;
use std::fmt;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, Node, Subgraph, TensorId};
use delegraph_core::ops::lstm::inputs::{BACKWARD, CELL, FORWARD};
use delegraph_core::ops::{LstmKernelType, rnn};
use delegraph_core::{BuiltinOp, Op, OpResolver, Params};

/// State that keeps its value between invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State<'m> {
    /// The name of a variable of the first subgraph. Variables of other subgraphs are reset in every call.
    Variable(&'m str),
    /// The container and the name of a resource variable.
    Resource(&'m str, &'m str),
}

impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Variable(name) => write!(f, "variable \"{name}\""),
            State::Resource("", name) => write!(f, "resource variable \"{name}\""),
            State::Resource(container, name) => write!(f, "resource variable \"{container}/{name}\""),
        }
    }
}

/// Returns the state that lasts between invocations, with the tensors of each variable name in their order. A resource
/// variable has no tensors.
fn lasting(model: &Model) -> BTreeMap<State<'_>, Vec<TensorId>> {
    let mut states: BTreeMap<State<'_>, Vec<TensorId>> = BTreeMap::new();
    let first = model.subgraphs().first().map_or(&[][..], |g| g.tensors());
    for (i, variable) in first.iter().enumerate().filter(|(_, t)| t.is_variable()) {
        states.entry(State::Variable(variable.name())).or_default().push(TensorId(i));
    }
    // Inlining copies the nodes of a function, whose copies refer to the same variable.
    for node in model.subgraphs().iter().flat_map(|g| g.nodes()) {
        if let Params::VarHandle(handle) = node.params() {
            states.entry(State::Resource(&handle.container, &handle.shared_name)).or_default();
        }
    }
    states
}

/// Lasting state that only the rewritten model has.
#[derive(Debug, Default)]
pub(super) struct Added<'m> {
    /// Variables of the first subgraph.
    pub(super) variables: Vec<(State<'m>, TensorId)>,
    /// Resource variables.
    pub(super) resources: Vec<State<'m>>,
}

impl<'m> Added<'m> {
    /// Compares the state of two models by names. If a name has more variables in `after`, the first ones count as
    /// those of `before`, because passes append tensors. A library that puts its own variable first is therefore
    /// rejected: the comparison resets the wrong one.
    pub(super) fn between(before: &Model, after: &'m Model) -> Self {
        let known = lasting(before);
        let mut added = Added::default();
        for (state, tensors) in lasting(after) {
            let old = known.get(&state);
            match state {
                State::Variable(_) => {
                    let new = tensors.into_iter().skip(old.map_or(0, Vec::len));
                    added.variables.extend(new.map(|id| (state, id)));
                }
                State::Resource(..) if old.is_none() => added.resources.push(state),
                State::Resource(..) => {}
            }
        }
        added
    }

    /// Returns the first added state, if there is one.
    pub(super) fn first(&self) -> Option<State<'m>> {
        self.variables.first().map(|(state, _)| *state).or_else(|| self.resources.first().copied())
    }
}

/// State to reset before an invocation, of a model that is prepared.
#[derive(Debug, Default)]
pub(super) struct Reset {
    pub(super) variables: Vec<TensorId>,
    /// Resource variables, by container and name.
    pub(super) resources: Vec<(String, String)>,
    /// The initialization subgraphs of the resource variables.
    pub(super) initializers: Vec<usize>,
}

impl Reset {
    /// Returns the state that `after` has in addition to that of `before`. If an initialization also assigns other
    /// state, the comparison resets that state as well, and so rejects the rewriting.
    pub(super) fn of_added(before: &Model, after: &Model) -> Self {
        let added = Added::between(before, after);
        let name = |state: &State<'_>| match state {
            State::Resource(container, name) => Some(((*container).to_owned(), (*name).to_owned())),
            State::Variable(_) => None,
        };
        let resources: Vec<(String, String)> = added.resources.iter().filter_map(name).collect();
        let assigns = |index: &usize| {
            let mut nodes = after.subgraphs().get(*index).into_iter().flat_map(|g| g.nodes());
            nodes.any(|node| match node.params() {
                Params::VarHandle(handle) => {
                    resources.iter().any(|(c, n)| *c == handle.container && *n == handle.shared_name)
                }
                _ => false,
            })
        };
        let nodes = after.subgraphs().iter().flat_map(|g| g.nodes());
        let once = nodes.filter(|n| *n.op() == Op::Builtin(BuiltinOp::CALL_ONCE)).flat_map(Node::callees);
        let initializers = once.filter(assigns).collect();
        let variables = added.variables.iter().map(|(_, id)| *id).collect();
        Reset { variables, resources, initializers }
    }
}

/// Minimum number of invocations of a sample if there is lasting state: errors in a memory of more than one step have
/// an effect only in later invocations.
const MIN_INVOCATIONS: usize = 16;

/// Maximum number of invocations of a sample.
const MAX_INVOCATIONS: usize = 256;

/// Returns the number of invocations that a sample of a comparison has: 1 without lasting state. The oldest step in the
/// memory of an SVDF has an effect only when the memory is full.
pub(super) fn invocations(models: [&Model; 2]) -> usize {
    if models.iter().all(|model| lasting(model).is_empty()) {
        return 1;
    }
    let graphs = models.into_iter().flat_map(|model| model.subgraphs());
    let memories = graphs.flat_map(|g| g.nodes().iter().map(move |node| memory(g, node)));
    memories.max().unwrap_or(0).saturating_add(1).clamp(MIN_INVOCATIONS, MAX_INVOCATIONS)
}

/// Returns the number of steps that an SVDF keeps; 0 for other ops.
fn memory(graph: &Subgraph, node: &Node) -> usize {
    if *node.op() != Op::Builtin(BuiltinOp::SVDF) {
        return 0;
    }
    // Weights of time are `[filters, memory]`.
    let weights = node.input(2).and_then(|id| graph.tensors().get(id.0));
    weights.and_then(|t| t.shape().get(1).copied()).unwrap_or(0)
}

/// Checks that the states of recurrent ops in the first subgraph are different variables. Kernels check this only when
/// they run.
///
/// # Errors
/// [`Error::InvalidNode`] at the node.
pub(super) fn check_operands(model: &Model, resolver: &dyn OpResolver) -> Result<()> {
    let Some(graph) = model.subgraphs().first() else { return Ok(()) };
    for (id, node) in graph.node_ids().zip(graph.nodes()) {
        let states = state_operands(node);
        // A kernel of the application may not need variables.
        let overridden = || resolver.find(node.op(), node.version()).is_some_and(|r| r.overrides_builtin());
        if states.is_empty() || overridden() {
            continue;
        }
        for (at, &i) in states.iter().enumerate() {
            let Some((state, tensor)) = node.input(i).and_then(|t| Some((t, graph.tensors().get(t.0)?)))
            else {
                continue;
            };
            let name = tensor.name();
            let twice = states.iter().take(at).find(|other| node.input(**other) == Some(state));
            let text = match twice {
                _ if !tensor.is_variable() => format!("input {i} (\"{name}\") must be a variable tensor"),
                Some(other) => {
                    format!("inputs {other} and {i} (\"{name}\") must be different variable tensors")
                }
                None => continue,
            };
            return Err(Error::InvalidNode(text).at(model.locate(0, id)));
        }
    }
    Ok(())
}

/// Returns the operands of a node that must be variables.
fn state_operands(node: &Node) -> &'static [usize] {
    const ONE: &[usize] = &[CELL.output_state, CELL.cell_state];
    const BOTH: &[usize] =
        &[FORWARD.output_state, FORWARD.cell_state, BACKWARD.output_state, BACKWARD.cell_state];
    const RNN: &[usize] = &[rnn::inputs::FORWARD.state];
    const RNN_BOTH: &[usize] = &[rnn::inputs::FORWARD.state, rnn::inputs::BACKWARD.state];
    // The basic cell reads its state and writes the next one to outputs.
    let basic = matches!(node.params(), Params::Lstm(p) if p.kernel_type == LstmKernelType::Basic);
    match node.op().builtin() {
        Some(BuiltinOp::LSTM) if basic => &[],
        Some(BuiltinOp::LSTM | BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM) => ONE,
        Some(BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM) => BOTH,
        Some(BuiltinOp::SVDF) => &[4],
        Some(BuiltinOp::RNN | BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN) => RNN,
        Some(BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN) => RNN_BOTH,
        _ => &[],
    }
}
