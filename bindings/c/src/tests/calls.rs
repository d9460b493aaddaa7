//! Results of the functions.

use std::ffi::{CStr, c_int};

use delegraph::core::ModelBytes;

use super::*;
use crate::accessors::*;
use crate::arrays::ints;
use crate::buffers::*;
use crate::signature::*;
use crate::tensor::{Tensor, allocation};
use crate::types::{CANCELLED, ERROR, OK};

const DIGITS: &[u8] = include_bytes!("../../../../assets/digits/digits_int8.tflite");

/// Writes floats to an input.
fn write(tensor: *mut Tensor, values: &[f32]) {
    // SAFETY: the tensor is live, and the buffer has the size that is passed.
    let status = unsafe { TfLiteTensorCopyFromBuffer(tensor, values.as_ptr().cast(), size_of_val(values)) };
    assert_eq!(status, OK);
}

/// Reads the floats of an output.
fn read<const N: usize>(tensor: *const Tensor) -> [f32; N] {
    let mut values = [f32::NAN; N];
    // SAFETY: as in `write`.
    let status =
        unsafe { TfLiteTensorCopyToBuffer(tensor, values.as_mut_ptr().cast(), size_of_val(&values)) };
    assert_eq!(status, OK);
    values
}

fn dims(tensor: *const Tensor) -> Vec<c_int> {
    // SAFETY: the tensor is live.
    unsafe { (0..TfLiteTensorNumDims(tensor)).map(|i| TfLiteTensorDim(tensor, i)).collect() }
}

fn text<'a>(text: *const std::ffi::c_char) -> &'a str {
    // SAFETY: tests read texts of live objects.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

#[test]
fn versions_are_those_of_the_schema_and_of_the_ops() {
    assert_eq!(TfLiteSchemaVersion(), 3);
    assert_eq!(text(TfLiteVersion()), delegraph::core::resolver::newest_runtime());
    assert_eq!(text(TfLiteExtensionApisVersion()), text(TfLiteVersion()));
    assert_eq!((text(TfLiteTypeGetName(1)), text(TfLiteTypeGetName(77))), ("FLOAT32", "Unknown type"));
}

#[test]
fn a_model_computes_what_the_library_computes() {
    let session = Session::new(DIGITS.to_vec());
    let it = session.interpreter;
    assert_eq!((TfLiteInterpreterGetInputTensorCount(it), TfLiteInterpreterGetOutputTensorCount(it)), (1, 1));
    let (input, output) = (TfLiteInterpreterGetInputTensor(it, 0), TfLiteInterpreterGetOutputTensor(it, 0));
    // SAFETY: the tensors live as long as the session.
    unsafe {
        assert_eq!((TfLiteTensorType(input), dims(input)), (9, vec![1, 8, 8, 1]));
        assert_eq!((TfLiteTensorByteSize(input), TfLiteTensorData(input)), (64, std::ptr::null_mut()));
        assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
        let pixels: Vec<i8> = (0..64).map(|i| (i * 4 - 125) as i8).collect();
        assert_eq!(TfLiteTensorCopyFromBuffer(input, pixels.as_ptr().cast(), 64), OK);
        assert_eq!(TfLiteInterpreterInvoke(it), OK);
        let mut scores = [0i8; 10];
        assert_eq!(TfLiteTensorCopyToBuffer(output, scores.as_mut_ptr().cast(), 10), OK);

        let model = delegraph::Model::from_bytes(ModelBytes::new(DIGITS)).unwrap();
        let mut expected = delegraph::Interpreter::builder(model).build().unwrap();
        expected.input_mut::<i8>(0).unwrap().copy_from_slice(&pixels);
        expected.invoke().unwrap();
        assert_eq!(expected.output::<i8>(0).unwrap(), scores);

        let (scale, zero_point) = expected.input_tensor(0).unwrap().scale_zero_point().unwrap();
        let quantization = TfLiteTensorQuantizationParams(input);
        assert_eq!((quantization.scale, quantization.zero_point), (scale, zero_point));
        assert_eq!(text(TfLiteTensorName(input)), &*expected.input_tensor(0).unwrap().name);
    }
    assert_eq!(session.messages(), "");
}

#[test]
fn a_file_is_a_model() {
    let path = std::ffi::CString::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../assets/digits/digits_float32.tflite"
    ));
    // SAFETY: the path is a text.
    let model = unsafe { TfLiteModelCreateFromFile(path.unwrap().as_ptr()) };
    let it = TfLiteInterpreterCreate(model, std::ptr::null());
    TfLiteModelDelete(model);
    assert_eq!((TfLiteInterpreterAllocateTensors(it), TfLiteInterpreterInvoke(it)), (OK, OK));
    TfLiteInterpreterDelete(it);
}

/// Programs that are compiled with TensorFlow Lite's header read the fields.
#[test]
fn fields_are_those_of_the_published_structure() {
    let session = Session::new(DIGITS.to_vec());
    assert_eq!(TfLiteInterpreterAllocateTensors(session.interpreter), OK);
    let input = TfLiteInterpreterGetInputTensor(session.interpreter, 0);
    // SAFETY: the tensor is live, and its pointers are valid.
    unsafe {
        let fields = &(*input).common;
        assert_eq!((fields.ty, fields.bytes, ints(fields.dims)), (9, 64, &[1, 8, 8, 1][..]));
        assert_eq!((fields.data, fields.allocation_type), (TfLiteTensorData(input), allocation::ARENA_RW));
        let affine = fields.quantization.params.cast::<delegraph_litert::abi::Affine>();
        assert_eq!(
            (fields.quantization.kind, ints((*affine).zero_point)),
            (1, &[fields.params.zero_point][..])
        );
        assert_eq!((*(*affine).scale).size, 1);
    }
}

#[test]
fn constants_can_be_read_and_not_written() {
    let session = Session::new(counter());
    assert_eq!(TfLiteInterpreterAllocateTensors(session.interpreter), OK);
    let ones = TfLiteInterpreterGetTensor(session.interpreter, 3);
    assert_eq!(read::<2>(ones), [1.0; 2]);
    // SAFETY: the tensor is live, and the buffer has the size.
    let status = unsafe { TfLiteTensorCopyFromBuffer(ones, [5f32; 2].as_ptr().cast(), 8) };
    assert_eq!((status, read::<2>(ones)), (ERROR, [1.0; 2]));
}

#[test]
fn a_resize_takes_effect_when_tensors_are_allocated() {
    let session = Session::new(signatures());
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    let (z, a) = (TfLiteInterpreterGetInputTensor(it, 0), TfLiteInterpreterGetInputTensor(it, 1));
    let sum = TfLiteInterpreterGetOutputTensor(it, 0);
    for length in [3, 1, 4] {
        let shape = [length];
        // SAFETY: the shape has one dimension.
        let status = unsafe {
            TfLiteInterpreterResizeInputTensor(it, 0, shape.as_ptr(), 1)
                | TfLiteInterpreterResizeInputTensor(it, 1, shape.as_ptr(), 1)
        };
        assert_eq!((status, dims(z)), (OK, vec![length]));
        // SAFETY: the tensors live.
        unsafe {
            assert!(TfLiteTensorData(z).is_null() && TfLiteTensorData(sum).is_null());
            assert_eq!(TfLiteTensorByteSize(z), length as usize * 4);
        }
        assert_eq!(TfLiteInterpreterInvoke(it), ERROR);
        assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
        write(z, &vec![2.0; length as usize]);
        write(a, &vec![3.0; length as usize]);
        assert_eq!((TfLiteInterpreterInvoke(it), dims(sum)), (OK, vec![length]));
        // SAFETY: the tensor is live, and has `length` floats.
        let values =
            unsafe { std::slice::from_raw_parts(TfLiteTensorData(sum).cast::<f32>(), length as usize) };
        assert_eq!(values, vec![5.0; length as usize]);
    }
    // The current shape: nothing changes. SAFETY: the shape has one dimension.
    assert_eq!(unsafe { TfLiteInterpreterResizeInputTensor(it, 0, [4].as_ptr(), 1) }, OK);
    assert_eq!(TfLiteInterpreterInvoke(it), OK);
}

#[test]
fn signatures_run_their_subgraphs() {
    let session = Session::new(signatures());
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterGetSignatureCount(it), 2);
    assert_eq!(text(TfLiteInterpreterGetSignatureKey(it, 1)), "negate");
    // SAFETY: texts, shapes and tensors are valid.
    unsafe {
        let double = TfLiteInterpreterGetSignatureRunner(it, c"double".as_ptr());
        let negate = TfLiteInterpreterGetSignatureRunner(it, c"negate".as_ptr());
        assert_eq!(TfLiteSignatureRunnerGetInputCount(double), 2);
        let names = [0, 1].map(|i| text(TfLiteSignatureRunnerGetInputName(double, i)));
        assert_eq!(names, ["a", "z"], "in alphabetical order");
        assert_eq!(TfLiteSignatureRunnerGetOutputCount(negate), 1);
        assert_eq!(text(TfLiteSignatureRunnerGetOutputName(negate, 0)), "y");

        let z = TfLiteSignatureRunnerGetInputTensor(double, c"z".as_ptr());
        assert_eq!(z, TfLiteInterpreterGetInputTensor(it, 0), "one tensor has one address");
        for name in [c"z", c"a"] {
            assert_eq!(TfLiteSignatureRunnerResizeInputTensor(double, name.as_ptr(), [2].as_ptr(), 1), OK);
        }
        assert_eq!(TfLiteSignatureRunnerAllocateTensors(double), OK);
        assert_eq!(TfLiteSignatureRunnerAllocateTensors(negate), OK);
        write(z, &[1.0, 2.0]);
        write(TfLiteSignatureRunnerGetInputTensor(double, c"a".as_ptr()), &[10.0, 20.0]);
        let x = TfLiteSignatureRunnerGetInputTensor(negate, c"x".as_ptr());
        write(x, &[1.0, 2.0, 3.0]);
        assert_eq!((TfLiteSignatureRunnerInvoke(double), TfLiteSignatureRunnerInvoke(negate)), (OK, OK));
        assert_eq!(read(TfLiteSignatureRunnerGetOutputTensor(double, c"sum".as_ptr())), [11.0, 22.0]);
        assert_eq!(read(TfLiteSignatureRunnerGetOutputTensor(negate, c"y".as_ptr())), [-1.0, -2.0, -3.0]);

        let before = session.messages().len();
        assert_eq!(TfLiteSignatureRunnerResizeInputTensor(negate, c"x".as_ptr(), [2].as_ptr(), 1), ERROR);
        assert!(
            session.messages()[before..].contains("input \"x\" takes [3], not [2]"),
            "{}",
            session.messages()
        );
        TfLiteSignatureRunnerDelete(double);
        TfLiteSignatureRunnerDelete(negate);
    }
}

#[test]
fn a_model_without_signatures_has_a_runner() {
    let session = Session::new(counter());
    // SAFETY: the key is null; texts are valid.
    unsafe {
        let runner = TfLiteInterpreterGetSignatureRunner(session.interpreter, std::ptr::null());
        assert_eq!(text(TfLiteSignatureRunnerGetInputName(runner, 0)), "x");
        let x = TfLiteSignatureRunnerGetInputTensor(runner, c"x".as_ptr());
        assert_eq!(x, TfLiteInterpreterGetInputTensor(session.interpreter, 0));
        assert_eq!(TfLiteSignatureRunnerAllocateTensors(runner), OK);
        write(x, &[3.0, 4.0]);
        assert_eq!(TfLiteSignatureRunnerInvoke(runner), OK);
        assert_eq!(read(TfLiteInterpreterGetOutputTensor(session.interpreter, 1)), [4.0, 5.0]);
        TfLiteSignatureRunnerDelete(runner);
    }
}

#[test]
fn variables_keep_values_until_they_are_reset() {
    let session = Session::new(counter());
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterGetVariableTensorCount(it), 1);
    let state = TfLiteInterpreterGetVariableTensor(it, 0);
    let sum = TfLiteInterpreterGetOutputTensor(it, 0);
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    write(TfLiteInterpreterGetInputTensor(it, 0), &[1.0, 2.0]);
    write(state, &[10.0, 20.0]);
    assert_eq!((TfLiteInterpreterInvoke(it), read(sum)), (OK, [11.0, 22.0]));
    assert_eq!(TfLiteInterpreterResetVariableTensors(it), OK);
    assert_eq!((TfLiteInterpreterInvoke(it), read(sum)), (OK, [1.0, 2.0]));
    write(state, &[10.0, 20.0]);
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    assert_eq!(read(state), [0.0, 0.0]);
}

#[test]
fn tensors_are_in_memory_of_the_application() {
    #[repr(C, align(64))]
    struct Aligned([f32; 16]);
    let (mut input, mut output) = (Aligned([7.0; 16]), Aligned([0.0; 16]));
    let session = Session::new(counter());
    let it = session.interpreter;
    let set = |tensor: c_int, data: *mut f32, bytes: usize, flags: i64| {
        let allocation = CustomAllocation { data: data.cast(), bytes };
        // SAFETY: the memory outlives the interpreter.
        unsafe { TfLiteInterpreterSetCustomAllocationForTensor(it, tensor, &raw const allocation, flags) }
    };
    let (x, sum) =
        (TfLiteInterpreterGetInputTensorIndex(it, 0), TfLiteInterpreterGetOutputTensorIndex(it, 0));
    assert_eq!(set(x, input.0.as_mut_ptr(), 8, 0), OK);
    assert_eq!(set(sum, output.0[1..].as_mut_ptr(), 8, 0), ERROR, "misaligned");
    assert_eq!(set(sum, output.0[1..].as_mut_ptr(), 4, 1), OK);
    assert_eq!(TfLiteInterpreterAllocateTensors(it), ERROR, "too small");
    assert_eq!(set(sum, output.0[1..].as_mut_ptr(), 8, 1), OK);
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    // SAFETY: the tensors live.
    unsafe {
        assert_eq!(TfLiteTensorData(TfLiteInterpreterGetInputTensor(it, 0)), input.0.as_mut_ptr().cast())
    };
    assert_eq!(TfLiteInterpreterInvoke(it), OK);
    assert_eq!(output.0[..4], [0.0, 7.0, 7.0, 0.0]);
    assert_eq!(read(TfLiteInterpreterGetOutputTensor(it, 0)), [7.0, 7.0]);
    for (tensor, why) in [(3, "a constant"), (99, "not there"), (-1, "not there")] {
        assert_eq!(set(tensor, input.0.as_mut_ptr(), 8, 0), ERROR, "{why}");
    }
}

#[test]
fn cancellation_ends_the_call_that_runs() {
    let session = Session::with(counter(), |options| {
        assert_eq!(TfLiteInterpreterOptionsEnableCancellation(options, 1), OK);
    });
    let it = session.interpreter;
    assert_eq!(TfLiteInterpreterAllocateTensors(it), OK);
    assert_eq!((TfLiteInterpreterCancel(it), TfLiteInterpreterInvoke(it)), (OK, OK), "nothing ran");

    let endless = Session::with(endless(), |options| {
        assert_eq!(TfLiteInterpreterOptionsEnableCancellation(options, 1), OK);
    });
    let it = endless.interpreter.addr();
    assert_eq!(TfLiteInterpreterAllocateTensors(endless.interpreter), OK);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                TfLiteInterpreterCancel(std::ptr::without_provenance(it));
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let status = TfLiteInterpreterInvoke(endless.interpreter);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(status, CANCELLED);
    });
}

/// A loop that does not end.
fn endless() -> Vec<u8> {
    use delegraph::core::ops::control_flow::WhileParams;
    let counter = |name| {
        let mut graph = SubgraphBuilder::new(name);
        let x = graph.input("x", TensorType::Float32, [1]);
        (graph, x)
    };
    let (mut main, x) = counter("main");
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    let y = main.tensor("y", TensorType::Float32, [1]);
    main.node(BuiltinOp::WHILE, params).inputs([x]).writes([y]);
    main.outputs([y]);
    let (mut condition, _) = counter("condition");
    let yes = condition.constant_bytes("yes", TensorType::Bool, [1], &[1]);
    condition.outputs([yes]);
    let (mut body, x) = counter("body");
    let y = body.node(BuiltinOp::NEG, delegraph::core::ops::Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let model = ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body);
    model.build().unwrap().to_bytes().unwrap()
}

#[test]
fn options_are_copied() {
    let options = TfLiteInterpreterOptionsCreate();
    TfLiteInterpreterOptionsSetNumThreads(options, 3);
    let copy = TfLiteInterpreterOptionsCopy(options);
    TfLiteInterpreterOptionsSetNumThreads(options, -1);
    let threads = |handle: *mut OptionsHandle| OPTIONS.get(handle).map(|options| lock(&options).threads);
    assert_eq!((threads(options), threads(copy)), (Some(-1), Some(3)));
    TfLiteInterpreterOptionsDelete(options);
    TfLiteInterpreterOptionsDelete(copy);
}

#[test]
fn a_model_with_an_unknown_custom_op_can_be_looked_at() {
    let session = Session::new(unresolved());
    let input = TfLiteInterpreterGetInputTensor(session.interpreter, 0);
    assert_eq!(dims(input), [2]);
    assert_eq!(TfLiteInterpreterAllocateTensors(session.interpreter), ERROR);
    assert!(
        session.messages().contains("Encountered unresolved custom op: Mystery"),
        "{}",
        session.messages()
    );
}
