//! All cases, listed and generated, and the properties that a runner needs.

use delegraph_core::{Model, Op, TensorType};

use super::operand::Kind;
use super::{Case, Operand};

/// The default seed.
pub const DEFAULT_SEED: u64 = 2026;

/// Returns every case: those that the families list, and those generated from `seed`. The same seed gives the same
/// names, models and data. Listing creates neither models nor data.
///
/// Names are unique and do not depend on the seed; the contents of random cases do.
pub fn suite(seed: u64) -> Vec<Case> {
    let mut cases = super::all();
    let mut generated = super::generate::cases(&cases, seed);
    super::name(&mut generated);
    cases.append(&mut generated);
    cases
}

/// The storage of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Quantized {
    /// Not quantized.
    No,
    /// Floats, with 16-bit weights.
    HalfWeights,
    /// Quantized weights; floats are quantized at run time.
    Hybrid,
    /// A scale per tensor.
    PerTensor,
    /// A scale per channel of the weights.
    PerChannel,
}

impl Quantized {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Quantized::No => "none",
            Quantized::HalfWeights => "half_weights",
            Quantized::Hybrid => "hybrid",
            Quantized::PerTensor => "per_tensor",
            Quantized::PerChannel => "per_channel",
        }
    }
}

impl Case {
    /// Returns the family: the first part of the name, and the name of the file that defines the op in every crate.
    pub fn family(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Returns whether LiteRT's results are recorded. Other cases are compared with the reference kernels.
    pub fn is_listed(&self) -> bool {
        self.seed.is_none()
    }

    /// Returns the data of every input of the model in invocation `step`, in the order of its inputs.
    pub fn feed(&self, step: usize) -> Vec<Vec<u8>> {
        self.fed().map(|(i, operand)| operand.fed_data(i, step)).collect()
    }

    /// Returns the given operands, with their index.
    pub(super) fn operands(&self) -> impl Iterator<Item = (usize, &Operand)> {
        self.inputs.iter().enumerate().filter_map(|(i, o)| o.as_ref().map(|o| (i, o)))
    }

    /// Returns whether the only node is of the case's op, so that a runner can be strict.
    pub fn is_single(&self) -> bool {
        self.model.is_none() && self.made.is_none() && self.called.is_empty()
    }

    /// Returns whether nodes keep state between invocations.
    pub fn is_stateful(&self) -> bool {
        self.steps > 1
    }

    /// Returns how values are quantized.
    pub fn quantized(&self) -> Quantized {
        let quantizations = |o: &Operand| o.quantization.as_ref().and_then(|q| q.affine()).cloned();
        let affine: Vec<_> = self.operands().filter_map(|(_, o)| quantizations(o)).collect();
        let first = self.data_type().unwrap_or(TensorType::Float32);
        let float = matches!(first, TensorType::Float32 | TensorType::Float16 | TensorType::BFloat16);
        if affine.is_empty() {
            let halves = self.operands().any(|(_, o)| o.half);
            return if halves { Quantized::HalfWeights } else { Quantized::No };
        }
        match (float, affine.iter().any(|a| a.scales.len() > 1)) {
            (true, _) => Quantized::Hybrid,
            (false, true) => Quantized::PerChannel,
            (false, false) => Quantized::PerTensor,
        }
    }

    /// Returns the tags by which cases are selected: `listed` or `generated`, `graph`, `stateful`, `special`, `dynamic`
    /// (an operand that is usually constant is fed), and the kind of quantization.
    pub fn tags(&self) -> Vec<&'static str> {
        let mut tags = vec![if self.is_listed() { "listed" } else { "generated" }];
        if !self.is_single() {
            tags.push("graph");
        }
        if self.is_stateful() {
            tags.push("stateful");
        }
        if !self.specials().is_empty() {
            tags.push("special");
        }
        if self.is_single() && self.fed().count() > 1 {
            tags.push("dynamic");
        }
        if self.quantized() != Quantized::No {
            tags.push(self.quantized().name());
        }
        tags
    }

    /// Describes types and shapes of the operands: `FLOAT32[1,5,6,3] FLOAT32[4,3,3,3]c -`, where `c` marks a constant,
    /// `v` a variable, and `-` an omitted input.
    pub fn describe(&self) -> String {
        let text = |o: &Option<Operand>| {
            let Some(o) = o else { return "-".to_owned() };
            let shape: Vec<String> = o.shape.iter().map(usize::to_string).collect();
            let kind = match o.kind {
                Kind::Fed => "",
                Kind::Constant => "c",
                Kind::Variable => "v",
            };
            format!("{}[{}]{kind}", o.ty.name(), shape.join(","))
        };
        self.inputs.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// Returns op and version of every node of `model`; equal neighbours are listed once.
    pub fn ops(model: &Model) -> Vec<(Op, u32)> {
        let nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
        let mut ops: Vec<(Op, u32)> = nodes.map(|n| (n.op().clone(), n.version())).collect();
        ops.dedup();
        ops
    }
}
