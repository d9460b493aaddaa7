//! Comparison of two models, which run on the same random inputs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::{Model, OpResolver, Params, TensorType};

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
    /// The allowed difference: for floats `1e-5 + 1e-4 · max|value|` (float16: `5e-3 · max|value|`), for quantized
    /// values one step, otherwise 0.
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

/// Runs both models on `samples` random inputs. Each sample begins with the state of a new interpreter. Unless the
/// fused model has persistent state that the original lacks, a sample has two invocations, so that the state between
/// them is compared. Returns the greatest difference per output.
///
/// # Errors
/// If the original does not run; [`Error::State`] if the fused model does not run, or inputs and outputs of the two
/// differ.
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
    ModelPair { original, fused }: ModelPair<'_>,
    resolver: &Arc<dyn OpResolver>,
    samples: usize,
    mut limits: ResourceLimits,
) -> Result<Vec<Difference>> {
    // Each has its own interpreter.
    limits.memory /= 2;
    let build = |model: &Arc<Model>| {
        Interpreter::builder_with_resolver(model.clone(), Shared(resolver.clone()))
            .limits(limits.clone())
            .build()
    };
    let (mut a, mut b) = (build(original)?, build(fused).map_err(of_fused)?);
    let before = lasting_state(original);
    let new = lasting_state(fused).iter().any(|(state, count)| before.get(state).is_none_or(|b| b < count));
    let invocations = if before.is_empty() || new { 1 } else { 2 };
    if (a.input_count(), a.output_count()) != (b.input_count(), b.output_count()) {
        return Err(Error::State("the models do not have the same inputs and outputs".into()));
    }
    let mut differences: Vec<Difference> = Vec::new();
    for sample in 0..samples.saturating_mul(invocations) {
        if sample % invocations == 0 {
            a.reset_variables()?;
            b.reset_variables()?;
        }
        for i in 0..a.input_count() {
            let ty = a.input_tensor(i)?.ty;
            let bytes = match ty {
                TensorType::String => a.input_tensor(i)?.bytes().to_vec(),
                _ => {
                    let bytes = a.input_bytes_mut(i)?;
                    let stream = (i as u64).wrapping_mul(1_000_003).wrapping_add(sample as u64);
                    fill(ty, bytes, &mut Random::new(sample as u64, stream));
                    bytes.to_vec()
                }
            };
            if b.input_tensor(i)?.shape != a.input_tensor(i)?.shape {
                let shape = a.input_tensor(i)?.shape.clone();
                b.resize_input(i, &shape).map_err(of_fused)?;
            }
            b.set_input_bytes(i, &bytes).map_err(of_fused)?;
        }
        a.invoke()?;
        b.invoke().map_err(of_fused)?;
        for i in 0..a.output_count() {
            let found = difference(a.output_tensor(i)?, b.output_tensor(i)?);
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

/// Returns the error of a fused model: the cause is the fusion, not the file.
fn of_fused(error: Error) -> Error {
    if error.is_interruption() {
        return error;
    }
    Error::State(format!("the rewritten model cannot be run: {}", cause(error)))
}

/// Returns the error of a rewritten model in one line, also a list of ops, for a longer sentence. The path is removed,
/// because it is that of the original model.
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

/// State that keeps its value between invocations.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum State<'m> {
    /// The name of a variable of the first subgraph. Variables of other subgraphs are reset in every call.
    Variable(&'m str),
    /// The container and the name of a resource variable.
    Resource(&'m str, &'m str),
}

/// Returns the state that lasts between invocations: how many variables have a name, and 1 for each resource variable.
fn lasting_state(model: &Model) -> BTreeMap<State<'_>, usize> {
    let mut states = BTreeMap::new();
    let first = model.subgraphs().first().map_or(&[][..], |g| g.tensors());
    for variable in first.iter().filter(|t| t.is_variable()) {
        *states.entry(State::Variable(variable.name())).or_default() += 1;
    }
    // Inlining copies the nodes of a function, whose copies refer to the same variable.
    for node in model.subgraphs().iter().flat_map(|g| g.nodes()) {
        if let Params::VarHandle(handle) = node.params() {
            states.insert(State::Resource(&handle.container, &handle.shared_name), 1);
        }
    }
    states
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

fn difference(a: &RuntimeTensor, b: &RuntimeTensor) -> Difference {
    let output = a.name.to_string();
    if (a.ty, &a.shape) != (b.ty, &b.shape) {
        return Difference { output, greatest: f64::INFINITY, allowed: 0.0 };
    }
    let Some((a_values, b_values)) = values(a).zip(values(b)) else {
        let same = a.bytes() == b.bytes();
        return Difference { output, greatest: if same { 0.0 } else { f64::INFINITY }, allowed: 0.0 };
    };
    let mut greatest = 0f64;
    for (&x, &y) in a_values.iter().zip(&b_values) {
        // Equal infinities, and two NaNs, are equal.
        let distance = if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() };
        greatest = greatest.max(if distance.is_nan() { f64::INFINITY } else { distance });
    }
    let largest = a_values.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let allowed = match a.ty {
        TensorType::Float32 | TensorType::Float64 => 1e-5 + 1e-4 * largest,
        TensorType::Float16 | TensorType::BFloat16 => 5e-3 * largest,
        _ if a.quantization.is_some() => 1.0,
        _ => 0.0,
    };
    Difference { output, greatest, allowed }
}

fn values(tensor: &RuntimeTensor) -> Option<Vec<f64>> {
    let bytes = tensor.bytes();
    Some(match tensor.ty {
        TensorType::Float32 => {
            bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
        }
        TensorType::Float64 => bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        TensorType::Float16 => {
            bytes.as_chunks::<2>().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f64()).collect()
        }
        TensorType::Int8 => bytes.iter().map(|&b| f64::from(b.cast_signed())).collect(),
        TensorType::UInt8 => bytes.iter().map(|&b| f64::from(b)).collect(),
        TensorType::Int16 => {
            bytes.as_chunks::<2>().0.iter().map(|b| f64::from(i16::from_le_bytes(*b))).collect()
        }
        _ => return None,
    })
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
