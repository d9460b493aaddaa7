//! The kernels and delegates that run a model: the only place that interprets `--delegate`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use delegraph::core::error::{ErrorKind, UnresolvedOps};
use delegraph::core::resolver::check_resolved;
use delegraph::delegate_api::{CostModel, PartitionOptions};
use delegraph::interpreter::InterpreterBuilder;
use delegraph::{Delegate, Interpreter, Model, MutableOpResolver, Policy};
use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::engine::{self, Backend, MakeDelegate};

use super::budgets;
use super::failure::{Exit, Failure};
use super::kernels::Kernels;
use super::limits::Limits;
use super::numbers::whole;

mod plugin;
mod stand_ins;
mod summary;
mod wgpu;

pub(crate) use plugin::PluginChoice;
use stand_ins::WithStandIns;
pub(crate) use summary::{DelegateLine, Delegation};
pub(crate) use wgpu::WgpuChoice;

/// One `--delegate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Cpu,
    Reference,
    Wgpu(WgpuChoice),
    Plugin(PluginChoice),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(library) = PluginChoice::parse(text) {
            return library.map(Choice::Plugin);
        }
        match text.split_once('?') {
            None if text == "cpu" => Ok(Choice::Cpu),
            None if text == "reference" => Ok(Choice::Reference),
            None if text == "wgpu" => Ok(Choice::Wgpu(WgpuChoice::default())),
            Some(("wgpu", options)) => options.parse().map(Choice::Wgpu),
            _ => Err("there are: cpu, reference, wgpu[?KEY=VALUE&…], plugin:PATH[?KEY=VALUE&…], litert:PATH[?KEY=VALUE&…]"
                .into()),
        }
    }
}

impl fmt::Display for Choice {
    /// The text on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Wgpu(choice) => choice.fmt(f),
            other => f.write_str(&other.name()),
        }
    }
}

impl Choice {
    /// Returns the name in results.
    pub(crate) fn name(&self) -> String {
        match self {
            Choice::Cpu => "cpu".into(),
            Choice::Reference => "reference".into(),
            Choice::Wgpu(_) => wgpu::NAME.into(),
            Choice::Plugin(library) => library.to_string(),
        }
    }

    /// Returns the delegate; `None` if the choice is CPU kernels.
    pub(crate) fn open(&self) -> Result<Option<Box<dyn Delegate>>, Failure> {
        self.open_for(false)
    }

    /// As `open`; with `profile`, the delegate measures its kernels if it can.
    pub(crate) fn open_for(&self, profile: bool) -> Result<Option<Box<dyn Delegate>>, Failure> {
        match self {
            Choice::Cpu | Choice::Reference => Ok(None),
            Choice::Wgpu(choice) => Ok(Some(choice.delegate(profile)?)),
            Choice::Plugin(plugin) => Ok(Some(plugin.delegate()?)),
        }
    }
}

impl Choice {
    /// Returns a function that creates delegates on one device or of one library, and the name of the device, which is
    /// empty for a library; `None` if the choice is CPU kernels.
    fn maker(&self) -> Result<Option<(MakeDelegate, String)>, Failure> {
        Ok(match self {
            Choice::Cpu | Choice::Reference => None,
            Choice::Wgpu(choice) => Some(choice.maker()?),
            Choice::Plugin(plugin) => Some((plugin.maker()?, String::new())),
        })
    }
}

/// `--policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyChoice {
    /// Delegate all supported nodes; the others run on the CPU
    Prefer,
    /// Fail unless every node is delegated
    Require,
    /// Delegate nothing; only report what would be
    Report,
}

impl From<PolicyChoice> for Policy {
    fn from(choice: PolicyChoice) -> Self {
        match choice {
            PolicyChoice::Prefer => Policy::Prefer,
            PolicyChoice::Require => Policy::Require,
            PolicyChoice::Report => Policy::Report,
        }
    }
}

/// `--arithmetic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Promise {
    /// IEEE 754, denormals, infinities and NaN included
    Ieee,
    /// Denormals may be zeros, NaN and infinities may be assumed absent, functions are less precise
    Gpu,
    /// As gpu, with values and constants stored in 16 bits
    GpuHalves,
}

impl Promise {
    /// Returns the value as an argument of another process.
    pub(crate) fn option(self) -> String {
        let name = match self {
            Promise::Ieee => "ieee",
            Promise::Gpu => "gpu",
            Promise::GpuHalves => "gpu-halves",
        };
        format!("--arithmetic={name}")
    }
}

/// Options of the verbs that run a model.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// The backend of the model: cpu (optimized kernels), reference (plain ones), wgpu[?KEY=VALUE&…] (GPU),
    /// plugin:PATH[?KEY=VALUE&…] (a shared library) or litert:PATH[?KEY=VALUE&…] (a shared library with a delegate for
    /// LiteRT). Options of wgpu: adapter=NAME, backend=vulkan|metal|dx12|webgpu, power=high|low, max_partitions=N,
    /// min_nodes=N, max_gpu_bytes=N, fusion=on|off, precision=f32|f16|auto, matrix_units=on|off, trusted_shaders=on|off.
    /// %26 stands for & in a value. May be repeated: delegates choose nodes in this order, and unclaimed nodes run on the
    /// CPU [default: cpu]
    #[arg(long = "delegate", value_name = "D")]
    pub(crate) delegates: Vec<Choice>,
    #[command(flatten)]
    pub(crate) kernels: Kernels,
    /// The treatment of nodes that no delegate claims
    #[arg(long, value_enum, default_value_t = PolicyChoice::Prefer)]
    policy: PolicyChoice,
    /// Threads for CPU kernels
    #[arg(long, default_value_t = 1, value_parser = whole::<usize>(1..=1024), allow_negative_numbers = true)]
    pub(crate) threads: usize,
    #[command(flatten)]
    limits: Limits,
    /// Measure each delegate and the CPU kernels first, which takes a second or two, and delegate only partitions that
    /// gain more than their copies cost
    #[arg(long)]
    cost_model: bool,
    /// Refuse a model in which a node uses features of a newer version of its op than its own
    #[arg(long)]
    strict_versions: bool,
}

impl Engine {
    /// Returns a prepared interpreter for `model`.
    pub(crate) fn build(&self, model: Model) -> Result<Interpreter, Failure> {
        self.check(&model)?;
        Ok(self.configure()?(Interpreter::builder(model)).build()?)
    }

    /// Returns an interpreter that is prepared once its inputs have their shapes: shapes in the file may be
    /// placeholders.
    pub(crate) fn build_later(&self, model: Model) -> Result<Interpreter, Failure> {
        self.check(&model)?;
        Ok(self.configure()?(Interpreter::builder(model)).prepare_later().build()?)
    }

    /// Returns an interpreter for showing the runner of each node, with the subgraphs of all signatures prepared. Missing
    /// kernels are replaced by stand-ins, and their ops are returned.
    pub(crate) fn build_shown(&self, model: Model) -> Result<(Interpreter, Option<UnresolvedOps>), Failure> {
        self.check(&model)?;
        let kernels = self.kernels.resolver(self.is_reference())?;
        let missing = check_resolved(&model, &kernels).err();
        let resolver = WithStandIns::new(kernels, missing.as_ref());
        let builder = self.configure()?(Interpreter::builder(model));
        let mut interpreter = builder.resolver(resolver).build()?;
        prepare_signatures(&mut interpreter)?;
        Ok((interpreter, missing))
    }

    /// Returns an interpreter without delegates.
    pub(crate) fn build_plain(&self, model: Model) -> Result<Interpreter, Failure> {
        let kernels = self.kernels.resolver(self.is_reference())?;
        let missing = check_resolved(&model, &kernels).err();
        let resolver = WithStandIns::new(kernels, missing.as_ref());
        Ok(Interpreter::builder(model).resolver(resolver).limits(budgets::limits()).build()?)
    }

    /// Returns an interpreter with delegates that measure their kernels.
    pub(crate) fn build_profiled(&self, model: Model) -> Result<Interpreter, Failure> {
        self.check(&model)?;
        Ok(self.configure_with(true)?(Interpreter::builder(model)).build()?)
    }

    /// Returns a function that creates interpreters for one model, prepared once their inputs have their shapes.
    /// Devices and libraries are opened here, and shared by all of them.
    pub(crate) fn factory(
        &self,
        model: Arc<Model>,
        jobs: usize,
    ) -> Result<impl Fn() -> Result<Interpreter, Failure> + Sync, Failure> {
        self.check(&model)?;
        let resolver = self.kernels.resolver(self.is_reference())?;
        let (threads, policy, strict) = (self.threads, self.policy.into(), self.strict_versions);
        budgets::set_threads(threads.saturating_mul(jobs));
        let mut makers = Vec::new();
        for choice in &self.delegates {
            let Some((make, _)) = choice.maker()? else { continue };
            let mut limits = self.limits.options();
            limits.cost = self.cost_model.then(|| measured(choice, threads)).transpose()?;
            makers.push((make, limits));
        }
        Ok(move || {
            let mut builder = Interpreter::builder(Arc::clone(&model)).prepare_later();
            builder =
                builder.threads(threads).policy(policy).resolver(resolver.clone()).limits(budgets::limits());
            builder = if strict { builder.strict_versions() } else { builder };
            for (make, limits) in &makers {
                builder = builder.delegate_with(make()?, limits.clone());
            }
            Ok(builder.build()?)
        })
    }

    /// Returns a function that applies the options to a builder. Delegates are opened here.
    pub(crate) fn configure(&self) -> Result<impl FnOnce(InterpreterBuilder) -> InterpreterBuilder, Failure> {
        self.configure_with(false)
    }

    fn configure_with(
        &self,
        profile: bool,
    ) -> Result<impl FnOnce(InterpreterBuilder) -> InterpreterBuilder, Failure> {
        let resolver = self.kernels.resolver(self.is_reference())?;
        let (threads, policy) = (self.threads, self.policy.into());
        budgets::set_threads(threads);
        let mut delegates = Vec::new();
        for choice in &self.delegates {
            if let Some(delegate) = choice.open_for(profile)? {
                let mut limits = self.limits.options();
                limits.cost = self.cost_model.then(|| measured(choice, threads)).transpose()?;
                delegates.push((delegate, limits));
            }
        }
        let strict = self.strict_versions;
        Ok(move |mut builder: InterpreterBuilder| {
            builder = builder.threads(threads).policy(policy).resolver(resolver).limits(budgets::limits());
            builder = if strict { builder.strict_versions() } else { builder };
            let within =
                |builder: InterpreterBuilder, (delegate, limits)| builder.delegate_with(delegate, limits);
            delegates.into_iter().fold(builder, within)
        })
    }

    /// Returns the `given` guarantees of the arithmetic; without them, those of the backend.
    pub(crate) fn arithmetic(&self, given: Option<Promise>) -> Arithmetic {
        let promise = |choice: &Choice| match choice {
            Choice::Wgpu(choice) if choice.stores_halves() => Some(Promise::GpuHalves),
            Choice::Wgpu(_) => Some(Promise::Gpu),
            _ => None,
        };
        let of_delegate = || self.delegates.iter().find_map(promise).unwrap_or(Promise::Ieee);
        match given.unwrap_or_else(of_delegate) {
            Promise::Gpu => Arithmetic::Gpu,
            Promise::GpuHalves => Arithmetic::GpuHalves,
            Promise::Ieee => Arithmetic::Ieee,
        }
    }

    /// Returns the backend for conformance: the first delegate or, if there is none, the kernels. For built-in cases,
    /// nodes that no delegate claims run on the reference kernels, so that any difference is the delegate's.
    pub(crate) fn backend(&self, corpus: bool) -> Result<Backend, Failure> {
        let mut makers = Vec::new();
        let mut limits = self.limits.options();
        for choice in &self.delegates {
            let Some(maker) = choice.maker()? else { continue };
            if self.cost_model && makers.is_empty() {
                limits.cost = Some(measured(choice, self.threads)?);
            }
            makers.push(maker);
        }
        let mut makers = makers.into_iter();
        let (mut backend, reference) = match makers.next() {
            Some((make, device)) => (Backend::delegate(self.label(), make).with_device(device), !corpus),
            None => (Backend::kernels(engine::Kernels::Optimized), false),
        };
        let reference = reference || self.is_reference();
        if reference && backend.delegate.is_none() {
            backend = Backend::kernels(engine::Kernels::Reference);
        }
        backend.limits = limits;
        backend.more = makers.map(|(make, _)| make).collect();
        let resolver = self.kernels.resolver(reference)?;
        let (threads, policy) = (self.threads, self.policy.into());
        let strict = self.strict_versions;
        Ok(backend.with_configuration(move |builder| {
            let builder = builder.threads(threads).policy(policy).resolver(resolver.clone());
            if strict { builder.strict_versions() } else { builder }
        }))
    }

    /// Applies the options to `builder`; `adjust` changes the limits of each delegate. Existing delegates of the
    /// builder stay.
    pub(crate) fn configure_limited(
        &self,
        mut builder: InterpreterBuilder,
        adjust: impl Fn(&mut PartitionOptions),
    ) -> Result<InterpreterBuilder, Failure> {
        let resolver = self.kernels.resolver(self.is_reference())?;
        budgets::set_threads(self.threads);
        builder = builder.threads(self.threads).policy(self.policy.into()).resolver(resolver);
        builder = builder.limits(budgets::limits());
        builder = if self.strict_versions { builder.strict_versions() } else { builder };
        for choice in &self.delegates {
            if let Some(delegate) = choice.open()? {
                let mut limits = self.limits.options();
                adjust(&mut limits);
                builder = builder.delegate_with(delegate, limits);
            }
        }
        Ok(builder)
    }

    /// Returns whether any `--delegate` names a delegate rather than CPU kernels.
    pub(crate) fn delegates_anything(&self) -> bool {
        self.delegates.iter().any(|choice| !matches!(choice, Choice::Cpu | Choice::Reference))
    }

    /// Counts the nodes that delegates run in `interpreter`, which runs subgraph `entry`.
    pub(crate) fn delegation(&self, interpreter: &Interpreter, entry: usize) -> Delegation {
        Delegation::new(interpreter, entry, self.policy.into())
    }

    /// Checks that the limits name ops and nodes of the model, and that the policy can be met.
    ///
    /// # Errors
    /// Exit code 2 with the option.
    pub(crate) fn check(&self, model: &Model) -> Result<(), Failure> {
        self.limits.check(model)?;
        self.check_delegate()
    }

    /// As [`Engine::check`], for several models.
    ///
    /// # Errors
    /// Exit code 2 with the option.
    pub(crate) fn check_all(&self, models: impl Iterator<Item = Model>) -> Result<(), Failure> {
        self.limits.check_all(models)?;
        self.check_delegate()
    }

    /// Checks that there is a delegate for the options that need one.
    fn check_delegate(&self) -> Result<(), Failure> {
        if self.delegates_anything() {
            return Ok(());
        }
        let required = (self.policy == PolicyChoice::Require).then(|| "--policy require".to_owned());
        let measured = || self.cost_model.then(|| "--cost-model".to_owned());
        let limits = || self.limits.arguments().into_iter().next().map(|option| option.replacen('=', " ", 1));
        let Some(option) = required.or_else(measured).or_else(limits) else { return Ok(()) };
        let text = format!("{option} needs a delegate: without one, every node runs on the CPU");
        Err(Failure::new(Exit::Usage, text)
            .with_help("name a delegate with `--delegate`, or leave out the option"))
    }

    /// Returns the reference kernels, and those of libraries.
    pub(crate) fn reference(&self) -> Result<MutableOpResolver, Failure> {
        self.kernels.resolver(true)
    }

    /// Returns the same options as arguments of another process.
    pub(crate) fn options(&self) -> Vec<String> {
        let policy = self.policy.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let mut options = vec![format!("--threads={}", self.threads), format!("--policy={policy}")];
        options.extend(self.delegates.iter().map(|d| format!("--delegate={d}")));
        options.extend(self.kernels.arguments());
        options.extend(self.limits.arguments());
        options.extend(self.cost_model.then(|| "--cost-model".to_owned()));
        options.extend(self.strict_versions.then(|| "--strict-versions".to_owned()));
        options
    }

    /// Returns the names of all backends, in order, separated by commas.
    pub(crate) fn label(&self) -> String {
        let names: Vec<String> = self.delegates.iter().map(Choice::name).collect();
        if names.is_empty() { Choice::Cpu.name() } else { names.join(",") }
    }

    /// Returns the name of the kernels that run unclaimed nodes.
    pub(crate) fn cpu_name(&self) -> &'static str {
        if self.is_reference() { "reference" } else { "cpu" }
    }

    fn is_reference(&self) -> bool {
        self.delegates.contains(&Choice::Reference)
    }
}

/// Prepares the subgraphs of all signatures, and the primary one. A signature whose subgraph cannot be prepared is a
/// warning, since others run.
fn prepare_signatures(interpreter: &mut Interpreter) -> Result<(), Failure> {
    let signatures = interpreter.model().signatures().iter().map(|s| (s.subgraph(), s.key().to_owned()));
    let mut signatures: BTreeMap<usize, String> = signatures.filter(|(index, _)| *index != 0).collect();
    // A composite that no delegate claims, or a delegate that fails, makes the interpreter prepare all subgraphs again.
    for _ in 0..=signatures.len() {
        let mut failed = None;
        for (&index, key) in &signatures {
            match interpreter.select_subgraph(index).and_then(|()| interpreter.prepare()) {
                Err(error) if error.is_interruption() => return Err(error.into()),
                Err(error) => {
                    log::warn!("signature \"{key}\" cannot be prepared: {error}");
                    failed = Some(index);
                    break;
                }
                Ok(()) => {}
            }
        }
        signatures.retain(|index, _| failed != Some(*index));
        interpreter.select_subgraph(0)?;
        interpreter.prepare()?;
        if signatures.keys().all(|&index| interpreter.subgraph_report(index).is_some()) {
            break;
        }
    }
    Ok(())
}

/// The rates of the CPU kernels and of a delegate on this machine.
fn measured(choice: &Choice, threads: usize) -> Result<CostModel, Failure> {
    let mut failure = None;
    let measured = delegraph::interpreter::measure(threads, || {
        let opened = choice.open().map_err(|e| failure = Some(e));
        opened.ok().flatten().ok_or_else(|| delegraph::Error::State("it cannot be opened again".into()))
    });
    match (failure, measured) {
        (Some(failure), _) => Err(failure),
        (None, Ok(measured)) => Ok(measured),
        (None, Err(e)) if e.kind() == ErrorKind::Unsupported => {
            Err(Failure::from(e).with_help("leave `--cost-model` out"))
        }
        (None, Err(e)) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::plugin::Interface;
    use super::*;

    #[test]
    fn choices() {
        let check = |text: &str, want: Option<Choice>| {
            let got: Option<Choice> = text.parse().ok();
            assert_eq!(got, want, "{text}");
            assert_eq!(got.map_or(text.into(), |c| c.to_string()), text);
        };
        check("cpu", Some(Choice::Cpu));
        check("reference", Some(Choice::Reference));
        check("wgpu", Some(Choice::Wgpu(WgpuChoice::default())));
        let plugin = |text: &str, path: &str, options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let options: Vec<_> = options;
            for (prefix, interface) in [("plugin", Interface::Plugin), ("litert", Interface::Litert)] {
                let choice = PluginChoice::new(interface, text, path, options.clone());
                check(&format!("{prefix}:{text}"), Some(Choice::Plugin(choice)));
            }
        };
        plugin("a.so", "a.so", &[]);
        plugin("a%20.so?k=v", "a%20.so", &[("k", "v")]);
        plugin(
            "a.so?k=a%26b%3d%25%C3%A9&flag&e=&x=1=2",
            "a.so",
            &[("k", "a&b=%é"), ("flag", ""), ("e", ""), ("x", "1=2")],
        );
        for wrong in [
            "plugin:",
            "litert:",
            "litert:?a=b",
            "plugin:?a=b",
            "plugin:a?",
            "plugin:a?=b",
            "plugin:a?b=1&b=2",
            "plugin:a?b=%2",
            "plugin:a?b=%ff",
        ] {
            check(wrong, None);
        }
        check("cpu?adapter=x", None);
        check("npu", None);
    }

    #[test]
    #[cfg(feature = "wgpu")]
    fn options_of_the_gpu() {
        use delegraph::delegate_wgpu::WgpuOptions;

        for option in WgpuOptions::NAMED {
            let values = match option.values {
                "NAME" => vec!["Radeon", "a%26b"],
                "N" => vec!["0", "1000"],
                values => values.split('|').collect(),
            };
            for value in values {
                let text = format!("wgpu?{}={value}", option.name);
                let choice: Choice = text.parse().unwrap();
                assert_eq!(choice.to_string(), text);
            }
            let wrong = format!("wgpu?{}=other", option.name).parse::<Choice>();
            assert_eq!(wrong.is_err(), option.name != "adapter", "{wrong:?}");
        }
        let both: Choice = "wgpu?precision=auto&matrix_units=off".parse().unwrap();
        assert_eq!(both.to_string(), "wgpu?precision=auto&matrix_units=off");
        for (text, error) in [
            ("wgpu?", "no option \"\""),
            (
                "wgpu?speed=9",
                "wgpu has no option \"speed\"; it has adapter=NAME, backend=vulkan|metal|dx12|webgpu, ",
            ),
            ("wgpu?fusion=on&fusion=off", "option \"fusion\" is given twice"),
            ("wgpu?precision=half", "\"half\" is none of: f32, f16, auto"),
            ("wgpu?max_gpu_bytes=much", "\"much\" is not a number from 0 to "),
        ] {
            let found = text.parse::<Choice>().unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
        let halves = |text: &str| match text.parse() {
            Ok(Choice::Wgpu(choice)) => choice.stores_halves(),
            other => panic!("{other:?}"),
        };
        assert_eq!(["wgpu", "wgpu?precision=f32", "wgpu?precision=f16"].map(halves), [false, false, true]);
    }

    #[test]
    #[cfg(feature = "wgpu")]
    fn help_and_documentation_list_the_options_of_the_gpu() {
        use delegraph::delegate_wgpu::WgpuOptions;

        let command = Engine::augment_args(clap::Command::new("test"));
        let argument = command.get_arguments().find(|a| a.get_long() == Some("delegate")).unwrap();
        let help = argument.get_help().unwrap().to_string();
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gpu.md")).unwrap();
        for option in WgpuOptions::NAMED {
            let text = format!("{}={}", option.name, option.values);
            assert!(help.contains(&text), "{text}: {help}");
            let values: Vec<String> = match option.values {
                kind @ ("N" | "NAME") => vec![kind.into()],
                values => values.split('|').map(|value| format!("`{value}`")).collect(),
            };
            let row = format!("| `{}` | {} | {} |", option.name, values.join(", "), option.meaning);
            assert!(page.lines().any(|line| line == row), "{row}");
        }
        let rows = page.lines().skip_while(|line| *line != "## Options").skip(1);
        let rows = rows.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), WgpuOptions::NAMED.len());
    }
}
