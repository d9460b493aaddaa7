//! Running a problem.

use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use delegraph_core::error::{Error, ErrorKind};
use delegraph_core::kernel::Placement;
use delegraph_delegate_api::{Delegate, PartitionOptions, Policy, Runner};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter, InterpreterBuilder, ReferenceOpResolver};

use super::describe::describe;
use super::problem::{Answers, Feed, Problem, Step};
use super::result::{CaseResult, Check, Outcome};
use super::statistics::{Output, judge};
use crate::compare::Arithmetic;
use crate::contract;

/// Makes the delegate anew for each interpreter. What is dear, such as a device, belongs into what the closure holds.
pub type MakeDelegate = Arc<dyn Fn() -> delegraph_core::Result<Box<dyn Delegate>> + Send + Sync>;

/// The CPU kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// The optimized ones, those that users run.
    #[default]
    Optimized,
    /// The plain ones.
    Reference,
}

impl Kernels {
    fn resolve(self, builder: InterpreterBuilder) -> InterpreterBuilder {
        match self {
            Kernels::Optimized => builder.resolver(BuiltinOpResolver::new()),
            Kernels::Reference => builder.resolver(ReferenceOpResolver::new()),
        }
    }
}

/// Further settings of the interpreters that run what is tested.
type Configure = Arc<dyn Fn(InterpreterBuilder) -> InterpreterBuilder + Send + Sync>;

/// What is tested.
#[derive(Clone)]
pub struct Backend {
    /// Its name in reports.
    pub name: String,
    /// What it runs on, for reports and expectations: adapter and driver. Empty for what runs on the CPU.
    pub device: String,
    /// Runs what no delegate takes.
    pub kernels: Kernels,
    /// What its arithmetic promises.
    pub arithmetic: Arithmetic,
    /// The delegate; `None` where the kernels are tested.
    pub delegate: Option<MakeDelegate>,
    /// What the application lets delegates have.
    pub limits: PartitionOptions,
    /// Delegates that choose after the one that is tested.
    pub more: Vec<MakeDelegate>,
    configure: Option<Configure>,
}

impl Backend {
    /// CPU kernels.
    pub fn kernels(kernels: Kernels) -> Self {
        let name = if kernels == Kernels::Reference { "reference" } else { "cpu" };
        Backend {
            name: name.into(),
            device: String::new(),
            kernels,
            arithmetic: Arithmetic::Ieee,
            delegate: None,
            limits: PartitionOptions::default(),
            more: Vec::new(),
            configure: None,
        }
    }

    /// A delegate. The nodes that it leaves run on the reference kernels, so that any difference is the delegate's.
    pub fn delegate(name: impl Into<String>, make: MakeDelegate) -> Self {
        Backend { name: name.into(), delegate: Some(make), ..Backend::kernels(Kernels::Reference) }
    }

    /// Says what it runs on.
    #[must_use]
    pub fn on(self, device: impl Into<String>) -> Self {
        Backend { device: device.into(), ..self }
    }

    /// Says what its arithmetic promises; IEEE 754 unless this is called.
    #[must_use]
    pub fn arithmetic(self, arithmetic: Arithmetic) -> Self {
        Backend { arithmetic, ..self }
    }

    /// Runs what no delegate takes on other kernels.
    #[must_use]
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Backend { kernels, ..self }
    }

    /// With further settings: threads, policy.
    #[must_use]
    pub fn configured(
        self,
        configure: impl Fn(InterpreterBuilder) -> InterpreterBuilder + Send + Sync + 'static,
    ) -> Self {
        Backend { configure: Some(Arc::new(configure)), ..self }
    }

    /// An interpreter for a problem, with its kernels, settings, and this delegate; not prepared yet.
    ///
    /// # Errors
    /// What is wrong with the model.
    pub(crate) fn build(
        &self,
        problem: &Problem,
        delegate: Option<Box<dyn Delegate>>,
        policy: Option<Policy>,
    ) -> delegraph_core::Result<Interpreter> {
        let mut builder = self.kernels.resolve(Interpreter::builder(Arc::clone(&problem.model)));
        if let Some(configure) = &self.configure {
            builder = configure(builder);
        }
        if let Some(policy) = policy {
            builder = builder.policy(policy);
        }
        if let Some(delegate) = delegate {
            builder = builder.delegate_within(delegate, self.limits.clone());
            for make in &self.more {
                builder = builder.delegate_within(make()?, self.limits.clone());
            }
        }
        let mut interpreter = builder.prepare_later().build()?;
        if let Some(signature) = &problem.signature {
            interpreter.select_signature(signature)?;
        }
        Ok(interpreter)
    }

    /// The delegate, made anew.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn make(&self) -> delegraph_core::Result<Option<Box<dyn Delegate>>> {
        self.delegate.as_ref().map(|make| make()).transpose()
    }
}

/// Runs problems on a backend.
#[derive(Clone)]
pub struct Engine {
    /// What is tested.
    pub backend: Backend,
    /// Times each case on the CPU kernels, too.
    pub time_cpu: bool,
}

impl Engine {
    /// An engine that tests `backend`.
    pub fn new(backend: Backend) -> Self {
        Engine { backend, time_cpu: true }
    }

    /// Without times on the CPU kernels.
    #[must_use]
    pub fn untimed(self) -> Self {
        Engine { time_cpu: false, ..self }
    }

    /// Runs a problem; with `checks`, also looks at the contract beyond numbers. A panic is a result.
    pub fn run(&self, problem: &Problem, checks: bool) -> CaseResult {
        self.run_made(&problem.name, || Ok(problem), checks)
    }

    /// As [`Engine::run`], for a problem that is made now: nothing else is when memory is measured.
    pub fn run_made<P: Borrow<Problem>>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<P, (Outcome, String)>,
        checks: bool,
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
            Err(why) => Err(why.clone()),
        }));
        drop(shared);
        let mut ended =
            run.unwrap_or_else(|panic| Err((Outcome::Error, format!("panic: {}", panic_text(&*panic)))));
        if let (Ok(()), Ok(problem), true) = (&ended, &made, checks && result.claimed > 0) {
            contract::check_memory(&self.backend, problem.borrow(), &mut result);
            ended = self.violations(&mut result);
        }
        if let Err((outcome, detail)) = ended {
            (result.outcome, result.detail) = (outcome, detail);
        }
        result.ms = start.elapsed().as_secs_f64() * 1e3;
        result
    }

    fn run_into(
        &self,
        problem: &Problem,
        checks: bool,
        result: &mut CaseResult,
    ) -> Result<(), (Outcome, String)> {
        let delegate = self.backend.make().map_err(failed)?;
        let tests_delegate = delegate.is_some();
        let before = if tests_delegate { problem.model.bytes().to_vec() } else { Vec::new() };
        let mut interpreter = self.backend.build(problem, delegate, None).map_err(failed)?;
        prepare(&mut interpreter, problem).map_err(failed)?;
        if let Some((name, message)) = interpreter.report().failures.first() {
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
            if checks {
                contract::check_unclaimed(&self.backend, problem, result);
            }
            let reason = result.reasons.first().cloned().unwrap_or_else(|| "no node is left to run".into());
            (result.outcome, result.detail) = (Outcome::Unsupported, reason);
            return self.violations(result);
        }
        // What the reference kernels refuse must not crash elsewhere, so it runs all the same.
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
            if let (Some(refused), Err(_)) = (&refused, &invoked) {
                return Err(refused.clone());
            }
            invoked.map_err(|e| match own && tests_delegate {
                // It claimed what it does not run.
                true => (Outcome::Error, ran(e, number).1),
                false => ran(e, number),
            })?;
            let us = start.elapsed().as_secs_f64() * 1e6;
            result.us = Some(result.us.map_or(us, |least: f64| least.min(us)));
            got.push(outputs(&interpreter).map_err(failed)?);
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        // The reference kernels read the same model: their results would not tell.
        if tests_delegate && problem.model.bytes() != before {
            let problem = "a constant of the model is not what it was before".into();
            result.checks.push(Check { name: "inputs".into(), problem });
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
            let text =
                format!("{text}; that is allowed: such arithmetic need not keep {}", problem.undemanded);
            return Err((Outcome::Unsupported, text));
        }
        compared?;
        if checks && tests_delegate && problem.undemanded.is_empty() {
            contract::check(&self.backend, problem, &got, result);
        }
        if self.time_cpu && tests_delegate && own {
            result.cpu_us = self.time(problem, Kernels::Optimized);
        }
        if tests_delegate && own && !result.op_claimed {
            let reason = result.reasons.first().cloned().unwrap_or_else(|| "computed while preparing".into());
            (result.outcome, result.detail) = (Outcome::Unsupported, reason);
        }
        self.violations(result)
    }

    /// A case with a broken contract is no pass.
    fn violations(&self, result: &mut CaseResult) -> Result<(), (Outcome, String)> {
        let broken = result.checks.iter().find(|c| !c.problem.is_empty());
        match broken {
            Some(check) => Err((Outcome::Violation, format!("{}: {}", check.name, check.problem))),
            None => Ok(()),
        }
    }

    /// Every output of every step on the reference kernels.
    fn oracle(
        &self,
        problem: &Problem,
        result: &mut CaseResult,
    ) -> Result<Vec<Vec<Output>>, (Outcome, String)> {
        let failed = |e: Error| (Outcome::Unsupported, format!("the reference kernels do not run it: {e}"));
        let backend = Backend::kernels(Kernels::Reference);
        let mut interpreter = backend.build(problem, None, None).map_err(failed)?;
        prepare(&mut interpreter, problem).map_err(failed)?;
        let mut all = Vec::new();
        for step in &problem.steps {
            feed(&mut interpreter, &step.feeds).map_err(|e| invalid(&e))?;
            let start = Instant::now();
            interpreter.invoke().map_err(failed)?;
            if self.backend.delegate.is_none() {
                let us = start.elapsed().as_secs_f64() * 1e6;
                result.cpu_us = Some(result.cpu_us.map_or(us, |least| least.min(us)));
            }
            all.push(outputs(&interpreter).map_err(failed)?);
        }
        Ok(all)
    }

    /// The shortest invocation on CPU kernels, in microseconds.
    fn time(&self, problem: &Problem, kernels: Kernels) -> Option<f64> {
        let mut interpreter = Backend::kernels(kernels).build(problem, None, None).ok()?;
        prepare(&mut interpreter, problem).ok()?;
        let mut least: Option<f64> = None;
        for step in &problem.steps {
            feed(&mut interpreter, &step.feeds).ok()?;
            let start = Instant::now();
            interpreter.invoke().ok()?;
            let us = start.elapsed().as_secs_f64() * 1e6;
            least = Some(least.map_or(us, |least| least.min(us)));
        }
        least
    }

    /// Who has which node, in every subgraph that was prepared; bodies that took the place of composites count.
    fn claims(&self, interpreter: &Interpreter, problem: &Problem, result: &mut CaseResult) {
        for (index, subgraph) in interpreter.model().subgraphs.iter().enumerate() {
            let Some(report) = interpreter.subgraph_report(index) else { continue };
            for node in &report.nodes {
                if matches!(node.runner, Runner::Delegate { .. }) {
                    // What is constant was computed while preparing, whoever has it.
                    let constant = |id| {
                        let constant = [Placement::Constant, Placement::Released];
                        index == 0 && interpreter.tensor(id).is_ok_and(|t| constant.contains(&t.placement()))
                    };
                    let outputs = &subgraph.node(node.node).outputs;
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
                    // The reason of the op that it is about comes first.
                    match node.op == problem.op {
                        true => result.reasons.insert(0, what),
                        false => result.reasons.push(what),
                    }
                }
            }
        }
        // A case of several ops is about all of them.
        result.op_claimed |= result.claimed > 0 && result.tags.iter().any(|t| t == "graph");
    }
}

/// Compares an output, and keeps the statistics of the worst.
fn compare(
    problem: &Problem,
    result: &mut CaseResult,
    got: &[Output],
    (i, want): (usize, &Output),
    step: usize,
) -> Result<(), (Outcome, String)> {
    let missing = || (Outcome::Invalid, format!("the model has no output {i}"));
    let got = got.get(i).ok_or_else(missing)?;
    // Files do not say what is quantized; the model does.
    let rule = problem.rule(got.ty, got.quantized);
    let stats = judge(got, want, rule, (i, step)).map_err(|e| (Outcome::Mismatch, e))?;
    let allowed = stats.allowed.map_or(String::new(), |a| format!(", allowed {a:e}"));
    let mut ended = Ok(());
    if stats.wrong > 0 {
        let again = if step > 0 { format!(" in invocation {}", step + 1) } else { String::new() };
        let text = format!(
            "output {i} ({} {:?}){again}: largest difference {:e}{allowed}, {} of {} elements wrong",
            got.ty, got.shape, stats.max_abs, stats.wrong, stats.elements
        );
        ended = Err((Outcome::Mismatch, text));
    }
    if result.errors.as_ref().is_none_or(|worst| stats.severity() > worst.severity()) {
        result.errors = Some(stats);
    }
    ended
}

/// Gives inputs their shapes and prepares.
pub(crate) fn prepare(interpreter: &mut Interpreter, problem: &Problem) -> delegraph_core::Result<()> {
    for feed in problem.steps.first().map_or(&[][..], |s| &s.feeds) {
        interpreter.resize_input(feed.input, &feed.shape)?;
    }
    interpreter.prepare()
}

/// Fills inputs.
pub(crate) fn feed(interpreter: &mut Interpreter, feeds: &[Feed]) -> delegraph_core::Result<()> {
    for feed in feeds {
        interpreter.set_input_bytes(feed.input, &feed.bytes)?;
    }
    Ok(())
}

/// Every output.
pub(crate) fn outputs(interpreter: &Interpreter) -> delegraph_core::Result<Vec<Output>> {
    (0..interpreter.output_count()).map(|i| interpreter.output_tensor(i).map(Output::of)).collect()
}

/// Gives the expected outputs of a problem that has none: those of the reference kernels.
///
/// # Errors
/// Why the reference kernels do not run it.
pub fn answer(problem: &Problem) -> Result<Vec<Step>, String> {
    let engine = Engine::new(Backend::kernels(Kernels::Reference));
    let all =
        engine.oracle(problem, &mut CaseResult::new("", Outcome::Pass, "")).map_err(|(_, detail)| detail)?;
    let with = |(step, outputs): (&Step, Vec<Output>)| Step {
        feeds: step.feeds.clone(),
        expected: outputs.into_iter().enumerate().collect(),
    };
    Ok(problem.steps.iter().zip(all).map(with).collect())
}

/// What a case comes to that ends with this error.
pub(crate) fn outcome_of(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Invalid => Outcome::Invalid,
        ErrorKind::Unsupported => Outcome::Unsupported,
        ErrorKind::Failed => Outcome::Error,
    }
}

fn failed(error: Error) -> (Outcome, String) {
    (outcome_of(&error), error.to_string())
}

fn ran(error: Error, step: usize) -> (Outcome, String) {
    let (outcome, text) = failed(error);
    (outcome, if step > 0 { format!("in invocation {}: {text}", step + 1) } else { text })
}

fn invalid(error: &Error) -> (Outcome, String) {
    (Outcome::Invalid, error.to_string())
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of unknown cause".into())
}
