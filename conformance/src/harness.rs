//! Conformance as tests: one test per case, which `cargo test` and `cargo nextest` list, filter and run in parallel.
//!
//! In `Cargo.toml`:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! and in `tests/conformance.rs`:
//!
//! ```ignore
//! delegraph_conformance::main!(|| Simple(MyDelegate::new()));
//! ```
//!
//! The tests are the cases of the ops that the delegate declares, and those of several ops. An unclaimed case passes;
//! [expectations](crate::expectations) list the cases that must be claimed. See [`Suite`] for
//! further settings. A crash ends the process; nextest, which runs each test in a separate process, and `delegraph
//! conformance` continue.

use std::path::PathBuf;
use std::sync::Arc;

use delegraph_core::{Op, Result};
use delegraph_delegate_api::{Delegate, VersionTable};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::cases::{self, Case};
use crate::compare::Arithmetic;
use crate::engine::{Backend, CaseFailure, MakeDelegate, Outcome, Problem};
use crate::error::Error;
use crate::expectations::{Coverage, Expectations};
use crate::runner::{ContractChecks, Engine};

/// Makes `main` of a test file without harness: one test for each case, on the delegate that the expression creates.
///
/// The expression is a function or closure without arguments that returns a delegate; it is called for each
/// interpreter, from several threads. A second expression may change settings of the [`Suite`]:
///
/// ```ignore
/// delegraph_conformance::main!(|| Simple(MyDelegate::new()), |suite| suite.expectations("tests/expectations.toml"));
/// ```
#[macro_export]
macro_rules! main {
    ($make:expr $(,)?) => {
        $crate::main!($make, |suite| suite);
    };
    ($make:expr, $configure:expr $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            let configure: fn($crate::harness::Suite) -> $crate::harness::Suite = $configure;
            configure($crate::harness::Suite::new($make)).main()
        }
    };
}

/// The tests of a delegate.
#[derive(Debug)]
pub struct Suite {
    backend: Backend,
    ops: Option<VersionTable>,
    seed: u64,
    every: usize,
    expectations: Option<PathBuf>,
    selected: Option<fn(&Case) -> bool>,
}

impl Suite {
    /// Creates a suite with the cases of every op that the delegate declares, and those of several ops, on delegates
    /// that `make` creates.
    pub fn new<D: Delegate + 'static>(make: impl Fn() -> D + Send + Sync + 'static) -> Self {
        Self::from_maker(Arc::new(move || Ok(Box::new(make()) as Box<dyn Delegate>)))
    }

    /// As [`Suite::new`], for delegates whose creation may fail.
    pub fn fallible<D: Delegate + 'static>(make: impl Fn() -> Result<D> + Send + Sync + 'static) -> Self {
        Self::from_maker(Arc::new(move || make().map(|delegate| Box::new(delegate) as Box<dyn Delegate>)))
    }

    fn from_maker(make: MakeDelegate) -> Self {
        // If no delegate can be created, each test reports the error.
        let made = make().ok();
        let name = made.as_ref().map_or("delegate", |delegate| delegate.name()).to_owned();
        let ops = made.map(|delegate| delegate.max_versions().clone());
        Suite {
            backend: Backend::delegate(name, make),
            ops,
            seed: cases::DEFAULT_SEED,
            every: 1,
            expectations: None,
            selected: None,
        }
    }

    /// Adds the cases of all other ops, which must be rejected with a reason.
    #[must_use]
    pub fn every_op(self) -> Self {
        Suite { ops: None, ..self }
    }

    /// Sets the seed of random cases.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Suite { seed, ..self }
    }

    /// Sets the guarantees of the delegate's arithmetic: IEEE 754, or those of a GPU.
    #[must_use]
    pub fn arithmetic(self, arithmetic: Arithmetic) -> Self {
        Suite { backend: self.backend.with_arithmetic(arithmetic), ..self }
    }

    /// Selects one case in `n` of each op and data type, including the first, for quick runs. With the environment
    /// variable `DELEGRAPH_CONFORMANCE=all`, all cases run.
    #[must_use]
    pub fn one_in(self, n: usize) -> Self {
        Suite { every: n.max(1), ..self }
    }

    /// Selects the cases for which `selected` returns true.
    #[must_use]
    pub fn only(self, selected: fn(&Case) -> bool) -> Self {
        Suite { selected: Some(selected), ..self }
    }

    /// Sets a file of known failures and of cases that must be delegated, see [`crate::expectations`]; its path is
    /// relative to the crate's folder.
    #[must_use]
    pub fn expectations(self, path: impl Into<PathBuf>) -> Self {
        Suite { expectations: Some(path.into()), ..self }
    }

    /// Sets the delegate's device, for the expectations.
    #[must_use]
    pub fn device(self, device: impl Into<String>) -> Self {
        Suite { backend: self.backend.with_device(device), ..self }
    }

    /// Runs the tests according to the command line, and returns the exit code of the process.
    pub fn main(self) -> std::process::ExitCode {
        let arguments = Arguments::from_args();
        match self.trials() {
            Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
            Err(message) => {
                eprintln!("{message}");
                std::process::ExitCode::FAILURE
            }
        }
    }

    /// Returns the tests.
    ///
    /// # Errors
    /// The defect of the expectations.
    fn trials(self) -> std::result::Result<Vec<Trial>, Error> {
        let expectations = match &self.expectations {
            Some(path) => Expectations::read(path)?,
            None => Expectations::default(),
        };
        let shared = Arc::new((Engine::new(self.backend).untimed(), expectations));
        let all = std::env::var_os("DELEGRAPH_CONFORMANCE").is_some_and(|v| v == "all");
        let every = if all { 1 } else { self.every };
        let mut counts = std::collections::HashMap::new();
        let mut trials = Vec::new();
        for case in cases::suite(self.seed) {
            let declared = |ops: &VersionTable| ops.max_version(&Op::Builtin(case.op)).is_some();
            let about = !case.is_single() || self.ops.as_ref().is_none_or(declared);
            if !about || self.selected.is_some_and(|selected| !selected(&case)) {
                continue;
            }
            let count: &mut usize = counts.entry((case.op, case.data_type())).or_default();
            let chosen = count.is_multiple_of(every);
            let checks = if *count == 0 { ContractChecks::Run } else { ContractChecks::Skip };
            *count += 1;
            if chosen {
                let shared = Arc::clone(&shared);
                // Tools split names at `::`.
                let name = case.name.replace('/', "::");
                trials.push(Trial::test(name, move || check(&shared.0, &shared.1, &case, checks)));
            }
        }
        Ok(trials)
    }
}

fn check(
    engine: &Engine,
    expectations: &Expectations,
    case: &Case,
    checks: ContractChecks,
) -> std::result::Result<(), Failed> {
    let make = || {
        Problem::of_case(case, engine.backend.arithmetic)
            .map_err(|e| CaseFailure::new(Outcome::Invalid, e.to_string()))
    };
    let mut result = [engine.run_made(&case.name, make, checks)];
    let problems = expectations.apply(&mut result, &engine.backend.device, Coverage::Partial);
    let [result] = result;
    let mut text = problems.join("\n");
    if result.is_failure() {
        text = format!("{}: {}\n{text}", result.outcome.name(), result.detail);
        for (what, list) in [("inputs", &result.inputs), ("outputs", &result.outputs)] {
            text += &format!("{what}: {}\n", list.join(" · "));
        }
        text += &format!("params: {}\n", result.params);
        if let Some((errors, bad)) = result.errors.as_ref().and_then(|e| Some((e, e.first.as_ref()?))) {
            let place = format!("output {}, invocation {}", errors.output, errors.step + 1);
            text += &format!("{place}, index {:?}: got {}, expected {}\n", bad.index, bad.got, bad.expected);
        }
    }
    match text.trim_end() {
        "" => Ok(()),
        text => Err(Failed::from(text)),
    }
}
