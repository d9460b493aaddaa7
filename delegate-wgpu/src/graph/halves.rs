//! Which values and weights are stored as 16-bit floats.
//!
//! Kernels compute in 32 bits whatever the storage ([`Variant::with_halves`]), so a value can have 16 bits wherever all
//! kernels that access it compute with it as a float. The inputs and outputs of a partition keep 32 bits, since the CPU
//! and other partitions read them.

use half::f16;

use delegraph_shaders::binary::Binary;
use delegraph_shaders::{Binding, Element, Kernel, Shader as _, ShaderError, Variant};

use super::spec::Floats;
use crate::device::DeviceCaps;

use super::{Graph, Source, Spec, Step, ValueId, Weights};

/// Maximum sum of rounding errors of constants in 16 bits, relative to the sum of their magnitudes. Rounding to 11
/// significant bits stays below; numbers that are too small for 16 bits exceed it.
const MAX_ERROR: f64 = 1.0 / 1024.0;

/// Stores the values and weights of `graph` in 16 bits, where their kernels allow it.
pub(crate) fn store_halves(graph: &mut Graph<'_>) {
    let uses = graph.uses();
    let mut can: Vec<bool> = (0..graph.values.len())
        .map(|i| {
            let value = &graph.values[i];
            let (read, written) = (!uses.readers[i].is_empty(), !uses.writers[i].is_empty());
            value.element == Element::F32
                && !uses.pinned[i]
                && match &value.source {
                    Source::Steps => read && written,
                    Source::Constant(data) => read && fits(floats(data)),
                    Source::Input | Source::Table(_) | Source::View { .. } => false,
                }
        })
        .collect();
    for step in &graph.steps {
        let floats = step.floats(graph);
        if floats == Floats::Exact {
            step.reads().for_each(|id| can[graph.root(id).0.0] = false);
        }
        if floats != Floats::Any {
            can[graph.root(step.output).0.0] = false;
        }
        for root in step.terms().map(|id| graph.root(id).0) {
            can[root.0] &= !matches!(graph.value(root).source, Source::Constant(_));
        }
    }
    let integers = integers(graph);
    let can: Vec<bool> =
        (0..can.len()).map(|i| graph.root(ValueId(i)).0.0).map(|root| can[root] && !integers[root]).collect();
    for (value, _) in graph.values.iter_mut().zip(can).filter(|(_, can)| *can) {
        value.half = true;
        match &mut value.source {
            Source::View { offset, .. } => *offset /= 2,
            Source::Constant(data) => *data = narrowed(data).into(),
            Source::Input | Source::Table(_) | Source::Steps => {}
        }
    }
    for step in &mut graph.steps {
        step.half_weights = match &step.weights {
            Some(Weights::Floats { filter, bias }) if step.spec.floats() == Floats::Any => {
                let bias = bias.as_deref().unwrap_or_default();
                fits(filter.iter().copied()) && fits(bias.iter().copied())
            }
            _ => false,
        };
    }
}

/// Returns per value whether its memory contains integers: those of a view, and those that a step computes or copies
/// from another value, regardless of the declared type of the result.
fn integers(graph: &Graph<'_>) -> Vec<bool> {
    let mut integers = vec![false; graph.values.len()];
    for (i, value) in graph.values.iter().enumerate() {
        integers[graph.root(ValueId(i)).0.0] |= value.element != Element::F32;
    }
    for step in &graph.steps {
        let copied = step.copied().is_some_and(|source| integers[graph.root(source).0.0]);
        integers[graph.root(step.output).0.0] |= copied || step.computes_integers();
    }
    integers
}

fn floats(data: &[u8]) -> impl Iterator<Item = f32> {
    data.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word))
}

/// Returns the little-endian floats of `data` in 16 bits each, padded to whole words.
pub(crate) fn narrowed(data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = floats(data).flat_map(|float| f16::from_f32(float).to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns whether the error of storing constants in 16 bits is at most [`MAX_ERROR`], and none of them overflows.
fn fits(floats: impl Iterator<Item = f32>) -> bool {
    let (mut magnitude, mut error) = (0.0, 0.0);
    for float in floats {
        let stored = f16::from_f32(float).to_f32();
        if float.is_finite() && !stored.is_finite() {
            return false;
        }
        if float.is_finite() {
            magnitude += f64::from(float).abs();
            error += (f64::from(float) - f64::from(stored)).abs();
        }
    }
    error <= magnitude * MAX_ERROR
}

impl Step<'_> {
    fn floats(&self, graph: &Graph<'_>) -> Floats {
        // A square has twice the exponent.
        let same = matches!(self.inputs.as_slice(), [a, b] if graph.root(*a) == graph.root(*b));
        match self.spec.floats() {
            Floats::Any if same && matches!(self.spec, Spec::Binary(_)) => Floats::WideResult,
            floats => floats,
        }
    }

    /// Returns the operands that the step adds or subtracts. Where their sum is small, the rounding error of a constant
    /// among them would be large in comparison.
    fn terms(&self) -> impl Iterator<Item = ValueId> + '_ {
        let adds = matches!(
            &self.spec,
            Spec::Binary(spec) if matches!(spec.op, Binary::Add | Binary::Sub | Binary::SquaredDifference)
        );
        self.inputs.iter().copied().filter(move |_| adds).chain(self.residual)
    }

    /// Returns whether the step writes integers that it computes from integers.
    fn computes_integers(&self) -> bool {
        match &self.spec {
            Spec::Binary(spec) => spec.element != Element::F32,
            Spec::Reduce(spec) => spec.element != Element::F32,
            Spec::Cumsum(spec) => spec.element != Element::F32,
            Spec::Scatter(spec) => spec.element != Element::F32,
            _ => false,
        }
    }

    /// Returns the operand whose elements the step copies without regard to their type.
    fn copied(&self) -> Option<ValueId> {
        let operand = match &self.spec {
            Spec::DepthToSpace(_)
            | Spec::DynamicUpdateSlice(_)
            | Spec::Gather(_)
            | Spec::GatherNd(_)
            | Spec::Join(_)
            | Spec::Pad(_)
            | Spec::Slice(_)
            | Spec::Tile(_)
            | Spec::Transpose(_) => 0,
            Spec::Select(_) => 1,
            _ => return None,
        };
        self.inputs.get(operand).copied()
    }

    /// Returns the kernel of the step. Products of 16-bit operands may use matrix units.
    pub(crate) fn kernel(&self, graph: &Graph<'_>, facts: &DeviceCaps) -> Result<Kernel, ShaderError> {
        let half_input = self.inputs.first().is_some_and(|id| graph.value(*id).half);
        let matrices = facts.matrix_units && half_input && self.half_weights;
        let mut kernel = self.spec.kernel(&facts.caps.with_matrices(matrices))?;
        kernel.variant = self.with_halves(graph, kernel.variant);
        Ok(kernel)
    }

    /// Returns `variant`, the variant of the step, with 16-bit floats in the buffers of values and weights that have
    /// them.
    pub(crate) fn with_halves(&self, graph: &Graph<'_>, variant: Variant) -> Variant {
        let half = |id: Option<ValueId>| id.is_some_and(|id| graph.value(id).half);
        let is_half = |binding: &Binding| match binding {
            Binding::Input(n) => half(self.inputs.get(usize::from(*n)).copied()),
            Binding::Residual => half(self.residual),
            Binding::Slope => half(self.slope),
            Binding::Output => half(Some(self.output)),
            Binding::Weights => self.half_weights,
            Binding::Uniform | Binding::Texture => false,
        };
        let bindings = (0_u32..32).zip(&variant.bindings).filter(|(_, binding)| is_half(binding));
        let mask = bindings.map(|(number, _)| 1 << number).sum();
        variant.with_halves(mask)
    }
}

#[cfg(test)]
mod tests {
    use delegraph_shaders::binary;
    use delegraph_shaders::unary::{self, Unary};
    use delegraph_shaders::{Activation, Caps, Shader, slice};

    use super::*;
    use crate::graph::Value;
    use crate::graph::testing::{constant, input, step, value, view};

    fn unary(function: Unary) -> unary::Spec {
        unary::Spec { steps: vec![function], elements: 8 }
    }

    fn mul() -> binary::Spec {
        let (a, b, output) = (vec![8], vec![8], vec![8]);
        binary::Spec { op: Binary::Mul, element: Element::F32, a, b, output, activation: Activation::None }
    }

    fn halves(graph: &mut Graph<'_>) -> Vec<bool> {
        store_halves(graph);
        graph.values.iter().map(|value| value.half).collect()
    }

    #[test]
    fn values_between_steps_have_16_bits_and_those_outside_32() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &[8]);
        let [b, c, d] = [(); 3].map(|()| value(&mut graph, &[8]));
        let flat = view(&mut graph, b, &[2, 4]);
        let factor = constant(&mut graph, &[8]);
        step(&mut graph, unary(Unary::Tanh), &[a], b);
        step(&mut graph, mul(), &[flat, factor], c);
        step(&mut graph, unary(Unary::Tanh), &[c], d);
        graph.outputs.push(d);
        assert_eq!(halves(&mut graph), [false, true, true, false, true, true]);
        assert_eq!((graph.value(b).bytes(), graph.value(d).bytes()), (16, 32));
        let kernel = graph.steps[1].spec.kernel(&Caps::WEBGPU).unwrap();
        // Both inputs and the output, but not the uniform block.
        assert_eq!(graph.steps[1].with_halves(&graph, kernel.variant).halves(), 0b111);
    }

    #[test]
    fn copies_of_integers_have_32_bits_whatever_their_declared_type() {
        let cut = |from: u32, to: u32| slice::Spec {
            input: vec![from],
            output: vec![to],
            begin: vec![0],
            step: vec![1],
        };
        for element in [Element::F32, Element::I32, Element::Bool] {
            let mut graph = Graph::default();
            let source = graph.add(Value::new(&[8], element, Source::Input));
            graph.inputs.push(source);
            let [b, c, d] = [6, 4, 2].map(|size| value(&mut graph, &[size]));
            step(&mut graph, cut(8, 6), &[source], b);
            step(&mut graph, cut(6, 4), &[b], c);
            step(&mut graph, cut(4, 2), &[c], d);
            graph.outputs.push(d);
            let float = element == Element::F32;
            assert_eq!(halves(&mut graph), [false, float, float, false], "{element:?}");
        }
    }

    #[test]
    fn results_of_a_wide_range_have_32_bits() {
        for (spec, wide) in [
            (Spec::from(unary(Unary::Square)), true),
            (unary(Unary::Rsqrt).into(), true),
            (unary(Unary::Sqrt).into(), false),
            (mul().into(), true),
        ] {
            let mut graph = Graph::default();
            let a = input(&mut graph, &[8]);
            let [b, c, d] = [(); 3].map(|()| value(&mut graph, &[8]));
            let twice = if matches!(spec, Spec::Binary(_)) { vec![b, b] } else { vec![b] };
            step(&mut graph, unary(Unary::Tanh), &[a], b);
            step(&mut graph, spec.clone(), &twice, c);
            step(&mut graph, unary(Unary::Tanh), &[c], d);
            graph.outputs.push(d);
            assert_eq!(halves(&mut graph), [false, true, !wide, false], "{spec:?}");
        }
    }

    #[test]
    fn constants_that_are_added_keep_32_bits() {
        for (op, half) in [(Binary::Mul, true), (Binary::Add, false), (Binary::Sub, false)] {
            let mut graph = Graph::default();
            let a = input(&mut graph, &[8]);
            let [b, c, d] = [(); 3].map(|()| value(&mut graph, &[8]));
            let number = constant(&mut graph, &[8]);
            step(&mut graph, unary(Unary::Tanh), &[a], b);
            step(&mut graph, binary::Spec { op, ..mul() }, &[b, number], c);
            step(&mut graph, unary(Unary::Tanh), &[c], d);
            graph.outputs.push(d);
            assert_eq!(halves(&mut graph), [false, true, true, false, half], "{op:?}");
        }
    }

    #[test]
    fn integers_that_a_step_computes_have_32_bits_whatever_their_declared_type() {
        let mut graph = Graph::default();
        let source = graph.add(Value::new(&[8], Element::I32, Source::Input));
        graph.inputs.push(source);
        let [b, c] = [(); 2].map(|()| value(&mut graph, &[8]));
        let add = binary::Spec { op: Binary::Add, element: Element::I32, ..mul() };
        step(&mut graph, add.clone(), &[source, source], b);
        step(&mut graph, add, &[b, source], c);
        graph.outputs.push(c);
        assert_eq!(halves(&mut graph), [false; 3]);
    }

    #[test]
    fn constants_that_16_bits_cannot_represent_keep_32() {
        let fits = |floats: &[f32]| super::fits(floats.iter().copied());
        assert!(fits(&[0.1, -3.0, 65_504.0, 0.0, f32::INFINITY]));
        assert!(fits(&[1.0, 1e-9]));
        assert!(!fits(&[1.0, 70_000.0]));
        assert!(!fits(&[1e-7, 3e-8]));
    }

    #[test]
    fn an_odd_number_of_halves_is_padded() {
        let data: Vec<u8> = [1.0_f32, 2.0, -0.5].iter().flat_map(|f| f.to_le_bytes()).collect();
        assert_eq!(narrowed(&data), [0, 0x3c, 0, 0x40, 0, 0xb8, 0, 0]);
    }
}
