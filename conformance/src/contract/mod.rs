//! What a delegate promises beyond numbers, each promise tried on a case that it claims.
//!
//! | check | promise |
//! |---|---|
//! | `reasons` | every node that is left has a typed reason |
//! | `versions` | the declared maximum is a version that there is; a node above it is never claimed |
//! | `ran` | a claimed case runs on the delegate's kernels |
//! | `bounds` | nothing is written outside of the outputs, and all of them is written |
//! | `inputs` | inputs and constants are as they were |
//! | `repeat` | the same data give the same result, whatever ran in between |
//! | `reset` | variables that are reset are as they were at first |
//! | `resize` | another shape, and the first one again |
//! | `again` | removed and added, dropped and made anew |
//! | `constants` | another model of the same shapes has results of its own |
//! | `threads` | two interpreters at once in two threads |
//! | `failures` | an error or a panic at any hook leaves the CPU's result, and the delegate usable |
//! | `memory` | neither invoking nor making it anew takes ever more memory |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use delegraph_core::{BuiltinOp, Error, Result};
use delegraph_delegate_api::Delegate;
use delegraph_interpreter::Interpreter;

use crate::engine::{Backend, CaseResult, Check, Feed, Output, Problem};
use crate::engine::{feed, judge, outputs, panic_text, prepare};

mod constants;
mod failures;
mod life;
mod memory;
mod tensors;
mod versions;
mod watch;

/// The names of all checks, in their order.
pub const CHECKS: [&str; 13] = [
    "reasons",
    "versions",
    "ran",
    "bounds",
    "inputs",
    "repeat",
    "reset",
    "resize",
    "again",
    "constants",
    "threads",
    "failures",
    "memory",
];

/// Measuring memory needs the process for itself; everything else may run at the same time.
static ALONE: RwLock<()> = RwLock::new(());

/// Every output of every step.
pub(crate) type Outputs = Vec<Vec<Output>>;

/// What came of a check: what is wrong, if anything. An error of the delegate is wrong, too.
type Found = Result<Option<String>>;

/// What the checks need.
struct Trial<'t> {
    backend: &'t Backend,
    problem: &'t Problem,
    /// What the delegate computed, found to be right.
    got: &'t Outputs,
}

/// Tries every promise on a case that the delegate claims and computes rightly.
pub(crate) fn check(backend: &Backend, problem: &Problem, got: &Outputs, result: &mut CaseResult) {
    let trial = Trial { backend, problem, got };
    let mut add = |name: &str, check: &dyn Fn(&Trial<'_>) -> Found| {
        let problem = contained(|| check(&trial)).unwrap_or_default();
        result.checks.push(Check { name: name.into(), problem });
    };
    add("versions", &versions::check);
    add("ran", &tensors::ran);
    add("bounds", &tensors::bounds);
    add("inputs", &tensors::inputs);
    add("repeat", &life::repeat);
    add("reset", &life::reset);
    add("resize", &life::resize);
    add("again", &life::again);
    add("constants", &constants::check);
    add("threads", &life::threads);
    add("failures", &failures::check);
}

/// Everything but measuring memory holds this.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// The last check, for which nothing else may run. Nobody who calls it holds [`shared`].
pub(crate) fn check_memory(backend: &Backend, problem: &Problem, result: &mut CaseResult) {
    let trial = Trial { backend, problem, got: &Vec::new() };
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let problem = contained(|| memory::check(&trial)).unwrap_or_default();
    result.checks.push(Check { name: "memory".into(), problem });
}

/// What can be tried on a case that the delegate leaves.
pub(crate) fn check_unclaimed(backend: &Backend, problem: &Problem, result: &mut CaseResult) {
    let trial = Trial { backend, problem, got: &Vec::new() };
    let problem = contained(|| versions::check(&trial)).unwrap_or_default();
    result.checks.push(Check { name: "versions".into(), problem });
}

/// A node that was left without a reason.
pub(crate) fn untyped(result: &CaseResult) -> Option<Check> {
    let bare = |reason: &&String| reason.ends_with(": NotClaimed: not claimed") || reason.ends_with(": ");
    let problem = result.reasons.iter().find(bare)?;
    Some(Check { name: "reasons".into(), problem: format!("no reason is given: {problem}") })
}

fn contained(check: impl FnOnce() -> Found) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
    }
}

impl Trial<'_> {
    /// The delegate, made anew.
    fn make(&self) -> Result<Box<dyn Delegate>> {
        let none = || Error::State("there is no delegate".into());
        self.backend.make()?.ok_or_else(none)
    }

    /// An interpreter with this delegate, prepared for the problem's shapes.
    ///
    /// # Errors
    /// What the delegate failed with, too: the nodes that it claimed would run on the CPU.
    fn interpreter(&self, delegate: Option<Box<dyn Delegate>>) -> Result<Interpreter> {
        let interpreter = self.offered(delegate)?;
        failed(&interpreter).map_or(Ok(interpreter), Err)
    }

    /// The same, whatever the delegate made of it.
    fn offered(&self, delegate: Option<Box<dyn Delegate>>) -> Result<Interpreter> {
        let mut interpreter = self.backend.build(self.problem, delegate, None)?;
        prepare(&mut interpreter, self.problem)?;
        Ok(interpreter)
    }

    /// Runs every step.
    fn run(&self, interpreter: &mut Interpreter) -> Result<Outputs> {
        let mut all = Vec::new();
        for step in &self.problem.steps {
            feed(interpreter, &step.feeds)?;
            interpreter.invoke()?;
            all.push(outputs(interpreter)?);
        }
        Ok(all)
    }

    /// Whether an invocation leaves something behind for the next.
    fn keeps_state(&self) -> bool {
        use delegraph_core::BuiltinOp as B;
        let state = [B::VAR_HANDLE, B::CALL_ONCE, B::HASHTABLE];
        let variable = self.problem.model.subgraphs.iter().any(|s| s.tensors.iter().any(|t| t.is_variable));
        variable || self.is_random() || self.nodes().any(|op| op.is_some_and(|op| state.contains(&op)))
    }

    /// Whether two runs may differ: generators of random numbers go on where they are, and nobody knows custom ops.
    fn is_random(&self) -> bool {
        use delegraph_core::BuiltinOp as B;
        let random = [B::RANDOM_UNIFORM, B::RANDOM_STANDARD_NORMAL, B::MULTINOMIAL];
        self.nodes().any(|op| op.is_none_or(|op| random.contains(&op)))
    }

    /// The ops of all nodes; `None` for custom ones.
    fn nodes(&self) -> impl Iterator<Item = Option<BuiltinOp>> {
        self.problem.model.subgraphs.iter().flat_map(|s| &s.nodes).map(|n| n.op.builtin())
    }

    /// Data that are not those of the first step.
    fn other_feeds(&self) -> Vec<Feed> {
        let steps = &self.problem.steps;
        let differs = |(a, b): (&Feed, &Feed)| a.bytes != b.bytes;
        match (steps.first(), steps.get(1)) {
            (Some(a), Some(b)) if a.feeds.iter().zip(&b.feeds).any(differs) => b.feeds.clone(),
            _ => self.problem.shuffled(1),
        }
    }
}

/// What a delegate failed with when its nodes were prepared.
fn failed(interpreter: &Interpreter) -> Option<Error> {
    let (delegate, message) = interpreter.report().failures.first()?;
    Some(Error::Delegate { delegate: delegate.clone(), message: message.clone() })
}

/// Where two runs differ by more than the order of a sum may make.
fn differ(problem: &Problem, what: &str, got: &Outputs, want: &Outputs) -> Option<String> {
    let all = got.iter().zip(want).enumerate();
    for (step, (got, want)) in all {
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            match judge(got, want, problem.rule(want.ty, want.quantized), (i, step)) {
                Err(text) => return Some(format!("{what}, {text}")),
                Ok(stats) if stats.wrong > 0 => {
                    let (wrong, elements, most) = (stats.wrong, stats.elements, stats.max_abs);
                    return Some(format!(
                        "{what}, output {i} of invocation {} differs: {wrong} of {elements} elements, by up to {most:e}",
                        step + 1
                    ));
                }
                Ok(_) => {}
            }
        }
    }
    None
}
