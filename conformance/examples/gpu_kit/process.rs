//! Programs of the kit with a time limit.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// With this code.
    Code(i32),
    /// By a signal.
    Signal,
    /// At its time limit.
    Cut,
    /// The program did not start, for this reason.
    NotRun(String),
}

/// A program that ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    pub(crate) seconds: f64,
    /// Its output.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` for at most `limit` seconds, with its output in `folder` in files named after `name`.
pub(crate) fn run(mut command: Command, folder: &Path, name: &str, limit: f64) -> Finished {
    let start = Instant::now();
    let paths = ["out", "err"].map(|kind| folder.join(format!("{name}.{kind}")));
    let mut begin = || -> std::io::Result<Child> {
        let (out, err) = (File::create(&paths[0])?, File::create(&paths[1])?);
        let command = command.stdin(Stdio::null()).stdout(out).stderr(err);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        command.spawn()
    };
    let ended = if limit < 1.0 {
        Ended::NotRun("no time left".into())
    } else {
        match begin() {
            Ok(child) => wait(child, start, limit),
            Err(e) => Ended::NotRun(e.to_string()),
        }
    };
    let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let [stdout, stderr] = [text(&paths[0]), text(&paths[1])];
    Finished { ended, seconds: start.elapsed().as_secs_f64(), stdout, stderr }
}

fn wait(mut child: Child, start: Instant, limit: f64) -> Ended {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.code().map_or(Ended::Signal, Ended::Code),
            Ok(None) if start.elapsed().as_secs_f64() < limit => sleep(Duration::from_millis(20)),
            Ok(None) => {
                end(&mut child);
                return Ended::Cut;
            }
            Err(e) => return Ended::NotRun(e.to_string()),
        }
    }
}

/// Ends the program and the processes that it started, which are in its group.
fn end(child: &mut Child) {
    #[cfg(target_os = "linux")]
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: `kill` takes numbers only. The child was made the leader of a group in `run` and is not waited for yet,
        // so the number still identifies that group.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    // On systems other than Linux, only this ends the program. An error means that it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn shell(script: &str, name: &str, limit: f64) -> Finished {
        let folder = std::env::temp_dir().join(format!("delegraph-kit-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{e}"));
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        let finished = run(command, &folder, name, limit);
        let _ = std::fs::remove_dir_all(folder);
        finished
    }

    #[test]
    fn a_program_ends_by_itself_or_at_its_limit_with_what_it_started() {
        let done = shell("echo out; echo err >&2; exit 3", "exits", 60.0);
        assert_eq!(
            (done.ended, done.stdout.as_str(), done.stderr.as_str()),
            (Ended::Code(3), "out\n", "err\n")
        );
        // The sleeping process would keep a pipe open, and so block this test for a minute.
        let cut = shell("echo begun; sleep 60 & wait", "cut", 5.0);
        assert_eq!((cut.ended, cut.stdout.as_str()), (Ended::Cut, "begun\n"));
        assert!((5.0..30.0).contains(&cut.seconds), "{}", cut.seconds);
    }

    #[test]
    fn a_program_that_cannot_begin_is_reported() {
        let folder = std::env::temp_dir();
        let missing = run(Command::new("/nothing/there"), &folder, "delegraph-kit-missing", 5.0);
        assert!(matches!(missing.ended, Ended::NotRun(_)), "{missing:?}");
        let late = run(Command::new("true"), &folder, "delegraph-kit-late", 0.0);
        assert_eq!(late.ended, Ended::NotRun("no time left".into()));
        for name in ["missing.out", "missing.err"] {
            let _ = std::fs::remove_file(folder.join(format!("delegraph-kit-{name}")));
        }
    }
}
