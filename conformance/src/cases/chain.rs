//! Random graphs of two to six nodes, composed of the cases' nodes: chains, diamonds, and tensors that several nodes
//! read. They compare with LiteRT what single nodes do not cover: fused activations, folded constants, memory that
//! nodes share or overwrite, other orders of elements between nodes, and pairs of QUANTIZE and DEQUANTIZE.
//!
//! The allowed difference of an element follows from the graph. The reference kernels also run each node alone. Random
//! errors, within those allowed for the previous node, are added to its inputs. The largest change of an element in
//! several such runs is the difference that results from allowed errors of the nodes.

use delegraph_core::error::{absent, counted};
use delegraph_core::{Model, ModelBuilder, Quantization, Shape, SubgraphBuilder, TensorId};
use delegraph_interpreter::ReferenceOpResolver;

use super::Verdict;
use super::case::{Case, Computed};
use super::generate::Draw;
use super::mutant::{bases, symmetric_weights};
use super::operand::{Kind, Operand, integers};
use super::oracle::kind_of;
use super::prelude::*;
use crate::Error;
use crate::compare::{self, Deviation, Tolerance, numbers};
use crate::seeded::SplitMix64;

/// The types of the tensors between nodes.
const TYPES: [TensorType; 7] = [Float32, Int8, UInt8, Int16, Int32, Int64, Bool];
/// The maximum number of elements of a tensor.
const MAX_ELEMENTS: usize = 4096;
/// The largest float: overflows are tested with single nodes. Integers fit 32 bits, in which LiteRT computes indices.
const MAX_FLOAT: f64 = 1e4;
/// The number of cases tried for each node.
const TRIES: usize = 60;
/// The number of runs with added errors.
const RUNS: usize = 12;
/// The added error of a computed float, relative to the largest one: the error of functions and of sums of 200 terms.
const FLOAT_ERROR: f64 = 4e-6;
/// The allowed multiple of the largest change, since the runs do not find the worst errors.
const MARGIN: f64 = 4.0;

/// A tensor of a graph, with its elements in the only invocation.
#[derive(Debug, Clone)]
struct Value {
    ty: TensorType,
    shape: Shape,
    quantization: Option<Quantization>,
    bytes: Vec<u8>,
}

/// A node.
#[derive(Debug)]
struct Stage {
    /// The node alone; its operands from the graph are inputs that the caller sets.
    case: Case,
    /// The tensor of the graph for each operand.
    reads: Vec<Option<usize>>,
    /// The graph's inputs that no earlier node reads.
    given: Vec<Value>,
    /// Whether the node's results may differ from LiteRT's.
    computes: bool,
}

/// A random graph.
#[derive(Debug)]
pub struct Chain {
    /// The whole graph.
    pub case: Case,
    stages: Vec<Stage>,
    /// The outputs, as numbers of tensors in the order of the nodes; the inputs of each node come before its outputs.
    outputs: Vec<usize>,
}

/// A graph under construction.
struct Builder {
    graph: SubgraphBuilder,
    ids: Vec<TensorId>,
    values: Vec<Value>,
    read: Vec<bool>,
    inputs: Vec<Operand>,
    stages: Vec<Stage>,
}

impl Chain {
    /// Returns graph `index` of `seed`. The same numbers give the same graph; `None` if no nodes are found that fit.
    pub fn draw(seed: u64, index: usize) -> Option<Chain> {
        let mut draw = Draw::new(seed, "chain", index);
        let bases = bases(seed);
        let count = 2 + draw.below(5);
        let mut builder = Builder::empty();
        for _ in 0..TRIES * count {
            if builder.stages.len() == count {
                break;
            }
            let base = bases.get(draw.below(bases.len()))?;
            // Other bases are tried if this one does not fit.
            let _ = builder.add(base, &mut draw);
        }
        (builder.stages.len() > 1).then(|| builder.finish(seed, index, &mut draw)).flatten()
    }

    /// Compares output `i` with LiteRT's; quantized elements may differ by `steps` steps, in addition to the amplified
    /// errors.
    ///
    /// # Errors
    /// As for [`Case::deviation`].
    pub fn deviation(
        &self,
        i: usize,
        [got, want]: [&Computed; 2],
        steps: u32,
    ) -> Result<Option<Deviation>, Error> {
        let deviation = self.case.deviation(got, want, steps);
        if matches!(deviation, Ok(None)) {
            return Ok(None);
        }
        let amplified = self.amplified()?;
        let allowed = amplified
            .get(i)
            .ok_or_else(|| Error::mismatch(absent("output", i, "the chain", amplified.len())))?;
        let Some(allowed) = allowed else {
            let alike = (got.ty, got.shape.rank()) == (want.ty, want.shape.rank());
            return if alike { Ok(None) } else { deviation };
        };
        deviation?;
        let (Some(g), Some(w)) = (numbers(got.ty, &got.bytes), numbers(want.ty, &want.bytes)) else {
            return Err(Error::mismatch(format_args!("{} {}, expected numbers", got.ty, got.shape)));
        };
        if allowed.len() != g.len() {
            let got = counted(g.len(), "element");
            return Err(Error::mismatch(format_args!("{got}, expected {}", allowed.len())));
        }
        let excused = |((&g, &w), &allowed): ((&f64, &f64), &f64)| {
            // NaN and infinities have no distance.
            if allowed == f64::INFINITY || (g - w).abs() <= allowed { w } else { g }
        };
        let left: Vec<f64> = g.iter().zip(&w).zip(allowed).map(excused).collect();
        let mut tolerance = Tolerance::of(got.ty, want.quantized);
        tolerance.quantum = tolerance.quantum.min(steps);
        Ok(Deviation::of(got.ty, &left, &w, tolerance))
    }

    /// Returns the change of each element of each output by errors of the nodes. `None` if they change the number of
    /// elements, for example of WHERE after a hash of floats.
    fn amplified(&self) -> Result<Vec<Option<Vec<f64>>>, Error> {
        let exact = self.run(None)?;
        let mut amplified: Vec<Option<Vec<f64>>> = exact.iter().map(|v| Some(vec![0.0; v.len()])).collect();
        for run in 0..RUNS {
            // An error can make data invalid, for example a number negative whose root follows.
            let Ok(changed) = self.run(Some(&mut SplitMix64::new(0).for_input(run))) else { continue };
            for ((amplified, exact), changed) in amplified.iter_mut().zip(&exact).zip(changed) {
                let Some(allowed) = amplified.as_mut().filter(|_| changed.len() == exact.len()) else {
                    *amplified = None;
                    continue;
                };
                for ((allowed, exact), changed) in allowed.iter_mut().zip(exact).zip(changed) {
                    let change = MARGIN * (changed - exact).abs();
                    *allowed = if change.is_nan() { f64::INFINITY } else { allowed.max(change) };
                }
            }
        }
        Ok(amplified)
    }

    /// Runs node by node, and returns the outputs; adds errors if `errors` is set.
    fn run(&self, mut errors: Option<&mut SplitMix64>) -> Result<Vec<Vec<f64>>, Error> {
        let mut values = Vec::new();
        for stage in &self.stages {
            let mut outputs = stage.run(&values)?;
            values.extend_from_slice(&stage.given);
            if let Some(errors) = errors.as_deref_mut().filter(|_| stage.computes) {
                outputs.iter_mut().for_each(|value| value.disturb(errors));
            }
            values.append(&mut outputs);
        }
        let output = |&i: &usize| values.get(i).and_then(|v| numbers(v.ty, &v.bytes));
        let outputs = self.outputs.iter().map(output).collect::<Option<_>>();
        outputs.ok_or_else(|| Error::mismatch("an output does not consist of numbers"))
    }
}

impl Stage {
    /// Runs the node alone.
    fn run(&self, values: &[Value]) -> Result<Vec<Value>, Error> {
        let mut case = self.case.clone();
        for (operand, read) in case.inputs.iter_mut().zip(&self.reads) {
            if let (Some(operand), Some(value)) = (operand, read.and_then(|i| values.get(i))) {
                *operand = operand.clone().bytes(value.bytes.clone());
                // Errors may change the number of elements.
                operand.shape = value.shape.clone();
            }
        }
        let outputs = case.run(case.build()?, ReferenceOpResolver::new())?;
        let value = |(output, declared): (Computed, &super::Output)| Value {
            ty: output.ty,
            shape: output.shape,
            quantization: declared.quantization.clone(),
            bytes: output.bytes,
        };
        Ok(outputs.into_iter().zip(&case.outputs).map(value).collect())
    }
}

impl Value {
    /// Adds errors: to each float, or a step to each fourth quantized element.
    fn disturb(&mut self, errors: &mut SplitMix64) {
        if self.ty == Float32 {
            let floats = self.bytes.as_chunks_mut::<4>().0;
            let largest = f64::from(floats.iter().fold(0f32, |m, v| m.max(f32::from_le_bytes(*v).abs())));
            // A number that is within the error of 0 may also be 0, whose quotients are not finite.
            let zeros = errors.draw().is_multiple_of(2);
            for float in floats {
                let value = f64::from(f32::from_le_bytes(*float));
                let error = FLOAT_ERROR * largest * f64::from(errors.draw_f32());
                let zero = zeros && value.abs() <= FLOAT_ERROR * largest;
                *float = (if zero { 0.0 } else { (value + error) as f32 }).to_le_bytes();
            }
            return;
        }
        if self.quantization.is_none() {
            return;
        }
        let mut step = || [0i8, 0, 0, 0, 0, 0, 1, -1][(errors.draw() % 8) as usize];
        match self.ty {
            Int8 => self
                .bytes
                .iter_mut()
                .for_each(|b| *b = b.cast_signed().saturating_add(step()).cast_unsigned()),
            UInt8 => self.bytes.iter_mut().for_each(|b| *b = b.saturating_add_signed(step())),
            Int16 => {
                let elements = self.bytes.as_chunks_mut::<2>().0.iter_mut();
                elements
                    .for_each(|e| *e = i16::from_le_bytes(*e).saturating_add(step().into()).to_le_bytes());
            }
            _ => {}
        }
    }

    /// Returns whether further nodes may read the tensor.
    fn is_usable(&self) -> bool {
        let elements = self.shape.elements();
        let most = match self.ty {
            Float32 => MAX_FLOAT,
            Int64 => f64::from(i32::MAX),
            _ => f64::INFINITY,
        };
        let moderate = numbers(self.ty, &self.bytes).is_some_and(|v| v.iter().all(|v| v.abs() <= most));
        TYPES.contains(&self.ty)
            && (1..=MAX_ELEMENTS).contains(&elements)
            && moderate
            && !(self.quantization.is_some() && self.is_saturated())
    }

    /// Returns whether the operand's node computes useful results from this tensor: neither is quantized, or the scales
    /// are similar.
    fn is_on_the_scale_of(&self, operand: &Operand) -> bool {
        let scale = |q: &Option<Quantization>| q.as_ref().and_then(|q| q.scale_zero_point()).map(|(s, _)| s);
        match (scale(&self.quantization), scale(&operand.quantization)) {
            (Some(a), Some(b)) => (1.0 / 16.0..16.0).contains(&(a / b)),
            (a, b) => a == b && self.quantization == operand.quantization,
        }
    }

    /// Returns whether most elements are saturated, because the scale does not fit the values.
    fn is_saturated(&self) -> bool {
        let (least, most) = integers(self.ty);
        let elements = numbers(self.ty, &self.bytes).unwrap_or_default();
        elements.iter().filter(|&&v| v == least || v == most).count() > elements.len() / 2
    }
}

impl Builder {
    fn empty() -> Self {
        Builder {
            graph: SubgraphBuilder::new("main"),
            ids: Vec::new(),
            values: Vec::new(),
            read: Vec::new(),
            inputs: Vec::new(),
            stages: Vec::new(),
        }
    }

    /// Adds the node of a case if it fits and runs.
    fn add(&mut self, base: &Case, draw: &mut Draw) -> Option<()> {
        // Constants of other types may be packed weights.
        let fits =
            |o: &Operand| o.kind != Kind::Variable && (TYPES.contains(&o.ty) || o.kind == Kind::Constant);
        if !base.is_single() || base.steps > 1 || !base.inputs.iter().flatten().all(fits) {
            return None;
        }
        let mut case = base.clone().seeded(draw.seed());
        case.verdict = Verdict::LiteRt;
        let mut reads = vec![None; case.inputs.len()];
        if !self.values.is_empty() {
            self.connect(&mut case, &mut reads, draw)?;
        }
        let small = |o: &Operand| {
            let count = o.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
            count.is_some_and(|count| count <= MAX_ELEMENTS)
        };
        if is_wrong_in_litert(&case) || !case.inputs.iter().flatten().all(small) {
            return None;
        }
        symmetric_weights(&mut case);
        // Elements are fixed, so that the node alone has the same elements as in the graph.
        for (i, operand) in case.inputs.iter_mut().enumerate() {
            let Some(operand) = operand else { continue };
            operand.moderate(1.0, 1e18);
            *operand = operand.clone().bytes(operand.data(i, 0));
        }
        let mut stage = Stage { case, reads, given: Vec::new(), computes: true };
        let outputs = stage.run(&self.values).ok()?;
        if outputs.is_empty() || !outputs.iter().all(Value::is_usable) {
            return None;
        }
        stage.computes = computes(&stage.case.build().ok()?);
        self.link(stage, outputs)
    }

    /// Replaces an operand by a tensor of the graph, and further ones where they fit.
    fn connect(&self, case: &mut Case, reads: &mut [Option<usize>], draw: &mut Draw) -> Option<()> {
        let newest = self.values.len() - 1;
        let at = if draw.chance(65) { newest } else { draw.below(self.values.len()) };
        let value = &self.values[at];
        let fed = |o: &Operand| o.kind == Kind::Fed && o.ty == value.ty;
        let same = |o: &Operand| fed(o) && value.is_on_the_scale_of(o);
        let position = case.inputs.iter().position(|o| o.as_ref().is_some_and(same))?;
        let old = case.inputs[position].clone()?;
        for operand in case.inputs.iter_mut().flatten() {
            if operand.shape == old.shape {
                operand.resize(&value.shape);
            } else if let (Some(&from), Some(&to)) = (old.shape.last(), value.shape.last())
                && from > 1
            {
                let moved = |d: &usize| if *d == from { to } else { *d };
                operand.resize(&operand.shape.iter().map(moved).collect::<Vec<_>>());
            }
        }
        // If the op requires one scale for inputs and outputs, all get the scale of the tensor.
        for quantization in case.outputs.iter_mut().map(|o| &mut o.quantization) {
            if *quantization == old.quantization {
                quantization.clone_from(&value.quantization);
            }
        }
        for (i, operand) in case.inputs.iter_mut().enumerate() {
            let Some(operand) = operand.as_mut().filter(|o| o.kind == Kind::Fed) else { continue };
            let fits =
                |v: &Value| v.ty == operand.ty && v.shape == operand.shape && v.is_on_the_scale_of(operand);
            let others: Vec<usize> = (0..self.values.len()).filter(|&j| fits(&self.values[j])).collect();
            let read = match i == position {
                true => at,
                false if !others.is_empty() && draw.chance(60) => draw.pick(&others),
                false => continue,
            };
            operand.quantization.clone_from(&self.values[read].quantization);
            reads[i] = Some(read);
        }
        Some(())
    }

    /// Adds a node that runs, and its outputs.
    fn link(&mut self, mut stage: Stage, outputs: Vec<Value>) -> Option<()> {
        // A node that cannot be added leaves the graph as it was.
        let mut graph = self.graph.clone();
        let prefix = format!("n{}_", self.stages.len());
        let (mut ids, mut fed) = (Vec::new(), Vec::new());
        let given = |o: &Operand, i| Value {
            ty: o.ty,
            shape: o.shape.clone(),
            quantization: o.quantization.clone(),
            bytes: o.data(i, 0),
        };
        for (i, (operand, read)) in stage.case.inputs.iter().zip(&stage.reads).enumerate() {
            let id = match (operand, read) {
                (_, Some(read)) => self.ids.get(*read).copied(),
                (Some(operand), None) => {
                    let id = operand.add(&mut graph, &format!("{prefix}input_{i}"), i);
                    fed.extend((operand.kind == Kind::Fed).then(|| (id, operand.clone(), given(operand, i))));
                    Some(id)
                }
                (None, None) => None,
            };
            ids.push(id);
        }
        let written = stage.case.add_node(&mut graph, ids, &prefix).ok()?;
        if !written.iter().all(|(_, ty, _)| TYPES.contains(ty)) {
            return None;
        }
        self.graph = graph;
        stage.reads.iter().flatten().for_each(|&read| self.read[read] = true);
        for (id, operand, value) in fed {
            self.push(id, value.clone(), true);
            stage.given.push(value);
            self.inputs.push(operand);
        }
        for ((id, ..), value) in written.into_iter().zip(outputs) {
            self.push(id, value, false);
        }
        self.stages.push(stage);
        Some(())
    }

    fn push(&mut self, id: TensorId, value: Value, read: bool) {
        self.ids.push(id);
        self.values.push(value);
        self.read.push(read);
    }

    /// Declares the outputs: tensors without a reader, and some others.
    fn finish(mut self, seed: u64, index: usize, draw: &mut Draw) -> Option<Chain> {
        let outputs: Vec<usize> = (0..self.ids.len()).filter(|&i| !self.read[i] || draw.chance(20)).collect();
        self.graph.outputs(outputs.iter().map(|&i| self.ids[i]));
        let op = self.stages.last()?.case.op;
        let names: Vec<&str> = self.stages.iter().filter_map(|s| s.case.op.variant_name()).collect();
        let mut case = Case::model(op, ModelBuilder::new().subgraph(self.graph), self.inputs);
        case.name = format!("mutant_{seed}_{index}/graph-{}", names.join("+").to_lowercase());
        Some(Chain { case, stages: self.stages, outputs })
    }
}

/// Returns whether LiteRT's results of a case are wrong for ordinary data: `litert-differences.toml` has the reasons.
fn is_wrong_in_litert(case: &Case) -> bool {
    let ty = case.data_type();
    let scales = case.operands().filter_map(|(_, o)| o.quantization.as_ref()?.scale_zero_point());
    match case.op {
        Op::DIV => matches!(ty, Some(Int8 | UInt8)),
        Op::EXP => ty == Some(Int16),
        // Products beyond 16 bits wrap.
        Op::MUL if matches!(ty, Some(Int8 | UInt8)) => {
            let output = case.outputs.first().and_then(|o| o.quantization.as_ref()?.scale_zero_point());
            let product: f32 = scales.map(|(scale, _)| scale).product();
            product * 255.0 * 255.0 > output.map_or(1.0, |(scale, _)| scale) * 32_000.0
        }
        // Powers beyond the type are undefined.
        Op::POW => matches!(ty, Some(Int32 | Int64)),
        Op::REDUCE_PROD => matches!(ty, Some(Int8 | Int16)),
        Op::MATRIX_DIAG | Op::MATRIX_SET_DIAG => ty == Some(Bool),
        // Sums of large inputs and INT4 weights overflow 16 bits.
        Op::FULLY_CONNECTED => ty == Some(Float32) && case.operands().any(|(_, o)| o.ty == Int4),
        Op::BATCH_MATMUL => ty == Some(Float32) && case.operands().any(|(_, o)| o.ty == Int8),
        Op::EQUAL | Op::NOT_EQUAL | Op::LESS | Op::LESS_EQUAL | Op::GREATER | Op::GREATER_EQUAL => {
            scales.map(|(scale, _)| scale).any(|scale| scale >= 1.0)
        }
        Op::STABLEHLO_SHIFT_LEFT => true,
        _ => false,
    }
}

/// Returns whether the result of a node's model may differ from LiteRT's.
fn computes(model: &Model) -> bool {
    let computing = |graph: &delegraph_core::Subgraph| {
        graph.nodes().iter().any(|node| kind_of(node, graph).0 > compare::ComputationKind::Exact)
    };
    model.subgraphs().iter().any(computing)
}

#[cfg(test)]
mod tests {
    use delegraph_interpreter::BuiltinOpResolver;

    use super::super::Output;
    use super::*;

    #[test]
    fn kernels_agree_on_graphs_and_other_results_deviate() {
        let chains: Vec<Chain> = (0..30).filter_map(|i| Chain::draw(5, i)).collect();
        assert!(chains.len() > 20, "{} graphs", chains.len());
        let mut refuted = 0;
        for chain in &chains {
            let model = || chain.case.build().unwrap();
            let optimized = chain.case.run(model(), BuiltinOpResolver::new()).unwrap();
            let reference = chain.case.run(model(), ReferenceOpResolver::new()).unwrap();
            assert_eq!(optimized.len(), chain.outputs.len());
            for (i, (got, want)) in optimized.iter().zip(&reference).enumerate() {
                assert_eq!(
                    chain.deviation(i, [got, want], 1).unwrap(),
                    None,
                    "{}, output {i}",
                    chain.case.name
                );
                let mut wrong = got.clone();
                wrong.bytes.iter_mut().for_each(|byte| *byte = 255 - *byte);
                refuted += usize::from(!matches!(chain.deviation(i, [&wrong, want], 1), Ok(None)));
            }
        }
        assert!(refuted > chains.len(), "{refuted} wrong outputs deviate");
    }

    #[test]
    fn errors_change_the_number_of_elements() {
        // An error of the hyperbolic tangent of 0 is found by WHERE.
        let case = |op| Case::new(op, Params::None, [given(&[2], &[0f32, 1.0])]);
        let bases = [case(Op::TANH), case(Op::WHERE).outputs([Output::new(Int64, &[1, 1])])];
        let graph = |seed: u64| {
            let mut draw = Draw::new(seed, "chain", 0);
            let mut builder = Builder::empty();
            bases.iter().try_for_each(|base| builder.add(base, &mut draw))?;
            builder.finish(seed, 0, &mut draw)
        };
        let chain = (0..20).filter_map(graph).find(|chain| chain.stages[1].reads == [Some(1)]).unwrap();
        let i = chain.outputs.len() - 1;
        let output = |shape: &[usize], elements: &[i64]| Computed {
            ty: Int64,
            shape: Shape::new(shape),
            quantized: false,
            bytes: elements.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        let [one, two, flat] = [output(&[1, 1], &[1]), output(&[2, 1], &[0, 1]), output(&[2], &[0, 1])];
        assert_eq!(chain.deviation(i, [&one, &two], 0).unwrap(), None);
        assert!(chain.deviation(i, [&one, &flat], 0).is_err());
    }
}
