//! Which kernels and delegates run a model: the one place that `--delegate` is understood in.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use delegraph::core::error::ErrorKind;
use delegraph::delegate_api::plugin::{PluginDelegate, PluginError, PluginLibrary, PluginOptions};
use delegraph::delegate_api::{CostModel, PartitionOptions};
use delegraph::delegate_wgpu::{AdapterChoice, WgpuDelegate, WgpuError, WgpuOptions};
use delegraph::interpreter::InterpreterBuilder;
use delegraph::{Delegate, Interpreter, Model, MutableOpResolver, Policy};
use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::engine::{self, Backend, MakeDelegate};

use super::failure::{Exit, Failure};
use super::kernels::Kernels;
use super::limits::Limits;

/// One `--delegate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Cpu,
    Reference,
    Wgpu(WgpuChoice),
    Plugin(PluginChoice),
}

/// `wgpu[?key=value&…]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WgpuChoice {
    /// Part of the adapter's name.
    adapter: Option<String>,
    max_gpu_bytes: Option<u64>,
    /// `fusion=off`: every node runs by itself.
    unfused: bool,
}

/// `plugin:PATH[?key=value&…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginChoice {
    /// As on the command line, without `plugin:`.
    text: String,
    path: String,
    /// Percent-decoded.
    options: Vec<(String, String)>,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(text) = text.strip_prefix("plugin:") {
            return text.parse().map(Choice::Plugin);
        }
        match text.split_once('?') {
            None if text == "cpu" => Ok(Choice::Cpu),
            None if text == "reference" => Ok(Choice::Reference),
            None if text == "wgpu" => Ok(Choice::Wgpu(WgpuChoice::default())),
            Some(("wgpu", options)) => options.parse().map(Choice::Wgpu),
            _ => Err("there are: cpu, reference, wgpu[?KEY=VALUE&…], plugin:PATH[?KEY=VALUE&…]".into()),
        }
    }
}

impl FromStr for WgpuChoice {
    type Err = String;

    fn from_str(options: &str) -> Result<Self, String> {
        let mut choice = WgpuChoice::default();
        for option in options.split('&') {
            match option.split_once('=') {
                Some(("adapter", name)) => choice.adapter = Some(name.into()),
                Some(("max_gpu_bytes", n)) => {
                    let number = n.parse().map_err(|_| format!("max_gpu_bytes: `{n}` is no number"))?;
                    choice.max_gpu_bytes = Some(number);
                }
                Some(("fusion", "on")) => choice.unfused = false,
                Some(("fusion", "off")) => choice.unfused = true,
                _ => {
                    let all = "`wgpu?adapter=NAME&max_gpu_bytes=N&fusion=on|off`";
                    return Err(format!("wgpu takes {all}, or some of them"));
                }
            }
        }
        Ok(choice)
    }
}

impl fmt::Display for WgpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(delegraph::delegate_wgpu::NAME)?;
        let adapter = self.adapter.as_ref().map(|name| format!("adapter={name}"));
        let bytes = self.max_gpu_bytes.map(|n| format!("max_gpu_bytes={n}"));
        let unfused = self.unfused.then(|| "fusion=off".to_owned());
        adapter
            .iter()
            .chain(&bytes)
            .chain(&unfused)
            .zip(["?", "&", "&"])
            .try_for_each(|(option, mark)| write!(f, "{mark}{option}"))
    }
}

impl FromStr for PluginChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        if path.is_empty() {
            return Err("plugin:PATH needs the path of a library".into());
        }
        let mut options = Vec::new();
        for option in query.into_iter().flat_map(|query| query.split('&')) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            options.push((percent_decoded(key)?, percent_decoded(value)?));
        }
        PluginOptions::new(options.iter().cloned()).map_err(|e| e.to_string())?;
        Ok(PluginChoice { text: text.into(), path: path.into(), options })
    }
}

/// `%26` is `&`, `%3D` is `=`, `%25` is `%`; any byte can be written so.
fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit =
            || rest.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(format!("\"{text}\": two hexadecimal digits must follow a %; %25 is a % itself"));
        };
        bytes.push(high * 16 + low);
    }
    String::from_utf8(bytes).map_err(|_| format!("\"{text}\" does not decode to UTF-8"))
}

impl fmt::Display for Choice {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Wgpu(choice) => choice.fmt(f),
            other => f.write_str(&other.name()),
        }
    }
}

impl Choice {
    /// The name in results.
    pub(crate) fn name(&self) -> String {
        match self {
            Choice::Cpu => "cpu".into(),
            Choice::Reference => "reference".into(),
            Choice::Wgpu(_) => delegraph::delegate_wgpu::NAME.into(),
            Choice::Plugin(plugin) => format!("plugin:{}", plugin.text),
        }
    }

    /// The delegate; `None` where the choice is one of CPU kernels.
    pub(crate) fn open(&self) -> Result<Option<Box<dyn Delegate>>, Failure> {
        self.open_for(false)
    }

    /// As `open`; `profile`: it measures its kernels, if it can.
    pub(crate) fn open_for(&self, profile: bool) -> Result<Option<Box<dyn Delegate>>, Failure> {
        match self {
            Choice::Cpu | Choice::Reference => Ok(None),
            Choice::Wgpu(choice) => Ok(Some(Box::new(choice.open(profile)?))),
            Choice::Plugin(plugin) => Ok(Some(Box::new(plugin.open()?))),
        }
    }
}

impl Choice {
    /// What makes the delegate anew, on one device and of one library, and that device's name; `None` where the choice is
    /// one of CPU kernels.
    fn maker(&self) -> Result<Option<(MakeDelegate, String)>, Failure> {
        Ok(match self {
            Choice::Cpu | Choice::Reference => None,
            Choice::Wgpu(choice) => {
                let delegate = choice.open(false)?;
                let info = delegate.adapter();
                let parts = [
                    info.name.clone(),
                    info.backend.to_string(),
                    info.driver.clone(),
                    info.driver_info.clone(),
                ];
                let known = parts.into_iter().filter(|part| !part.is_empty());
                let device = known.collect::<Vec<_>>().join(", ");
                Some((Arc::new(move || Ok(Box::new(delegate.clone()) as Box<dyn Delegate>)), device))
            }
            Choice::Plugin(plugin) => {
                let (library, options) = plugin.library()?;
                // What it cannot do shows now, not with the first case.
                drop(library.delegate(&options)?);
                let make = move || match library.delegate(&options) {
                    Ok(delegate) => Ok(Box::new(delegate) as Box<dyn Delegate>),
                    Err(e) => Err(delegraph::Error::State(e.to_string())),
                };
                Some((Arc::new(make), String::new()))
            }
        })
    }
}

impl PluginChoice {
    fn open(&self) -> Result<PluginDelegate, Failure> {
        let (library, options) = self.library()?;
        Ok(library.delegate(&options)?)
    }

    fn library(&self) -> Result<(PluginLibrary, PluginOptions), Failure> {
        let options = PluginOptions::new(self.options.iter().cloned());
        let options = options.map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
        // SAFETY: whoever calls the command says with the path that the library is to be trusted.
        let library = unsafe { PluginLibrary::open(&self.path) }?;
        Ok((library, options))
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        let message = format!("plugin {error}");
        match &error {
            PluginError::InvalidFile { .. } => Failure::invalid(message),
            PluginError::Incompatible { .. } => Failure::new(Exit::Unsupported, message),
            PluginError::Option { .. } => Failure::new(Exit::Usage, message),
            PluginError::Create { error, .. } if error.kind() == ErrorKind::Unsupported => {
                Failure::new(Exit::Unsupported, message)
            }
            _ => Failure::new(Exit::Failed, message),
        }
    }
}

impl WgpuChoice {
    /// The delegate; `profile`: it measures each of its kernels.
    pub(crate) fn open(&self, profile: bool) -> Result<WgpuDelegate, Failure> {
        let adapter = self.adapter.as_ref().map_or_else(AdapterChoice::default, AdapterChoice::named);
        let max_gpu_bytes = self.max_gpu_bytes;
        let options =
            WgpuOptions { adapter, max_gpu_bytes, fusion: !self.unfused, profile, ..WgpuOptions::default() };
        WgpuDelegate::new(options).map_err(|error| match error {
            WgpuError::NoAdapter | WgpuError::NoMatch { .. } => {
                Failure::new(Exit::Unsupported, format!("delegate wgpu: {error}"))
                    .with_help("`delegraph devices` lists the adapters; `--delegate cpu` runs without one")
            }
            error => delegraph::Error::from(error).into(),
        })
    }
}

/// `--policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyChoice {
    /// Delegate what can be; the rest runs on the CPU
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
}

impl Promise {
    /// The same as an argument of another process.
    pub(crate) fn option(self) -> String {
        format!("--arithmetic={}", if self == Promise::Gpu { "gpu" } else { "ieee" })
    }
}

/// Options of the verbs that run a model.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// What runs the model: cpu (optimized kernels), reference (plain ones), wgpu[?adapter=NAME&max_gpu_bytes=N&fusion=off] (GPU), or
    /// plugin:PATH[?KEY=VALUE&…] (a shared library; %26 stands for & in a value). May be repeated: delegates choose
    /// nodes in this order, and what nobody takes runs on the CPU [default: cpu]
    #[arg(long = "delegate", value_name = "D")]
    pub(crate) delegates: Vec<Choice>,
    #[command(flatten)]
    pub(crate) kernels: Kernels,
    /// What to do about nodes that no delegate takes
    #[arg(long, value_enum, default_value_t = PolicyChoice::Prefer)]
    policy: PolicyChoice,
    /// Threads for CPU kernels
    #[arg(long, default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) threads: usize,
    #[command(flatten)]
    limits: Limits,
    /// Measure each delegate and the CPU kernels first, which takes a second or two, and delegate only partitions that
    /// gain more than their copies cost
    #[arg(long)]
    cost_model: bool,
}

impl Engine {
    /// An interpreter for `model`, prepared.
    pub(crate) fn build(&self, model: Model) -> Result<Interpreter, Failure> {
        self.limits.check(&model);
        Ok(self.configure()?(Interpreter::builder(model)).build()?)
    }

    /// The same, prepared once its inputs have their shapes: those of the file may be placeholders.
    pub(crate) fn build_later(&self, model: Model) -> Result<Interpreter, Failure> {
        self.limits.check(&model);
        Ok(self.configure()?(Interpreter::builder(model)).prepare_later().build()?)
    }

    /// The same with delegates that measure their kernels.
    pub(crate) fn build_profiled(&self, model: Model) -> Result<Interpreter, Failure> {
        self.limits.check(&model);
        Ok(self.configure_with(true)?(Interpreter::builder(model)).build()?)
    }

    /// What sets a builder up as the options say. Delegates are opened here.
    pub(crate) fn configure(&self) -> Result<impl FnOnce(InterpreterBuilder) -> InterpreterBuilder, Failure> {
        self.configure_with(false)
    }

    fn configure_with(
        &self,
        profile: bool,
    ) -> Result<impl FnOnce(InterpreterBuilder) -> InterpreterBuilder, Failure> {
        let resolver = self.kernels.resolver(self.is_reference())?;
        let (threads, policy) = (self.threads, self.policy.into());
        let mut delegates = Vec::new();
        for choice in &self.delegates {
            if let Some(delegate) = choice.open_for(profile)? {
                let mut limits = self.limits.options();
                limits.cost = self.cost_model.then(|| measured(choice, threads)).transpose()?;
                delegates.push((delegate, limits));
            }
        }
        Ok(move |mut builder: InterpreterBuilder| {
            builder = builder.threads(threads).policy(policy).resolver(resolver);
            let within =
                |builder: InterpreterBuilder, (delegate, limits)| builder.delegate_within(delegate, limits);
            delegates.into_iter().fold(builder, within)
        })
    }

    /// What the arithmetic of what runs promises, unless it is given.
    pub(crate) fn arithmetic(&self, given: Option<Promise>) -> Arithmetic {
        let gpu = self.delegates.iter().any(|choice| matches!(choice, Choice::Wgpu(_)));
        match given.unwrap_or(if gpu { Promise::Gpu } else { Promise::Ieee }) {
            Promise::Gpu => Arithmetic::Gpu,
            Promise::Ieee => Arithmetic::Ieee,
        }
    }

    /// What conformance tests: the first delegate or, where there is none, the kernels. What no delegate takes runs, in
    /// cases of our own, on the reference kernels, so that any difference is the delegate's.
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
            Some((make, device)) => (Backend::delegate(self.label(), make).on(device), !corpus),
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
        Ok(backend
            .configured(move |builder| builder.threads(threads).policy(policy).resolver(resolver.clone())))
    }

    /// Sets `builder` up as the options say, with delegates whose limits are what `adjust` makes of them. Delegates that
    /// it has already stay.
    pub(crate) fn configure_limited(
        &self,
        mut builder: InterpreterBuilder,
        adjust: impl Fn(&mut PartitionOptions),
    ) -> Result<InterpreterBuilder, Failure> {
        let resolver = self.kernels.resolver(self.is_reference())?;
        builder = builder.threads(self.threads).policy(self.policy.into()).resolver(resolver);
        for choice in &self.delegates {
            if let Some(delegate) = choice.open()? {
                let mut limits = self.limits.options();
                adjust(&mut limits);
                builder = builder.delegate_within(delegate, limits);
            }
        }
        Ok(builder)
    }

    /// Whether any `--delegate` is one, and not a kind of CPU kernels.
    pub(crate) fn delegates_anything(&self) -> bool {
        self.delegates.iter().any(|choice| !matches!(choice, Choice::Cpu | Choice::Reference))
    }

    /// The plain kernels, and those of libraries.
    pub(crate) fn reference(&self) -> Result<MutableOpResolver, Failure> {
        self.kernels.resolver(true)
    }

    /// The same options as arguments of another process.
    pub(crate) fn options(&self) -> Vec<String> {
        let policy = self.policy.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let mut options = vec![format!("--threads={}", self.threads), format!("--policy={policy}")];
        options.extend(self.delegates.iter().map(|d| format!("--delegate={d}")));
        options.extend(self.kernels.arguments());
        options.extend(self.limits.arguments());
        options.extend(self.cost_model.then(|| "--cost-model".to_owned()));
        options
    }

    /// All names, in order.
    pub(crate) fn label(&self) -> String {
        let names: Vec<String> = self.delegates.iter().map(Choice::name).collect();
        if names.is_empty() { Choice::Cpu.name() } else { names.join(",") }
    }

    /// The name of the kernels that run what nobody takes.
    pub(crate) fn cpu_name(&self) -> &'static str {
        if self.is_reference() { "reference" } else { "cpu" }
    }

    fn is_reference(&self) -> bool {
        self.delegates.contains(&Choice::Reference)
    }
}

/// The rates of the CPU kernels and of a delegate on this machine.
fn measured(choice: &Choice, threads: usize) -> Result<CostModel, Failure> {
    let mut failure = None;
    let measured = delegraph::interpreter::measure(threads, || {
        let opened = choice.open().map_err(|e| failure = Some(e));
        opened.ok().flatten().ok_or_else(|| delegraph::Error::State("it cannot be opened again".into()))
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(measured?),
    }
}

#[cfg(test)]
mod tests {
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
        let wgpu = |adapter: Option<&str>, max_gpu_bytes| {
            let adapter = adapter.map(str::to_owned);
            Some(Choice::Wgpu(WgpuChoice { adapter, max_gpu_bytes, unfused: false }))
        };
        check("wgpu", wgpu(None, None));
        check("wgpu?adapter=Radeon", wgpu(Some("Radeon"), None));
        check("wgpu?max_gpu_bytes=1000", wgpu(None, Some(1000)));
        check("wgpu?adapter=Radeon&max_gpu_bytes=1000", wgpu(Some("Radeon"), Some(1000)));
        check("wgpu?max_gpu_bytes=much", None);
        let unfused = WgpuChoice { unfused: true, ..WgpuChoice::default() };
        check("wgpu?fusion=off", Some(Choice::Wgpu(unfused)));
        assert_eq!("wgpu?fusion=on".parse().ok(), wgpu(None, None));
        check("wgpu?fusion=some", None);
        check("wgpu?", None);
        let plugin = |text: &str, path: &str, options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let choice = PluginChoice { text: text.into(), path: path.into(), options };
            check(&format!("plugin:{text}"), Some(Choice::Plugin(choice)));
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
            "plugin:?a=b",
            "plugin:a?",
            "plugin:a?=b",
            "plugin:a?b=1&b=2",
            "plugin:a?b=%2",
            "plugin:a?b=%ff",
        ] {
            check(wrong, None);
        }
        check("wgpu?speed=9", None);
        check("cpu?adapter=x", None);
        check("npu", None);
    }
}
