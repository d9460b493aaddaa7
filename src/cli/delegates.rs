//! Which kernels and delegates run a model: the one place that `--delegate` is understood in.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use delegraph::delegate_wgpu::{AdapterChoice, WgpuDelegate, WgpuError, WgpuOptions};
use delegraph::interpreter::InterpreterBuilder;
use delegraph::{Delegate, Interpreter, Model, Policy, ReferenceOpResolver};

use super::failure::{Exit, Failure};

/// One `--delegate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Cpu,
    Reference,
    Wgpu { adapter: Option<String> },
    Plugin(String),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("plugin:") {
            return Ok(Choice::Plugin(path.into()));
        }
        let (name, options) = text.split_once('?').unwrap_or((text, ""));
        let choice = match (name, options, options.strip_prefix("adapter=")) {
            ("cpu", "", _) => Choice::Cpu,
            ("reference", "", _) => Choice::Reference,
            ("wgpu", "", _) => Choice::Wgpu { adapter: None },
            ("wgpu", _, Some(adapter)) => Choice::Wgpu { adapter: Some(adapter.into()) },
            ("wgpu", ..) => return Err("wgpu takes one option, `wgpu?adapter=NAME`".into()),
            _ => return Err("there are: cpu, reference, wgpu, wgpu?adapter=NAME, plugin:PATH".into()),
        };
        Ok(choice)
    }
}

impl fmt::Display for Choice {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        match self {
            Choice::Wgpu { adapter: Some(adapter) } => write!(f, "?adapter={adapter}"),
            _ => Ok(()),
        }
    }
}

impl Choice {
    /// The name in results.
    pub(crate) fn name(&self) -> String {
        match self {
            Choice::Cpu => "cpu".into(),
            Choice::Reference => "reference".into(),
            Choice::Wgpu { .. } => delegraph::delegate_wgpu::NAME.into(),
            Choice::Plugin(path) => format!("plugin:{path}"),
        }
    }

    /// The delegate; `None` where the choice is one of CPU kernels.
    pub(crate) fn open(&self) -> Result<Option<Box<dyn Delegate>>, Failure> {
        match self {
            Choice::Cpu | Choice::Reference => Ok(None),
            Choice::Wgpu { adapter } => Ok(Some(Box::new(open_wgpu(adapter.as_deref())?))),
            Choice::Plugin(_) => {
                let message = format!("plugins are not supported yet: {}", self.name());
                Err(Failure::new(Exit::Unsupported, message).with_help("there are: cpu, reference, wgpu"))
            }
        }
    }
}

/// The wgpu delegate on the adapter whose name contains `adapter`.
pub(crate) fn open_wgpu(adapter: Option<&str>) -> Result<WgpuDelegate, Failure> {
    let adapter = adapter.map_or_else(AdapterChoice::default, AdapterChoice::named);
    let options = WgpuOptions { adapter, ..WgpuOptions::default() };
    WgpuDelegate::new(options).map_err(|error| match error {
        WgpuError::NoAdapter | WgpuError::NoMatch { .. } => {
            Failure::new(Exit::Unsupported, format!("delegate wgpu: {error}"))
                .with_help("`delegraph devices` lists the adapters; `--delegate cpu` runs without one")
        }
        error => delegraph::Error::from(error).into(),
    })
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

/// Options of the verbs that run a model.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// What runs the model: cpu (optimized kernels), reference (plain ones), or wgpu[?adapter=NAME] (GPU). May be
    /// repeated: delegates choose nodes in this order, and what nobody takes runs on the CPU [default: cpu]
    #[arg(long = "delegate", value_name = "D")]
    pub(crate) delegates: Vec<Choice>,
    /// A library of custom kernels; not supported yet
    #[arg(long, value_name = "plugin:PATH")]
    ops: Vec<String>,
    /// What to do about nodes that no delegate takes
    #[arg(long, value_enum, default_value_t = PolicyChoice::Prefer)]
    policy: PolicyChoice,
    /// Threads for CPU kernels
    #[arg(long, default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) threads: usize,
}

impl Engine {
    /// An interpreter for `model`, prepared.
    pub(crate) fn build(&self, model: Model) -> Result<Interpreter, Failure> {
        Ok(self.configure()?(Interpreter::builder(model)).build()?)
    }

    /// What sets a builder up as the options say. Delegates are opened here.
    pub(crate) fn configure(&self) -> Result<impl FnOnce(InterpreterBuilder) -> InterpreterBuilder, Failure> {
        if let Some(library) = self.ops.first() {
            return Err(Failure::new(Exit::Unsupported, format!("plugins are not supported yet: {library}")));
        }
        let delegates: Vec<_> = self.delegates.iter().map(Choice::open).collect::<Result<_, _>>()?;
        let (threads, policy, reference) = (self.threads, self.policy.into(), self.is_reference());
        Ok(move |mut builder: InterpreterBuilder| {
            builder = builder.threads(threads).policy(policy);
            if reference {
                builder = builder.resolver(ReferenceOpResolver::new());
            }
            delegates.into_iter().flatten().fold(builder, InterpreterBuilder::delegate)
        })
    }

    /// The same options as arguments of another process.
    pub(crate) fn options(&self) -> Vec<String> {
        let policy = self.policy.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let mut options = vec![format!("--threads={}", self.threads), format!("--policy={policy}")];
        options.extend(self.delegates.iter().map(|d| format!("--delegate={d}")));
        options.extend(self.ops.iter().map(|o| format!("--ops={o}")));
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
        check("wgpu", Some(Choice::Wgpu { adapter: None }));
        check("wgpu?adapter=Radeon", Some(Choice::Wgpu { adapter: Some("Radeon".into()) }));
        check("plugin:a.so?k=v", Some(Choice::Plugin("a.so?k=v".into())));
        check("wgpu?speed=9", None);
        check("cpu?adapter=x", None);
        check("npu", None);
    }
}
