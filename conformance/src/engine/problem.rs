//! A model with data and expected outputs.

use std::sync::Arc;

use crate::seeded::SplitMix64;
use delegraph_core::{BuiltinOp, Model, Op, TensorType};
use serde::{Deserialize, Serialize};

use super::statistics::Rule;
use crate::Error;
use crate::cases::Case;
use crate::compare::{self, Arithmetic, Tolerance, Value};
use crate::output::Output;

/// A model with data and expected outputs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Problem {
    /// The name.
    pub name: String,
    /// The model.
    pub model: Arc<Model>,
    /// The signature to run; `None` for the first subgraph.
    pub signature: Option<String>,
    /// The inputs and expected outputs of each invocation of one interpreter.
    pub steps: Vec<Step>,
    /// The expected outputs.
    pub answers: Answers,
    /// The values that the arithmetic need not handle, so that a different output is not a failure; empty if there are
    /// none.
    pub undemanded: String,
    /// Whether the arithmetic stores values in 16 bits, so that FLOAT32 outputs have the tolerance of FLOAT16.
    pub halves: bool,
    /// The tested op.
    pub op: Op,
    /// The version of the tested op.
    pub version: u32,
    /// The type of the tested op's data.
    pub ty: Option<TensorType>,
    /// Tags to select the problem by.
    pub tags: Vec<String>,
}

/// The expected outputs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Answers {
    /// The outputs of the reference kernels, with the precision that the case requires.
    Reference(compare::Check),
    /// The outputs in [`Step::expected`], within this tolerance or that of the type.
    Given(GivenTolerance),
}

/// A tolerance from a folder. Omitted values are those of the output's type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GivenTolerance {
    /// See [`Tolerance::abs`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abs: Option<f64>,
    /// See [`Tolerance::rel`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rel: Option<f64>,
    /// See [`Tolerance::quantum`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
}

/// One invocation.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Step {
    /// The data of the inputs.
    pub feeds: Vec<Feed>,
    /// The expected outputs: index and elements.
    pub expected: Vec<(usize, Output)>,
}

/// The data of an input.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Feed {
    /// The index of the input.
    pub input: usize,
    /// The shape of the input.
    pub shape: Vec<usize>,
    /// The elements, in the tensor's format.
    pub bytes: Vec<u8>,
}

impl Problem {
    /// Creates the problem of a built-in case, for this arithmetic. Cases of one step run twice, the second time with
    /// other data, to detect delegates that keep results.
    ///
    /// # Errors
    /// The defect of the case.
    pub fn of_case(case: &Case, arithmetic: Arithmetic) -> Result<Self, Error> {
        let model = case.build()?;
        let version = case.versions(&model).into_iter().max().unwrap_or(1);
        let step = |step| {
            let feeds = case.fed().enumerate().map(|(input, (i, operand))| Feed {
                input,
                shape: operand.shape.dims().to_vec(),
                bytes: operand.fed_data(i, step),
            });
            Step { feeds: feeds.collect(), expected: Vec::new() }
        };
        let check = case.check(&model, arithmetic);
        let undemanded = case.specials().into_iter().filter(|value| !value.demanded(check.kind, arithmetic));
        let undemanded: Vec<&str> = undemanded.map(Value::name).collect();
        Ok(Problem {
            name: case.name.clone(),
            answers: Answers::Reference(check),
            model: Arc::new(model),
            signature: None,
            steps: (0..case.steps.max(2)).map(step).collect(),
            undemanded: undemanded.join(" or "),
            halves: arithmetic == Arithmetic::GpuHalves,
            op: Op::Builtin(case.op),
            version,
            ty: case.data_type(),
            tags: case.tags().into_iter().map(Into::into).collect(),
        })
    }

    /// Creates a problem from a model with these steps. The tested op is that of the most significant node.
    pub fn of_model(name: String, model: Model, steps: Vec<Step>, tolerance: GivenTolerance) -> Self {
        let (op, version, ty) = subject(&model);
        Problem {
            name,
            model: Arc::new(model),
            signature: None,
            steps,
            answers: Answers::Given(tolerance),
            undemanded: String::new(),
            halves: false,
            op,
            version,
            ty,
            tags: Vec::new(),
        }
    }

    /// Returns the precision that an output of this type must have.
    pub(crate) fn rule(&self, ty: TensorType, quantized: bool) -> Rule {
        let usual = Tolerance::of(ty, quantized);
        match &self.answers {
            Answers::Reference(check) => Rule::Check(*check),
            Answers::Given(given) => {
                let (abs, rel) = (given.abs.unwrap_or(usual.abs), given.rel.unwrap_or(usual.rel));
                // The tolerance of a folder does not allow for 16 bits.
                let halves = Tolerance::of(TensorType::Float16, false);
                let rel = if self.halves && ty == TensorType::Float32 { rel.max(halves.rel) } else { rel };
                Rule::Within(Tolerance { abs, rel, quantum: given.quantum.unwrap_or(usual.quantum) })
            }
        }
    }

    /// Returns other data for the inputs of step 0: the same elements in another order. Types of fewer than eight bits
    /// or without a fixed size are unchanged.
    pub(crate) fn shuffled(&self, seed: u64) -> Vec<Feed> {
        let mut feeds = self.steps.first().map(|s| s.feeds.clone()).unwrap_or_default();
        let subgraph = self.model.subgraphs().first();
        for feed in &mut feeds {
            let id = subgraph.and_then(|s| s.inputs().get(feed.input).map(|id| s.tensor(*id)));
            let width =
                id.and_then(|t| t.ty().bits()).filter(|bits| bits % 8 == 0).map_or(0, |bits| bits / 8);
            let count = feed.bytes.len().checked_div(width).unwrap_or(0);
            let mut generator = SplitMix64::new(seed).for_input(feed.input);
            for i in (1..count).rev() {
                let j = (generator.draw() % (i as u64 + 1)) as usize;
                (0..width).for_each(|b| feed.bytes.swap(i * width + b, j * width + b));
            }
        }
        feeds
    }
}

/// Returns the op that a model of unknown origin tests, with version and type: the first node that does not only
/// convert or move data.
fn subject(model: &Model) -> (Op, u32, Option<TensorType>) {
    use BuiltinOp as B;
    let plumbing = |op: &Op| {
        let plain = [B::CAST, B::QUANTIZE, B::DEQUANTIZE, B::RESHAPE, B::SHAPE, B::VAR_HANDLE];
        op.builtin().is_some_and(|op| plain.contains(&op))
    };
    let Some(main) = model.subgraphs().first() else { return (Op::custom(""), 0, None) };
    let node = main.nodes().iter().find(|n| !plumbing(n.op())).or(main.nodes().first());
    let Some(node) = node else { return (Op::custom(""), 0, None) };
    let first = node.inputs().iter().flatten().next().or(node.outputs().first());
    (node.op().clone(), node.version(), first.map(|id| main.tensor(*id).ty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn given_outputs_allow_for_halves_in_floats_only() {
        let case = cases::suite(1).into_iter().find(|case| case.op == BuiltinOp::ADD).unwrap();
        let mut problem = Problem::of_case(&case, Arithmetic::Ieee).unwrap();
        problem.answers = Answers::Given(GivenTolerance { rel: Some(1e-6), ..Default::default() });
        let rel = |problem: &Problem, ty| match problem.rule(ty, false) {
            Rule::Within(tolerance) => tolerance.rel,
            Rule::Check(_) => panic!("the outputs are given"),
        };
        assert_eq!([TensorType::Float32, TensorType::Int32].map(|ty| rel(&problem, ty)), [1e-6; 2]);
        problem.halves = true;
        assert_eq!([TensorType::Float32, TensorType::Int32].map(|ty| rel(&problem, ty)), [5e-3, 1e-6]);
    }
}
