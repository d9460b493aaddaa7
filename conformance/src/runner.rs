//! Runs problems, and compares their outputs with the expected ones.

use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use delegraph_core::error::{Error, counted};
use delegraph_core::kernel::Placement;
use delegraph_core::types::rounded;
use delegraph_delegate_api::{DelegateFailure, Runner};
use delegraph_interpreter::Interpreter;

use crate::contract;
use crate::engine::{
    Answers, Backend, CaseFailure, CaseResult, ContractCheck, Kernels, Outcome, Problem, Step,
};
use crate::engine::{describe, failed, feed, invalid, judge, outputs, panic_text, prepare, ran};
use crate::output::Output;

/// Whether a run also checks the delegate's contract: see [`crate::contract`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContractChecks {
    /// Outputs are compared, and nothing else is checked.
    Skip,
    /// The contract is checked after the outputs are compared.
    Run,
}

/// Runs problems on a backend.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Engine {
    /// The backend under test.
    pub backend: Backend,
    /// Whether each case is also timed on the CPU kernels.
    pub time_cpu: bool,
}

impl Engine {
    /// Creates an engine that tests `backend`.
    pub fn new(backend: Backend) -> Self {
        Engine { backend, time_cpu: true }
    }

    /// Disables times on the CPU kernels.
    #[must_use]
    pub fn untimed(self) -> Self {
        Engine { time_cpu: false, ..self }
    }

    /// Runs a problem. A panic is reported as a result.
    pub fn run(&self, problem: &Problem, checks: ContractChecks) -> CaseResult {
        self.run_made(&problem.name, || Ok(problem), checks)
    }

    /// As [`Engine::run`], for a problem that the call creates, so that nothing else is created while memory is
    /// measured.
    pub fn run_made<P: Borrow<Problem>>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<P, CaseFailure>,
        checks: ContractChecks,
    ) -> CaseResult {
        let mut result = CaseResult::new(name, Outcome::Pass, "");
        let start = Instant::now();
        let shared = contract::shared();
        let made = make();
        let run = catch_unwind(AssertUnwindSafe(|| match &made {
            Ok(problem) => {
                describe(problem.borrow(), &mut result);
                self.run_into(problem.borrow(), checks, &mut result)
            }
            Err(failure) => Err((failure.outcome, failure.detail.clone())),
        }));
        drop(shared);
        let mut ended =
            run.unwrap_or_else(|panic| Err((Outcome::Error, format!("panic: {}", panic_text(&*panic)))));
        if let (Ok(()), Ok(problem), true) =
            (&ended, &made, checks == ContractChecks::Run && result.claimed > 0)
        {
            contract::check_memory(&self.backend, problem.borrow(), &mut result);
            ended = self.violations(&mut result);
        }
        if let Err((outcome, detail)) = ended {
            (result.outcome, result.detail) = (outcome, detail);
        }
        result.elapsed = start.elapsed();
        result
    }

    fn run_into(
        &self,
        problem: &Problem,
        checks: ContractChecks,
        result: &mut CaseResult,
    ) -> Result<(), (Outcome, String)> {
        let delegate = self.backend.make().map_err(failed)?;
        let tests_delegate = delegate.is_some();
        let before = if tests_delegate { problem.model.bytes().to_vec() } else { Vec::new() };
        let mut interpreter = self.backend.build(problem, delegate, None).map_err(failed)?;
        prepare(&mut interpreter, problem).map_err(failed)?;
        if let Some(DelegateFailure { delegate: name, message, .. }) = interpreter.report().failures.first() {
            return Err((Outcome::Error, format!("delegate {name} failed: {message}")));
        }
        if tests_delegate {
            self.claims(&interpreter, problem, result);
            if let Some(problem) = contract::untyped(result) {
                result.checks.push(problem);
            }
        }
        let own = !matches!(problem.answers, Answers::Given(_));
        if tests_delegate && own && result.claimed == 0 {
            if checks == ContractChecks::Run {
                contract::check_unclaimed(&self.backend, problem, result);
            }
            let reason = result.reasons.first().cloned().unwrap_or_else(|| "no node is left to run".into());
            (result.outcome, result.detail) = (Outcome::Unsupported, reason);
            return self.violations(result);
        }
        // A problem that the reference kernels reject still runs: it must not crash the backend under test.
        let wanted = match &problem.answers {
            Answers::Reference(_) => Some(self.oracle(problem, result)),
            _ => None,
        };
        let (wanted, refused) = match wanted {
            Some(Err(refused)) => (None, Some(refused)),
            other => (other.and_then(Result::ok), None),
        };
        let mut got = Vec::new();
        for (number, step) in problem.steps.iter().enumerate() {
            feed(&mut interpreter, &step.feeds).map_err(|e| invalid(&e))?;
            let start = Instant::now();
            let invoked = interpreter.invoke();
            if let (Some((_, detail)), Err(_)) = (&refused, &invoked) {
                return Err((Outcome::Unsupported, detail.clone()));
            }
            invoked.map_err(|e| match own && tests_delegate {
                // The delegate claimed a node that it does not run.
                true => (Outcome::Error, ran(e, number).1),
                false => ran(e, number),
            })?;
            let time = start.elapsed();
            result.time = Some(result.time.map_or(time, |least| least.min(time)));
            got.push(outputs(&interpreter).map_err(failed)?);
        }
        match refused {
            // Both sides compute the same op, so data without a result is an error on both.
            Some((Outcome::Error, detail)) => {
                return Err((Outcome::Mismatch, format!("results of invalid data: {detail}")));
            }
            Some(refused) => return Err(refused),
            None => {}
        }
        // The reference kernels read the same model, so that a comparison would not detect the change.
        if tests_delegate && problem.model.bytes() != before {
            let problem = "a constant of the model has changed".into();
            result.checks.push(ContractCheck { name: "inputs".into(), problem });
            return self.violations(result);
        }
        let mut compared = Ok(());
        for (number, (step, got)) in problem.steps.iter().zip(&got).enumerate() {
            let given = step.expected.iter().map(|(i, want)| (*i, want));
            let computed = wanted.as_ref().and_then(|w| w.get(number)).into_iter().flatten().enumerate();
            for (i, want) in given.chain(computed) {
                compared = compared.and(compare(problem, result, got, (i, want), number));
            }
        }
        if let Err((_, text)) = &compared
            && !problem.undemanded.is_empty()
        {
            let values = &problem.undemanded;
            let text = format!("{text}; this is allowed: a GPU need not handle {values} in the data");
            return Err((Outcome::Unsupported, text));
        }
        compared?;
        if checks == ContractChecks::Run && tests_delegate && problem.undemanded.is_empty() {
            contract::check(&self.backend, problem, &got, result);
        }
        if self.time_cpu && tests_delegate && own {
            result.cpu_time = self.time(problem, Kernels::Optimized);
        }
        if tests_delegate && own && !result.op_claimed {
            let reason = result.reasons.first().cloned().unwrap_or_else(|| "computed while preparing".into());
            (result.outcome, result.detail) = (Outcome::Unsupported, reason);
        }
        self.violations(result)
    }

    /// Returns the first violation as an outcome, since a case with a violation does not pass.
    fn violations(&self, result: &mut CaseResult) -> Result<(), (Outcome, String)> {
        let broken = result.checks.iter().find(|c| !c.problem.is_empty());
        match broken {
            Some(check) => Err((Outcome::Violation, format!("{}: {}", check.name, check.problem))),
            None => Ok(()),
        }
    }

    /// Returns every output of every step on the reference kernels.
    ///
    /// # Errors
    /// [`Outcome::Error`] for invalid data, [`Outcome::Invalid`] for inputs that do not fit the model; otherwise the
    /// reference kernels do not support the problem.
    fn oracle(
        &self,
        problem: &Problem,
        result: &mut CaseResult,
    ) -> Result<Vec<Vec<Output>>, (Outcome, String)> {
        let failed =
            |e: Error| (Outcome::Unsupported, format!("the reference kernels do not run the model: {e}"));
        let backend = Backend::kernels(Kernels::Reference);
        let mut interpreter = backend.build(problem, None, None).map_err(failed)?;
        prepare(&mut interpreter, problem).map_err(failed)?;
        let mut all = Vec::new();
        for step in &problem.steps {
            feed(&mut interpreter, &step.feeds).map_err(|e| invalid(&e))?;
            let start = Instant::now();
            interpreter.invoke().map_err(|e| match e.is_invalid_data() {
                true => (Outcome::Error, format!("the reference kernels report: {e}")),
                false => failed(e),
            })?;
            if self.backend.delegate.is_none() {
                let time = start.elapsed();
                result.cpu_time = Some(result.cpu_time.map_or(time, |least| least.min(time)));
            }
            all.push(outputs(&interpreter).map_err(failed)?);
        }
        Ok(all)
    }

    /// Returns the time of the fastest invocation on CPU kernels.
    fn time(&self, problem: &Problem, kernels: Kernels) -> Option<Duration> {
        let mut interpreter = Backend::kernels(kernels).build(problem, None, None).ok()?;
        prepare(&mut interpreter, problem).ok()?;
        let mut least: Option<Duration> = None;
        for step in &problem.steps {
            feed(&mut interpreter, &step.feeds).ok()?;
            let start = Instant::now();
            interpreter.invoke().ok()?;
            let time = start.elapsed();
            least = Some(least.map_or(time, |least| least.min(time)));
        }
        least
    }

    /// Records the claimed nodes of every prepared subgraph, including inlined composites, and the reasons for the
    /// others.
    fn claims(&self, interpreter: &Interpreter, problem: &Problem, result: &mut CaseResult) {
        for (index, subgraph) in interpreter.model().subgraphs().iter().enumerate() {
            let Some(report) = interpreter.subgraph_report(index) else { continue };
            for node in &report.nodes {
                if matches!(node.runner, Runner::Delegate { .. }) {
                    // Constant outputs were computed while preparing, claimed or not.
                    let constant = |id| {
                        let constant = [Placement::Constant, Placement::Released];
                        index == 0 && interpreter.tensor(id).is_ok_and(|t| constant.contains(&t.placement()))
                    };
                    let outputs = subgraph.node(node.node).outputs();
                    if outputs.is_empty() || !outputs.iter().all(|id| constant(*id)) {
                        result.claimed += 1;
                        result.op_claimed |= node.op == problem.op;
                    }
                } else if let Some((_, reason)) = node.rejections.last() {
                    let place = if index > 0 { format!("subgraph {index} ") } else { String::new() };
                    let what = format!(
                        "{place}node {} {} v{}: {}: {reason}",
                        node.node.0,
                        node.op,
                        node.version,
                        reason.kind()
                    );
                    // The reason for the tested op comes first.
                    match node.op == problem.op {
                        true => result.reasons.insert(0, what),
                        false => result.reasons.push(what),
                    }
                }
            }
        }
        // A case of several ops tests all of them.
        result.op_claimed |= result.claimed > 0 && result.tags.iter().any(|t| t == "graph");
    }
}

/// Compares an output, and keeps the statistics of the worst one.
fn compare(
    problem: &Problem,
    result: &mut CaseResult,
    got: &[Output],
    (i, want): (usize, &Output),
    step: usize,
) -> Result<(), (Outcome, String)> {
    let missing = || (Outcome::Invalid, format!("the model has no output {i}"));
    let got = got.get(i).ok_or_else(missing)?;
    // Files do not declare quantization; the model does.
    let rule = problem.rule(got.ty, got.quantized);
    let stats = judge(got, want, rule, (i, step)).map_err(|e| (Outcome::Mismatch, e.to_string()))?;
    let allowed = stats.allowed.map_or(String::new(), |a| format!(", allowed {}", rounded(a)));
    let mut ended = Ok(());
    if stats.wrong > 0 {
        let again = if step > 0 { format!(" in invocation {}", step + 1) } else { String::new() };
        let text = format!(
            "output {i} ({} {:?}){again}: largest difference {}{allowed}, {} of {} wrong",
            got.ty,
            got.shape,
            rounded(stats.max_abs),
            stats.wrong,
            counted(stats.elements, "element")
        );
        ended = Err((Outcome::Mismatch, text));
    }
    if result.errors.as_ref().is_none_or(|worst| stats.severity() > worst.severity()) {
        result.errors = Some(stats);
    }
    ended
}

/// Returns the steps of a problem with the outputs of the reference kernels as expected outputs.
///
/// # Errors
/// The reason why the reference kernels do not run it.
pub fn answer(problem: &Problem) -> Result<Vec<Step>, crate::Error> {
    let engine = Engine::new(Backend::kernels(Kernels::Reference));
    let all = engine.oracle(problem, &mut CaseResult::new("", Outcome::Pass, ""));
    let all = all.map_err(|(_, detail)| crate::Error::invalid(detail))?;
    let with = |(step, outputs): (&Step, Vec<Output>)| Step {
        feeds: step.feeds.clone(),
        expected: outputs.into_iter().enumerate().collect(),
    };
    Ok(problem.steps.iter().zip(all).map(with).collect())
}
