//! The parent of a worker process: starts it, sends cases, and restarts it after a case that crashed or hung it.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use delegraph_conformance::engine::{CaseResult, Outcome};

use super::worker::{Hello, Order};
use crate::cli::failure::{Exit, Failure};
use crate::cli::program;
use crate::cli::text::plural;

/// Minimum time allowed for a worker to open its device.
const START: Duration = Duration::from_secs(60);

/// Bytes of a worker's standard error that are kept for the case that crashed it.
const STDERR_BYTES: usize = 2000;

/// A worker process, started on first use.
pub(super) struct Worker<'o> {
    options: &'o [String],
    timeout: Duration,
    running: Option<Running>,
    /// The number of cases that the process has run.
    ran: usize,
}

struct Running {
    child: Child,
    cases: ChildStdin,
    answers: Receiver<String>,
    words: Arc<Mutex<Vec<u8>>>,
    about: About,
}

/// The backend and device of a worker.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) device: String,
}

/// The reason why a case has no answer.
enum Lost {
    Crash(String),
    Timeout,
}

impl<'o> Worker<'o> {
    pub(super) fn new(options: &'o [String], timeout: Duration) -> Self {
        Worker { options, timeout, running: None, ran: 0 }
    }

    /// Starts the process, unless it is running, and returns its backend and device.
    ///
    /// # Errors
    /// The error that the worker reports.
    pub(super) fn start(&mut self) -> Result<About, Failure> {
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::start(self.options, self.timeout.max(START))?,
        };
        let about = running.about.clone();
        self.running = Some(running);
        Ok(about)
    }

    /// Runs cases, and passes each result to `done`. The cases are sent to the process together. If the process ends or
    /// hangs, the running case is the cause, and the others are sent to the next process.
    ///
    /// # Errors
    /// If no process can be started; errors of a case are in its result.
    pub(super) fn run(
        &mut self,
        orders: Vec<Order>,
        mut done: impl FnMut(CaseResult),
    ) -> Result<(), Failure> {
        let mut waiting: VecDeque<Order> = orders.into();
        let mut sent = 0;
        while let Some(order) = waiting.front() {
            if self.running.is_none() {
                (sent, self.ran) = (0, 0);
            }
            let mut running = match self.running.take() {
                Some(running) => running,
                None => Running::start(self.options, self.timeout.max(START))?,
            };
            for order in waiting.iter().skip(sent) {
                // A worker that has ended does not read; that is detected below.
                let _ = running.order(order);
            }
            sent = waiting.len();
            let start = Instant::now();
            match running.answer(self.timeout) {
                Ok(result) => {
                    self.running = Some(running);
                    self.ran += 1;
                    done(result);
                }
                Err(lost) => {
                    let mut result = CaseResult::new(order.case.as_str(), Outcome::Timeout, "");
                    result.elapsed = start.elapsed();
                    drop(running);
                    match lost {
                        Lost::Timeout => {
                            result.detail = format!("no result after {} s", self.timeout.as_secs());
                        }
                        Lost::Crash(text) => {
                            result.outcome = Outcome::Crash;
                            result.detail = format!("{text}{}", self.alone(order)?);
                        }
                    }
                    done(result);
                }
            }
            waiting.pop_front();
            sent -= 1;
        }
        Ok(())
    }

    /// Runs the case that crashed a process again in a new process: an earlier case may be the cause.
    fn alone(&self, order: &Order) -> Result<String, Failure> {
        if self.ran == 0 {
            return Ok(String::new());
        }
        let mut running = Running::start(self.options, self.timeout.max(START))?;
        let _ = running.order(order);
        Ok(match running.answer(self.timeout) {
            Ok(result) => format!(
                "; alone in a new process the outcome is {}, so it depends on the {} before it",
                result.outcome.name(),
                plural(self.ran, "case")
            ),
            Err(Lost::Timeout) => "; alone in a new process it hangs".into(),
            Err(Lost::Crash(_)) => String::new(),
        })
    }
}

impl Running {
    fn start(options: &[String], timeout: Duration) -> Result<Self, Failure> {
        let failed = |why: &str| Failure::new(Exit::Failed, format!("cannot start a worker process: {why}"));
        let spawn = || {
            let mut command = program::command()?;
            command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn()
        };
        let mut child = spawn().map_err(|e| failed(&e.to_string()))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(cases), Some(stdout), Some(mut stderr)) = pipes else {
            return Err(failed("its standard streams are not available"));
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let words = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&words);
        thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut piece) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(piece.iter().take(count));
                let more = kept.len().saturating_sub(STDERR_BYTES);
                kept.drain(..more);
            }
        });
        let mut running = Running { child, cases, answers, words, about: About::default() };
        match running.answers.recv_timeout(timeout) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Hello::Ready { name, device }) => {
                    running.about = About { name, device };
                    Ok(running)
                }
                Ok(failed) => Err(failed.into()),
                Err(_) => Err(failed(&format!("it answered \"{line}\""))),
            },
            Err(RecvTimeoutError::Timeout) => {
                Err(failed(&format!("it is not ready after {} s", timeout.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.child.wait().map_err(|e| failed(&e.to_string()))?;
                Err(failed(&running.ended(status)))
            }
        }
    }

    fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.cases.write_all(line.as_bytes())
    }

    fn answer(&mut self, timeout: Duration) -> Result<CaseResult, Lost> {
        let crash = |text: String| Lost::Crash(text);
        match self.answers.recv_timeout(timeout) {
            // A plugin that prints to standard output corrupts the answer; unlike for a crash, the message shows the
            // line.
            Ok(line) => serde_json::from_str(&line)
                .map_err(|_| crash(format!("the worker's answer is not a result: {line}"))),
            Err(RecvTimeoutError::Timeout) => Err(Lost::Timeout),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(|e| crash(e.to_string()))?;
                Err(crash(self.ended(status)))
            }
        }
    }

    /// Describes the end of the process, with the last lines of its output.
    fn ended(&self, status: ExitStatus) -> String {
        // Gives the thread that reads standard error the time to read the last lines.
        thread::sleep(Duration::from_millis(20));
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&words);
        let words: Vec<&str> = words.lines().filter(|l| !l.trim().is_empty()).collect();
        let last = words.iter().rev().take(6).rev().copied().collect::<Vec<_>>().join("\n");
        let text = format!("the process ended: {status}");
        if last.is_empty() { text } else { format!("{text}\n{last}") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
