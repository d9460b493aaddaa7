//! Delegates of the application.

use std::ffi::{c_char, c_int};

use delegraph_litert::abi::{Node as RawNode, Tensor as RawTensor};

use super::*;
use crate::abi;
use crate::accessors::*;
use crate::arrays::ints;
use crate::buffers::*;
use crate::context::Node;
use crate::delegate::*;
use crate::opaque::{context::*, node::*, tensor::*};
use crate::operator::*;
use crate::registration::*;
use crate::types::{DELEGATE_ERROR, ERROR, OK, Status};

/// The record of the delegate's functions.
#[derive(Default)]
struct Notes {
    prepared: i32,
    kernels: i32,
    nodes: Vec<c_int>,
    fails: Option<&'static str>,
    freed: Vec<c_int>,
}

/// Claims all nodes for a kernel that computes `7 * x` of its first input.
unsafe extern "C" fn prepare(
    context: *mut abi::Context,
    delegate: *mut abi::Delegate,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library passes a context, and the data of the delegate.
    unsafe {
        let notes = &mut *data.cast::<Notes>();
        notes.prepared += 1;
        assert_eq!(TfLiteOpaqueDelegateGetData(delegate), data);
        let mut plan = std::ptr::null_mut();
        assert_eq!(TfLiteOpaqueContextGetExecutionPlan(context, &raw mut plan), OK);
        assert_eq!(TfLiteOpaqueContextGetNumNodes(context), ints(plan).len());
        let (mut node, mut of) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(TfLiteOpaqueContextGetNodeAndRegistration(context, 0, &raw mut node, &raw mut of), OK);
        assert_eq!((TfLiteOperatorGetBuiltInCode(of), TfLiteOperatorGetVersion(of)), (0, 1), "ADD");
        assert_eq!(TfLiteOpaqueNodeNumberOfInputs(node), 2);
        // `TfLiteAddParams` begins with the activation; the model has none.
        assert_eq!(TfLiteOpaqueNodeGetBuiltinData(node).cast::<c_int>().as_ref(), Some(&0));
        let mut other = std::ptr::null_mut();
        assert_eq!(TfLiteOpaqueContextAcquireSubgraphContext(context, 0, &raw mut other), OK);
        assert_eq!(other, context);
        assert_eq!(TfLiteOpaqueContextReleaseSubgraphContext(context, 0), OK);
        assert_eq!(TfLiteOpaqueContextMarkSubgraphAsDelegationSkippable(context, 5), ERROR);
        if notes.fails == Some("prepare") {
            return ERROR;
        }
        let kernel = TfLiteOperatorCreate(DELEGATE, c"times 7".as_ptr(), 1, data);
        TfLiteOperatorSetInitWithData(kernel, Some(init));
        TfLiteOperatorSetFreeWithData(kernel, Some(free));
        TfLiteOperatorSetInvokeWithData(kernel, Some(invoke));
        TfLiteOpaqueContextReplaceNodeSubsetsWithDelegateKernels(context, kernel, plan, delegate)
    }
}

unsafe extern "C" fn init(
    data: *mut c_void,
    context: *mut abi::Context,
    params: *const c_char,
    len: usize,
) -> *mut c_void {
    // SAFETY: the library passes the params of a partition.
    unsafe {
        let notes = &mut *data.cast::<Notes>();
        assert_eq!(len, size_of::<abi::OpaqueParams>());
        let params = &*params.cast::<abi::OpaqueParams>();
        assert_eq!(params.delegate_data, data);
        notes.nodes.extend(ints(params.nodes));
        // The constant is an input, with its data.
        let constants = ints(params.inputs).iter().filter(|&&index| {
            let tensor = TfLiteOpaqueContextGetOpaqueTensor(context, index);
            TfLiteOpaqueTensorGetAllocationType(tensor) == 1 && !TfLiteOpaqueTensorData(tensor).is_null()
        });
        assert_eq!(constants.count(), 1);
        if notes.fails == Some("init") {
            return std::ptr::without_provenance_mut(usize::MAX);
        }
        notes.kernels += 1;
        data
    }
}

unsafe extern "C" fn free(_: *mut c_void, _: *mut abi::Context, state: *mut c_void) {
    // SAFETY: the result of `init`.
    unsafe { (*state.cast::<Notes>()).kernels -= 1 };
}

unsafe extern "C" fn invoke(data: *mut c_void, context: *mut abi::Context, node: *mut RawNode) -> Status {
    // SAFETY: the library passes a context and the node of the kernel.
    unsafe {
        if (*data.cast::<Notes>()).fails == Some("invoke") {
            return ERROR;
        }
        let node = node.cast::<Node>();
        let input = TfLiteOpaqueNodeGetInput(context, node, 0);
        for index in 0..TfLiteOpaqueNodeNumberOfOutputs(node) {
            let output = TfLiteOpaqueNodeGetOutput(context, node, index);
            let len = TfLiteOpaqueTensorByteSize(output) / 4;
            let from = std::slice::from_raw_parts(TfLiteOpaqueTensorData(input).cast::<f32>(), len);
            let to = std::slice::from_raw_parts_mut(TfLiteOpaqueTensorData(output).cast::<f32>(), len);
            to.iter_mut().zip(from).for_each(|(to, x)| *to = x * 7.0);
        }
        OK
    }
}

unsafe extern "C" fn copy_from(
    _: *mut abi::Context,
    _: *mut abi::Delegate,
    _: *mut c_void,
    handle: c_int,
    tensor: *mut RawTensor,
) -> Status {
    // SAFETY: the library passes a tensor with data.
    unsafe { (*tensor).data.cast::<f32>().write(handle as f32) };
    OK
}

unsafe extern "C" fn free_buffer(
    _: *mut abi::Context,
    _: *mut abi::Delegate,
    data: *mut c_void,
    handle: *mut c_int,
) {
    // SAFETY: the library passes the data of the delegate and a handle.
    unsafe { (*data.cast::<Notes>()).freed.push(*handle) };
}

/// Two ADDs: `(x + state) + ones`.
fn with_delegate(fails: Option<&'static str>) -> (Session, *mut Notes, *mut abi::Delegate) {
    let notes = Box::into_raw(Box::new(Notes { fails, ..Notes::default() }));
    let builder = abi::OpaqueBuilder {
        data: notes.cast(),
        prepare: Some(prepare),
        copy_from_buffer: Some(copy_from),
        copy_to_buffer: None,
        free_buffer: Some(free_buffer),
        flags: 0,
    };
    // SAFETY: the structure is live; its content is copied.
    let delegate = unsafe { TfLiteOpaqueDelegateCreate(&raw const builder) };
    let session = Session::with(counter(), |options| TfLiteInterpreterOptionsAddDelegate(options, delegate));
    (session, notes, delegate)
}

/// Ends a test: the delegate outlives the interpreter.
fn finish(session: Session, notes: *mut Notes, delegate: *mut abi::Delegate) -> Notes {
    drop(session);
    TfLiteOpaqueDelegateDelete(delegate);
    TfLiteOpaqueDelegateDelete(delegate);
    // SAFETY: made by `with_delegate`.
    *unsafe { Box::from_raw(notes) }
}

#[test]
fn an_opaque_delegate_runs_nodes() {
    let (session, notes, delegate) = with_delegate(None);
    let it = session.interpreter;
    assert!(!it.is_null(), "{}", session.messages());
    // SAFETY: buffers have the sizes that are passed.
    unsafe {
        // The model is ready without AllocateTensors.
        let input = TfLiteInterpreterGetInputTensor(it, 0);
        assert_eq!(TfLiteTensorCopyFromBuffer(input, [1f32, 2.0].as_ptr().cast(), 8), OK);
        assert_eq!(TfLiteInterpreterInvoke(it), OK, "{}", session.messages());
        let mut result = [0f32; 2];
        let output = TfLiteInterpreterGetOutputTensor(it, 1);
        assert_eq!(TfLiteTensorCopyToBuffer(output, result.as_mut_ptr().cast(), 8), OK);
        assert_eq!(result, [7.0, 14.0]);
        assert_eq!(((*notes).prepared, (*notes).kernels), (1, 1));
        assert_eq!(TfLiteInterpreterResizeInputTensor(it, 0, [2].as_ptr(), 1), OK);
        assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    }
    let notes = finish(session, notes, delegate);
    assert_eq!((notes.nodes, notes.kernels), (vec![0, 1], 0));
}

#[test]
fn a_delegate_that_fails_is_an_error_of_the_interpreter() {
    for fails in ["prepare", "init"] {
        let (session, notes, delegate) = with_delegate(Some(fails));
        assert!(session.interpreter.is_null(), "{fails}");
        assert!(session.messages().contains("TfLiteInterpreterCreate"), "{}", session.messages());
        assert_eq!(finish(session, notes, delegate).kernels, 0);
    }
    let (session, notes, delegate) = with_delegate(Some("invoke"));
    assert_eq!(TfLiteInterpreterInvoke(session.interpreter), DELEGATE_ERROR, "{}", session.messages());
    finish(session, notes, delegate);
}

#[test]
fn a_delegate_is_applied_later() {
    let (session, notes, delegate) = with_delegate(None);
    let other = Session::new(counter());
    assert_eq!(
        TfLiteInterpreterModifyGraphWithDelegate(other.interpreter, delegate),
        OK,
        "{}",
        other.messages()
    );
    // SAFETY: made by `with_delegate`.
    assert_eq!(unsafe { (*notes).prepared }, 2);
    assert_eq!(TfLiteInterpreterInvoke(other.interpreter), OK, "{}", other.messages());
    assert_eq!(TfLiteInterpreterModifyGraphWithDelegate(other.interpreter, std::ptr::null_mut()), ERROR);
    drop(other);
    finish(session, notes, delegate);
}

#[test]
fn outputs_come_from_buffers_of_a_delegate() {
    let (session, notes, delegate) = with_delegate(None);
    let it = session.interpreter;
    // SAFETY: tensors and places for results live.
    unsafe {
        let output = TfLiteInterpreterGetOutputTensor(it, 0).cast_mut();
        let index = TfLiteInterpreterGetOutputTensorIndex(it, 0);
        let first = |tensor: *mut crate::tensor::Tensor| *TfLiteTensorData(tensor).cast::<f32>();
        assert_eq!(TfLiteInterpreterSetBufferHandle(it, output, 40, delegate), OK);
        assert_eq!(TfLiteInterpreterSetBufferHandle(it, output, 41, delegate), OK, "{}", session.messages());
        assert_eq!(TfLiteInterpreterSetBufferHandle(it, std::ptr::null_mut(), 1, delegate), ERROR);
        let (mut handle, mut of) = (0, std::ptr::null_mut());
        assert_eq!(TfLiteInterpreterGetBufferHandle(it, index, &raw mut handle, &raw mut of), OK);
        assert_eq!((handle, of), (41, delegate));
        assert_eq!(TfLiteInterpreterGetBufferHandle(it, 99, &raw mut handle, &raw mut of), ERROR);
        assert_eq!(TfLiteInterpreterInvoke(it), OK, "{}", session.messages());
        assert_eq!(first(output), 41.0);
        TfLiteSetAllowBufferHandleOutput(it, 1);
        TfLiteTensorData(output).cast::<f32>().write(0.0);
        assert_eq!(TfLiteInterpreterInvoke(it), OK);
        assert_ne!(first(output), 41.0, "it stays in the buffer");
        assert_eq!(TfLiteInterpreterEnsureTensorDataIsReadable(it, index), OK);
        assert_eq!(first(output), 41.0);
    }
    assert_eq!(finish(session, notes, delegate).freed, [40, 41]);
}

unsafe extern "C" fn classic(context: *mut abi::Context, delegate: *mut abi::Delegate) -> Status {
    // SAFETY: the library passes a context and the delegate.
    unsafe {
        let mut plan = std::ptr::null_mut();
        assert_eq!(((*context).get_execution_plan)(context, &raw mut plan), OK);
        let (mut params, mut count) = (std::ptr::null_mut(), 0);
        assert_eq!(((*context).preview_partitioning)(context, plan, &raw mut params, &raw mut count), OK);
        assert_eq!((count, ints((*params).nodes)), (1, ints(plan)));
        let (mut node, mut registration) = (std::ptr::null_mut(), std::ptr::null_mut());
        let found = ((*context).get_node_and_registration)(context, 1, &raw mut node, &raw mut registration);
        assert_eq!((found, (*registration).builtin_code, ints((*node).outputs).len()), (OK, 0, 1));
        *(*delegate).data.cast::<i32>() += 1;
        if (*delegate).flags != 0 { ERROR } else { OK }
    }
}

#[test]
fn a_classic_delegate_is_prepared() {
    let mut prepared = 0i32;
    let mut delegate =
        abi::Delegate { data: (&raw mut prepared).cast(), prepare: Some(classic), ..TfLiteDelegateCreate() };
    let pointer = &raw mut delegate;
    let session = Session::with(counter(), |options| TfLiteInterpreterOptionsAddDelegate(options, pointer));
    assert_eq!(TfLiteInterpreterInvoke(session.interpreter), OK, "{}", session.messages());
    // SAFETY: the delegate is live, and no call uses it now.
    unsafe { (*pointer).flags = 1 };
    let session = Session::with(counter(), |options| TfLiteInterpreterOptionsAddDelegate(options, pointer));
    assert!(session.interpreter.is_null());
    assert_eq!(prepared, 2);
}
