//! The check whether Cargo finds the released crates on which a new crate depends.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli::failure::{Exit, Failure};

/// The time that Cargo may take to resolve the crate's dependencies.
const TIMEOUT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

/// Resolves the dependencies of the crate in `folder`, with the registries configured there.
///
/// # Errors
/// Exit code 2 with Cargo's reason: the crate could not be built without a checkout.
pub(super) fn check(folder: &Path) -> Result<(), Failure> {
    let resolved = resolve(folder);
    // The lock file is left for the user to create.
    let _ = std::fs::remove_file(folder.join("Cargo.lock"));
    resolved.map_err(|unresolved| {
        let checkout = format!(
            "name a checkout of Delegraph with `--delegraph PATH`; `git clone {}` makes one",
            env!("CARGO_PKG_REPOSITORY")
        );
        match unresolved {
            Unresolved::NoCargo(error) => {
                let help = format!(
                    "install Rust with Cargo, which builds the crate (https://rustup.rs); without released crates, \
                     {checkout}"
                );
                Failure::new(Exit::Usage, format!("cargo cannot be run: {error}")).with_help(help)
            }
            Unresolved::Refused(reason) => {
                let version = env!("CARGO_PKG_VERSION");
                let text = format!("Cargo does not find Delegraph's crates, version {version}: {reason}");
                Failure::new(Exit::Usage, text).with_help(checkout)
            }
        }
    })
}

/// The reason why the dependencies were not resolved.
enum Unresolved {
    /// Cargo cannot be started.
    NoCargo(std::io::Error),
    /// Cargo's message, or the problem of running it.
    Refused(String),
}

fn resolve(folder: &Path) -> Result<(), Unresolved> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["generate-lockfile", "--quiet", "--color=never"]).current_dir(folder);
    command.env("CARGO_NET_RETRY", "0").env("CARGO_HTTP_TIMEOUT", "10");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Unresolved::NoCargo)?;
    let messages = child.stderr.take();
    let messages = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = messages.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let fine = wait(&mut child).map_err(Unresolved::Refused)?;
    let text = messages.join().unwrap_or_default();
    if fine { Ok(()) } else { Err(Unresolved::Refused(reason(&text))) }
}

/// Returns whether Cargo succeeded.
fn wait(child: &mut Child) -> Result<bool, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if start.elapsed() < TIMEOUT => std::thread::sleep(POLL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("cargo did not finish within {} s", TIMEOUT.as_secs()));
            }
            Err(error) => return Err(format!("cargo: {error}")),
        }
    }
}

/// Returns the first line of Cargo's messages that states an error.
fn reason(messages: &str) -> String {
    let lines = || messages.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| lines().next()).unwrap_or("cargo failed without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_reason_is_the_first_error() {
        let text = "warning: unused\n\nerror: no matching package named `delegraph-core` found\nlocation searched: x\n";
        assert_eq!(reason(text), "no matching package named `delegraph-core` found");
        assert_eq!(reason("odd\n"), "odd");
        assert_eq!(reason(""), "cargo failed without a message");
    }
}
