//! Damaged models through the interface, and buffers on the GPU.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::ptr::{null, null_mut};

use common::*;
#[cfg(feature = "wgpu")]
use delegraph_capi::buffers::*;
use delegraph_capi::error::dg_status::*;
use delegraph_capi::interpreter::*;
use delegraph_capi::model::*;
use delegraph_capi::options::*;
use delegraph_capi::report::*;
use delegraph_capi::tensors::*;
use delegraph_capi::text::*;

/// Runs a model like a program without checks. Returns whether it is valid.
fn run_anything(bytes: &[u8]) -> bool {
    let Ok(model) = from_bytes(bytes) else { return false };
    let options = options();
    dg_options_set_max_memory(options, 64 << 20);
    dg_options_set_time_limit(options, 2_000_000_000);
    // SAFETY: results have places; the memory of outputs has the size.
    unsafe {
        text(|out| dg_model_inspect(model, out));
        if let Ok(it) = create(model, options) {
            dg_interpreter_prepare(it);
            dg_interpreter_invoke(it);
            let (mut data, mut bytes) = (null(), 0);
            for output in 0..made(0, |out| dg_interpreter_count(it, DG_OUTPUT, out)).unwrap_or(0).min(100) {
                if dg_interpreter_output_data(it, output, &raw mut data, &raw mut bytes) == DG_OK && bytes > 0
                {
                    let data = std::slice::from_raw_parts(data.cast::<u8>(), bytes);
                    std::hint::black_box(data.iter().map(|&byte| u64::from(byte)).sum::<u64>());
                }
            }
            let mut json = null_mut();
            dg_interpreter_explain(it, &raw mut json);
            dg_text_free(json);
            dg_interpreter_delete(it);
        }
    }
    dg_options_delete(options);
    dg_model_delete(model);
    true
}

#[test]
fn damaged_models_are_errors() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let models =
        [std::fs::read(DIGITS).unwrap(), std::fs::read(DIGITS_INT8).unwrap(), signatures(), endless()];
    let (mut valid, mut invalid) = (0, 0);
    for round in 0..60 {
        let mut bytes = models[round % 3].clone();
        for _ in 0..=random(4) {
            // Tables are at the ends of the file, weights in between.
            let reach = bytes.len().min(2000);
            let at = if random(2) == 0 { random(reach) } else { bytes.len() - 1 - random(reach) };
            bytes[at] = random(256) as u8;
        }
        *(if run_anything(&bytes) { &mut valid } else { &mut invalid }) += 1;
    }
    assert!(valid > 3 && invalid > 3, "{valid} valid, {invalid} invalid");
}

/// All models of the folder that an environment variable names.
#[test]
fn hostile_models_do_not_crash() {
    let Some(folder) = std::env::var_os("DELEGRAPH_HOSTILE") else {
        return eprintln!("left out: DELEGRAPH_HOSTILE names no folder of models");
    };
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_file() {
            run_anything(&std::fs::read(entry.path()).unwrap());
            count += 1;
        }
    }
    assert!(count > 0);
}

/// On a GPU, if there is one: the output of one model is the input of another without a copy through the CPU's memory.
#[test]
#[cfg(feature = "wgpu")]
fn buffers_pass_tensors_on_the_device() {
    let model = from_bytes(&signatures()).unwrap();
    let options = options();
    // SAFETY: texts are valid, results have places, data have their sizes.
    unsafe {
        if dg_options_add_delegate(options, c"wgpu".as_ptr()) != DG_OK {
            return eprintln!("left out: {}", last_error());
        }
        assert_eq!(dg_options_set_keep_outputs(options, 1), DG_OK);
        let [first, second] = [(); 2].map(|()| create(model, options).unwrap());
        for it in [first, second] {
            for input in [0, 1] {
                assert_eq!(dg_interpreter_resize_input(it, input, [4].as_ptr(), 1), DG_OK);
            }
        }
        let report = made(dg_report::default(), |out| dg_interpreter_report(first, out)).unwrap();
        assert_eq!((report.delegated_nodes, report.partitions, report.delegates), (1, 1, 1), "{report:?}");
        assert_eq!(text(|out| dg_interpreter_delegate(first, 0, out)), "wgpu");
        let buffer = made(null_mut(), |out| dg_buffer_create(first, 16, out)).unwrap();
        assert_eq!(made(0, |out| dg_buffer_size(buffer, out)), Ok(16));
        for wrong in [0, 3, u64::MAX, 1 << 62] {
            assert_ne!(made(null_mut(), |out| dg_buffer_create(first, wrong, out)).map(drop), Ok(()));
        }
        let values = [1f32, 2.0, 3.0, 4.0];
        assert_eq!(dg_buffer_write(buffer, values.as_ptr().cast(), 12), DG_INVALID_ARGUMENT);
        assert_eq!(dg_buffer_write(buffer, values.as_ptr().cast(), 16), DG_OK);
        assert_eq!(dg_interpreter_set_input_buffer(first, 0, buffer), DG_OK);
        assert_eq!(write(first, 1, &[10.0; 4]), DG_OK);
        assert_eq!(dg_interpreter_invoke(first), DG_OK, "{}", last_error());
        let kept = made(null_mut(), |out| dg_interpreter_output_buffer(first, 0, out)).unwrap();
        assert!(!kept.is_null(), "the output stays on the device");
        assert_eq!(dg_interpreter_set_input_buffer(second, 0, kept), DG_OK);
        assert_eq!(dg_interpreter_set_input_buffer(second, 1, buffer), DG_OK);
        let sum = made(null_mut(), |out| dg_buffer_create(second, 16, out)).unwrap();
        assert_eq!(dg_interpreter_set_output_buffer(second, 0, sum), DG_OK);
        assert_eq!(dg_interpreter_invoke(second), DG_OK, "{}", last_error());
        let mut found = [0f32; 4];
        assert_eq!(dg_buffer_read(sum, found.as_mut_ptr().cast(), 16), DG_OK);
        assert_eq!(found, [12.0, 14.0, 16.0, 18.0]);
        assert_eq!(read(first, 0, 4), [11.0, 12.0, 13.0, 14.0]);
        for buffer in [buffer, kept, sum] {
            assert_eq!((dg_buffer_delete(buffer), dg_buffer_delete(buffer)), (DG_OK, DG_INVALID_HANDLE));
        }
        assert_eq!(dg_interpreter_invoke(second), DG_OK, "the interpreter keeps their memory");
        dg_interpreter_delete(first);
        dg_interpreter_delete(second);
    }
    // Loops do not run on the GPU.
    assert_eq!(dg_options_set_policy(options, DG_POLICY_REQUIRE), DG_OK);
    let loops = from_bytes(&endless()).unwrap();
    let strict = create(loops, options).unwrap();
    assert_eq!(dg_interpreter_prepare(strict), DG_UNSUPPORTED);
    assert_eq!(dg_options_set_policy(options, DG_POLICY_PREFER), DG_OK);
    let mixed = create(loops, options).unwrap();
    // SAFETY: results have places.
    unsafe {
        let (mut delegate, mut reason) = (null_mut(), null_mut());
        let status = dg_interpreter_rejection(mixed, 0, 0, &raw mut delegate, &raw mut reason);
        assert_eq!(status, DG_OK, "{}", last_error());
        assert_eq!(std::ffi::CStr::from_ptr(delegate), c"wgpu");
        assert!(!std::ffi::CStr::from_ptr(reason).is_empty());
        assert_eq!((dg_text_free(delegate), dg_text_free(reason)), (DG_OK, DG_OK));
    }
    dg_interpreter_delete(strict);
    dg_interpreter_delete(mixed);
    dg_model_delete(loops);
    let plain = create(model, null()).unwrap();
    // SAFETY: the result has a place.
    let failed = made(null_mut(), |out| unsafe { dg_buffer_create(plain, 16, out) }).unwrap_err();
    assert_eq!(failed.0, DG_STATE);
    dg_interpreter_delete(plain);
    dg_options_delete(options);
    dg_model_delete(model);
}
