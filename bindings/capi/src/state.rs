//! An interpreter with its model, options and device.

use std::sync::Arc;

use delegraph::Interpreter;
use delegraph::core::error::{Result, absent};
use delegraph::core::{Error, Subgraph};
use delegraph::delegate_api::BufferHandle;

use crate::profile::Steps;

#[cfg(feature = "wgpu")]
pub(crate) use device::Gpu;
#[cfg(not(feature = "wgpu"))]
pub(crate) use no_device::Gpu;

/// The options of runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    /// A failed delegate is removed, and the run repeated.
    pub(crate) fallback: bool,
    /// The CPU kernels are the reference kernels.
    pub(crate) reference: bool,
    /// Every tensor keeps its data.
    pub(crate) preserves: bool,
}

/// An interpreter.
pub(crate) struct State {
    pub(crate) interpreter: Interpreter,
    /// The model of the file.
    pub(crate) model: Arc<delegraph::Model>,
    /// The device of the first delegate with a device.
    pub(crate) gpu: Option<Gpu>,
    /// The key of the selected signature.
    pub(crate) signature: Option<String>,
    preserves: bool,
    pub(crate) steps: Steps,
    fallback: bool,
    /// The CPU kernels are the reference kernels.
    pub(crate) reference: bool,
}

impl State {
    pub(crate) fn new(
        interpreter: Interpreter,
        model: Arc<delegraph::Model>,
        gpu: Option<Gpu>,
        traits: Traits,
    ) -> Self {
        let Traits { fallback, reference, preserves } = traits;
        let (signature, steps) = (None, Steps::default());
        State { interpreter, model, gpu, signature, preserves, steps, fallback, reference }
    }

    /// Returns whether every tensor keeps its data.
    pub(crate) fn preserves(&self) -> bool {
        self.preserves
    }

    /// Returns the index of the selected subgraph.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the model has no subgraph.
    pub(crate) fn subgraph_index(&self) -> Result<usize> {
        let signature = self.signature.as_deref().and_then(|key| self.interpreter.model().signature(key));
        let index = signature.map_or(0, |signature| signature.subgraph());
        self.interpreter.model().subgraph(index).map(|_| index).ok_or_else(|| self.missing(index))
    }

    /// Returns the selected subgraph of the running model.
    ///
    /// # Errors
    /// As [`State::subgraph_index`].
    pub(crate) fn subgraph(&self) -> Result<&Subgraph> {
        let index = self.subgraph_index()?;
        self.interpreter.model().subgraph(index).ok_or_else(|| self.missing(index))
    }

    fn missing(&self, index: usize) -> Error {
        let count = self.interpreter.model().subgraphs().len();
        Error::InvalidInput(absent("subgraph", index, "the model", count))
    }

    /// Runs the selected subgraph.
    ///
    /// # Errors
    /// The errors of [`Interpreter::invoke`].
    pub(crate) fn invoke(&mut self) -> Result<()> {
        self.steps.clear();
        if self.fallback {
            self.interpreter.invoke_with_fallback().map(drop)
        } else {
            self.interpreter.invoke()
        }
    }

    /// Returns a buffer on the device of the interpreter.
    ///
    /// # Errors
    /// [`Error::State`] without a device; [`Error::InvalidInput`] for an invalid size; [`Error::Delegate`] if the
    /// device has no memory.
    pub(crate) fn create_buffer(&self, bytes: u64) -> Result<BufferHandle> {
        let Some(gpu) = &self.gpu else {
            return Err(Error::State("the interpreter has no delegate with buffers (wgpu)".into()));
        };
        gpu.create_buffer(bytes)
    }
}

#[cfg(feature = "wgpu")]
mod device {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use delegraph::core::Error;
    use delegraph::core::error::Result;
    use delegraph::delegate_api::BufferHandle;
    use delegraph::delegate_wgpu::{WgpuDelegate, wgpu};

    /// The device of a delegate. Clones share it.
    #[derive(Clone)]
    pub(crate) struct Gpu(Box<WgpuDelegate>);

    impl Gpu {
        pub(crate) fn new(delegate: WgpuDelegate) -> Self {
            Gpu(Box::new(delegate))
        }

        pub(crate) fn delegate(&self) -> WgpuDelegate {
            (*self.0).clone()
        }

        /// Returns a buffer that can be read, written, and be an input and an output.
        ///
        /// # Errors
        /// [`Error::InvalidInput`] for a size that is 0, not a multiple of 4, or above the device's limit,
        /// [`Error::Delegate`] if the device has no memory.
        pub(crate) fn create_buffer(&self, bytes: u64) -> Result<BufferHandle> {
            let (device, _) = self.0.device_and_queue();
            let most = device.limits().max_buffer_size;
            if bytes == 0 || !bytes.is_multiple_of(4) || bytes > most {
                return Err(Error::InvalidInput(format!(
                    "a buffer of {bytes} bytes; multiples of 4 from 4 to {most} are possible"
                )));
            }
            let filters = [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
            let [memory, validation] = filters.map(|filter| device.push_error_scope(filter));
            let usages =
                [wgpu::BufferUsages::STORAGE, wgpu::BufferUsages::COPY_SRC, wgpu::BufferUsages::COPY_DST];
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("application"),
                size: bytes,
                usage: usages.into_iter().collect(),
                mapped_at_creation: false,
            });
            // The innermost scope is popped first.
            let errors = [now(validation.pop()), now(memory.pop())];
            if let Some(error) = errors.into_iter().flatten().next() {
                return Err(Error::delegate("wgpu", format!("a buffer of {bytes} bytes: {error}")));
            }
            self.0.output_buffer(&buffer, 0, bytes)
        }
    }

    /// Returns the report of an error scope. Outside of browsers it is available immediately.
    fn now(report: impl Future<Output = Option<wgpu::Error>>) -> Option<wgpu::Error> {
        match pin!(report).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => error,
            Poll::Pending => None,
        }
    }
}

#[cfg(not(feature = "wgpu"))]
mod no_device {
    use delegraph::Delegate;
    use delegraph::core::error::Result;
    use delegraph::delegate_api::BufferHandle;

    /// No device: the library was built without the GPU.
    #[derive(Clone)]
    pub(crate) enum Gpu {}

    impl Gpu {
        pub(crate) fn delegate(&self) -> Box<dyn Delegate> {
            match *self {}
        }

        pub(crate) fn create_buffer(&self, _: u64) -> Result<BufferHandle> {
            match *self {}
        }
    }
}
