//! An asynchronous invocation.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use delegraph_core::error::{Error, Result};

use super::host::CancellationToken;
use super::interpreter::Interpreter;
use super::subgraph::{Cursor, Progress};

/// An invocation as a future: see [`Interpreter::invoke_async`].
///
/// CPU steps run inside of `poll`. While a delegate's kernel is pending, `poll` returns, and the task is woken when the
/// kernel may be done. Between polls, only the delegate's device runs.
///
/// Dropping the future ends the invocation. Outputs and variables then have the values that the completed steps wrote,
/// and the interpreter can be used again.
#[must_use = "a future does nothing unless it is polled"]
pub struct Invocation<'i> {
    interpreter: &'i mut Interpreter,
    stage: Stage,
}

enum Stage {
    Unprepared,
    Running(Cursor),
    Finished,
}

impl Interpreter {
    /// Begins an asynchronous invocation. The future starts no thread and does not block inside of `poll`.
    ///
    /// - CPU kernels, and delegates whose kernels have no asynchronous form, run inside of `poll`.
    /// - While a delegate's kernel is pending, `poll` returns, and the task is woken when the kernel may be done.
    /// - Subgraphs that a node calls (IF, WHILE, CALL) run to their end within the node's step, as in
    ///   [`Interpreter::invoke`].
    /// - The first `poll` prepares the interpreter if necessary; [`Interpreter::prepare`] does so beforehand.
    /// - If a CPU kernel reads a tensor in a delegate's buffer, or the application requests it in another buffer, the
    ///   tensor is copied by [`DeviceBuffer::read`](delegraph_delegate_api::DeviceBuffer::read), which may wait for the
    ///   device. Only buffers of the application, and tensors passed from one delegate to another, are copied in this
    ///   way.
    ///
    /// A [`CancellationToken`] wakes and ends the future. If it is cancelled or dropped early, outputs and variables
    /// have the values that the completed steps wrote, and the interpreter can be used again.
    ///
    /// ```
    /// # use delegraph_core::{Model, ModelBytes};
    /// # use delegraph_interpreter::Interpreter;
    /// # fn main() -> delegraph_core::Result<()> {
    /// # let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
    /// # let mut interpreter = Interpreter::builder(Model::from_bytes(ModelBytes::new(&file[..]))?).build()?;
    /// pollster::block_on(async {
    ///     interpreter.invoke_async().await?;
    ///     assert_eq!(interpreter.output::<f32>(0)?.len(), 10);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn invoke_async(&mut self) -> Invocation<'_> {
        Invocation::new(self)
    }

    /// As [`Interpreter::invoke_with_fallback`], asynchronously like [`Interpreter::invoke_async`].
    ///
    /// # Errors
    /// As [`Interpreter::invoke`], except for failures of delegates.
    pub async fn invoke_async_with_fallback(&mut self) -> Result<Vec<Error>> {
        self.prepare()?;
        let mut failures = Vec::new();
        loop {
            let before = self.save()?;
            match self.invoke_async().await {
                Ok(()) => return Ok(failures),
                Err(error) => failures.push(self.fall_back(error, before)?),
            }
        }
    }
}

impl<'i> Invocation<'i> {
    fn new(interpreter: &'i mut Interpreter) -> Self {
        Invocation { interpreter, stage: Stage::Unprepared }
    }

    /// Returns a token that cancels the invocation, from any thread. A suspended invocation is woken.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.interpreter.cancellation_token()
    }

    /// Blocks until the invocation has ended.
    ///
    /// # Errors
    /// As [`Interpreter::invoke`].
    pub fn wait(mut self) -> Result<()> {
        match self.advance(None) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(Error::State("a blocking call returned while a step was pending".into())),
        }
    }

    fn advance(&mut self, task: Option<&mut Context<'_>>) -> Poll<Result<()>> {
        let mut cursor = match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::Unprepared => {
                self.interpreter.prepare()?;
                Cursor::default()
            }
            Stage::Running(cursor) => cursor,
            Stage::Finished => return Poll::Ready(Err(Error::State("the invocation has ended".into()))),
        };
        match self.interpreter.advance(&mut cursor, task)? {
            Progress::Done => Poll::Ready(Ok(())),
            Progress::Pending => {
                self.stage = Stage::Running(cursor);
                Poll::Pending
            }
        }
    }
}

impl Future for Invocation<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.advance(Some(cx))
    }
}

impl Drop for Invocation<'_> {
    fn drop(&mut self) {
        if let Stage::Running(cursor) = &self.stage {
            self.interpreter.abandon(cursor);
        }
    }
}

impl std::fmt::Debug for Invocation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match self.stage {
            Stage::Unprepared => "unprepared",
            Stage::Running(_) => "running",
            Stage::Finished => "finished",
        };
        f.debug_struct("Invocation").field("stage", &stage).finish_non_exhaustive()
    }
}
