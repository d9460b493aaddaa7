//! The other side of a worker: starts it, gives it cases, and starts it anew when a case crashed or hung it.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::CaseResult;

/// A worker process, started when it is first needed.
pub(super) struct Worker<'o> {
    options: &'o [String],
    running: Option<Running>,
}

struct Running {
    child: Child,
    cases: ChildStdin,
    answers: Receiver<String>,
}

impl<'o> Worker<'o> {
    pub(super) fn new(options: &'o [String]) -> Self {
        Worker { options, running: None }
    }

    /// Runs one case.
    ///
    /// # Errors
    /// Where no process can be started; whatever the case does is in the result.
    pub(super) fn run(&mut self, case: &Path, timeout: Duration) -> io::Result<CaseResult> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(self.options)?,
        };
        let start = Instant::now();
        // A worker that is gone does not read; that it is gone shows below.
        let _ = writeln!(running.cases, "{}", case.display());
        let (outcome, detail) = match running.answers.recv_timeout(timeout) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(result) => {
                    self.running = Some(running);
                    return Ok(result);
                }
                Err(e) => ("error", format!("the worker answered something else: {e}")),
            },
            Err(RecvTimeoutError::Timeout) => ("timeout", format!("no result after {} s", timeout.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.child.wait()?;
                ("error", format!("the process ended: {status}"))
            }
        };
        drop(running);
        Ok(CaseResult {
            case: String::new(),
            outcome: outcome.into(),
            detail,
            ops: Vec::new(),
            types: Vec::new(),
            ms: start.elapsed().as_secs_f64() * 1e3,
        })
    }
}

impl Running {
    fn start(options: &[String]) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(cases), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes to the worker"));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Running { child, cases, answers })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
