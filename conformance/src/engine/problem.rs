//! A model with data, and what is to come out.

use std::sync::Arc;

use delegraph_core::{Model, Op, TensorType};
use delegraph_interpreter::seeded::SplitMix64;
use serde::{Deserialize, Serialize};

use super::describe;
use super::statistics::{Output, Rule};
use crate::cases::Case;
use crate::compare::{self, Arithmetic, Tolerance};

/// A model with data, and what is to come out.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Its name.
    pub name: String,
    /// The model.
    pub model: Arc<Model>,
    /// The signature to run; the first subgraph where there is none.
    pub signature: Option<String>,
    /// What goes in and comes out in each invocation of one interpreter.
    pub steps: Vec<Step>,
    /// What the outputs are compared with.
    pub answers: Answers,
    /// What in it the arithmetic need not get right, so that an output that differs is no failure; empty where all counts.
    pub undemanded: String,
    /// The op that it is about.
    pub op: Op,
    /// The version of that op.
    pub version: u32,
    /// The type of that op's data.
    pub ty: Option<TensorType>,
    /// What sets it apart.
    pub tags: Vec<String>,
}

/// What the outputs are compared with.
#[derive(Debug, Clone)]
pub enum Answers {
    /// What the reference kernels compute, as exactly as the case asks.
    Reference(compare::Check),
    /// What is in [`Step::expected`], within this tolerance, or that of the type.
    Given(GivenTolerance),
}

/// A tolerance that a folder gives; what it leaves out is that of the output's type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
pub struct Step {
    /// What goes in.
    pub feeds: Vec<Feed>,
    /// What is to come out: number of the output, and its elements.
    pub expected: Vec<(usize, Output)>,
}

/// What goes into an input.
#[derive(Debug, Clone)]
pub struct Feed {
    /// Which input.
    pub input: usize,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements, as the tensor has them.
    pub bytes: Vec<u8>,
}

impl Problem {
    /// One of our cases, on such arithmetic. Those that would run once run twice, the second time on other data, so that a
    /// delegate that remembers is found out.
    ///
    /// # Errors
    /// What is wrong with the case.
    pub fn of_case(case: &Case, arithmetic: Arithmetic) -> Result<Self, String> {
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
        let undemanded = match case.demanded(&model, arithmetic) {
            true => String::new(),
            false => format!("{:?} in its data", case.specials()).to_lowercase(),
        };
        Ok(Problem {
            name: case.name.clone(),
            answers: Answers::Reference(case.check(&model, arithmetic)),
            model: Arc::new(model),
            signature: None,
            steps: (0..case.steps.max(2)).map(step).collect(),
            undemanded,
            op: Op::Builtin(case.op),
            version,
            ty: case.data_type(),
            tags: case.tags().into_iter().map(Into::into).collect(),
        })
    }

    /// A model with these steps, about the most telling of its nodes.
    pub fn of_model(name: String, model: Model, steps: Vec<Step>, tolerance: GivenTolerance) -> Self {
        let (op, version, ty) = describe::subject(&model);
        Problem {
            name,
            model: Arc::new(model),
            signature: None,
            steps,
            answers: Answers::Given(tolerance),
            undemanded: String::new(),
            op,
            version,
            ty,
            tags: Vec::new(),
        }
    }

    /// How exactly an output is to be what is expected of it.
    pub(crate) fn rule(&self, ty: TensorType, quantized: bool) -> Rule {
        let usual = Tolerance::of(ty, quantized);
        match &self.answers {
            Answers::Reference(check) => Rule::Check(*check),
            Answers::Given(given) => Rule::Within(Tolerance {
                abs: given.abs.unwrap_or(usual.abs),
                rel: given.rel.unwrap_or(usual.rel),
                quantum: given.quantum.unwrap_or(usual.quantum),
            }),
        }
    }

    /// Other data for the inputs of step 0: the same elements in another order. Data that index or steer stay right.
    pub(crate) fn shuffled(&self, seed: u64) -> Vec<Feed> {
        let mut feeds = self.steps.first().map(|s| s.feeds.clone()).unwrap_or_default();
        let subgraph = self.model.subgraphs.first();
        for feed in &mut feeds {
            let id = subgraph.and_then(|s| s.inputs.get(feed.input).map(|id| s.tensor(*id)));
            let width = id.and_then(|t| t.ty.bits()).filter(|bits| bits % 8 == 0).map_or(0, |bits| bits / 8);
            let count = feed.bytes.len().checked_div(width).unwrap_or(0);
            let mut generator = SplitMix64::new(seed, feed.input, 0);
            for i in (1..count).rev() {
                let j = (generator.draw() % (i as u64 + 1)) as usize;
                (0..width).for_each(|b| feed.bytes.swap(i * width + b, j * width + b));
            }
        }
        feeds
    }
}
