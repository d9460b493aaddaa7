//! The functions of the interface, called like a C program.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::mpsc::{Sender, channel};

use common::*;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType};
use delegraph_capi::buffers::*;
use delegraph_capi::error::dg_status::{self, *};
use delegraph_capi::interpreter::*;
use delegraph_capi::invocation::*;
use delegraph_capi::model::*;
use delegraph_capi::options::*;
use delegraph_capi::report::*;
use delegraph_capi::tensors::dg_type::*;
use delegraph_capi::tensors::*;
use delegraph_capi::text::*;

#[test]
fn a_model_runs() {
    let model = load(DIGITS);
    let options = options();
    assert_eq!(dg_options_set_threads(options, 2), DG_OK);
    let it = create(model, options).unwrap();
    // SAFETY: results have places.
    unsafe {
        assert_eq!(made(9, |out| dg_interpreter_count(it, DG_INPUT, out)), Ok(1));
        assert_eq!(made(9, |out| dg_interpreter_count(it, DG_OUTPUT, out)), Ok(1));
        assert_eq!(dg_options_delete(options), DG_OK);
        assert_eq!(dg_model_delete(model), DG_OK);
    }
    assert_eq!(dg_interpreter_prepare(it), DG_OK);
    let (input, output) = (info(it, DG_INPUT, 0).unwrap(), info(it, DG_OUTPUT, 0).unwrap());
    assert_eq!((input.r#type, input.scale_count), (DG_FLOAT32, 0));
    let count: usize = input.dims[..input.rank].iter().product();
    assert_eq!((input.bytes, output.bytes), (4 * count, 40));
    let picture: Vec<f32> = (0..count).map(|i| (i % 7) as f32 / 7.0).collect();
    assert_eq!(write(it, 0, &picture), DG_OK);
    assert_eq!(dg_interpreter_invoke(it), DG_OK);
    let found = read(it, 0, 10);
    let mut own =
        delegraph::Interpreter::builder(delegraph::load(DIGITS).unwrap()).threads(2).build().unwrap();
    own.input_mut::<f32>(0).unwrap().copy_from_slice(&picture);
    own.invoke().unwrap();
    assert_eq!(found, own.output::<f32>(0).unwrap());
    // In place.
    let (mut memory, mut bytes) = (null_mut::<c_void>(), 0);
    // SAFETY: results have places; the memory has the size, and no call runs.
    unsafe {
        assert_eq!(dg_interpreter_input_data(it, 0, &raw mut memory, &raw mut bytes), DG_OK);
        assert_eq!(bytes, 4 * count);
        std::slice::from_raw_parts_mut(memory.cast::<f32>(), count).fill(0.0);
        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        let mut memory = null();
        assert_eq!(dg_interpreter_output_data(it, 0, &raw mut memory, &raw mut bytes), DG_OK);
        assert_eq!(bytes, 40);
        let blank = std::slice::from_raw_parts(memory.cast::<f32>(), 10);
        assert!(blank != found && blank.iter().all(|value| value.is_finite()));
    }
    assert_eq!(dg_interpreter_delete(it), DG_OK);
}

#[test]
fn quantized_tensors_are_described() {
    let model = load(DIGITS_INT8);
    let it = create(model, null()).unwrap();
    let input = info(it, DG_INPUT, 0).unwrap();
    assert_eq!((input.r#type, input.scale_count), (DG_INT8, 1));
    let file = delegraph::load(DIGITS_INT8).unwrap();
    let graph = file.subgraph(0).unwrap();
    let expected = graph.tensor(graph.inputs()[0]).quantization().unwrap().scale_zero_point().unwrap();
    assert_eq!((input.scale, input.zero_point), expected);
    let (mut scale, mut zero, mut count) = ([0f32; 2], [9i64; 2], 0);
    // SAFETY: the arrays have the capacity.
    unsafe {
        let scales = scale.as_mut_ptr();
        let status = dg_interpreter_scales(it, DG_INPUT, 0, scales, zero.as_mut_ptr(), 2, &raw mut count);
        assert_eq!((status, count), (DG_OK, 1));
        assert_eq!((scale[0], zero), (expected.0, [i64::from(expected.1), 9]));
        let (mut dims, mut rank) = ([7usize; 8], 0);
        let status = dg_interpreter_shape(it, DG_INPUT, 0, dims.as_mut_ptr(), 2, &raw mut rank);
        assert_eq!((status, rank), (DG_OK, input.rank));
        assert_eq!((dims[..2].to_vec(), dims[2]), (input.dims[..2].to_vec(), 7));
    }
    dg_interpreter_delete(it);
    dg_model_delete(model);
}

#[test]
fn signatures_are_selected_and_inputs_resized() {
    let model = from_bytes(&signatures()).unwrap();
    let it = create(model, null()).unwrap();
    // SAFETY: texts are valid, results have places.
    unsafe {
        assert_eq!(made(0, |out| dg_model_signature_count(model, out)), Ok(2));
        assert_eq!(text(|out| dg_model_signature_key(model, 1, out)), "negate");
        let (status, error) = made(null_mut(), |out| dg_model_signature_key(model, 2, out)).unwrap_err();
        assert_eq!(
            (status, error.as_str()),
            (DG_INVALID_ARGUMENT, "signature 2 does not exist; the model has 2 signatures")
        );
        assert_eq!(dg_interpreter_select_signature(it, c"other".as_ptr()), DG_INVALID_ARGUMENT);
        assert!(last_error().contains("the model has: double, negate"), "{}", last_error());
        assert_eq!(dg_interpreter_select_signature(it, c"negate".as_ptr()), DG_OK);
        assert_eq!(text(|out| dg_interpreter_name(it, DG_OUTPUT, 0, out)), "minus");
        assert_eq!(write(it, 0, &[1.0, -2.0, 3.0]), DG_OK);
        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        assert_eq!(read(it, 0, 3), [-1.0, 2.0, -3.0]);

        assert_eq!(dg_interpreter_select_signature(it, c"double".as_ptr()), DG_OK);
        assert_eq!(made(9, |out| dg_interpreter_find(it, DG_INPUT, c"a".as_ptr(), out)), Ok(1));
        assert_eq!(made(9, |out| dg_interpreter_find(it, DG_OUTPUT, c"total".as_ptr(), out)), Ok(0));
        let missing = made(9, |out| dg_interpreter_find(it, DG_INPUT, c"b".as_ptr(), out)).unwrap_err();
        assert_eq!(missing, (DG_INVALID_ARGUMENT, "the model has no input \"b\"".into()));
        for input in [0, 1] {
            assert_eq!(dg_interpreter_resize_input(it, input, [4].as_ptr(), 1), DG_OK);
        }
        assert_eq!(dg_interpreter_resize_input(it, 2, [4].as_ptr(), 1), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_resize_input(it, 0, null(), 1), DG_INVALID_ARGUMENT);
        let large = [usize::MAX, 2];
        assert_eq!(dg_interpreter_resize_input(it, 0, large.as_ptr(), 2), DG_INVALID_ARGUMENT);
    }
    assert_eq!(write(it, 0, &[1.0; 4]), DG_OK);
    assert_eq!(write(it, 1, &[2.0; 4]), DG_OK);
    assert_eq!(write(it, 1, &[2.0; 3]), DG_INVALID_ARGUMENT, "another size");
    assert_eq!(dg_interpreter_invoke(it), DG_OK);
    assert_eq!(info(it, DG_OUTPUT, 0).unwrap().dims[..2], [4, 0]);
    assert_eq!(read(it, 0, 4), [3.0; 4]);
    dg_interpreter_delete(it);
    dg_model_delete(model);
}

#[test]
fn reports_say_what_runs_each_node() {
    let model = from_bytes(&counter()).unwrap();
    let options = options();
    // SAFETY: texts are valid, results have places.
    unsafe {
        assert_eq!(dg_options_add_delegate(options, c"cpu".as_ptr()), DG_OK);
        let it = create(model, options).unwrap();
        let report = made(dg_report::default(), |out| dg_interpreter_report(it, out)).unwrap();
        assert_eq!((report.nodes, report.cpu_nodes, report.delegated_nodes, report.delegates), (2, 2, 0, 0));
        assert!(report.weights_bytes >= 8 && report.arena_bytes > 0, "{report:?}");
        let mut op = null_mut();
        let mut node = std::mem::MaybeUninit::<dg_node>::uninit();
        assert_eq!(dg_interpreter_node(it, 1, node.as_mut_ptr(), &raw mut op), DG_OK);
        let node = node.assume_init();
        assert_eq!((node.runner, node.rejections), (dg_runner::DG_RUNNER_CPU, 0));
        assert_eq!(CStr::from_ptr(op), c"ADD");
        assert_eq!(dg_text_free(op), DG_OK);
        assert_eq!(dg_interpreter_rejection(it, 1, 0, null_mut(), null_mut()), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_failure(it, 0, null_mut(), null_mut()), DG_INVALID_ARGUMENT);

        let explained: serde_json::Value =
            serde_json::from_str(&text(|out| dg_interpreter_explain(it, out))).unwrap();
        assert_eq!((&explained["cpu"], &explained["cpu_nodes"]), (&"cpu".into(), &2.into()));
        assert_eq!(explained["nodes"][1]["op"], "ADD");
        let inspected: serde_json::Value =
            serde_json::from_str(&text(|out| dg_model_inspect(model, out))).unwrap();
        assert_eq!(
            (&inspected["inputs"][0]["name"], &inspected["ops"][0]["count"]),
            (&"x".into(), &2.into())
        );

        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        assert_eq!(text(|out| dg_interpreter_profile(it, out)), "[]");
        assert_eq!(dg_interpreter_set_profiling(it, 1), DG_OK);
        for _ in 0..2 {
            assert_eq!(dg_interpreter_invoke(it), DG_OK);
        }
        let steps: serde_json::Value =
            serde_json::from_str(&text(|out| dg_interpreter_profile(it, out))).unwrap();
        let nodes: Vec<_> = steps.as_array().unwrap().iter().map(|step| &step["nodes"][0]).collect();
        assert_eq!(nodes, [0, 1], "those of the last run");
        dg_interpreter_delete(it);
    }
    dg_options_delete(options);
    dg_model_delete(model);
}

#[test]
fn variables_are_reset_and_tensors_read() {
    let model = from_bytes(&counter()).unwrap();
    let options = options();
    let plain = create(model, null()).unwrap();
    assert_eq!(dg_options_set_preserve_tensors(options, 1), DG_OK);
    let it = create(model, options).unwrap();
    for it in [plain, it] {
        assert_eq!(write(it, 0, &[2.0, 3.0]), DG_OK);
        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        assert_eq!((read(it, 0, 2), read(it, 1, 2)), (vec![2.0, 3.0], vec![3.0, 4.0]));
        assert_eq!(dg_interpreter_reset_variables(it), DG_OK);
        let mut values = [9f32; 2];
        // SAFETY: the values have the size.
        let mut tensor = |number, bytes| unsafe {
            dg_interpreter_read_tensor(it, number, values.as_mut_ptr().cast(), bytes)
        };
        assert_eq!((tensor(1, 8), tensor(1, 4)), (DG_OK, DG_INVALID_ARGUMENT));
        assert_eq!(tensor(99, 8), DG_INVALID_ARGUMENT);
        assert_eq!(values, [0.0; 2]);
        dg_interpreter_delete(it);
    }
    dg_options_delete(options);
    dg_model_delete(model);
}

#[test]
fn null_deleted_and_foreign_handles_are_errors() {
    let model = from_bytes(&counter()).unwrap();
    let it = create(model, null()).unwrap();
    // SAFETY: wrong pointers are null, or handles of other objects, which are numbers.
    unsafe {
        assert_eq!(dg_model_load(null(), null_mut()), DG_INVALID_ARGUMENT);
        assert_eq!(made(null_mut(), |out| dg_model_load(null(), out)).unwrap_err().0, DG_INVALID_ARGUMENT);
        assert_eq!(dg_model_load(c"x".as_ptr(), null_mut()), DG_INVALID_ARGUMENT);
        assert_eq!(made(null_mut(), |out| dg_model_load(c"/no/file".as_ptr(), out)).unwrap_err().0, DG_IO);
        for size in [1, usize::MAX] {
            let failed = made(null_mut(), |out| dg_model_from_bytes(null(), size, out)).unwrap_err();
            assert_eq!(failed.0, DG_INVALID_ARGUMENT);
        }
        assert_eq!(
            made(null_mut(), |out| dg_model_from_bytes(null(), 0, out)).unwrap_err().0,
            DG_INVALID_MODEL
        );
        assert_eq!(create(it.cast(), null()).unwrap_err().0, DG_INVALID_HANDLE);
        assert_eq!(create(model, model.cast()).unwrap_err().0, DG_INVALID_HANDLE);
        // A misaligned handle, and a handle of another generation. The next slot may hold an interpreter of another
        // test.
        let (misaligned, generation) = (it.wrapping_byte_add(1), it.wrapping_byte_add(1 << 23));
        for wrong in [null_mut(), model.cast::<dg_interpreter>(), misaligned, generation] {
            check_interpreter(wrong);
        }
        assert_eq!(dg_interpreter_delete(null_mut()), DG_OK);
        assert_eq!((dg_interpreter_delete(it), dg_interpreter_delete(it)), (DG_OK, DG_INVALID_HANDLE));
        check_interpreter(it);
        // The slot is used again, with another generation.
        let again = create(model, null()).unwrap();
        assert!(again != it);
        check_interpreter(it);
        assert_eq!(dg_interpreter_delete(again), DG_OK);
        assert_eq!((dg_model_delete(model), dg_model_delete(model)), (DG_OK, DG_INVALID_HANDLE));
        assert_eq!(create(model, null()).unwrap_err().0, DG_INVALID_HANDLE);
        assert_eq!(made(0, |out| dg_model_signature_count(model, out)).unwrap_err().0, DG_INVALID_HANDLE);
        let options = options();
        assert_eq!((dg_options_delete(options), dg_options_delete(options)), (DG_OK, DG_INVALID_HANDLE));
        assert_eq!(dg_options_set_threads(options, 1), DG_INVALID_HANDLE);
        assert_eq!(dg_invocation_poll(null()), DG_INVALID_HANDLE);
        assert_eq!(dg_invocation_wait(model.cast(), 0), DG_INVALID_HANDLE);
        assert_eq!(dg_buffer_write(null_mut(), null(), 0), DG_INVALID_HANDLE);
        assert_eq!(last_error(), "the buffer is null, deleted, or a handle of another type");
    }
}

/// Every function fails for an interpreter that does not exist.
unsafe fn check_interpreter(it: *mut dg_interpreter) {
    let (mut number, mut pointer) = (5usize, null_mut::<c_char>());
    let (number, pointer) = (&raw mut number, &raw mut pointer);
    // SAFETY: results have valid pointers, and an interpreter that does not exist uses nothing else.
    let statuses = unsafe {
        [
            dg_interpreter_select_signature(it, c"x".as_ptr()),
            dg_interpreter_resize_input(it, 0, null(), 0),
            dg_interpreter_prepare(it),
            dg_interpreter_invoke(it),
            dg_interpreter_cancel(it),
            dg_interpreter_reset_variables(it),
            dg_interpreter_count(it, DG_INPUT, number),
            dg_interpreter_find(it, DG_INPUT, c"x".as_ptr(), number),
            dg_interpreter_name(it, DG_INPUT, 0, pointer),
            dg_interpreter_shape(it, DG_INPUT, 0, null_mut(), 0, number),
            dg_interpreter_scales(it, DG_INPUT, 0, null_mut(), null_mut(), 0, number),
            dg_interpreter_write(it, 0, null(), 0),
            dg_interpreter_read(it, 0, null_mut(), 0),
            dg_interpreter_read_tensor(it, 0, null_mut(), 0),
            dg_interpreter_input_data(it, 0, pointer.cast(), number),
            dg_interpreter_output_data(it, 0, pointer.cast(), number),
            dg_interpreter_write_strings(it, 0, null(), null(), 0),
            dg_interpreter_read_string(it, DG_INPUT, 0, 0, pointer, null_mut()),
            dg_interpreter_start(it, None, null_mut(), pointer.cast()),
            dg_buffer_create(it, 4, pointer.cast()),
            dg_interpreter_set_input_buffer(it, 0, null()),
            dg_interpreter_set_output_buffer(it, 0, null()),
            dg_interpreter_output_buffer(it, 0, pointer.cast()),
            dg_interpreter_rejection(it, 0, 0, null_mut(), null_mut()),
            dg_interpreter_delegate(it, 0, pointer),
            dg_interpreter_failure(it, 0, null_mut(), null_mut()),
            dg_interpreter_explain(it, pointer),
            dg_interpreter_set_profiling(it, 1),
            dg_interpreter_profile(it, pointer),
        ]
    };
    for (i, status) in statuses.into_iter().enumerate() {
        assert_eq!(status, DG_INVALID_HANDLE, "function {i}");
        // SAFETY: the pointer is that of a local variable.
        assert!(unsafe { (*pointer).is_null() });
    }
}

#[test]
fn arguments_are_checked() {
    let model = from_bytes(&counter()).unwrap();
    let it = create(model, null()).unwrap();
    let mut number = 0;
    // SAFETY: pointers are null, misaligned (then unused), or valid for their sizes.
    unsafe {
        for side in [-1, 2, i32::MAX] {
            assert_eq!(dg_interpreter_count(it, side, &raw mut number), DG_INVALID_ARGUMENT);
            assert_eq!(info(it, side, 0).unwrap_err(), DG_INVALID_ARGUMENT);
        }
        for index in [2, usize::MAX] {
            assert_eq!(info(it, DG_OUTPUT, index).unwrap_err(), DG_INVALID_ARGUMENT);
            assert_eq!(write(it, index, &[0.0; 2]), DG_INVALID_ARGUMENT);
            assert_eq!(dg_interpreter_read(it, index, null_mut(), 0), DG_INVALID_ARGUMENT);
            let failed = made(null_mut(), |out| dg_interpreter_output_buffer(it, index, out)).unwrap_err();
            assert_eq!(failed.0, DG_INVALID_ARGUMENT);
        }
        assert_eq!(dg_interpreter_write(it, 0, null(), 8), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_write(it, 0, [0f32; 2].as_ptr().cast(), usize::MAX), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_read(it, 0, null_mut(), 8), DG_INVALID_ARGUMENT);
        let misaligned = (&raw mut number).wrapping_byte_add(1);
        assert_eq!(dg_interpreter_count(it, DG_INPUT, misaligned), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_count(it, DG_INPUT, null_mut()), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_write_strings(it, 0, null(), null(), 0), DG_INVALID_ARGUMENT);
        assert_eq!(dg_interpreter_start(it, None, null_mut(), null_mut()), DG_INVALID_ARGUMENT);
        let name = c"a\xff";
        assert_eq!(dg_interpreter_find(it, DG_INPUT, name.as_ptr(), &raw mut number), DG_INVALID_ARGUMENT);

        let options = options();
        for wrong in [c"gpu", c"wgpu?speed=9", c"plugin:/no/such/library.so", c"a%zz?b=%zz"] {
            assert_ne!(dg_options_add_delegate(options, wrong.as_ptr()), DG_OK, "{wrong:?}");
        }
        assert_eq!(dg_options_set_policy(options, 3), DG_INVALID_ARGUMENT);
        assert_eq!(dg_options_set_threads(options, 5000), DG_INVALID_ARGUMENT);
        assert_eq!(dg_options_add_kernels(options, c"/no/such/library.so".as_ptr()), DG_DELEGATE);
        dg_options_delete(options);
    }
    dg_interpreter_delete(it);
    dg_model_delete(model);
}

#[test]
fn limits_hold() {
    let model = from_bytes(&endless()).unwrap();
    let options = options();
    assert_eq!(dg_options_set_time_limit(options, 20_000_000), DG_OK);
    let it = create(model, options).unwrap();
    assert_eq!(dg_interpreter_invoke(it), DG_TIME_LIMIT);
    assert!(last_error().contains("dg_options_set_time_limit"), "{}", last_error());
    dg_interpreter_delete(it);
    dg_model_delete(model);

    let model = from_bytes(&signatures()).unwrap();
    assert_eq!(dg_options_set_time_limit(options, 0), DG_OK);
    assert_eq!(dg_options_set_max_memory(options, 1 << 20), DG_OK);
    let it = create(model, options).unwrap();
    for input in [0, 1] {
        // SAFETY: the shape has one dimension.
        assert_eq!(unsafe { dg_interpreter_resize_input(it, input, [1 << 20].as_ptr(), 1) }, DG_OK);
    }
    assert_eq!(dg_interpreter_prepare(it), DG_LIMIT);
    assert!(last_error().contains("dg_options_set_max_memory"), "{}", last_error());
    dg_interpreter_delete(it);
    dg_options_delete(options);
    dg_model_delete(model);
}

type Message = (dg_status, String);

unsafe extern "C" fn done(user_data: *mut c_void, status: dg_status, message: *const c_char) {
    // SAFETY: tests pass a sender that outlives the invocation; messages are null or texts.
    let (to, message) = unsafe {
        let message = if message.is_null() { c"" } else { CStr::from_ptr(message) };
        // A separate sender: the test may drop the other one after receiving the message, before `send` returns.
        ((*user_data.cast::<Sender<Message>>()).clone(), message.to_str().unwrap().to_owned())
    };
    to.send((status, message)).unwrap();
}

#[test]
fn invocations_end_and_call_back() {
    let model = from_bytes(&counter()).unwrap();
    let it = create(model, null()).unwrap();
    assert_eq!(write(it, 0, &[1.0, 2.0]), DG_OK);
    let (to, from) = channel::<Message>();
    let data = (&raw const to).cast_mut().cast();
    for round in 0..200 {
        // SAFETY: the sender outlives the invocations, and results have places.
        unsafe {
            if round % 2 == 0 {
                let invocation =
                    made(null_mut(), |out| dg_interpreter_start(it, None, null_mut(), out)).unwrap();
                assert_eq!(dg_invocation_wait(invocation, DG_FOREVER), DG_OK);
                assert_eq!(
                    (dg_invocation_poll(invocation), dg_invocation_wait(invocation, 0)),
                    (DG_OK, DG_OK)
                );
                assert_eq!(dg_invocation_cancel(invocation), DG_OK, "without effect");
                assert_eq!(dg_invocation_delete(invocation), DG_OK);
                assert_eq!(dg_invocation_poll(invocation), DG_INVALID_HANDLE);
            } else {
                assert_eq!(dg_interpreter_start(it, Some(done), data, null_mut()), DG_OK);
                assert_eq!(from.recv().unwrap(), (DG_OK, String::new()));
            }
        }
        // The interpreter accepts calls when the end is reported.
        assert_eq!(read(it, 0, 2), [1.0, 2.0], "round {round}");
    }
    dg_interpreter_delete(it);
    dg_model_delete(model);
}

#[test]
fn an_invocation_ends_when_its_function_has_returned() {
    struct Data {
        invocation: AtomicPtr<dg_invocation>,
        polled: AtomicI32,
        returned: AtomicBool,
    }
    unsafe extern "C" fn slow(data: *mut c_void, _: dg_status, _: *const c_char) {
        // SAFETY: the test keeps the data until the end of the wait.
        let data = unsafe { &*data.cast::<Data>() };
        let invocation = loop {
            let invocation = data.invocation.load(Ordering::Acquire);
            if !invocation.is_null() {
                break invocation;
            }
            std::thread::yield_now();
        };
        // The result is already available here.
        let statuses = [dg_invocation_poll(invocation), dg_invocation_wait(invocation, DG_FOREVER)];
        data.polled.store(i32::from(statuses == [DG_OK; 2]), Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(20));
        data.returned.store(true, Ordering::Relaxed);
    }
    let model = from_bytes(&counter()).unwrap();
    let it = create(model, null()).unwrap();
    let data = Data {
        invocation: AtomicPtr::new(null_mut()),
        polled: AtomicI32::new(-1),
        returned: AtomicBool::new(false),
    };
    let user_data = (&raw const data).cast_mut().cast();
    // SAFETY: the data outlives the wait, and results have places.
    unsafe {
        let invocation =
            made(null_mut(), |out| dg_interpreter_start(it, Some(slow), user_data, out)).unwrap();
        assert_eq!(dg_invocation_poll(invocation), DG_PENDING);
        data.invocation.store(invocation, Ordering::Release);
        assert_eq!(dg_invocation_wait(invocation, DG_FOREVER), DG_OK);
        assert_eq!(dg_invocation_poll(invocation), DG_OK);
        assert!(data.returned.load(Ordering::Relaxed));
        assert_eq!(data.polled.load(Ordering::Relaxed), 1);
        assert_eq!(dg_invocation_delete(invocation), DG_OK);
    }
    dg_interpreter_delete(it);
    dg_model_delete(model);
}

#[test]
fn a_running_invocation_is_busy_and_can_be_cancelled() {
    let model = from_bytes(&endless()).unwrap();
    let it = create(model, null()).unwrap();
    assert_eq!(dg_interpreter_prepare(it), DG_OK);
    let (to, from) = channel::<Message>();
    let data = (&raw const to).cast_mut().cast();
    for by_interpreter in [true, false] {
        // SAFETY: the sender outlives the invocation, and results have places.
        unsafe {
            let invocation = made(null_mut(), |out| dg_interpreter_start(it, Some(done), data, out)).unwrap();
            assert_eq!(dg_invocation_poll(invocation), DG_PENDING);
            assert_eq!(dg_invocation_wait(invocation, 3_000_000), DG_PENDING);
            assert_eq!(dg_interpreter_invoke(it), DG_BUSY);
            assert_eq!(write(it, 0, &[1.0]), DG_BUSY);
            assert!(made(null_mut(), |out| dg_interpreter_start(it, None, null_mut(), out)).is_err());
            if by_interpreter {
                assert_eq!(dg_interpreter_cancel(it), DG_OK);
            } else {
                assert_eq!(dg_invocation_cancel(invocation), DG_OK);
            }
            assert_eq!(dg_invocation_wait(invocation, DG_FOREVER), DG_CANCELLED);
            assert_eq!(last_error(), "the invocation was cancelled");
            assert_eq!(from.recv().unwrap(), (DG_CANCELLED, "the invocation was cancelled".into()));
            assert_eq!(dg_invocation_delete(invocation), DG_OK);
        }
        assert_eq!(write(it, 0, &[1.0]), DG_OK);
    }
    // Deleting an interpreter ends its invocation.
    // SAFETY: as above.
    unsafe {
        let invocation = made(null_mut(), |out| dg_interpreter_start(it, Some(done), data, out)).unwrap();
        assert_eq!(dg_interpreter_delete(it), DG_OK);
        assert_eq!(dg_invocation_wait(invocation, DG_FOREVER), DG_CANCELLED);
        assert_eq!(from.recv().unwrap().0, DG_CANCELLED);
        assert_eq!(dg_invocation_delete(invocation), DG_OK);
    }
    dg_model_delete(model);
}

#[test]
fn a_cancellation_from_another_thread_ends_a_call() {
    let model = from_bytes(&endless()).unwrap();
    let it = create(model, null()).unwrap();
    assert_eq!(dg_interpreter_cancel(it), DG_OK, "nothing runs");
    assert_eq!(dg_interpreter_prepare(it), DG_OK, "an earlier cancellation is forgotten");
    let address = it.addr();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                dg_interpreter_cancel(std::ptr::without_provenance(address));
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let status = dg_interpreter_invoke(it);
        ended.store(true, Ordering::Relaxed);
        assert_eq!(status, DG_CANCELLED);
    });
    dg_interpreter_delete(it);
    dg_model_delete(model);
}

#[test]
fn memory_of_the_application_is_released_once() {
    unsafe extern "C" fn release(count: *mut c_void) {
        // SAFETY: tests pass a number that outlives the models.
        unsafe { *count.cast::<usize>() += 1 };
    }
    let bytes = counter();
    let mut count = 0usize;
    let data = (&raw mut count).cast::<c_void>();
    // SAFETY: bytes and number outlive the models; no model is deleted while the number is read.
    unsafe {
        let model = made(null_mut(), |out| {
            dg_model_from_memory(bytes.as_ptr().cast(), bytes.len(), Some(release), data, out)
        })
        .unwrap();
        let it = create(model, null()).unwrap();
        assert_eq!(dg_model_delete(model), DG_OK);
        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        assert_eq!(*data.cast::<usize>(), 0);
        assert_eq!(dg_interpreter_delete(it), DG_OK);
        assert_eq!(*data.cast::<usize>(), 1);
        for size in [8, 0, usize::MAX] {
            let failed = made(null_mut(), |out| {
                dg_model_from_memory(bytes.as_ptr().cast(), size, Some(release), data, out)
            });
            assert!(failed.is_err());
        }
        assert_eq!(
            dg_model_from_memory(bytes.as_ptr().cast(), 8, Some(release), data, null_mut()),
            DG_INVALID_ARGUMENT
        );
        assert_eq!(*data.cast::<usize>(), 5, "failures release it, too");
    }
}

#[test]
fn strings_cross_the_border() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::String, [2]);
    let index = graph.constant("index", [2], &[1i32, 0]);
    let params = delegraph::core::ops::gather::GatherParams::default();
    let y = graph.node(BuiltinOp::GATHER, params).inputs([x, index]).output("y");
    graph.outputs([y]);
    let bytes = ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap();
    let model = from_bytes(&bytes).unwrap();
    let it = create(model, null()).unwrap();
    let strings = [c"first".as_ptr(), c"second".as_ptr()];
    // SAFETY: texts are valid and have the lengths; results have places.
    unsafe {
        assert_eq!(dg_interpreter_write_strings(it, 0, strings.as_ptr(), null(), 2), DG_OK);
        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        assert_eq!(text(|out| dg_interpreter_read_string(it, DG_OUTPUT, 0, 1, out, null_mut())), "first");
        assert_eq!(dg_interpreter_write_strings(it, 0, strings.as_ptr(), [2, 3].as_ptr(), 2), DG_OK);
        assert_eq!(dg_interpreter_invoke(it), DG_OK);
        let mut length = 0;
        let read = text(|out| dg_interpreter_read_string(it, DG_OUTPUT, 0, 0, out, &raw mut length));
        assert_eq!((read.as_str(), length), ("sec", 3));
        let failed = made(null_mut(), |out| dg_interpreter_read_string(it, DG_OUTPUT, 0, 2, out, null_mut()))
            .unwrap_err();
        assert_eq!(failed, (DG_INVALID_ARGUMENT, "string 2 does not exist; the tensor has 2 strings".into()));
        assert_eq!(dg_interpreter_write_strings(it, 0, strings.as_ptr(), null(), 1), DG_INVALID_ARGUMENT);
        let with_null = [c"a".as_ptr(), null()];
        assert_eq!(dg_interpreter_write_strings(it, 0, with_null.as_ptr(), null(), 2), DG_INVALID_ARGUMENT);
    }
    dg_interpreter_delete(it);
    dg_model_delete(model);
}
