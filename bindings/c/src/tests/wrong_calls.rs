//! Null, deleted and foreign handles, indices out of range, calls in a wrong order.

use std::ptr::{null, null_mut};

use super::*;
use crate::accessors::*;
use crate::buffers::*;
use crate::signature::*;
use crate::types::{ERROR, OK};

#[test]
fn null_is_an_error() {
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert!(TfLiteModelCreate(null(), 8).is_null() && TfLiteModelCreateFromFile(null()).is_null());
        assert!(TfLiteModelCreate(b"TFL3".as_ptr().cast(), usize::MAX).is_null());
        assert!(TfLiteInterpreterCreate(null(), null()).is_null());
        assert!(TfLiteInterpreterOptionsCopy(null()).is_null());
        TfLiteModelDelete(null_mut());
        TfLiteInterpreterOptionsDelete(null_mut());
        TfLiteInterpreterDelete(null_mut());
        TfLiteSignatureRunnerDelete(null_mut());
        TfLiteInterpreterOptionsSetNumThreads(null_mut(), 1);
        assert_eq!(TfLiteInterpreterOptionsEnableCancellation(null_mut(), 1), ERROR);
        check_interpreter(null_mut());
        check_runner(null_mut());
        assert_eq!(
            (TfLiteTensorType(null()), TfLiteTensorNumDims(null()), TfLiteTensorDim(null(), 0)),
            (0, -1, -1)
        );
        assert!(TfLiteTensorData(null()).is_null() && TfLiteTensorName(null()).is_null());
        assert_eq!((TfLiteTensorByteSize(null()), TfLiteTensorQuantizationParams(null()).scale), (0, 0.0));
        assert_eq!(TfLiteTensorCopyFromBuffer(null_mut(), null(), 0), ERROR);
        assert_eq!(TfLiteTensorCopyToBuffer(null(), null_mut(), 0), ERROR);
    }
}

/// Every function fails for an interpreter that does not exist.
fn check_interpreter(it: *mut InterpreterHandle) {
    assert_eq!((TfLiteInterpreterAllocateTensors(it), TfLiteInterpreterInvoke(it)), (ERROR, ERROR));
    assert_eq!((TfLiteInterpreterGetInputTensorCount(it), TfLiteInterpreterGetOutputTensorCount(it)), (0, 0));
    assert!(
        TfLiteInterpreterGetInputTensor(it, 0).is_null() && TfLiteInterpreterGetOutputTensor(it, 0).is_null()
    );
    assert!(
        TfLiteInterpreterInputTensorIndices(it).is_null()
            && TfLiteInterpreterOutputTensorIndices(it).is_null()
    );
    assert!(
        TfLiteInterpreterGetTensor(it, 0).is_null() && TfLiteInterpreterGetVariableTensor(it, 0).is_null()
    );
    assert_eq!((TfLiteInterpreterCancel(it), TfLiteInterpreterResetVariableTensors(it)), (ERROR, ERROR));
    assert_eq!((TfLiteInterpreterGetSignatureCount(it), TfLiteInterpreterGetVariableTensorCount(it)), (0, 0));
    assert_eq!(
        (TfLiteInterpreterGetInputTensorIndex(it, 0), TfLiteInterpreterGetOutputTensorIndex(it, 0)),
        (-1, -1)
    );
    assert!(TfLiteInterpreterGetSignatureKey(it, 0).is_null());
    assert_eq!(TfLiteInterpreterEnsureTensorDataIsReadable(it, 0), ERROR);
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert!(TfLiteInterpreterGetSignatureRunner(it, null()).is_null());
        assert_eq!(TfLiteInterpreterResizeInputTensor(it, 0, null(), 0), ERROR);
        assert_eq!(TfLiteInterpreterSetCustomAllocationForTensor(it, 0, null(), 0), ERROR);
    }
}

/// Every function fails for a runner that does not exist.
fn check_runner(runner: *mut RunnerHandle) {
    assert_eq!(
        (TfLiteSignatureRunnerAllocateTensors(runner), TfLiteSignatureRunnerInvoke(runner)),
        (ERROR, ERROR)
    );
    assert_eq!(TfLiteSignatureRunnerCancel(runner), ERROR);
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert!(TfLiteSignatureRunnerGetInputTensor(runner, c"x".as_ptr()).is_null());
        assert!(TfLiteSignatureRunnerGetOutputTensor(runner, c"x".as_ptr()).is_null());
        assert_eq!(TfLiteSignatureRunnerResizeInputTensor(runner, c"x".as_ptr(), null(), 0), ERROR);
    }
}

#[test]
fn deleted_handles_are_noticed() {
    let model = {
        let session = Session::new(counter());
        // SAFETY: the key may be null.
        let runner = unsafe { TfLiteInterpreterGetSignatureRunner(session.interpreter, null()) };
        TfLiteInterpreterDelete(session.interpreter);
        check_interpreter(session.interpreter);
        check_runner(runner);
        TfLiteSignatureRunnerDelete(runner);
        check_runner(runner);
        assert_eq!(TfLiteSignatureRunnerGetInputCount(runner), 0);
        TfLiteInterpreterOptionsDelete(session.options);
        assert!(TfLiteInterpreterCreate(session.model, session.options).is_null(), "deleted options");
        // Handles of one kind are invalid for other kinds.
        check_interpreter(session.model.cast());
        assert!(TfLiteInterpreterCreate(session.options.cast(), null()).is_null());
        session.model
    };
    assert!(TfLiteInterpreterCreate(model, null()).is_null(), "a deleted model");
    TfLiteModelDelete(model);
}

#[test]
fn indices_and_sizes_are_checked() {
    let session = Session::new(counter());
    let it = session.interpreter;
    for index in [-1, 2, i32::MAX, i32::MIN] {
        assert!(TfLiteInterpreterGetInputTensor(it, index).is_null());
        assert!(TfLiteInterpreterGetOutputTensor(it, index).is_null());
        assert!(TfLiteInterpreterGetVariableTensor(it, index).is_null());
        assert!(TfLiteInterpreterGetSignatureKey(it, index).is_null());
        assert_eq!(TfLiteInterpreterGetInputTensorIndex(it, index), -1);
        // SAFETY: the shape has one dimension.
        assert_eq!(unsafe { TfLiteInterpreterResizeInputTensor(it, index, [1].as_ptr(), 1) }, ERROR);
    }
    assert!(TfLiteInterpreterGetTensor(it, 5).is_null() && TfLiteInterpreterGetTensor(it, -1).is_null());
    let input = TfLiteInterpreterGetInputTensor(it, 0);
    // SAFETY: the tensor is live; shapes are null or have the length; buffers have the size.
    unsafe {
        assert_eq!((TfLiteTensorDim(input, 1), TfLiteTensorDim(input, -1)), (-1, -1));
        assert_eq!(TfLiteInterpreterResizeInputTensor(it, 0, null(), 1), ERROR);
        assert_eq!(TfLiteInterpreterResizeInputTensor(it, 0, [1].as_ptr(), -1), ERROR);
        assert_eq!(TfLiteInterpreterResizeInputTensor(it, 0, [-1].as_ptr(), 1), ERROR);
        let values = [0f32; 2];
        assert_eq!(TfLiteTensorCopyFromBuffer(input, values.as_ptr().cast(), 8), ERROR, "no memory yet");
        assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
        assert_eq!(TfLiteTensorCopyFromBuffer(input, values.as_ptr().cast(), 4), ERROR);
        assert_eq!(TfLiteTensorCopyFromBuffer(input, null(), 8), ERROR);
        assert_eq!(TfLiteTensorCopyFromBuffer(input, values.as_ptr().cast(), 8), OK);
        assert_eq!(TfLiteTensorCopyToBuffer(input, null_mut(), 8), ERROR);
        // More memory than available.
        let large = [i32::MAX, i32::MAX, i32::MAX];
        assert_eq!(TfLiteInterpreterResizeInputTensor(it, 0, large.as_ptr(), 3), OK);
    }
    assert_eq!(TfLiteInterpreterAllocateTensors(it), ERROR);
    assert_eq!(TfLiteInterpreterInvoke(it), ERROR);
}

#[test]
fn the_order_of_calls_is_checked() {
    let session = Session::new(counter());
    assert_eq!(TfLiteInterpreterInvoke(session.interpreter), ERROR);
    assert!(session.messages().contains("not ready"), "{}", session.messages());
    assert_eq!(TfLiteInterpreterCancel(session.interpreter), ERROR, "not enabled");
    // SAFETY: texts are valid.
    unsafe {
        assert!(TfLiteInterpreterGetSignatureRunner(session.interpreter, c"none".as_ptr()).is_null());
        let with = Session::new(signatures());
        assert!(TfLiteInterpreterGetSignatureRunner(with.interpreter, null()).is_null());
    }
}

#[test]
fn calls_of_two_threads_do_not_meet() {
    let session = Session::new(counter());
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    let interpreter = INTERPRETERS.get(it).unwrap();
    // As during a call of a kernel, or of another thread.
    let inner = interpreter.with("outer", None, |_| Some(TfLiteInterpreterInvoke(it)));
    assert_eq!(inner, Some(ERROR));
    assert!(session.messages().contains("one thread at a time"), "{}", session.messages());
}
