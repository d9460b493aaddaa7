//! A library of kernels for custom ops.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use delegraph_core::kernel::InitContext;
use delegraph_core::{
    Error, InvokeContext, Kernel, MutableOpResolver, PrepareContext, Registration, Result, Tensor, TensorId,
};

use super::super::abi::*;
use super::super::ops_abi::*;
use super::super::raw::{MessageRoom, slice, text};
use super::PluginError;
use super::frames::{OpOptions, Scope, enter};
use super::graph::describe_quantization;
use super::library::{KernelFunction, TableError, read_table, required};
use super::operands::{Operands, buffer};
use super::table::HOST;

/// A library of kernels for custom ops. It stays loaded as long as this, a resolver that it was registered with, or one of
/// its kernels lives.
///
/// ```no_run
/// use delegraph_core::MutableOpResolver;
/// use delegraph_delegate_api::plugin::KernelLibrary;
///
/// // SAFETY: this library is ours.
/// let library = unsafe { KernelLibrary::open("libmine.so") }?;
/// let mut resolver = MutableOpResolver::new(); // or `extending(BuiltinOpResolver::new())`
/// library.register(&mut resolver);
/// # Ok::<(), delegraph_delegate_api::plugin::PluginError>(())
/// ```
#[derive(Clone)]
pub struct KernelLibrary(Arc<Opened>);

/// What is loaded.
struct Opened {
    /// What `open` made, possibly null.
    library: *mut c_void,
    functions: Functions,
    ops: Vec<CustomOp>,
    path: PathBuf,
    /// Dropped last: the functions are in it.
    #[cfg(any(unix, windows))]
    _library: Option<libloading::Library>,
}

// SAFETY: the interface lets any thread make kernels, several at a time; nothing else is done with `library` until it is
// closed, when nobody has it any more.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(close) = self.functions.close.filter(|_| !self.library.is_null()) {
            // SAFETY: `open` made it, all kernels are gone (each has a share of this), and it is closed once.
            unsafe { close(self.library) };
        }
    }
}

/// An op that the library has a kernel for.
struct CustomOp {
    name: String,
    versions: RangeInclusive<u32>,
    side_effects: bool,
}

#[derive(Clone, Copy)]
struct Functions {
    open: Option<unsafe extern "C" fn(*const DelegraphHost, *mut *mut c_void, *mut DelegraphError) -> i32>,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    ops: unsafe extern "C" fn(*mut c_void, *mut usize) -> *const DelegraphCustomOp,
    create_kernel: unsafe extern "C" fn(
        *mut c_void,
        *const DelegraphHost,
        DelegraphContext,
        *const DelegraphOpNode,
        *mut *mut c_void,
        *mut DelegraphError,
    ) -> i32,
    destroy_kernel: Option<unsafe extern "C" fn(*mut c_void)>,
    prepare_kernel: KernelFunction,
    invoke_kernel: KernelFunction,
}

impl Functions {
    /// The functions of the table at `table`, or what is wrong with it.
    ///
    /// # Safety
    /// `table` is null, or valid for reads of as many bytes as it says, which is at least its version and its size.
    unsafe fn read(table: *const DelegraphKernelLibrary) -> Result<Self, TableError> {
        // SAFETY: this function's condition.
        let table = unsafe { read_table(table) }?;
        let (ops, create_kernel, prepare_kernel, invoke_kernel) =
            required!(table, ops, create_kernel, prepare_kernel, invoke_kernel);
        Ok(Functions {
            open: table.open,
            close: table.close,
            ops,
            create_kernel,
            destroy_kernel: table.destroy_kernel,
            prepare_kernel,
            invoke_kernel,
        })
    }
}

impl KernelLibrary {
    /// The function that a library of kernels exports.
    pub const ENTRY: &str = "delegraph_kernel_library";

    /// Loads the library at `path`, as [`PluginLibrary::open`](super::PluginLibrary::open) does, with the same checks.
    ///
    /// # Errors
    /// [`PluginError`], with what was found, what is wanted and what to do.
    ///
    /// # Safety
    /// Its code runs in this process, with all rights of it: the library must be trusted, and keep to what
    /// `delegraph_kernels.h` says. It must not be changed or cut off while it is loaded.
    #[cfg(any(unix, windows))]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, PluginError> {
        let path = path.as_ref();
        // SAFETY: this function's condition; a function of this name has this type, in every library that keeps to the
        // header.
        let (library, entry) = unsafe {
            super::library::open::<DelegraphKernelLibrary>(
                path,
                Self::ENTRY,
                "library of kernels",
                "export_kernels!",
            )
        }?;
        // SAFETY: as above; the table lives as long as the library is loaded.
        let functions = unsafe { Functions::read(entry()) }.map_err(|e| e.at(path))?;
        Opened {
            library: std::ptr::null_mut(),
            functions,
            ops: Vec::new(),
            path: path.to_owned(),
            _library: Some(library),
        }
        .begin()
    }

    /// A library that is linked into the application: `table` is what its entry function returns.
    ///
    /// # Errors
    /// As [`KernelLibrary::open`].
    ///
    /// # Safety
    /// `table` is null, or points to a table that is never taken away and keeps to what `delegraph_kernels.h` says.
    pub unsafe fn from_table(
        name: impl Into<PathBuf>,
        table: *const DelegraphKernelLibrary,
    ) -> Result<Self, PluginError> {
        let path = name.into();
        // SAFETY: this function's condition.
        let functions = unsafe { Functions::read(table) }.map_err(|e| e.at(&path))?;
        Opened {
            library: std::ptr::null_mut(),
            functions,
            ops: Vec::new(),
            path,
            #[cfg(any(unix, windows))]
            _library: None,
        }
        .begin()
    }

    /// Where it was loaded from.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The ops that it has kernels for, each with its versions.
    pub fn ops(&self) -> impl Iterator<Item = (&str, RangeInclusive<u32>)> {
        self.0.ops.iter().map(|op| (op.name.as_str(), op.versions.clone()))
    }

    /// Registers all of its kernels.
    pub fn register(&self, resolver: &mut MutableOpResolver) {
        for (i, op) in self.0.ops.iter().enumerate() {
            let library = self.0.clone();
            let mut registration = Registration::new(move |cx| OpKernel::new(&library, i, cx));
            if op.side_effects {
                registration = registration.with_side_effects();
            }
            resolver.add_custom(&op.name, registration, op.versions.clone());
        }
    }
}

impl fmt::Debug for KernelLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelLibrary({})", self.path().display())
    }
}

impl Opened {
    /// Calls `open` and asks which ops there are.
    fn begin(mut self) -> Result<KernelLibrary, PluginError> {
        if let Some(open) = self.functions.open {
            let mut room = MessageRoom::new();
            let mut slot = room.slot();
            // SAFETY: all pointers are valid during the call, as the interface wants it. What it makes is closed by `drop`,
            // also where it failed.
            let status = unsafe { open(&raw const HOST, &raw mut self.library, &raw mut slot) };
            if status != DELEGRAPH_OK {
                let error = super::super::raw::error_of(status, room.message(&slot));
                return Err(PluginError::Create { path: self.path.clone(), error });
            }
        }
        match self.read_ops() {
            Ok(ops) => self.ops = ops,
            Err(text) => {
                let message = format!("the library is wrong: {text}");
                return Err(PluginError::Load { path: self.path.clone(), message });
            }
        }
        Ok(KernelLibrary(Arc::new(self)))
    }

    fn read_ops(&self) -> Result<Vec<CustomOp>, String> {
        const MOST: usize = 1 << 16;
        let mut count = 0;
        // SAFETY: `open` made the library.
        let list = unsafe { (self.functions.ops)(self.library, &raw mut count) };
        if count > MOST {
            return Err(format!("it lists {count} ops"));
        }
        // SAFETY: there are as many as it says, until it is closed.
        let list = unsafe { slice(list, count) }.ok_or("its list of ops is null")?;
        let read = |op: &DelegraphCustomOp| {
            if op.name.is_null() {
                return Err("one of its ops has no name".to_owned());
            }
            // SAFETY: a name ends with a zero.
            let name = unsafe { CStr::from_ptr(op.name) }.to_str();
            let name = name.map_err(|e| format!("the name of an op: {e}"))?.to_owned();
            if name.is_empty() || op.min_version > op.max_version {
                let (low, high) = (op.min_version, op.max_version);
                return Err(format!("the op \"{name}\", versions {low} to {high}"));
            }
            let side_effects = op.flags & DELEGRAPH_OP_SIDE_EFFECTS != 0;
            Ok(CustomOp { name, versions: op.min_version..=op.max_version, side_effects })
        };
        list.iter().map(read).collect()
    }
}

/// The kernel of a node.
struct OpKernel {
    kernel: *mut c_void,
    library: Arc<Opened>,
    operands: Operands,
}

// SAFETY: the interface lets a kernel be used by any thread, one at a time, which `&mut` sees to.
unsafe impl Send for OpKernel {}

impl Drop for OpKernel {
    fn drop(&mut self) {
        if let Some(destroy) = self.library.functions.destroy_kernel.filter(|_| !self.kernel.is_null()) {
            // SAFETY: `create_kernel` made it, and it is destroyed once.
            unsafe { destroy(self.kernel) };
        }
    }
}

impl OpKernel {
    fn new(library: &Arc<Opened>, op: usize, cx: &InitContext<'_>) -> Result<Self> {
        let tensor = |id: TensorId| cx.subgraph.tensors.get(id.0);
        let describe = |id: &Option<TensorId>| id.and_then(tensor).map(describe);
        let (inputs, outputs): (Vec<_>, Vec<_>) = (
            cx.node.inputs.iter().map(describe).collect(),
            cx.node.outputs.iter().map(|id| describe(&Some(*id))).collect(),
        );
        let pointer =
            |tensor: &Option<DelegraphTensor>| tensor.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (input_pointers, output_pointers): (Vec<_>, Vec<_>) =
            (inputs.iter().map(pointer).collect(), outputs.iter().map(pointer).collect());
        let name = match &cx.node.op {
            delegraph_core::Op::Custom(name) => name,
            delegraph_core::Op::Builtin(_) => "",
        };
        let node = DelegraphOpNode {
            size: size_of::<DelegraphOpNode>(),
            op,
            name: text(name),
            version: cx.node.version,
            options: cx.custom_options.as_ptr(),
            options_len: cx.custom_options.len(),
            inputs: input_pointers.as_ptr(),
            input_count: input_pointers.len(),
            outputs: output_pointers.as_ptr(),
            output_count: output_pointers.len(),
        };
        let operand = |id: TensorId| tensor(id).map(|tensor| buffer(tensor.ty, tensor.is_variable));
        let operands = Operands::new(
            cx.node.inputs.iter().map(|id| id.and_then(operand)),
            cx.node.outputs.iter().filter_map(|id| operand(*id)),
        );
        let options = OpOptions { bytes: cx.custom_options, wrong: RefCell::default() };
        let (mut kernel, silent) = (std::ptr::null_mut(), Cell::new(false));
        let made = enter(Scope::CreateOp(&options), &mut MessageRoom::new(), |context, error| {
            // SAFETY: `open` made the library; all else is valid during the call.
            unsafe {
                let create = library.functions.create_kernel;
                let host = &raw const HOST;
                let status = create(library.library, host, context, &raw const node, &raw mut kernel, error);
                silent.set(status != DELEGRAPH_OK && (*error).len == 0);
                status
            }
        });
        // Also where it failed: what it made must not be lost.
        let kernel = OpKernel { kernel, library: library.clone(), operands };
        match made {
            Ok(()) => Ok(kernel),
            Err(error) => Err(library.blame(options.wrong.take().filter(|_| silent.get()).unwrap_or(error))),
        }
    }
}

impl Opened {
    /// An error of one of its kernels.
    fn blame(&self, error: Error) -> Error {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        match error {
            Error::Kernel(text) => Error::Kernel(format!("{file}: {text}")),
            Error::State(text) => Error::State(format!("{file}: {text}")),
            Error::Unsupported(text) => Error::Unsupported(format!("{file}: {text}")),
            Error::InvalidNode(text) => Error::InvalidNode(format!("{file}: {text}")),
            Error::OutOfMemory(text) => Error::OutOfMemory(format!("{file}: {text}")),
            error => error,
        }
    }
}

/// A tensor as the file has it.
fn describe(tensor: &Tensor) -> DelegraphTensor {
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let mut out = DelegraphTensor {
        size: size_of::<DelegraphTensor>(),
        element_type: tensor.ty as i32,
        flags: flag(tensor.is_constant(), DELEGRAPH_TENSOR_CONSTANT)
            | flag(tensor.is_variable, DELEGRAPH_TENSOR_VARIABLE),
        dims: tensor.shape.dims().as_ptr(),
        rank: tensor.shape.rank(),
        name: text(&tensor.name),
        data: std::ptr::null(),
        data_len: 0,
        quantization: DELEGRAPH_QUANTIZATION_NONE,
        quantized_dimension: 0,
        scales: std::ptr::null(),
        zero_points: std::ptr::null(),
        scale_count: 0,
        scales_tensor: -1,
        zero_points_tensor: -1,
        block_size: 0,
    };
    describe_quantization(&mut out, tensor.quantization.as_deref());
    out
}

impl Kernel for OpKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        // SAFETY: `create_kernel` made the kernel, and `&mut self` keeps others out.
        let prepared =
            unsafe { self.operands.prepare(cx, self.kernel, Some(self.library.functions.prepare_kernel)) };
        prepared.map_err(|e| self.library.blame(e))
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        // SAFETY: as in `prepare`.
        let ran = unsafe { self.operands.invoke(cx, self.kernel, self.library.functions.invoke_kernel) };
        ran.map_err(|e| self.library.blame(e))
    }
}
