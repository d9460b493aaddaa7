//! Kernels of custom ops wrapped for the functions of the table, for authors in Rust. Used by
//! [`export_kernels!`](crate::export_kernels).

use std::ffi::{CString, c_void};

use delegraph_core::kernel::{InitContext, RuntimeTensor};
use delegraph_core::quantization::Affine;
use delegraph_core::{
    Error, Kernel, MutableOpResolver, Node, Op, OpResolver, Params, Quantization, Result, Shape, Subgraph,
    Tensor, TensorId, TensorType,
};

use super::super::abi::*;
use super::super::ops_abi::*;
use super::super::raw::{read, slice, text_of};
use super::contain::{contain, contain_quietly, failed, report, status};
use super::host::{Host, Persistent};
use super::kernel::ExportedKernel;

/// The type of a table's `open`.
pub type OpenFunction =
    unsafe extern "C" fn(*const DelegraphHost, *mut *mut c_void, *mut DelegraphError) -> i32;

/// Returns the table of a library with this `open` function.
pub const fn table(open: OpenFunction) -> DelegraphKernelLibrary {
    DelegraphKernelLibrary {
        abi_version: DELEGRAPH_ABI_VERSION,
        size: size_of::<DelegraphKernelLibrary>(),
        open: Some(open),
        close: Some(close),
        ops: Some(ops),
        create_kernel: Some(create_kernel),
        destroy_kernel: Some(destroy_kernel),
        prepare_kernel: Some(prepare_kernel),
        invoke_kernel: Some(invoke_kernel),
    }
}

/// The registrations of a library, to which the application holds a pointer.
struct Exported {
    host: Host,
    persistent: Option<Persistent>,
    resolver: MutableOpResolver,
    ops: Vec<DelegraphCustomOp>,
    /// The names to which `ops` points.
    _names: Vec<CString>,
}

/// Implements the `open` function of a table; `register` registers the kernels.
///
/// # Safety
/// The pointers follow the interface.
pub unsafe fn open(
    host: *const DelegraphHost,
    library: *mut *mut c_void,
    error: *mut DelegraphError,
    register: impl FnOnce(&mut MutableOpResolver),
) -> i32 {
    let opened = contain(|| {
        // SAFETY: guaranteed by the caller.
        let (functions, table) = unsafe { (Host::new(host)?, read(host)) };
        functions.take_log();
        let mut resolver = MutableOpResolver::new();
        register(&mut resolver);
        let exported = Exported::new(functions, table.and_then(|table| table.persistent), resolver)?;
        if library.is_null() {
            return Err(Error::State("`library` is null".into()));
        }
        // SAFETY: not null; guaranteed by the caller.
        unsafe { library.write(Box::into_raw(Box::new(exported)).cast()) };
        Ok(())
    });
    // SAFETY: guaranteed by the caller.
    unsafe {
        match opened {
            Ok(Ok(())) => DELEGRAPH_OK,
            Ok(Err(e)) => report(error, &e),
            Err(panic) => failed(error, DELEGRAPH_PANICKED, &panic),
        }
    }
}

impl Exported {
    fn new(host: Host, persistent: Option<Persistent>, resolver: MutableOpResolver) -> Result<Self> {
        let (mut ops, mut names) = (Vec::new(), Vec::<CString>::new());
        for (op, versions) in resolver.registered() {
            let Op::Custom(name) = op else {
                let text = format!("{op}: a library of kernels can only have kernels of custom ops");
                return Err(Error::Unsupported(text));
            };
            let name = CString::new(&**name)
                .map_err(|_| Error::State(format!("\"{}\" contains a zero byte", name.escape_debug())))?;
            let (min_version, max_version) = (*versions.start(), *versions.end());
            let registration = resolver.find(op, max_version);
            let side_effects = registration.is_some_and(|r| r.has_side_effects());
            let flags = if side_effects { DELEGRAPH_OP_SIDE_EFFECTS } else { 0 };
            ops.push(DelegraphCustomOp { name: name.as_ptr(), min_version, max_version, flags });
            names.push(name);
        }
        Ok(Exported { host, persistent, resolver, ops, _names: names })
    }

    /// # Safety
    /// `node` follows the interface.
    unsafe fn create_kernel(&self, node: *const DelegraphOpNode) -> Result<OpKernel> {
        // SAFETY: guaranteed by the caller.
        let node = unsafe { read(node) }.ok_or_else(|| Error::State("there is no node".into()))?;
        let mut graph = Subgraph::default();
        // SAFETY: guaranteed by the caller.
        let (inputs, outputs, options, name) = unsafe {
            (
                slice(node.inputs, node.input_count).unwrap_or_default(),
                slice(node.outputs, node.output_count).unwrap_or_default(),
                slice(node.options, node.options_len).unwrap_or_default(),
                text_of(node.name),
            )
        };
        let mut add = |pointer: &*const DelegraphTensor| {
            // SAFETY: guaranteed by the caller: null, or a struct with its size.
            let Some(described) = (unsafe { read(*pointer) }) else { return Ok(None) };
            // SAFETY: as above.
            Ok(Some(graph.add_tensor(unsafe { tensor(&described) }?)))
        };
        let inputs = inputs.iter().map(&mut add).collect::<Result<Vec<_>>>()?;
        let outputs = outputs.iter().map(&mut add).collect::<Result<Vec<_>>>()?;
        let outputs: Vec<TensorId> = outputs.into_iter().flatten().collect();
        if outputs.len() != node.output_count {
            return Err(Error::State("an output is missing".into()));
        }
        let op = Op::custom(&name);
        let node_of_op = Node::new(op, node.version, Params::Custom, inputs.clone(), outputs.clone());
        graph.nodes_mut().push(node_of_op);
        let described = graph.nodes().last().ok_or_else(|| Error::State("there is no node".into()))?;
        let registration = self.resolver.find(described.op(), node.version);
        let registration = registration
            .ok_or_else(|| Error::Unsupported(format!("{} is not registered", described.op())))?;
        let kernel = registration.init(&InitContext::new(described, &graph).with_custom_options(options))?;
        // One tensor per operand, in the order of calls. Omitted operands have a placeholder.
        let nothing = || Tensor::new("", TensorType::Float32, Shape::default());
        let operand = |id: Option<TensorId>| id.map_or_else(nothing, |id| graph.tensor(id).clone());
        let all = inputs.iter().copied().chain(outputs.iter().copied().map(Some));
        let tensors: Vec<RuntimeTensor> = all.map(|id| RuntimeTensor::new(&operand(id))).collect();
        let left_out: Vec<bool> = inputs.iter().map(Option::is_none).collect();
        Ok(ExportedKernel::new(kernel, self.host, tensors, &left_out).of_op(node.version, self.persistent))
    }
}

type OpKernel = ExportedKernel<dyn Kernel>;

/// # Safety
/// `described` follows the interface.
unsafe fn tensor(described: &DelegraphTensor) -> Result<Tensor> {
    let ty = i8::try_from(described.element_type).ok().and_then(TensorType::from_code);
    let ty = ty.ok_or_else(|| Error::Unsupported(format!("the type {}", described.element_type)))?;
    // SAFETY: guaranteed by the caller.
    let (name, dims, scales, zero_points) = unsafe {
        (
            text_of(described.name),
            slice(described.dims, described.rank).unwrap_or_default(),
            slice(described.scales, described.scale_count).unwrap_or_default(),
            slice(described.zero_points, described.scale_count).unwrap_or_default(),
        )
    };
    let mut tensor = Tensor::new(name, ty, dims);
    tensor.set_variable(described.flags & DELEGRAPH_TENSOR_VARIABLE != 0);
    if described.quantization == DELEGRAPH_QUANTIZATION_AFFINE {
        let affine = Affine {
            scales: scales.to_vec(),
            zero_points: zero_points.to_vec().into(),
            dimension: described.quantized_dimension,
        };
        tensor.set_quantization(Quantization::Affine(affine));
    }
    Ok(tensor)
}

unsafe extern "C" fn close(library: *mut c_void) {
    // SAFETY: `open` made it, and it is closed once.
    contain_quietly(|| drop(unsafe { Box::from_raw(library.cast::<Exported>()) }));
}

unsafe extern "C" fn ops(library: *mut c_void, count: *mut usize) -> *const DelegraphCustomOp {
    // SAFETY: `open` made it, and `count` is valid for a write.
    unsafe {
        let exported = &*library.cast::<Exported>();
        count.write(exported.ops.len());
        exported.ops.as_ptr()
    }
}

unsafe extern "C" fn create_kernel(
    library: *mut c_void,
    _: *const DelegraphHost,
    _: DelegraphContext,
    node: *const DelegraphOpNode,
    kernel: *mut *mut c_void,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `open` made the library, which is not changed; the other pointers follow the interface.
    unsafe {
        status(error, || {
            let made = (*library.cast::<Exported>()).create_kernel(node)?;
            kernel.write(Box::into_raw(Box::new(made)).cast());
            Ok(())
        })
    }
}

unsafe extern "C" fn destroy_kernel(kernel: *mut c_void) {
    // SAFETY: `create_kernel` made it, and it is destroyed once.
    contain_quietly(|| drop(unsafe { Box::from_raw(kernel.cast::<OpKernel>()) }));
}

unsafe extern "C" fn prepare_kernel(
    kernel: *mut c_void,
    context: DelegraphContext,
    call: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `create_kernel` made the kernel, and no other call uses it; the other pointers follow the interface.
    unsafe { status(error, || (*kernel.cast::<OpKernel>()).prepare(context, call)) }
}

unsafe extern "C" fn invoke_kernel(
    kernel: *mut c_void,
    context: DelegraphContext,
    call: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `create_kernel` made the kernel, and no other call uses it; the other pointers follow the interface.
    unsafe { status(error, || (*kernel.cast::<OpKernel>()).invoke(context, call)) }
}
