//! Which values and weights are stored as 16-bit floats.
//!
//! Kernels compute in 32 bits whatever the storage ([`Variant::with_halves`]), so a value can have 16 bits wherever all
//! kernels that access it compute with it as a float. The inputs and outputs of a partition keep 32 bits, since the CPU and
//! other partitions read them.

use half::f16;

use delegraph_shaders::{Binding, Element, Variant};

use super::spec::Floats;
use super::{Graph, Source, Spec, Step, ValueId, Weights};

/// Maximum sum of rounding errors of constants in 16 bits, relative to the sum of their magnitudes. Rounding to 11
/// significant bits stays below; numbers that 16 bits cannot represent, because they are too large or too small, exceed it.
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
                    Source::Input | Source::View { .. } => false,
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
    }
    for (i, value) in graph.values.iter().enumerate() {
        // Bits of floats that a view reads as another type.
        if value.element != Element::F32 {
            can[graph.root(ValueId(i)).0.0] = false;
        }
    }
    let can: Vec<bool> = (0..can.len()).map(|i| can[graph.root(ValueId(i)).0.0]).collect();
    for (value, _) in graph.values.iter_mut().zip(can).filter(|(_, can)| *can) {
        value.half = true;
        match &mut value.source {
            Source::View { offset, .. } => *offset /= 2,
            Source::Constant(data) => *data = narrowed(data).into(),
            Source::Input | Source::Steps => {}
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

fn floats(data: &[u8]) -> impl Iterator<Item = f32> {
    data.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word))
}

/// Returns little-endian `floats` in 16 bits each, padded to whole words.
pub(crate) fn narrowed(data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = floats(data).flat_map(|float| f16::from_f32(float).to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns whether constants keep the precision of 16 bits.
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

    /// Returns `variant`, the variant of the step, with 16-bit floats in the buffers of values and weights that have them.
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
    use delegraph_shaders::binary::{self, Binary};
    use delegraph_shaders::unary::{self, Unary};
    use delegraph_shaders::{Activation, Caps, Shader};

    use super::*;
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
