//! Rewrites that make the graph smaller: fewer dispatches, fewer intermediate values.
//!
//! Each rule looks at one step and may merge it with the step before. A value between two steps disappears only when
//! nobody else reads it and no caller wants it.

use delegraph_shaders::binary::{Binary, Element};
use delegraph_shaders::{Activation, Epilogue};

use crate::graph::{Graph, Source, Spec, Step, Uses, ValueId};

/// Applies every rule until none applies.
pub(crate) fn optimize(graph: &mut Graph<'_>) {
    while apply_one(graph) {}
}

/// A rule: merges step `i` with another one, if it can.
type Rule = fn(&mut Graph<'_>, &Uses, usize) -> bool;

fn apply_one(graph: &mut Graph<'_>) -> bool {
    const RULES: &[Rule] = &[fuse_unary, fuse_prelu, fuse_residual];
    let uses = graph.uses();
    RULES.iter().any(|rule| (0..graph.steps.len()).any(|i| rule(graph, &uses, i)))
}

/// The one step that writes the value that `id` is the whole of, where step `reader` is the only one to read it.
fn only_producer(graph: &Graph<'_>, uses: &Uses, id: ValueId, reader: usize) -> Option<usize> {
    let root = graph.whole(id)?;
    match (uses.writers[root.0].as_slice(), uses.readers[root.0].as_slice(), uses.pinned[root.0]) {
        (&[writer], &[r], false) if r == reader => Some(writer),
        _ => None,
    }
}

/// Removes step `i` and lets step `into`, which now does its work, write its output.
fn merge(graph: &mut Graph<'_>, i: usize, into: usize) {
    let gone = graph.steps.remove(i);
    let step = &mut graph.steps[into];
    step.output = gone.output;
    step.nodes.extend(gone.nodes);
    step.nodes.sort_unstable();
}

/// A unary function after a step with an epilogue, after an operator on two tensors, or after other functions.
fn fuse_unary(graph: &mut Graph<'_>, uses: &Uses, i: usize) -> bool {
    let Some(Step { spec: Spec::Unary(unary), inputs, .. }) = graph.steps.get(i) else { return false };
    let Some(before) = inputs.first().and_then(|&id| only_producer(graph, uses, id, i)) else { return false };
    let functions = unary.steps.clone();
    let fused = match &mut graph.steps[before].spec {
        Spec::Unary(unary) => {
            unary.steps.extend(functions);
            true
        }
        Spec::Binary(binary) if binary.element == Element::F32 && !binary.op.compares() => {
            match functions.as_slice() {
                [function] => fill(&mut binary.activation, Activation::Unary(*function)),
                _ => false,
            }
        }
        spec => match (spec.epilogue_mut(), functions.as_slice()) {
            (Some(epilogue), [function]) => fill_epilogue(epilogue, Activation::Unary(*function)),
            _ => false,
        },
    };
    if fused {
        merge(graph, i, before);
    }
    fused
}

/// PRELU with one slope per channel, after a step with an epilogue.
fn fuse_prelu(graph: &mut Graph<'_>, uses: &Uses, i: usize) -> bool {
    let Some(Step { spec: Spec::Binary(binary), inputs, .. }) = graph.steps.get(i) else { return false };
    let &[data, slope] = inputs.as_slice() else { return false };
    let channels = binary.output.last().copied().unwrap_or(1);
    let per_channel = binary.op == Binary::Prelu
        && binary.activation == Activation::None
        && binary.a == binary.output
        && binary.b.last() == Some(&channels)
        && binary.b.iter().rev().skip(1).all(|&d| d == 1);
    if !per_channel || !matches!(graph.value(slope).source, Source::Constant(_)) {
        return false;
    }
    let Some(before) = only_producer(graph, uses, data, i) else { return false };
    // The channels are those of the step's own output, not of a reshaped look at it.
    let same_channels = graph.value(graph.steps[before].output).shape.last() == Some(&channels);
    let step = &mut graph.steps[before];
    let fused = same_channels
        && step.slope.is_none()
        && step.spec.epilogue_mut().is_some_and(|e| fill_epilogue(e, Activation::Prelu));
    if fused {
        step.slope = Some(slope);
        merge(graph, i, before);
    }
    fused
}

/// ADD of two tensors of one shape, after the step with an epilogue that computes the later of them.
fn fuse_residual(graph: &mut Graph<'_>, uses: &Uses, i: usize) -> bool {
    let Some(Step { spec: Spec::Binary(binary), inputs, .. }) = graph.steps.get(i) else { return false };
    let &[a, b] = inputs.as_slice() else { return false };
    if binary.op != Binary::Add || binary.element != Element::F32 || binary.a != binary.b {
        return false;
    }
    let after = binary.activation;
    let available = |id: ValueId, before: usize| {
        let root = graph.root(id).0;
        uses.writers[root.0].iter().all(|&writer| writer < before)
    };
    let candidate = |data: ValueId, other: ValueId| {
        let before = only_producer(graph, uses, data, i)?;
        let room = |epilogue: &Epilogue| epilogue.residual.is_none();
        let fits = graph.steps[before].spec.clone().epilogue_mut().is_some_and(|e| room(e));
        (fits && available(other, before)).then_some((before, other))
    };
    let Some((before, other)) = candidate(a, b).or_else(|| candidate(b, a)) else { return false };
    let step = &mut graph.steps[before];
    if let Some(epilogue) = step.spec.epilogue_mut() {
        epilogue.residual = Some(after);
    }
    step.residual = Some(other);
    merge(graph, i, before);
    true
}

fn fill_epilogue(epilogue: &mut Epilogue, activation: Activation) -> bool {
    fill(epilogue.residual.as_mut().unwrap_or(&mut epilogue.activation), activation)
}

/// Puts an activation where there is none yet.
fn fill(place: &mut Activation, activation: Activation) -> bool {
    let free = *place == Activation::None;
    if free {
        *place = activation;
    }
    free
}
