//! Passes that merge steps: fewer dispatches, fewer intermediate values.
//!
//! Each rule tries to merge a step with its producer. The value between the two is removed, so it must have no other
//! reader and must not be an output of the graph.

use delegraph_shaders::binary::Binary;
use delegraph_shaders::pad::Fill;
use delegraph_shaders::{Activation, Element};

use crate::graph::{Graph, Source, Spec, Step, Uses, ValueId, Weights};

/// Applies all rules until none applies. `alignment`: the alignment of views in another value's memory, in bytes.
pub(crate) fn optimize(graph: &mut Graph<'_>, alignment: u64) {
    const RULES: &[Rule] = &[fuse_pad, fuse_unary, fuse_prelu, fuse_residual, place];
    while RULES.iter().any(|rule| apply(graph, *rule, alignment)) {}
}

/// Stores weights in 16 bits where that is exact, as for float16 models.
pub(crate) fn halve_weights(graph: &mut Graph<'_>) {
    for step in &mut graph.steps {
        if let (Some(halves), Some(Weights::Floats { filter, .. })) = (step.spec.halves_mut(), &step.weights)
        {
            *halves = delegraph_shaders::are_halves(filter);
        }
    }
}

/// A rule merges step `i` with another one, if possible. It returns the step to remove and the one whose uses are
/// outdated, which may be the same.
type Rule = fn(&mut Graph<'_>, &mut Sweep, usize, u64) -> Option<[usize; 2]>;

/// One application of a rule to all steps.
struct Sweep {
    uses: Uses,
    /// Steps that were merged, whose uses have changed.
    merged: Vec<bool>,
}

impl Sweep {
    /// Returns the only writer of the whole value `id`, if step `reader` is its only reader, the writer has not been
    /// merged, and the value is not an input or output.
    fn only_producer(&self, graph: &Graph<'_>, id: ValueId, reader: usize) -> Option<usize> {
        let root = graph.whole(id)?;
        let Uses { writers, readers, pinned } = &self.uses;
        match (writers[root.0].as_slice(), readers[root.0].as_slice(), pinned[root.0]) {
            (&[writer], &[r], false) if r == reader && !self.merged[writer] => Some(writer),
            _ => None,
        }
    }
}

/// Applies a rule until it does not apply to any step. Returns whether a step was removed. Steps are removed after each
/// sweep. The number of sweeps is logarithmic in the length of a chain, so large graphs do not take quadratic time.
fn apply(graph: &mut Graph<'_>, rule: Rule, alignment: u64) -> bool {
    let before = graph.steps.len();
    loop {
        let count = graph.steps.len();
        let mut sweep = Sweep { uses: graph.uses(), merged: vec![false; count] };
        let mut left_over = vec![false; count];
        for i in 0..count {
            if sweep.merged[i] {
                continue;
            }
            if let Some([removed, kept]) = rule(graph, &mut sweep, i, alignment) {
                left_over[removed] = true;
                (sweep.merged[removed], sweep.merged[kept]) = (true, true);
            }
        }
        let mut left_over = left_over.into_iter();
        graph.steps.retain(|_| left_over.next() == Some(false));
        if graph.steps.len() == count {
            return count < before;
        }
    }
}

/// Merges step `i` into step `into`, which now writes its output.
fn merge(graph: &mut Graph<'_>, i: usize, into: usize) -> Option<[usize; 2]> {
    let (output, nodes) = (graph.steps[i].output, std::mem::take(&mut graph.steps[i].nodes));
    let step = &mut graph.steps[into];
    step.output = output;
    step.nodes.extend(nodes);
    step.nodes.sort_unstable();
    Some([i, into])
}

/// Merges a unary function into a preceding step with an epilogue, a binary operator, or other unary functions.
fn fuse_unary(graph: &mut Graph<'_>, sweep: &mut Sweep, i: usize, _: u64) -> Option<[usize; 2]> {
    let Step { spec: Spec::Unary(unary), inputs, .. } = graph.steps.get(i)? else { return None };
    let before = sweep.only_producer(graph, *inputs.first()?, i)?;
    let functions = unary.steps.clone();
    let fused = match &mut graph.steps[before].spec {
        Spec::Unary(unary) => {
            unary.steps.extend(functions);
            true
        }
        spec => match (spec.activation_mut(), functions.as_slice()) {
            (Some(place), [function]) if function.follows() => fill(place, Activation::Unary(*function)),
            _ => false,
        },
    };
    if fused { merge(graph, i, before) } else { None }
}

/// Merges PRELU with one slope per channel into a preceding step with an epilogue.
fn fuse_prelu(graph: &mut Graph<'_>, sweep: &mut Sweep, i: usize, _: u64) -> Option<[usize; 2]> {
    let Step { spec: Spec::Binary(binary), inputs, .. } = graph.steps.get(i)? else { return None };
    let &[data, slope] = inputs.as_slice() else { return None };
    let channels = binary.output.last().copied().unwrap_or(1);
    let per_channel = binary.op == Binary::Prelu
        && binary.activation == Activation::None
        && binary.a == binary.output
        && binary.b.last() == Some(&channels)
        && binary.b.iter().rev().skip(1).all(|&d| d == 1);
    if !per_channel || !matches!(graph.value(slope).source, Source::Constant(_)) {
        return None;
    }
    let before = sweep.only_producer(graph, data, i)?;
    // Compared with the step's own output: a view may have another innermost dimension.
    let same_channels = graph.value(graph.steps[before].output).shape.last() == Some(&channels);
    let step = &mut graph.steps[before];
    let fused = same_channels
        && step.slope.is_none()
        && step.spec.epilogue_mut().is_some()
        && step.spec.activation_mut().is_some_and(|place| fill(place, Activation::Prelu));
    if !fused {
        return None;
    }
    step.slope = Some(slope);
    merge(graph, i, before)
}

/// Merges ADD of two tensors of the same shape into the producer of the later one, which must have an epilogue.
fn fuse_residual(graph: &mut Graph<'_>, sweep: &mut Sweep, i: usize, _: u64) -> Option<[usize; 2]> {
    let Step { spec: Spec::Binary(binary), inputs, .. } = graph.steps.get(i)? else { return None };
    let &[a, b] = inputs.as_slice() else { return None };
    if binary.op != Binary::Add || binary.element != Element::F32 || binary.a != binary.b {
        return None;
    }
    let after = binary.activation;
    let available = |id: ValueId, before: usize| {
        let root = graph.root(id).0;
        sweep.uses.writers[root.0].iter().all(|&writer| writer < before)
    };
    let candidate = |data: ValueId, other: ValueId| {
        let before = sweep.only_producer(graph, data, i)?;
        let room = graph.steps[before].spec.clone().epilogue_mut().is_some_and(|e| e.residual.is_none());
        (room && available(other, before)).then_some((before, other))
    };
    let (before, other) = candidate(a, b).or_else(|| candidate(b, a))?;
    let step = &mut graph.steps[before];
    if let Some(epilogue) = step.spec.epilogue_mut() {
        epilogue.residual = Some(after);
    }
    step.residual = Some(other);
    merge(graph, i, before)
}

/// Merges zero padding into the following convolution, as the convolution's own padding.
fn fuse_pad(graph: &mut Graph<'_>, sweep: &mut Sweep, i: usize, _: u64) -> Option<[usize; 2]> {
    let before = sweep.only_producer(graph, *graph.steps.get(i)?.inputs.first()?, i)?;
    let Spec::Pad(pad) = &graph.steps[before].spec else { return None };
    let (&[none, [top, bottom], [left, right], inner], &[n, h, w, c]) =
        (pad.padding.as_slice(), pad.input.as_slice())
    else {
        return None;
    };
    let padded = [n, h + top + bottom, w + left + right, c];
    let (fill, around) = (pad.fill, none == [0, 0] && inner == [0, 0]);
    let (Ok(top), Ok(left), true) = (i32::try_from(top), i32::try_from(left), around) else { return None };
    let (input, padding, epilogue) = match &mut graph.steps[i].spec {
        Spec::Conv2D(conv) => (&mut conv.input, &mut conv.padding, conv.epilogue),
        Spec::DepthwiseConv2D(conv) => (&mut conv.input, &mut conv.padding, conv.epilogue),
        _ => return None,
    };
    let zero = epilogue.integers.map_or(0.0_f32.to_bits(), |i| i.input_zero.cast_unsigned());
    if *input != padded || fill != Fill::Value(zero) {
        return None;
    }
    *input = [n, h, w, c];
    *padding = [padding[0] + top, padding[1] + left];
    let source = graph.steps[before].inputs.clone();
    let nodes = std::mem::take(&mut graph.steps[before].nodes);
    graph.steps[i].inputs = source;
    graph.steps[i].nodes.extend(nodes);
    graph.steps[i].nodes.sort_unstable();
    Some([before, i])
}

/// Removes the copy of an input into a contiguous part of a concatenation: the producer of the input writes that part.
fn place(graph: &mut Graph<'_>, sweep: &mut Sweep, i: usize, alignment: u64) -> Option<[usize; 2]> {
    let Step { spec: Spec::Join(join), inputs, output, .. } = graph.steps.get(i)? else { return None };
    let at = join.piece().filter(|at| at.is_multiple_of(alignment))?;
    let part = graph.whole(*inputs.first()?)?;
    let (output, (target, offset)) = (*output, graph.root(*output));
    let Uses { writers, readers, pinned } = &mut sweep.uses;
    let writer = *writers[part.0].last()?;
    if !matches!(graph.value(part).source, Source::Steps) || pinned[part.0] || part == target {
        return None;
    }
    // A step must not read and write one buffer, so no step may read one of the two values and write the other.
    let shared = |id: ValueId| [part, target].contains(&graph.root(id).0);
    let mut both = writers[part.0].iter().chain(&writers[target.0]);
    if both.any(|&n| n != i && graph.steps[n].reads().any(shared)) {
        return None;
    }
    graph.values[part.0].source = Source::View { of: output, offset: at };
    debug_assert_eq!(graph.root(part), (target, offset + at));
    // The part's memory is the target's now.
    for all in [writers, readers] {
        let of_part = std::mem::take(&mut all[part.0]);
        all[target.0].extend(of_part);
        all[target.0].retain(|&n| n != i);
        all[target.0].sort_unstable();
    }
    let nodes = std::mem::take(&mut graph.steps[i].nodes);
    let step = &mut graph.steps[writer];
    step.nodes.extend(nodes);
    step.nodes.sort_unstable();
    step.nodes.dedup();
    Some([i, i])
}

/// Sets the activation, and returns true, if none is set.
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
    use crate::graph::Join;
    use crate::graph::testing::{constant, input, step, value, view};
    use delegraph_shaders::Epilogue;
    use delegraph_shaders::{binary, concatenation, conv_2d, pad, unary};
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

    /// Runs the passes and returns, per remaining step, its nodes.
    fn optimized(graph: &mut Graph<'_>) -> Vec<Vec<usize>> {
        optimize(graph, 256);
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
        // A reshape between the steps does not prevent the merge.
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
        let expected =
            Epilogue { residual: Some(Activation::RELU), ..Epilogue::activation(Activation::RELU) };
        assert_eq!(epilogue(&graph, 1), expected);
    }

    #[test]
    fn a_broadcast_or_a_product_is_not_a_residual() {
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

    #[test]
    fn weights_of_16_bits_take_no_more() {
        for (filter, halves) in [(vec![0.5_f32; 64], true), (vec![0.1; 64], false)] {
            let mut graph = Graph::default();
            let (a, b) = (input(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
            step(&mut graph, conv(Activation::None), &[a], b);
            let weights = Weights::Floats { filter: filter.into(), bias: Some(vec![0.1; 8].into()) };
            graph.steps[0].weights = Some(weights.clone());
            graph.outputs.push(b);
            halve_weights(&mut graph);
            assert_eq!(epilogue(&graph, 0).halves, halves);
            let packed = graph.steps[0].spec.pack_weights(&weights).unwrap();
            assert_eq!(packed.len(), if halves { 64 * 2 } else { 64 * 4 } + 8 * 4);
        }
    }

    fn border(sides: [[u32; 2]; 4], value: f32) -> pad::Spec {
        let fill = Fill::Value(value.to_bits());
        pad::Spec { input: SHAPE.to_vec(), padding: sides.to_vec(), fill }
    }

    #[test]
    fn a_border_of_zeros_joins_the_convolution() {
        let check = |sides: [[u32; 2]; 4], filled, expected: &[Vec<usize>]| {
            let shape: Vec<u32> = SHAPE.iter().zip(sides).map(|(size, [a, b])| size + a + b).collect();
            let mut graph = Graph::default();
            let (a, b, c) = (input(&mut graph, &SHAPE), value(&mut graph, &shape), value(&mut graph, &SHAPE));
            step(&mut graph, border(sides, filled), &[a], b);
            let conv = conv_2d::Spec { input: shape.try_into().unwrap(), ..conv(Activation::None) };
            step(&mut graph, conv, &[b], c);
            graph.outputs.push(c);
            assert_eq!(optimized(&mut graph), expected);
            if let (Spec::Conv2D(conv), true) = (&graph.steps[0].spec, expected.len() == 1) {
                assert_eq!((conv.input, conv.padding), (SHAPE, [1, 2]));
                assert_eq!(graph.steps[0].inputs, [a]);
            }
        };
        check([[0, 0], [1, 0], [2, 3], [0, 0]], 0.0, &[vec![0, 1]]);
        check([[0, 0], [1, 0], [2, 3], [0, 0]], 1.0, &[vec![0], vec![1]]);
        check([[0, 0], [0, 0], [0, 0], [0, 8]], 0.0, &[vec![0], vec![1]]);
    }

    /// Adds the concatenation of two values along `axis` as an output.
    fn joined(graph: &mut Graph<'_>, parts: [ValueId; 2], axis: usize) -> ValueId {
        let inputs = parts.map(|id| graph.value(id).shape.clone()).to_vec();
        let spec = concatenation::Spec { inputs, axis };
        let output = value(graph, &spec.output().unwrap());
        for (part, id) in parts.into_iter().enumerate() {
            step(graph, Join { spec: spec.clone(), part }, &[id], output);
        }
        graph.outputs.push(output);
        output
    }

    #[test]
    fn producers_write_into_the_concatenation() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &SHAPE);
        let (b, c) = (value(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
        step(&mut graph, conv(Activation::None), &[a], b);
        step(&mut graph, conv(Activation::RELU), &[a], c);
        let output = joined(&mut graph, [b, c], 1);
        assert_eq!(optimized(&mut graph), [[0, 2], [1, 3]]);
        assert_eq!(graph.root(b), (output, 0));
        assert_eq!(graph.root(c), (output, 512));
    }

    #[test]
    fn parts_that_are_not_computed_or_not_one_piece_are_copied() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &SHAPE);
        let b = value(&mut graph, &SHAPE);
        step(&mut graph, conv(Activation::None), &[a], b);
        joined(&mut graph, [a, b], 3);
        joined(&mut graph, [a, a], 1);
        assert_eq!(optimized(&mut graph).len(), 5);
    }

    #[test]
    fn no_step_reads_and_writes_the_concatenation() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &SHAPE);
        let (b, c) = (value(&mut graph, &SHAPE), value(&mut graph, &SHAPE));
        step(&mut graph, conv(Activation::None), &[a], b);
        step(&mut graph, conv(Activation::RELU), &[b], c);
        let output = joined(&mut graph, [b, c], 1);
        // The producer of one part writes in place, the other part is copied.
        assert_eq!(optimized(&mut graph).len(), 3);
        for step in &graph.steps {
            assert!(step.reads().all(|id| graph.root(id).0 != graph.root(step.output).0));
        }
        assert_eq!(graph.root(b).0, output);
    }
}
