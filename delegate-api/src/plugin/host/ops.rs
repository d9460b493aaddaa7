//! A library of kernels for custom ops.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use delegraph_core::kernel::InitContext;
use delegraph_core::ops::Params;
use delegraph_core::{
    Error, InvokeContext, Kernel, MutableOpResolver, PrepareContext, Registration, Result, Tensor, TensorId,
};

use super::super::abi::*;
use super::super::ops_abi::*;
use super::super::raw::{MessageRoom, open_error, slice, text};
use super::entry::{self, KernelFunction, TableError, read_table, required};
use super::frames::{OpOptions, Scope, enter};
use super::graph::describe_quantization;
use super::{PluginError, PluginFault};

use super::operands::{Operands, buffer};
use super::table::HOST;

/// A library of kernels for custom ops. It remains loaded as long as this object, a resolver with its kernels, or one
/// of its kernels exists.
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

/// A loaded library.
struct Opened {
    /// The object that `open` created, possibly null.
    library: *mut c_void,
    functions: Functions,
    ops: Vec<CustomOp>,
    path: PathBuf,
    /// Dropped last, because it contains the functions.
    #[cfg(all(feature = "plugins", any(unix, windows)))]
    _library: Option<libloading::Library>,
}

// SAFETY: the interface allows any thread to create kernels, several at a time. The only other use of `library` is to
// close it, when its last owner is dropped.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(close) = self.functions.close.filter(|_| !self.library.is_null()) {
            // SAFETY: `open` made it, all kernels are destroyed (each holds a reference to this), and it is closed
            // once.
            unsafe { close(self.library) };
        }
    }
}

/// An op for which the library has a kernel.
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
    /// Returns the functions of the table at `table`, or its defect.
    ///
    /// # Safety
    /// `table` is null, or valid for reads of the size that it declares, which covers at least its version and its
    /// size.
    unsafe fn read(table: *const DelegraphKernelLibrary) -> Result<Self, TableError> {
        // SAFETY: guaranteed by the caller.
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
    /// The name of the function that a library of kernels exports.
    pub const ENTRY: &str = entry::KERNELS;

    /// Loads the library at `path`, as [`PluginLibrary::open`](super::PluginLibrary::open) does, with the same checks.
    ///
    /// # Errors
    /// [`PluginError`], with the observed and the supported value, and how to fix it.
    ///
    /// # Safety
    /// The library's code runs in this process, with all its rights: the library must be trusted, and follow
    /// `delegraph_kernels.h`. The file must not be changed or truncated while it is loaded.
    #[cfg(all(feature = "plugins", any(unix, windows)))]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, PluginError> {
        let path = path.as_ref();
        // SAFETY: guaranteed by the caller; a function of this name has this type in every library that follows the
        // header.
        let (library, table) = unsafe {
            entry::open::<DelegraphKernelLibrary>(path, Self::ENTRY, "library of kernels", "export_kernels!")
        }?;
        // SAFETY: as above; the table lives as long as the library is loaded.
        let functions = unsafe { Functions::read(table()) }.map_err(|e| e.at(path))?;
        Opened {
            library: std::ptr::null_mut(),
            functions,
            ops: Vec::new(),
            path: path.to_owned(),
            _library: Some(library),
        }
        .begin()
    }

    /// Creates a library that is linked into the application: `table` is the result of its entry function.
    ///
    /// # Errors
    /// As [`KernelLibrary::open`].
    ///
    /// # Safety
    /// `table` is null, or points to a static table that follows `delegraph_kernels.h`.
    pub unsafe fn from_table(
        name: impl Into<PathBuf>,
        table: *const DelegraphKernelLibrary,
    ) -> Result<Self, PluginError> {
        let path = name.into();
        // SAFETY: guaranteed by the caller.
        let functions = unsafe { Functions::read(table) }.map_err(|e| e.at(&path))?;
        Opened {
            library: std::ptr::null_mut(),
            functions,
            ops: Vec::new(),
            path,
            #[cfg(all(feature = "plugins", any(unix, windows)))]
            _library: None,
        }
        .begin()
    }

    /// Returns the path from which the library was loaded.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the ops for which it has kernels, each with its versions.
    pub fn ops(&self) -> impl Iterator<Item = (&str, RangeInclusive<u32>)> {
        self.0.ops.iter().map(|op| (op.name.as_str(), op.versions.clone()))
    }

    /// Registers all kernels of the library.
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
    /// Calls `open`, and reads the list of ops.
    fn begin(mut self) -> Result<KernelLibrary, PluginError> {
        if let Some(open) = self.functions.open {
            let mut room = MessageRoom::new();
            let mut slot = room.slot();
            // SAFETY: all pointers are valid during the call, as the interface requires. The created object is closed
            // by `drop`, also after a failure.
            let status = unsafe { open(&raw const HOST, &raw mut self.library, &raw mut slot) };
            if status != DELEGRAPH_OK {
                let source = open_error(status, room.message(&slot));
                return Err(PluginError::Create { path: self.path.clone(), source });
            }
        }
        match self.read_ops() {
            Ok(ops) => self.ops = ops,
            Err(text) => {
                let message = format!("the library is wrong: {text}");
                return Err(PluginError::load(&self.path, message));
            }
        }
        Ok(KernelLibrary(Arc::new(self)))
    }

    fn read_ops(&self) -> Result<Vec<CustomOp>, String> {
        const MAX_COUNT: usize = 1 << 16;
        let mut count = 0;
        // SAFETY: `open` made the library.
        let list = unsafe { (self.functions.ops)(self.library, &raw mut count) };
        if count > MAX_COUNT {
            return Err(format!("it lists {count} ops, more than {MAX_COUNT}"));
        }
        // SAFETY: the library guarantees `count` entries until it is closed.
        let list = unsafe { slice(list, count) }.ok_or("its list of ops is null")?;
        let read = |op: &DelegraphCustomOp| {
            if op.name.is_null() {
                return Err("one of its ops has no name".to_owned());
            }
            // SAFETY: a name is zero-terminated.
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

// SAFETY: the interface allows any thread to use a kernel, one at a time, which `&mut` ensures.
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
        let tensor = |id: TensorId| cx.subgraph.tensors().get(id.0);
        let describe = |id: &Option<TensorId>| id.and_then(tensor).map(describe);
        let (inputs, outputs): (Vec<_>, Vec<_>) = (
            cx.node.inputs().iter().map(describe).collect(),
            cx.node.outputs().iter().map(|id| describe(&Some(*id))).collect(),
        );
        let pointer =
            |tensor: &Option<DelegraphTensor>| tensor.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (input_pointers, output_pointers): (Vec<_>, Vec<_>) =
            (inputs.iter().map(pointer).collect(), outputs.iter().map(pointer).collect());
        // A composite is a builtin op with a name and a version of its own.
        let name = library.ops.get(op).map_or("", |op| &op.name);
        let version = match cx.node.params() {
            Params::StableHloComposite(composite) => composite.op_version(),
            _ => cx.node.version(),
        };
        let node = DelegraphOpNode {
            size: size_of::<DelegraphOpNode>(),
            op,
            name: text(name),
            version,
            options: cx.custom_options.as_ptr(),
            options_len: cx.custom_options.len(),
            inputs: input_pointers.as_ptr(),
            input_count: input_pointers.len(),
            outputs: output_pointers.as_ptr(),
            output_count: output_pointers.len(),
        };
        let operand = |id: TensorId| tensor(id).map(|tensor| buffer(tensor.ty(), tensor.is_variable()));
        let operands = Operands::new(
            cx.node.inputs().iter().map(|id| id.and_then(operand)),
            cx.node.outputs().iter().filter_map(|id| operand(*id)),
        );
        let options = OpOptions { bytes: cx.custom_options, wrong: RefCell::default() };
        let (mut kernel, silent) = (std::ptr::null_mut(), Cell::new(false));
        let made = enter(Scope::CreateOp(&options), &mut MessageRoom::new(), |context, error| {
            // SAFETY: `open` made the library; the other pointers are valid during the call.
            unsafe {
                let create = library.functions.create_kernel;
                let host = &raw const HOST;
                let status = create(library.library, host, context, &raw const node, &raw mut kernel, error);
                silent.set(status != DELEGRAPH_OK && (*error).len == 0);
                status
            }
        });
        // Also after a failed call, so that the created object is destroyed.
        let kernel = OpKernel { kernel, library: library.clone(), operands };
        match made {
            Ok(()) => Ok(kernel),
            Err(error) => Err(library.blame(options.wrong.take().filter(|_| silent.get()).unwrap_or(error))),
        }
    }
}

impl Opened {
    /// Adds the library to an error of one of its kernels.
    fn blame(&self, error: Error) -> Error {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        match error {
            Error::Kernel(text) => Error::Kernel(format!("{file}: {text}")),
            Error::State(text) => Error::State(format!("{file}: {text}")),
            Error::Unsupported(text) => Error::Unsupported(format!("{file}: {text}")),
            Error::InvalidNode(text) => Error::InvalidNode(format!("{file}: {text}")),
            Error::OutOfMemory(text) => Error::OutOfMemory(format!("{file}: {text}")),
            Error::External(mut error) => {
                if let Some(fault) = error.downcast_mut::<PluginFault>() {
                    fault.library = Some(file.into_owned());
                }
                Error::External(error)
            }
            error => error,
        }
    }
}

/// Describes a tensor of the file.
fn describe(tensor: &Tensor) -> DelegraphTensor {
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let mut out = DelegraphTensor {
        size: size_of::<DelegraphTensor>(),
        element_type: tensor.ty() as i32,
        flags: flag(tensor.is_constant(), DELEGRAPH_TENSOR_CONSTANT)
            | flag(tensor.is_variable(), DELEGRAPH_TENSOR_VARIABLE),
        dims: tensor.shape().dims().as_ptr(),
        rank: tensor.shape().rank(),
        name: text(tensor.name()),
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
    describe_quantization(&mut out, tensor.quantization());
    out
}

impl Kernel for OpKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        // SAFETY: `create_kernel` made the kernel, and `&mut self` is exclusive.
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
