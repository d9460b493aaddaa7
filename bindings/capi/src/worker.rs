//! A thread that runs jobs, one after the other.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, ThreadId};

/// Work for a thread.
type Job = Box<dyn FnOnce() + Send>;

/// A thread. It ends when this handle is dropped and its jobs are done.
pub(crate) struct Worker {
    jobs: Sender<Job>,
    thread: ThreadId,
}

impl Worker {
    /// Starts a thread.
    ///
    /// # Errors
    /// The errors of the system.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let builder = thread::Builder::new().name("delegraph invocations".into());
        let handle = builder.spawn(move || {
            while let Ok(job) = todo.recv() {
                job();
            }
        })?;
        Ok(Worker { jobs, thread: handle.thread().id() })
    }

    /// Returns the thread.
    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Sends a job to the thread. Returns false if the thread has ended.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.jobs.send(Box::new(job)).is_ok()
    }
}
