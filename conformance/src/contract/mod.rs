//! The contract of a delegate beyond numbers. Each check runs a case that the delegate claims.
//!
//! | check | promise |
//! |---|---|
//! | `reasons` | every unclaimed node has a typed reason |
//! | `versions` | the declared maximum is an existing version; a node above it is never claimed |
//! | `ran` | a claimed case runs on the delegate's kernels |
//! | `bounds` | nothing is written outside of the outputs, and every output is written completely |
//! | `inputs` | inputs and constants are unchanged |
//! | `repeat` | the same data give the same result after other runs |
//! | `reset` | variables have their initial values after a reset |
//! | `resize` | another shape, and the first one again |
//! | `again` | removed and added, dropped and created again |
//! | `constants` | another model of the same shapes has its own results |
//! | `threads` | two interpreters at the same time in two threads |
//! | `failures` | an error or a panic at any hook leaves the CPU's result, and the delegate usable |
//! | `memory` | neither repeated invocations nor repeated creation grow memory without bound |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use delegraph_core::error::counted;
use delegraph_core::types::rounded;
use delegraph_core::{BuiltinOp, Error, Result};
use delegraph_delegate_api::{Delegate, DelegateFailure};
use delegraph_interpreter::Interpreter;

use crate::engine::{Backend, CaseResult, ContractCheck, Feed, Problem};
use crate::engine::{feed, judge, outputs, panic_text, prepare};
use crate::output::Output;

mod constants;
mod failures;
mod lifecycle;
mod memory;
mod tensors;
mod versions;
mod watch;

/// The names of all checks, in their order.
pub const CHECKS: &[&str] = &[
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

/// Measuring memory requires that nothing else runs in the process; all other checks may run at the same time.
static ALONE: RwLock<()> = RwLock::new(());

/// Every output of every step.
pub(crate) type Outputs = Vec<Vec<Output>>;

/// The result of a check: the violation, if there is one. An error of the delegate is a violation, too.
type Found = Result<Option<String>>;

/// The operands of the checks.
struct Trial<'t> {
    backend: &'t Backend,
    problem: &'t Problem,
    /// The delegate's correct outputs.
    got: &'t Outputs,
}

/// Checks all promises on a case that the delegate claims and computes correctly.
pub(crate) fn check(backend: &Backend, problem: &Problem, got: &Outputs, result: &mut CaseResult) {
    let trial = Trial { backend, problem, got };
    let mut add = |name: &str, check: &dyn Fn(&Trial<'_>) -> Found| {
        let problem = contained(|| check(&trial)).unwrap_or_default();
        result.checks.push(ContractCheck { name: name.into(), problem });
    };
    add("versions", &versions::check);
    add("ran", &tensors::ran);
    add("bounds", &tensors::bounds);
    add("inputs", &tensors::inputs);
    add("repeat", &lifecycle::repeat);
    add("reset", &lifecycle::reset);
    add("resize", &lifecycle::resize);
    add("again", &lifecycle::again);
    add("constants", &constants::check);
    add("threads", &lifecycle::threads);
    add("failures", &failures::check);
}

/// Locks out the measurement of memory; held by everything else.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the last check, which requires that nothing else runs. Callers must not hold [`shared`].
pub(crate) fn check_memory(backend: &Backend, problem: &Problem, result: &mut CaseResult) {
    let trial = Trial { backend, problem, got: &Vec::new() };
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let problem = contained(|| memory::check(&trial)).unwrap_or_default();
    result.checks.push(ContractCheck { name: "memory".into(), problem });
}

/// Runs the checks for a case that the delegate does not claim.
pub(crate) fn check_unclaimed(backend: &Backend, problem: &Problem, result: &mut CaseResult) {
    let trial = Trial { backend, problem, got: &Vec::new() };
    let problem = contained(|| versions::check(&trial)).unwrap_or_default();
    result.checks.push(ContractCheck { name: "versions".into(), problem });
}

/// Returns a violation if an unclaimed node has no typed reason.
pub(crate) fn untyped(result: &CaseResult) -> Option<ContractCheck> {
    let bare = |reason: &&String| reason.ends_with(": NotClaimed: not claimed") || reason.ends_with(": ");
    let problem = result.reasons.iter().find(bare)?;
    Some(ContractCheck { name: "reasons".into(), problem: format!("no reason is given: {problem}") })
}

fn contained(check: impl FnOnce() -> Found) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
    }
}

impl Trial<'_> {
    /// Creates a delegate.
    fn make(&self) -> Result<Box<dyn Delegate>> {
        let none = || Error::State("there is no delegate".into());
        self.backend.make()?.ok_or_else(none)
    }

    /// Creates an interpreter with this delegate, prepared for the problem's shapes.
    ///
    /// # Errors
    /// Includes failures of the delegate, whose nodes would otherwise run on the CPU.
    fn interpreter(&self, delegate: Option<Box<dyn Delegate>>) -> Result<Interpreter> {
        let interpreter = self.offered(delegate)?;
        failed(&interpreter).map_or(Ok(interpreter), Err)
    }

    /// As [`Trial::interpreter`], without an error if the delegate fails.
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

    /// Returns whether an invocation changes state that the next one reads.
    fn keeps_state(&self) -> bool {
        use delegraph_core::BuiltinOp as B;
        let state = [B::VAR_HANDLE, B::CALL_ONCE, B::HASHTABLE];
        let variable =
            self.problem.model.subgraphs().iter().any(|s| s.tensors().iter().any(|t| t.is_variable()));
        variable || self.is_random() || self.nodes().any(|op| op.is_some_and(|op| state.contains(&op)))
    }

    /// Returns whether two runs may differ: random number generators continue, and custom ops are unknown.
    fn is_random(&self) -> bool {
        use delegraph_core::BuiltinOp as B;
        let random = [B::RANDOM_UNIFORM, B::RANDOM_STANDARD_NORMAL, B::MULTINOMIAL];
        self.nodes().any(|op| op.is_none_or(|op| random.contains(&op)))
    }

    /// Returns the ops of all nodes; `None` for custom ops.
    fn nodes(&self) -> impl Iterator<Item = Option<BuiltinOp>> {
        self.problem.model.subgraphs().iter().flat_map(|s| s.nodes()).map(|n| n.op().builtin())
    }

    /// Returns data that differ from those of the first step.
    fn other_feeds(&self) -> Vec<Feed> {
        let steps = &self.problem.steps;
        let differs = |(a, b): (&Feed, &Feed)| a.bytes != b.bytes;
        match (steps.first(), steps.get(1)) {
            (Some(a), Some(b)) if a.feeds.iter().zip(&b.feeds).any(differs) => b.feeds.clone(),
            _ => self.problem.shuffled(1),
        }
    }
}

/// Returns the failure of a delegate during preparation.
fn failed(interpreter: &Interpreter) -> Option<Error> {
    let DelegateFailure { delegate, message, .. } = interpreter.report().failures.first()?;
    Some(Error::delegate(delegate, message))
}

/// Compares two runs. Only differences by the order of summation are allowed.
fn differ(problem: &Problem, what: &str, got: &Outputs, want: &Outputs) -> Option<String> {
    let all = got.iter().zip(want).enumerate();
    for (step, (got, want)) in all {
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            match judge(got, want, problem.rule(want.ty, want.quantized), (i, step)) {
                Err(text) => return Some(format!("{what}, {text}")),
                Ok(stats) if stats.wrong > 0 => {
                    let (wrong, elements, most) = (stats.wrong, stats.elements, rounded(stats.max_abs));
                    return Some(format!(
                        "{what}, output {i} of invocation {} differs: {wrong} of {}, by up to {most}",
                        step + 1,
                        counted(elements, "element")
                    ));
                }
                Ok(_) => {}
            }
        }
    }
    None
}
