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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{constant, input, step, value, view};
    use delegraph_shaders::{binary, conv_2d, unary};
    use unary::Unary;

    const SHAPE: [u32; 4] = [1, 4, 4, 8];

    fn conv(activation: Activation) -> conv_2d::Spec {
        conv_2d::Spec {
            input: SHAPE,
            output: SHAPE,
            filter: [8, 1, 1, 8],
            stride: [1, 1],
            dilation: [1, 1],
            padding: [0, 0],
            epilogue: Epilogue::activation(activation),
        }
    }

    fn unary(function: Unary) -> unary::Spec {
        unary::Spec { steps: vec![function], elements: 128 }
    }

    fn binary(op: Binary, b: &[u32]) -> binary::Spec {
        let (a, output) = (SHAPE.to_vec(), SHAPE.to_vec());
        binary::Spec { op, element: Element::F32, a, b: b.to_vec(), output, activation: Activation::RELU }
    }

    /// Optimises and returns, per step left, the nodes that it runs.
    fn optimized(graph: &mut Graph<'_>) -> Vec<Vec<usize>> {
        optimize(graph);
        graph.steps.iter().map(|s| s.nodes.iter().map(|n| n.0).collect()).collect()
    }

    fn epilogue(graph: &Graph<'_>, i: usize) -> Epilogue {
        *graph.steps[i].spec.clone().epilogue_mut().unwrap()
    }

    #[test]
    fn an_activation_joins_the_convolution() {
        let mut graph = Graph::default();
        let (a, b, c) = (input(&mut graph, &SHAPE), value(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
        step(&mut graph, conv(Activation::None), &[a], b);
        // A reshape in between changes nothing.
        let b = view(&mut graph, b, &[128]);
        step(&mut graph, unary(Unary::HardSwish), &[b], c);
        graph.outputs.push(c);
        assert_eq!(optimized(&mut graph), [[0, 1]]);
        assert_eq!(epilogue(&graph, 0).activation, Activation::Unary(Unary::HardSwish));
        assert_eq!(graph.steps[0].output, c);
    }

    #[test]
    fn a_second_activation_stays() {
        let mut graph = Graph::default();
        let (a, b, c) = (input(&mut graph, &SHAPE), value(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
        step(&mut graph, conv(Activation::RELU), &[a], b);
        step(&mut graph, unary(Unary::Tanh), &[b], c);
        graph.outputs.push(c);
        assert_eq!(optimized(&mut graph), [[0], [1]]);
    }

    #[test]
    fn what_others_read_stays() {
        for wanted_outside in [false, true] {
            let mut graph = Graph::default();
            let a = input(&mut graph, &SHAPE);
            let [b, c, d] = [(); 3].map(|()| value(&mut graph, &SHAPE));
            step(&mut graph, conv(Activation::None), &[a], b);
            step(&mut graph, unary(Unary::Tanh), &[b], c);
            graph.outputs.push(c);
            if wanted_outside {
                graph.outputs.push(b);
                assert_eq!(optimized(&mut graph), [[0], [1]]);
            } else {
                step(&mut graph, unary(Unary::Exp), &[b], d);
                graph.outputs.push(d);
                assert_eq!(optimized(&mut graph), [[0], [1], [2]]);
            }
        }
    }

    #[test]
    fn functions_join_into_a_chain() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &SHAPE);
        let [b, c, d] = [(); 3].map(|()| value(&mut graph, &SHAPE));
        step(&mut graph, unary(Unary::Abs), &[a], b);
        step(&mut graph, unary(Unary::Sqrt), &[b], c);
        step(&mut graph, unary(Unary::Neg), &[c], d);
        graph.outputs.push(d);
        assert_eq!(optimized(&mut graph), [[0, 1, 2]]);
        let chain = unary::Spec { steps: vec![Unary::Abs, Unary::Sqrt, Unary::Neg], elements: 128 };
        assert_eq!(graph.steps[0].spec, chain.into());
    }

    #[test]
    fn a_residual_joins_the_later_convolution() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &SHAPE);
        let [b, c, d] = [(); 3].map(|()| value(&mut graph, &SHAPE));
        step(&mut graph, conv(Activation::RELU6), &[a], b);
        step(&mut graph, conv(Activation::RELU), &[b], c);
        step(&mut graph, binary(Binary::Add, &SHAPE), &[b, c], d);
        graph.outputs.push(d);
        assert_eq!(optimized(&mut graph), [vec![0], vec![1, 2]]);
        assert_eq!(graph.steps[1].residual, Some(b));
        let expected = Epilogue { activation: Activation::RELU, residual: Some(Activation::RELU) };
        assert_eq!(epilogue(&graph, 1), expected);
    }

    #[test]
    fn a_broadcast_or_a_product_is_no_residual() {
        for (op, shape) in [(Binary::Add, vec![8]), (Binary::Mul, SHAPE.to_vec())] {
            let mut graph = Graph::default();
            let (a, b, c) = (input(&mut graph, &SHAPE), value(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
            let other = constant(&mut graph, &shape);
            step(&mut graph, conv(Activation::None), &[a], b);
            step(&mut graph, binary(op, &shape), &[b, other], c);
            graph.outputs.push(c);
            assert_eq!(optimized(&mut graph), [[0], [1]]);
        }
    }

    #[test]
    fn slopes_per_channel_join_the_convolution() {
        for (shape, expected) in
            [(vec![1, 1, 8], vec![vec![0, 1]]), (vec![1, 4, 4, 8], vec![vec![0], vec![1]])]
        {
            let mut graph = Graph::default();
            let (a, b, c) = (input(&mut graph, &SHAPE), value(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
            let slope = constant(&mut graph, &shape);
            step(&mut graph, conv(Activation::None), &[a], b);
            let prelu = binary::Spec { activation: Activation::None, ..binary(Binary::Prelu, &shape) };
            step(&mut graph, prelu, &[b, slope], c);
            graph.outputs.push(c);
            assert_eq!(optimized(&mut graph), expected);
            assert_eq!(graph.steps[0].slope, (expected.len() == 1).then_some(slope));
        }
    }
}
