//! All cases, listed and generated, and what a runner asks of one.

use delegraph_core::{Model, Op, TensorType};

use super::operand::Kind;
use super::{Case, Operand};

/// The seed that is used where none is asked for.
pub const DEFAULT_SEED: u64 = 2026;

/// Every case: those that the families list, and those that they generate from `seed`. The same seed gives the same
/// names, models and data; listing makes neither models nor data.
///
/// Names are unique and do not change with the seed; what a random case is does.
pub fn suite(seed: u64) -> Vec<Case> {
    let mut cases = super::all();
    let mut generated = super::generate::cases(&cases, seed);
    super::name(&mut generated);
    cases.append(&mut generated);
    cases
}

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantized {
    /// Nothing is quantized.
    No,
    /// Floats, with weights of 16 bits.
    HalfWeights,
    /// Floats are quantized on the way, weights are quantized.
    Hybrid,
    /// A scale per tensor.
    PerTensor,
    /// A scale per channel of the weights.
    PerChannel,
}

impl Quantized {
    /// The name in reports.
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
    /// The family: the name's first part, and the name of the file that holds the op in every crate.
    pub fn family(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Whether LiteRT's results for it are recorded. All others are compared with the reference kernels.
    pub fn is_listed(&self) -> bool {
        self.seed.is_none()
    }

    /// The data of every input of the model in invocation `step`, in the order of its inputs.
    pub fn feed(&self, step: usize) -> Vec<Vec<u8>> {
        self.fed().map(|(i, operand)| operand.fed_data(i, step)).collect()
    }

    /// Operands that are there, with their index.
    pub(super) fn operands(&self) -> impl Iterator<Item = (usize, &Operand)> {
        self.inputs.iter().enumerate().filter_map(|(i, o)| o.as_ref().map(|o| (i, o)))
    }

    /// Whether its only node is of its op: what a runner can be strict about.
    pub fn is_single(&self) -> bool {
        self.model.is_none() && self.made.is_none() && self.called.is_empty()
    }

    /// Whether its nodes keep state from one invocation to the next.
    pub fn is_stateful(&self) -> bool {
        self.steps > 1
    }

    /// How it is quantized.
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

    /// What it is about, to choose by: `listed` or `generated`, `graph`, `stateful`, `special`, `dynamic` (an operand that
    /// is mostly constant is fed), the way it is quantized.
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

    /// Types and shapes of its operands, for people: `FLOAT32[1,5,6,3] FLOAT32[4,3,3,3]c -`, where `c` stands for a
    /// constant, `v` for a variable, `-` for an input that is left out.
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

    /// The versions of its op that `model` asks for, and every other op in it with its version.
    pub fn ops(model: &Model) -> Vec<(Op, u32)> {
        let nodes = model.subgraphs.iter().flat_map(|g| &g.nodes);
        let mut ops: Vec<(Op, u32)> = nodes.map(|n| (n.op.clone(), n.version)).collect();
        ops.dedup();
        ops
    }
}
