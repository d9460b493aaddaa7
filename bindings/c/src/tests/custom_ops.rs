//! Kernels of the application, through the opaque and through the classic interface.

use std::ffi::{c_char, c_int};

use delegraph_litert::abi::{Node as RawNode, Tensor as RawTensor};

use super::*;
use crate::abi;
use crate::accessors::*;
use crate::arrays::{TfLiteIntArrayCreate, ints};
use crate::context::{Node, TfLiteOpaqueContextReportError};
use crate::opaque::{builder::*, context::*, node::*, strings::*, tensor::*};
use crate::operator::*;
use crate::registration::*;
use crate::tensor::Tensor;
use crate::types::{ERROR, OK, Status};

/// `Scale` with the option `3`: its input times 3.
fn scale() -> Vec<u8> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2]);
    let y = graph.tensor("y", TensorType::Float32, [2]);
    graph.custom("Scale").options(b"3").inputs([x]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap()
}

/// The state of a kernel, and the counts of its calls.
struct State {
    factor: f32,
    temporary: c_int,
}

unsafe extern "C" fn init(
    data: *mut c_void,
    _: *mut abi::Context,
    options: *const c_char,
    len: usize,
) -> *mut c_void {
    // SAFETY: the data are those of `operator`, the options those of the node.
    unsafe {
        *data.cast::<i32>() += 1;
        let text = std::slice::from_raw_parts(options.cast::<u8>(), len);
        let factor = std::str::from_utf8(text).unwrap().parse().unwrap();
        Box::into_raw(Box::new(State { factor, temporary: -1 })).cast()
    }
}

unsafe extern "C" fn free(data: *mut c_void, _: *mut abi::Context, state: *mut c_void) {
    // SAFETY: the results of `operator` and `init`.
    unsafe {
        *data.cast::<i32>() -= 1;
        drop(Box::from_raw(state.cast::<State>()));
    }
}

/// Sets the output's shape to that of the input, and requests a temporary of that shape.
unsafe extern "C" fn prepare(_: *mut c_void, context: *mut abi::Context, node: *mut RawNode) -> Status {
    // SAFETY: the library passes a context and one of its nodes.
    unsafe {
        let node = node.cast::<Node>();
        let len = TfLiteOpaqueTensorDim(TfLiteOpaqueNodeGetInput(context, node, 0), 0);
        let output = TfLiteOpaqueNodeGetOutput(context, node, 0);
        let dims = TfLiteIntArrayCreate(1);
        (&raw mut (*dims).data).cast::<c_int>().write(len);
        assert_eq!(TfLiteOpaqueContextResizeTensor(context, output, dims), OK);
        let state = TfLiteOpaqueNodeGetUserData(node).cast::<State>();
        let builder = TfLiteOpaqueTensorBuilderCreate();
        TfLiteOpaqueTensorBuilderSetType(builder, 1);
        TfLiteOpaqueTensorBuilderSetAllocationType(builder, 2);
        assert_eq!(TfLiteOpaqueContextAddTensor(context, builder, &raw mut (*state).temporary), OK);
        TfLiteOpaqueTensorBuilderDelete(builder);
        assert_eq!(TfLiteOpaqueContextAddTensor(context, builder, null_index()), ERROR, "deleted");
        assert_eq!(TfLiteOpaqueNodeSetTemporaries(node, &raw const (*state).temporary, 1), OK);
        let dims = TfLiteIntArrayCreate(1);
        (&raw mut (*dims).data).cast::<c_int>().write(len);
        let temporary = TfLiteOpaqueContextGetOpaqueTensor(context, (*state).temporary);
        TfLiteOpaqueContextResizeTensor(context, temporary, dims)
    }
}

fn null_index() -> *mut c_int {
    std::ptr::null_mut()
}

/// Computes the output by way of the temporary. Negative numbers are an error.
unsafe extern "C" fn invoke(_: *mut c_void, context: *mut abi::Context, node: *mut RawNode) -> Status {
    // SAFETY: the library passes a context and one of its nodes, whose tensors have data.
    unsafe {
        let node = node.cast::<Node>();
        let input = TfLiteOpaqueNodeGetInput(context, node, 0);
        let output = TfLiteOpaqueNodeGetOutput(context, node, 0);
        let state = &*TfLiteOpaqueNodeGetUserData(node).cast::<State>();
        let temporary = TfLiteOpaqueContextGetOpaqueTensor(context, state.temporary);
        let (bytes, len) = (TfLiteOpaqueTensorByteSize(input), TfLiteOpaqueTensorByteSize(input) / 4);
        assert_eq!(
            (TfLiteOpaqueTensorByteSize(temporary), TfLiteOpaqueTensorByteSize(output)),
            (bytes, bytes)
        );
        let from = std::slice::from_raw_parts(TfLiteOpaqueTensorData(input).cast::<f32>(), len);
        let between = std::slice::from_raw_parts_mut(TfLiteOpaqueTensorData(temporary).cast::<f32>(), len);
        if from.iter().any(|x| *x < 0.0) {
            TfLiteOpaqueContextReportError(context, c"a negative number".as_ptr());
            return ERROR;
        }
        between.iter_mut().zip(from).for_each(|(to, x)| *to = x * state.factor);
        TfLiteOpaqueTensorCopyFromBuffer(output, between.as_ptr().cast(), bytes)
    }
}

fn operator(count: *mut i32) -> *mut OperatorHandle {
    // SAFETY: the name and the counter outlive the operator.
    let operator = unsafe { TfLiteOperatorCreate(CUSTOM, c"Scale".as_ptr(), 1, count.cast()) };
    assert_eq!(TfLiteOperatorSetInitWithData(operator, Some(init)), OK);
    assert_eq!(TfLiteOperatorSetFreeWithData(operator, Some(free)), OK);
    assert_eq!(TfLiteOperatorSetPrepareWithData(operator, Some(prepare)), OK);
    assert_eq!(TfLiteOperatorSetInvokeWithData(operator, Some(invoke)), OK);
    operator
}

/// Runs the first input with these values. Returns the status, and the first output.
fn run(interpreter: *mut InterpreterHandle, values: &[f32]) -> (Status, Vec<f32>) {
    // SAFETY: buffers have the sizes that are passed.
    unsafe {
        let input = TfLiteInterpreterGetInputTensor(interpreter, 0);
        assert_eq!(TfLiteTensorCopyFromBuffer(input, values.as_ptr().cast(), size_of_val(values)), OK);
        let status = TfLiteInterpreterInvoke(interpreter);
        let output = TfLiteInterpreterGetOutputTensor(interpreter, 0);
        let mut result = vec![0f32; TfLiteTensorByteSize(output) / 4];
        TfLiteTensorCopyToBuffer(output, result.as_mut_ptr().cast(), TfLiteTensorByteSize(output));
        (status, result)
    }
}

#[test]
fn an_operator_runs_a_custom_op() {
    let mut count = 0;
    let operator = operator(&raw mut count);
    let session = Session::with(scale(), |options| TfLiteInterpreterOptionsAddOperator(options, operator));
    // The interpreter keeps its functions.
    TfLiteOperatorDelete(operator);
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK, "{}", session.messages());
    assert_eq!(run(it, &[1.0, 2.0]), (OK, vec![3.0, 6.0]));
    assert_eq!(run(it, &[-1.0, 2.0]).0, ERROR);
    assert!(session.messages().contains("a negative number"), "{}", session.messages());
    let dims = [3];
    // SAFETY: one dimension.
    assert_eq!(unsafe { TfLiteInterpreterResizeInputTensor(it, 0, dims.as_ptr(), 1) }, OK);
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK, "{}", session.messages());
    assert_eq!(run(it, &[1.0, 2.0, 4.0]), (OK, vec![3.0, 6.0, 12.0]));
    assert_eq!(count, 1);
    drop(session);
    assert_eq!(count, 0, "the state was freed");
}

unsafe extern "C" fn double(context: *mut abi::Context, node: *mut RawNode) -> Status {
    // SAFETY: the library passes a context with an array of tensors, and a node with indices into it.
    unsafe {
        let input = (*context).tensors.add(ints((*node).inputs)[0] as usize);
        let output = (*context).tensors.add(ints((*node).outputs)[0] as usize);
        let len = (*input).bytes / 4;
        let from = std::slice::from_raw_parts((*input).data.cast::<f32>(), len);
        let to = std::slice::from_raw_parts_mut((*output).data.cast::<f32>(), len);
        to.iter_mut().zip(from).for_each(|(to, x)| *to = x * 2.0);
        OK
    }
}

fn classic(invoke: abi::NodeFn) -> abi::Registration {
    abi::Registration {
        init: None,
        free: None,
        prepare: None,
        invoke: Some(invoke),
        profiling_string: std::ptr::null(),
        builtin_code: 0,
        custom_name: std::ptr::null(),
        version: 0,
    }
}

#[test]
fn a_classic_registration_runs_custom_and_builtin_ops() {
    let registration = classic(double);
    // SAFETY: the name and the registration live.
    let session = Session::with(scale(), |options| unsafe {
        TfLiteInterpreterOptionsAddCustomOp(options, c"Scale".as_ptr(), &raw const registration, 1, 1);
    });
    assert_eq!(TfLiteInterpreterAllocateTensors(session.interpreter), OK, "{}", session.messages());
    assert_eq!(run(session.interpreter, &[1.0, 2.0]), (OK, vec![2.0, 4.0]));
    // ADD has code 0.
    // SAFETY: as above.
    let session = Session::with(signatures(), |options| unsafe {
        TfLiteInterpreterOptionsAddBuiltinOp(options, 0, &raw const registration, 1, 9);
    });
    assert_eq!(TfLiteInterpreterAllocateTensors(session.interpreter), OK, "{}", session.messages());
    assert_eq!(run(session.interpreter, &[5.0]), (OK, vec![10.0]), "ADD is replaced");
}

unsafe extern "C" fn find(data: *mut c_void, op: c_int, version: c_int) -> *const abi::Registration {
    if op == 0 && version == 1 { data.cast_const().cast() } else { std::ptr::null() }
}

#[test]
fn functions_of_the_application_find_kernels() {
    let mut registration = classic(double);
    let data = (&raw mut registration).cast::<c_void>();
    let session = Session::with(counter(), |options| {
        TfLiteInterpreterOptionsSetOpResolver(options, Some(find), None, data);
    });
    assert!(!session.interpreter.is_null(), "{}", session.messages());
    let session = Session::with(signatures(), |options| {
        TfLiteInterpreterOptionsSetOpResolver(options, Some(find), None, data);
    });
    assert!(session.interpreter.is_null(), "NEG has no kernel");
    let expected = "Didn't find op for builtin opcode 'NEG' version '1'.";
    assert!(session.messages().contains(expected), "{}", session.messages());
}

/// `Words`, whose output has as many strings as its input's value.
fn words() -> Vec<u8> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int32, [1]);
    let y = graph.tensor("y", TensorType::String, [1]);
    graph.custom("Words").inputs([x]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap()
}

unsafe extern "C" fn write_words(context: *mut abi::Context, node: *mut RawNode) -> Status {
    // SAFETY: the library passes a context and one of its nodes, whose tensors have data.
    unsafe {
        let node = node.cast::<Node>();
        let count = *TfLiteOpaqueTensorData(TfLiteOpaqueNodeGetInput(context, node, 0)).cast::<i32>();
        let output = TfLiteOpaqueNodeGetOutput(context, node, 0);
        assert_eq!(TfLiteOpaqueTensorWriteString(output, c"first".as_ptr(), 5), OK);
        let texts = vec![c"word".as_ptr(); count as usize];
        let lens = vec![4; count as usize];
        assert_eq!(TfLiteOpaqueTensorWriteStrings(output, texts.as_ptr(), count, lens.as_ptr()), OK);
        assert_eq!(TfLiteOpaqueTensorGetStringCount(output), count);
        OK
    }
}

#[test]
fn a_kernel_writes_strings() {
    // SAFETY: the name outlives the operator.
    let operator = unsafe { TfLiteOperatorCreate(CUSTOM, c"Words".as_ptr(), 1, std::ptr::null_mut()) };
    TfLiteOperatorSetInvoke(operator, Some(write_words));
    let session = Session::with(words(), |options| TfLiteInterpreterOptionsAddOperator(options, operator));
    TfLiteOperatorDelete(operator);
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK, "{}", session.messages());
    for count in [3i32, 0, 5] {
        // SAFETY: one number; the tensor is live.
        unsafe {
            let input = TfLiteInterpreterGetInputTensor(it, 0);
            assert_eq!(TfLiteTensorCopyFromBuffer(input, (&raw const count).cast(), 4), OK);
            assert_eq!(TfLiteInterpreterInvoke(it), OK, "{}", session.messages());
            let output = TfLiteInterpreterGetOutputTensor(it, 0);
            assert_eq!(
                (TfLiteOpaqueTensorGetStringCount(output), TfLiteTensorDim(output, 0)),
                (count, count)
            );
            let (mut text, mut len) = (std::ptr::null(), 0);
            let status = TfLiteOpaqueTensorGetString(output, count - 1, &raw mut text, &raw mut len);
            assert_eq!((status, len), if count > 0 { (OK, 4) } else { (ERROR, 0) });
        }
    }
}

#[test]
fn wrong_calls_of_kernels_are_errors() {
    // SAFETY: null is allowed everywhere.
    unsafe {
        let (context, node) = (std::ptr::null_mut::<abi::Context>(), std::ptr::null_mut::<Node>());
        let tensor = std::ptr::null_mut::<Tensor>();
        assert!(TfLiteOperatorCreate(CUSTOM, std::ptr::null(), 1, std::ptr::null_mut()).is_null());
        let operator = TfLiteOperatorCreate(CUSTOM, c"x".as_ptr(), 1, std::ptr::null_mut());
        TfLiteOperatorDelete(operator);
        TfLiteOperatorDelete(operator);
        assert_eq!(TfLiteOperatorSetInvokeWithData(operator, None), ERROR);
        assert_eq!((TfLiteOperatorGetVersion(operator), TfLiteOperatorGetBuiltInCode(operator)), (-1, 0));
        assert!(TfLiteOpaqueNodeGetInput(context, node, 0).is_null());
        assert_eq!(
            (TfLiteOpaqueNodeNumberOfInputs(node), TfLiteOpaqueNodeGetInputTensorIndex(node, 0)),
            (-1, -1)
        );
        assert_eq!(TfLiteOpaqueNodeSetTemporaries(node, std::ptr::null(), 0), ERROR);
        assert!(TfLiteOpaqueContextGetOpaqueTensor(context, 0).is_null());
        assert_eq!(TfLiteOpaqueContextGetNumNodes(context), 0);
        assert_eq!(TfLiteOpaqueContextResizeTensor(context, tensor, TfLiteIntArrayCreate(1)), ERROR);
        assert_eq!(TfLiteOpaqueTensorGetStringCount(tensor), -1);
        assert_eq!(TfLiteOpaqueTensorWriteString(tensor, c"x".as_ptr(), 1), ERROR);
        TfLiteOpaqueTensorSetAllocationTypeToDynamic(tensor);
        TfLiteOpaqueContextReportError(context, std::ptr::null());
        // A structure of the application is not a context.
        let foreign = [0u64; 64];
        assert_eq!(TfLiteOpaqueContextGetNumTensors((&raw const foreign).cast()), 0);
    }
}

unsafe extern "C" fn misuse(context: *mut abi::Context, node: *mut RawNode) -> Status {
    // SAFETY: the library passes a context and one of its nodes.
    unsafe {
        let node = node.cast::<Node>();
        assert!(TfLiteOpaqueNodeGetInput(context, node, 7).is_null());
        assert!(TfLiteOpaqueContextGetOpaqueTensor(context, -1).is_null());
        assert_eq!(TfLiteOpaqueNodeGetOutputTensorIndex(node, 1), -1);
        let output = TfLiteOpaqueNodeGetOutput(context, node, 0);
        let dims = TfLiteIntArrayCreate(1);
        (&raw mut (*dims).data).cast::<c_int>().write(-4);
        assert_eq!(TfLiteOpaqueContextResizeTensor(context, output, dims), ERROR, "negative");
        let dims = TfLiteIntArrayCreate(1);
        (&raw mut (*dims).data).cast::<c_int>().write(100);
        assert_eq!(TfLiteOpaqueContextResizeTensor(context, output, dims), ERROR, "while running");
        assert_eq!(
            TfLiteOpaqueContextResizeTensor(context, std::ptr::null_mut(), std::ptr::null_mut()),
            ERROR
        );
        let mut other = std::ptr::null_mut();
        assert_eq!(TfLiteOpaqueContextAcquireSubgraphContext(context, 9, &raw mut other), ERROR);
        assert_eq!(TfLiteOpaqueTensorCopyFromBuffer(output, [0f32; 3].as_ptr().cast(), 12), ERROR);
        let mut node_of = std::ptr::null_mut();
        let mut operator_of = std::ptr::null_mut();
        let found =
            TfLiteOpaqueContextGetNodeAndRegistration(context, 3, &raw mut node_of, &raw mut operator_of);
        assert_eq!(found, ERROR);
        let plan: *const RawTensor = (*context).tensors;
        assert!(!plan.is_null());
        OK
    }
}

#[test]
fn a_kernel_that_misuses_the_interface_gets_errors() {
    // SAFETY: the name outlives the operator.
    let operator = unsafe { TfLiteOperatorCreate(CUSTOM, c"Scale".as_ptr(), 1, std::ptr::null_mut()) };
    TfLiteOperatorSetInvoke(operator, Some(misuse));
    let session = Session::with(scale(), |options| TfLiteInterpreterOptionsAddOperator(options, operator));
    TfLiteOperatorDelete(operator);
    assert_eq!(TfLiteInterpreterAllocateTensors(session.interpreter), OK, "{}", session.messages());
    assert_eq!(run(session.interpreter, &[1.0, 2.0]).0, OK, "{}", session.messages());
}
