//! Comparison of two models, which run on the same random inputs.

use std::ops::RangeInclusive;
use std::sync::Arc;

use delegraph_core::error::{Error, Result, counted};
use delegraph_core::kernel::{Budget, RuntimeTensor};
use delegraph_core::{Model, OpResolver, TensorType};

use super::state::{Reset, check_operands, invocations};
use crate::random::Random;
use crate::runtime::{Interpreter, ResourceLimits};

/// The largest difference of an output between two models.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The output's name.
    pub output: String,
    /// The largest difference, in real values or, for quantized outputs, in steps.
    pub greatest: f64,
    /// The allowed difference: for floats `1e-5 + 1e-4 · max|value|` (float16 and bfloat16: `5e-3 · max|value|`),
    /// for quantized values one step, otherwise 0.
    pub allowed: f64,
}

impl Difference {
    /// Returns whether the difference is allowed.
    pub fn is_fine(&self) -> bool {
        self.within(1.0)
    }

    /// Returns whether the difference is at most `times` the allowed one.
    pub fn within(&self, times: f64) -> bool {
        self.greatest <= self.allowed * times
    }
}

/// The models of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct ModelPair<'m> {
    /// The model as it was.
    pub original: &'m Arc<Model>,
    /// The rewritten model.
    pub fused: &'m Arc<Model>,
}

/// Runs both models on `samples` random inputs. Each sample begins with the state of a new interpreter. If either model
/// has lasting state, a sample has 16 invocations, or one more than the largest memory of an SVDF, at most 256, so that
/// the state between them is compared; otherwise 1. State that only the fused model has is reset before each
/// invocation: in the original, it begins with its initial value in every call. Returns the greatest difference per
/// output.
///
/// # Errors
/// As [`Comparison::new`] and [`Comparison::run`].
pub fn compare(
    models: ModelPair<'_>,
    resolver: &Arc<dyn OpResolver>,
    samples: usize,
) -> Result<Vec<Difference>> {
    compare_with_limits(models, resolver, samples, ResourceLimits::default())
}

/// As [`compare`]. Both models together stay within `limits`.
///
/// # Errors
/// As [`compare`]; [`Error::LimitExceeded`].
pub fn compare_with_limits(
    models: ModelPair<'_>,
    resolver: &Arc<dyn OpResolver>,
    samples: usize,
    limits: ResourceLimits,
) -> Result<Vec<Difference>> {
    Comparison::new(models, resolver, limits)?.run(samples)
}

/// Two models that are prepared for a comparison: [`compare`] in two steps, so that errors of preparing are
/// distinguished from those of running.
#[derive(Debug)]
pub struct Comparison {
    original: Interpreter,
    fused: Interpreter,
    /// The invocations of a sample.
    invocations: usize,
    /// State that only the fused model has.
    added: Reset,
    limits: ResourceLimits,
}

/// Elements that are compared between two polls.
const PIECE: usize = 1 << 20;

impl Comparison {
    /// Prepares both models, which together stay within `limits`.
    ///
    /// # Errors
    /// If the original cannot be prepared, or the states of a recurrent op in it are not different variables;
    /// [`Error::State`] if the fused model cannot be prepared, or has a different number of inputs or outputs;
    /// [`Error::LimitExceeded`].
    pub fn new(
        ModelPair { original, fused }: ModelPair<'_>,
        resolver: &Arc<dyn OpResolver>,
        mut limits: ResourceLimits,
    ) -> Result<Self> {
        // Each has its own interpreter.
        limits.memory /= 2;
        let build = |model: &Arc<Model>| {
            Interpreter::builder_with_resolver(model.clone(), Shared(resolver.clone()))
                .limits(limits.clone())
                .build()
        };
        let a = build(original)?;
        // Inlining may turn an input of a body into a variable.
        check_operands(a.model(), &**resolver)?;
        let b = build(fused).map_err(of_fused)?;
        if (a.input_count(), a.output_count()) != (b.input_count(), b.output_count()) {
            let numbers = |model: &Interpreter| {
                let (inputs, outputs) = (model.input_count(), model.output_count());
                format!("{} and {}", counted(inputs, "input"), counted(outputs, "output"))
            };
            return Err(Error::State(format!(
                "the original model has {}, the rewritten one {}",
                numbers(&a),
                numbers(&b)
            )));
        }
        let invocations = invocations([&**original, &**fused]);
        let added = Reset::of_added(original, fused);
        Ok(Comparison { original: a, fused: b, invocations, added, limits })
    }

    /// Runs both models on `samples` random inputs. Returns the greatest difference per output.
    ///
    /// # Errors
    /// If the original does not run; [`Error::State`] if the fused model does not run; [`Error::LimitExceeded`].
    pub fn run(self, samples: usize) -> Result<Vec<Difference>> {
        let Comparison { original: mut a, fused: mut b, invocations, added, limits } = self;
        let budget = Budget::new(limits.memory);
        let mut differences: Vec<Difference> = Vec::new();
        for sample in 0..samples.saturating_mul(invocations) {
            if sample % invocations == 0 {
                a.reset_variables()?;
                b.reset_variables()?;
            } else {
                b.reset_state(&added.variables, &added.resources, &added.initializers)?;
            }
            fill_inputs(&mut a, &mut b, sample)?;
            a.invoke()?;
            b.invoke().map_err(of_fused)?;
            limits.start_clock(&budget);
            for i in 0..a.output_count() {
                let found = difference(a.output_tensor(i)?, b.output_tensor(i)?, &budget)?;
                match differences.get_mut(i) {
                    Some(known) => {
                        known.allowed = known.allowed.max(found.allowed);
                        known.greatest = known.greatest.max(found.greatest);
                    }
                    None => differences.push(found),
                }
            }
        }
        Ok(differences)
    }
}

/// Fills the inputs of `a` with random values, which depend on `sample`, and copies them to `b`.
fn fill_inputs(a: &mut Interpreter, b: &mut Interpreter, sample: usize) -> Result<()> {
    for i in 0..a.input_count() {
        let ty = a.input_tensor(i)?.ty;
        if ty != TensorType::String {
            let stream = (i as u64).wrapping_mul(1_000_003).wrapping_add(sample as u64);
            fill(ty, a.input_bytes_mut(i)?, &mut Random::new(sample as u64, stream));
        }
        if b.input_tensor(i)?.shape != a.input_tensor(i)?.shape {
            let shape = a.input_tensor(i)?.shape.clone();
            b.resize_input(i, &shape).map_err(of_fused)?;
        }
        b.set_input_bytes(i, a.input_tensor(i)?.bytes()).map_err(of_fused)?;
    }
    Ok(())
}

/// Returns the error of a fused model: the cause is the fusion, not the file.
fn of_fused(error: Error) -> Error {
    if error.is_interruption() {
        return interrupted(error, "the rewritten model");
    }
    Error::State(format!("the rewritten model cannot be run: {}", cause(error)))
}

/// Returns the interruption of a model that `author` rewrote.
pub(super) fn interrupted(mut error: Error, author: &str) -> Error {
    if let Error::AtNode { location, .. } = &mut error {
        location.rewritten_by = Some(author.into());
    }
    error
}

/// Returns whether every node has a kernel.
pub(super) fn is_resolved(model: &Model, resolver: &dyn OpResolver) -> bool {
    let mut nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
    nodes.all(|node| resolver.find(node.op(), node.version()).is_some())
}

/// Returns the text of a rewritten model's error as one line, to be part of a sentence. The path is removed, because it
/// is that of the original model.
pub(super) fn cause(mut error: Error) -> String {
    let mut at = &mut error;
    loop {
        match at {
            Error::InvalidModel { path, .. } | Error::ExternalData { path, .. } => *path = None,
            Error::UnresolvedOps(unresolved) => unresolved.model = None,
            Error::AtNode { location, source, .. } => {
                location.model = None;
                at = source;
                continue;
            }
            _ => {}
        }
        break;
    }
    error.chain().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Fills the bytes of a tensor: floats uniform in [-1, 1), 8- and 16-bit integers over their range, wider integers from
/// 0 to 3 (they are often indices), booleans with equal probability. Strings remain empty.
fn fill(ty: TensorType, bytes: &mut [u8], random: &mut Random) {
    fn each<const N: usize>(bytes: &mut [u8], mut next: impl FnMut() -> [u8; N]) {
        bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|chunk| *chunk = next());
    }
    match ty {
        TensorType::String => {}
        TensorType::Float32 | TensorType::Complex64 => each(bytes, || random.draw_f32().to_le_bytes()),
        TensorType::Float64 | TensorType::Complex128 => {
            each(bytes, || f64::from(random.draw_f32()).to_le_bytes())
        }
        TensorType::Float16 => each(bytes, || half::f16::from_f32(random.draw_f32()).to_le_bytes()),
        TensorType::BFloat16 => each(bytes, || half::bf16::from_f32(random.draw_f32()).to_le_bytes()),
        TensorType::Int32 | TensorType::UInt32 => each(bytes, || ((random.draw() % 4) as u32).to_le_bytes()),
        TensorType::Int64 | TensorType::UInt64 => each(bytes, || (random.draw() % 4).to_le_bytes()),
        TensorType::Int16 | TensorType::UInt16 => {
            each(bytes, || ((random.draw() >> 48) as u16).to_le_bytes())
        }
        TensorType::Bool => each(bytes, || [(random.draw() >> 63) as u8]),
        _ => each(bytes, || [(random.draw() >> 56) as u8]),
    }
}

/// Compares two tensors.
///
/// # Errors
/// Those of [`Budget::check`].
fn difference(a: &RuntimeTensor, b: &RuntimeTensor, budget: &Budget) -> Result<Difference> {
    let output = a.name.to_string();
    if (a.ty, &a.shape) != (b.ty, &b.shape) {
        return Ok(Difference { output, greatest: f64::INFINITY, allowed: 0.0 });
    }
    let Some((size, value)) = reader(a.ty) else {
        let same = a.bytes() == b.bytes();
        return Ok(Difference { output, greatest: if same { 0.0 } else { f64::INFINITY }, allowed: 0.0 });
    };
    let (mut greatest, mut largest) = (0f64, 0f64);
    // In pieces, without a copy of all values.
    let pieces = a.bytes().chunks(PIECE * size).zip(b.bytes().chunks(PIECE * size));
    for (a, b) in pieces {
        budget.check()?;
        for (x, y) in a.chunks_exact(size).zip(b.chunks_exact(size)) {
            let (x, y) = (value(x), value(y));
            // Equal infinities, and two NaNs, are equal.
            let distance = if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() };
            greatest = greatest.max(if distance.is_nan() { f64::INFINITY } else { distance });
            largest = largest.max(if x.is_finite() { x.abs() } else { 0.0 });
        }
    }
    let allowed = match a.ty {
        TensorType::Float32 | TensorType::Float64 => 1e-5 + 1e-4 * largest,
        TensorType::Float16 | TensorType::BFloat16 => 5e-3 * largest,
        _ if a.quantization.is_some() => 1.0,
        _ => 0.0,
    };
    Ok(Difference { output, greatest, allowed })
}

/// Reads an element from its bytes.
type Read = fn(&[u8]) -> f64;

/// Returns the bytes of an element, and the function that reads one; `None` for types that are compared by their bytes.
fn reader(ty: TensorType) -> Option<(usize, Read)> {
    fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    let reader: (usize, Read) = match ty {
        TensorType::Float32 => (4, |b| f32::from_le_bytes(first(b)).into()),
        TensorType::Float64 => (8, |b| f64::from_le_bytes(first(b))),
        TensorType::Float16 => (2, |b| half::f16::from_le_bytes(first(b)).to_f64()),
        TensorType::BFloat16 => (2, |b| half::bf16::from_le_bytes(first(b)).to_f64()),
        TensorType::Int8 => (1, |b| i8::from_le_bytes(first(b)).into()),
        TensorType::UInt8 => (1, |b| u8::from_le_bytes(first(b)).into()),
        TensorType::Int16 => (2, |b| i16::from_le_bytes(first(b)).into()),
        _ => return None,
    };
    Some(reader)
}

/// A resolver that several interpreters share.
pub(super) struct Shared(pub(super) Arc<dyn OpResolver>);

impl OpResolver for Shared {
    fn find(&self, op: &delegraph_core::Op, version: u32) -> Option<&delegraph_core::Registration> {
        self.0.find(op, version)
    }

    fn versions(&self, op: &delegraph_core::Op) -> Vec<RangeInclusive<u32>> {
        self.0.versions(op)
    }
}
