//! Exit codes and error messages of verbs, without panic text.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use delegraph::Error;
use delegraph::core::error::{ErrorKind, Limit, Location};
use delegraph::core::printable_lines;
use delegraph::delegate_api::plugin::PluginFault;
use serde_json::{Value, json};

use super::text;
use crate::documents::unresolved::unresolved_op;

/// The documented exit codes. Most usage errors are `clap`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Fine = 0,
    Failed = 1,
    Usage = 2,
    Unsupported = 3,
    Invalid = 4,
}

impl Exit {
    /// Returns the exit code with this number.
    pub(crate) fn of(code: u8) -> Self {
        let all = [Exit::Fine, Exit::Failed, Exit::Usage, Exit::Unsupported, Exit::Invalid];
        all.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Failed)
    }
}

/// The reason why a verb failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    help: Option<String>,
    /// For `--json`: the place in the model, ops without kernels.
    details: Value,
    /// Standard output no longer has a reader: exit without a message.
    broken_pipe: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into(), help: None, details: Value::Null, broken_pipe: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Failure::new(Exit::Invalid, message)
    }

    #[must_use]
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prefixes the message with the subject of the failure.
    #[must_use]
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Exit code, message and help, for another process that passes them on.
    pub(crate) fn parts(&self) -> (Exit, &str, Option<&str>) {
        (self.exit, &self.message, self.help.as_deref())
    }

    /// A panic that reached `main`.
    pub(crate) fn internal() -> Self {
        let panic = LAST_PANIC.lock().map(|p| p.clone()).unwrap_or_default();
        Failure::new(Exit::Failed, format!("internal error: {panic}"))
            .with_help("this is a bug in delegraph; please report it with the model that shows it")
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether standard output has lost its reader, so that no message is printed.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }

    /// Returns the document for `--json`.
    pub(crate) fn document(&self) -> Value {
        let kind = match self.exit {
            Exit::Fine | Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::Unsupported => "unsupported",
            Exit::Invalid => "invalid",
        };
        let mut error = json!({
            "kind": kind, "exit_code": self.exit as u8, "message": self.message, "help": self.help,
        });
        if let (Value::Object(error), Value::Object(details)) = (&mut error, &self.details) {
            error.extend(details.clone());
        }
        json!({ "error": error })
    }

    /// Creates the failure for an error of `clap`.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let (message, help) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.strip_prefix("error: ").unwrap_or(message).trim();
        Failure::new(Exit::Usage, message).with_help(help.trim())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Messages repeat texts of files, which may have megabytes. `--json` has the whole message.
        const MAX_CHARS: usize = 10_000;
        let text = printable_lines(&self.message);
        match text.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => {
                let (shown, rest) = text.split_at(end);
                write!(f, "{shown}… ({} more)", text::plural(rest.len(), "byte"))
            }
            None => f.write_str(&text),
        }
    }
}

impl std::error::Error for Failure {}

impl miette::Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Invalid => Exit::Invalid,
            ErrorKind::Unsupported => Exit::Unsupported,
            _ => Exit::Failed,
        };
        let help = help(&error);
        let message = with_options(&error.chain());
        // An error about memory that is not a node's, such as the arena, does not name the model.
        let message = match (is_of_memory(&error), MODEL.get()) {
            (true, Some(model)) => format!("{model}: {message}"),
            _ => message,
        };
        Failure { help, details: details(&error), ..Failure::new(exit, message) }
    }
}

/// The path of the model, for errors about memory that do not name it.
static MODEL: OnceLock<String> = OnceLock::new();

/// Sets the path of the model, which errors about memory name.
pub(crate) fn set_model(path: &Path) {
    let _ = MODEL.set(path.display().to_string());
}

fn is_of_memory(error: &Error) -> bool {
    match error {
        Error::OutOfMemory(_) => true,
        Error::LimitExceeded(exceeded) => exceeded.limit() == Limit::Memory,
        _ => false,
    }
}

/// Returns the advice on an error for a user of the command: options come before the interface for programs.
pub(crate) fn help(error: &Error) -> Option<String> {
    match error {
        Error::AtNode { source, .. } => return help(source),
        Error::External(fault) if fault.is::<PluginFault>() => {
            return Some(
                "the library that the message names is faulty, not the model; its author can fix it".into(),
            );
        }
        // The message names the option.
        Error::LimitExceeded(exceeded) if matches!(exceeded.limit(), Limit::Memory | Limit::Time) => {
            return None;
        }
        // The message states that no option raises the other limits.
        Error::LimitExceeded(_) => return Some(format!("in a program, {}", error.help()?)),
        Error::Io { source, .. } if source.kind() == io::ErrorKind::Other => {
            return Some("pass the path of a .tflite file".into());
        }
        Error::OutOfMemory(_) => {
            let text = "inputs with smaller shapes need less memory: `delegraph run` has `--resize NAME=1x224x224x3`";
            return Some(text.into());
        }
        _ => {}
    }
    let line = |line: &str| match line.split_once(", or load a library that has one: ") {
        Some((program, library)) => {
            let program = program.strip_prefix("register a kernel for it: ").unwrap_or(program);
            format!("load a library that has a kernel for it: {library}; in a program, {program}")
        }
        None => line.to_owned(),
    };
    Some(error.help()?.lines().map(line).collect::<Vec<_>>().join("\n"))
}

/// Returns a message with the options of the command for limits, instead of the interface for programs.
fn with_options(message: &str) -> String {
    const NONE: &str = "no option of the command raises it";
    let options = [
        ("`ResourceLimits::with_call_depth` raises it", NONE),
        ("`ResourceLimits::with_inlined_nodes` raises it", NONE),
        ("`ResourceLimits::with_preparations` raises it", NONE),
        ("`ResourceLimits::with_memory` raises it", "`--max-memory BYTES` raises it"),
        ("`ResourceLimits::with_time` raises it", "`--timeout SECONDS` raises it"),
    ];
    options.iter().fold(message.to_owned(), |text, (program, option)| text.replace(program, option))
}

impl Failure {
    /// An error of writing to standard output.
    pub(crate) fn of_stdout(error: io::Error) -> Self {
        let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Failure {
            broken_pipe,
            ..Failure::new(Exit::Failed, format!("cannot write to standard output: {error}"))
        }
    }
}

/// Returns a path as text.
fn shown(path: Option<&Path>) -> Option<String> {
    path.map(text::shown)
}

fn details(error: &Error) -> Value {
    match error {
        // The numbers of a rewritten model are not those of the file.
        Error::AtNode { location, .. } if location.rewritten_by.is_some() => Value::Null,
        Error::AtNode { location, .. } => {
            let Location { model, subgraph, node, op, .. } = &**location;
            json!({ "model": shown(model.as_deref()), "subgraph": subgraph, "node": node.0, "op": op })
        }
        Error::Io { path, .. } => json!({ "model": shown(Some(path)) }),
        Error::InvalidModel { path, .. }
        | Error::ExternalData { path, .. }
        | Error::UnderstatedVersions { path, .. } => json!({ "model": shown(path.as_deref()) }),
        Error::UnresolvedOps(unresolved) => {
            let ops: Vec<Value> = unresolved.ops.iter().map(unresolved_op).collect();
            json!({ "model": shown(unresolved.model.as_deref()), "unresolved": ops })
        }
        Error::Delegate { delegate, .. } => json!({ "delegate": delegate }),
        _ => Value::Null,
    }
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Silences panics: a panic in a delegate is caught and becomes an error of the delegate; a panic that reaches `main`
/// is reported there as an internal error.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
        let line = format!("{}{place}", text.lines().next().unwrap_or_default());
        log::debug!("panic: {line}");
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = line;
        }
    }));
}

#[cfg(test)]
mod tests {
    use delegraph::core::error::LimitExceeded;

    use super::*;

    #[test]
    fn limits_name_options_of_the_command() {
        let check = |exceeded: LimitExceeded, end: &str, has_help: bool| {
            let failure = Failure::from(Error::from(exceeded));
            let (_, message, help) = failure.parts();
            assert!(message.ends_with(end) && !message.contains("ResourceLimits"), "{message}");
            let in_a_program = |help: &str| help.starts_with("in a program, `InterpreterBuilder::limits(");
            assert_eq!(help.is_some_and(in_a_program), has_help, "{help:?}");
        };
        let (needed, allowed) = (2, 1);
        check(LimitExceeded::Memory { needed, allowed }, "; `--max-memory BYTES` raises it", false);
        let none = "; no option of the command raises it";
        check(LimitExceeded::CallDepth { needed, allowed }, none, true);
        check(LimitExceeded::InlinedNodes { needed, allowed }, none, true);
        check(LimitExceeded::Preparations { needed, allowed }, none, true);
    }
}
