//! The operands of a kernel in the form that plugins read.

use std::cell::RefCell;
use std::ffi::c_void;

use delegraph_core::kernel::{Persistent, Temporary};
use delegraph_core::{Error, InvokeContext, PrepareContext, Result, Shape, TensorType};

use super::super::abi::*;
use super::super::raw::MessageRoom;
use super::entry::KernelFunction;
use super::frames::{Invokes, KernelPrepares, Scope, enter};

/// Inputs, outputs and temporaries of a kernel, described for its functions. The descriptions persist between runs, so
/// that `invoke` does not allocate.
pub(super) struct Operands {
    inputs: Buffers,
    outputs: Buffers,
    temporaries: Buffers,
    asked: Vec<Asked>,
}

/// Memory that a kernel requested.
#[derive(Clone, Copy)]
enum Asked {
    Temporary(Temporary),
    Persistent(Persistent),
}

/// Descriptions of buffers, and pointers to the descriptions.
#[derive(Default)]
struct Buffers {
    // Boxed, so that pointers remain valid.
    all: Box<[DelegraphBuffer]>,
    /// Whether each of them is omitted by the node.
    left_out: Box<[bool]>,
    pointers: Vec<*const DelegraphBuffer>,
}

// SAFETY: the pointers refer to `all`, or to memory that is accessed only during one call.
unsafe impl Send for Buffers {}

impl Buffers {
    fn new(all: impl IntoIterator<Item = Option<DelegraphBuffer>>) -> Self {
        let all: Vec<Option<DelegraphBuffer>> = all.into_iter().collect();
        let left_out = all.iter().map(Option::is_none).collect();
        let all: Box<[_]> = all.into_iter().map(|b| b.unwrap_or(buffer(TensorType::UInt8, false))).collect();
        let mut buffers = Buffers { all, left_out, pointers: Vec::new() };
        buffers.pointers.reserve_exact(buffers.all.len());
        buffers
    }

    /// Returns those that are not omitted, with their indices.
    fn present(&mut self) -> impl Iterator<Item = (usize, &mut DelegraphBuffer)> {
        let all = self.all.iter_mut().zip(&self.left_out).enumerate();
        all.filter(|(_, (_, left_out))| !**left_out).map(|(i, (buffer, _))| (i, buffer))
    }

    /// Returns pointers to all descriptions.
    fn pointers(&mut self) -> (*const *const DelegraphBuffer, usize) {
        self.pointers.clear();
        let pointer = |(buffer, left_out): (&DelegraphBuffer, &bool)| {
            if *left_out { std::ptr::null() } else { std::ptr::from_ref(buffer) }
        };
        self.pointers.extend(self.all.iter().zip(&self.left_out).map(pointer));
        (self.pointers.as_ptr(), self.pointers.len())
    }
}

/// Returns the description of a tensor, without data and shape.
pub(super) fn buffer(ty: TensorType, is_variable: bool) -> DelegraphBuffer {
    let (data, dims, element_type) = (std::ptr::null_mut(), std::ptr::null(), ty as i32);
    let flags = if is_variable { DELEGRAPH_TENSOR_VARIABLE } else { 0 };
    DelegraphBuffer {
        size: size_of::<DelegraphBuffer>(),
        data,
        data_len: 0,
        dims,
        rank: 0,
        element_type,
        flags,
    }
}

fn set_shape(buffer: &mut DelegraphBuffer, shape: &Shape) {
    (buffer.dims, buffer.rank) = (shape.dims().as_ptr(), shape.rank());
}

fn set_data(buffer: &mut DelegraphBuffer, bytes: *const u8, len: usize) {
    (buffer.data, buffer.data_len) = (bytes.cast_mut().cast(), len);
}

/// The requests of a kernel while it prepares.
struct Preparing<'c, 'p> {
    cx: RefCell<&'c mut PrepareContext<'p>>,
    asked: RefCell<Vec<Asked>>,
    dynamic: RefCell<Vec<usize>>,
}

impl Preparing<'_, '_> {
    fn add(&self, asked: Asked) -> usize {
        let mut all = self.asked.borrow_mut();
        all.push(asked);
        all.len() - 1
    }
}

impl KernelPrepares for Preparing<'_, '_> {
    fn temporary(&self, bytes: usize) -> usize {
        let temporary = self.cx.borrow_mut().temporary(bytes);
        self.add(Asked::Temporary(temporary))
    }

    fn persistent(&self, bytes: usize) -> Result<usize, String> {
        let persistent = self.cx.borrow_mut().persistent(bytes).map_err(misuse)?;
        Ok(self.add(Asked::Persistent(persistent)))
    }

    fn set_output_shape(&self, output: usize, dims: &[usize]) -> Result<(), String> {
        self.dynamic.borrow_mut().retain(|&o| o != output);
        self.cx.borrow_mut().set_output_shape(output, dims).map_err(misuse)
    }

    fn set_output_dynamic(&self, output: usize) -> Result<(), String> {
        self.cx.borrow_mut().set_output_data_dependent(output).map_err(misuse)?;
        self.dynamic.borrow_mut().push(output);
        Ok(())
    }
}

/// Returns the message of an invalid request, without the prefix of [`Error::InvalidNode`].
fn misuse(error: Error) -> String {
    match error {
        Error::InvalidNode(text) => text,
        error => error.to_string(),
    }
}

/// The requests of a kernel while it runs.
struct Running<'c, 'i> {
    cx: RefCell<&'c mut InvokeContext<'i>>,
    parallel: &'c dyn delegraph_core::kernel::Parallel,
    /// The error of the first valid request for which there was not enough memory.
    refused: RefCell<Option<Error>>,
}

impl Invokes for Running<'_, '_> {
    fn resize_output(&self, output: usize, dims: &[usize], bytes: usize) -> Result<*mut u8, String> {
        let mut cx = self.cx.borrow_mut();
        let resized = cx.resize_output_bytes(output, dims, bytes);
        let memory = resized.and_then(|()| cx.output_bytes(output).map(<[u8]>::as_mut_ptr));
        memory.map_err(|error| match error {
            Error::OutOfMemory(_) | Error::LimitExceeded(_) => {
                let text = error.to_string();
                self.refused.borrow_mut().get_or_insert(error);
                text
            }
            error => misuse(error),
        })
    }

    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.parallel.run(tasks, task);
    }

    fn is_cancelled(&self) -> bool {
        self.cx.borrow_mut().host().is_cancelled()
    }

    fn progress(&self, done: usize, total: usize) {
        self.cx.borrow_mut().host().progress(done, total);
    }
}

impl Operands {
    /// Creates operands; `None` represents omitted inputs.
    pub(super) fn new(
        inputs: impl IntoIterator<Item = Option<DelegraphBuffer>>,
        outputs: impl IntoIterator<Item = DelegraphBuffer>,
    ) -> Self {
        Operands {
            inputs: Buffers::new(inputs),
            outputs: Buffers::new(outputs.into_iter().map(Some)),
            temporaries: Buffers::default(),
            asked: Vec::new(),
        }
    }

    fn call(&mut self, threads: usize) -> DelegraphKernelCall {
        let ((inputs, input_count), (outputs, output_count)) =
            (self.inputs.pointers(), self.outputs.pointers());
        let (temporaries, temporary_count) = self.temporaries.pointers();
        DelegraphKernelCall {
            size: size_of::<DelegraphKernelCall>(),
            inputs,
            input_count,
            outputs,
            output_count,
            temporaries,
            temporary_count,
            threads,
        }
    }

    /// Prepares a kernel by calling `function`, if it has one, and records its requests.
    ///
    /// # Safety
    /// `function` may be called with `kernel` now.
    pub(super) unsafe fn prepare(
        &mut self,
        cx: &mut PrepareContext<'_>,
        kernel: *mut c_void,
        function: Option<KernelFunction>,
    ) -> Result<()> {
        for (i, buffer) in self.inputs.present() {
            let input = cx.input(i)?;
            set_shape(buffer, input.shape());
            let known = input.constant_bytes();
            set_data(buffer, known.map_or(std::ptr::null(), <[u8]>::as_ptr), known.map_or(0, <[u8]>::len));
            let constant = if input.tensor().is_constant() { DELEGRAPH_TENSOR_CONSTANT } else { 0 };
            buffer.flags = buffer.flags & !DELEGRAPH_TENSOR_CONSTANT | constant;
        }
        for (i, buffer) in self.outputs.present() {
            set_shape(buffer, cx.output(i)?.shape());
            set_data(buffer, std::ptr::null(), 0);
            let dynamic = buffer.element_type == TensorType::String as i32;
            buffer.flags = if dynamic { DELEGRAPH_TENSOR_DYNAMIC } else { 0 };
        }
        self.temporaries = Buffers::default();
        self.asked.clear();
        let Some(function) = function else { return Ok(()) };
        let call = self.call(cx.threads());
        let preparing =
            Preparing { cx: RefCell::new(cx), asked: RefCell::default(), dynamic: RefCell::default() };
        enter(Scope::PrepareKernel(&preparing), &mut MessageRoom::new(), |context, error| {
            // SAFETY: guaranteed by the caller; `call` describes the operands.
            unsafe { function(kernel, context, &raw const call, error) }
        })?;
        self.asked = preparing.asked.into_inner();
        self.temporaries = Buffers::new(self.asked.iter().map(|_| Some(buffer(TensorType::UInt8, false))));
        for output in preparing.dynamic.into_inner() {
            if let Some(buffer) = self.outputs.all.get_mut(output) {
                buffer.flags |= DELEGRAPH_TENSOR_DYNAMIC;
            }
        }
        // Allocated here, so that the first run does not allocate.
        self.call(1);
        Ok(())
    }

    /// Runs a kernel.
    ///
    /// # Safety
    /// `function` may be called with `kernel` now.
    pub(super) unsafe fn invoke(
        &mut self,
        cx: &mut InvokeContext<'_>,
        kernel: *mut c_void,
        function: KernelFunction,
    ) -> Result<()> {
        for (i, buffer) in self.inputs.present() {
            set_shape(buffer, cx.input_shape(i)?);
            if buffer.flags & DELEGRAPH_TENSOR_VARIABLE != 0 {
                let bytes = cx.variable_bytes(i)?;
                set_data(buffer, bytes.as_mut_ptr(), bytes.len());
            } else {
                let bytes = cx.input_bytes(i)?;
                set_data(buffer, bytes.as_ptr(), bytes.len());
            }
        }
        for (i, buffer) in self.outputs.present() {
            if buffer.flags & DELEGRAPH_TENSOR_DYNAMIC != 0 {
                set_data(buffer, std::ptr::null(), 0);
                continue;
            }
            set_shape(buffer, cx.output_shape(i)?);
            let bytes = cx.output_bytes(i)?;
            set_data(buffer, bytes.as_mut_ptr(), bytes.len());
        }
        for (asked, buffer) in self.asked.iter().zip(&mut self.temporaries.all) {
            let bytes = match *asked {
                Asked::Temporary(temporary) => cx.temporary::<u8>(temporary)?,
                Asked::Persistent(persistent) => cx.persistent::<u8>(persistent)?,
            };
            set_data(buffer, bytes.as_mut_ptr(), bytes.len());
        }
        let parallel = cx.parallel();
        let call = self.call(parallel.threads());
        let running = Running { cx: RefCell::new(cx), parallel, refused: RefCell::new(None) };
        let ran = enter(Scope::Invoke(&running), &mut MessageRoom::new(), |context, error| {
            // SAFETY: guaranteed by the caller. The context returned inputs, outputs and temporaries, and guarantees
            // that they are valid and do not overlap.
            unsafe { function(kernel, context, &raw const call, error) }
        });
        if let Some(refused) = running.refused.into_inner() {
            return Err(refused);
        }
        ran?;
        if parallel.take_panicked() {
            return Err(Error::State("a task of the kernel failed on another thread".into()));
        }
        Ok(())
    }
}
