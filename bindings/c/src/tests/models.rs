//! Damaged models through the interface: an error or a result, never a crash.

use std::ptr::null;

use super::*;

const DIGITS: [&[u8]; 2] = [
    include_bytes!("../../../../assets/digits/digits_float32.tflite"),
    include_bytes!("../../../../assets/digits/digits_int8.tflite"),
];

/// Runs a model like a program without checks. Returns whether it is valid.
fn run(bytes: &[u8]) -> bool {
    // SAFETY: the bytes outlive the model and the interpreter.
    let model = unsafe {
        TfLiteModelCreateWithErrorReporter(
            bytes.as_ptr().cast(),
            bytes.len(),
            Some(quiet),
            null::<c_void>().cast_mut(),
        )
    };
    let options = TfLiteInterpreterOptionsCreate();
    TfLiteInterpreterOptionsSetErrorReporter(options, Some(quiet), std::ptr::null_mut());
    let it = TfLiteInterpreterCreate(model, options);
    let outputs = if it.is_null() { 0 } else { TfLiteInterpreterGetOutputTensorCount(it) };
    if !it.is_null() {
        TfLiteInterpreterAllocateTensors(it);
        TfLiteInterpreterInvoke(it);
    }
    for index in 0..outputs {
        let output = TfLiteInterpreterGetOutputTensor(it, index);
        // SAFETY: the tensor is null, or live; its data has the size that it returns.
        unsafe {
            let (data, size) =
                (crate::accessors::TfLiteTensorData(output), crate::accessors::TfLiteTensorByteSize(output));
            if !data.is_null() {
                std::hint::black_box(
                    std::slice::from_raw_parts(data.cast::<u8>(), size)
                        .iter()
                        .map(|&b| u64::from(b))
                        .sum::<u64>(),
                );
            }
        }
    }
    let valid = !model.is_null();
    TfLiteInterpreterDelete(it);
    TfLiteInterpreterOptionsDelete(options);
    TfLiteModelDelete(model);
    valid
}

unsafe extern "C" fn quiet(_: *mut c_void, _: *const std::ffi::c_char, _: *mut c_void) {}

#[test]
fn damaged_models_are_errors() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut valid, mut invalid) = (0, 0);
    for round in 0..60 {
        let mut bytes = DIGITS[round % 2].to_vec();
        for _ in 0..=random(4) {
            // Tables are at the ends of the file, weights in between.
            let at = if random(2) == 0 { random(2000) } else { bytes.len() - 1 - random(2000) };
            bytes[at] = random(256) as u8;
        }
        if random(8) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        *(if run(&bytes) { &mut valid } else { &mut invalid }) += 1;
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
            run(&std::fs::read(entry.path()).unwrap());
            count += 1;
        }
    }
    assert!(count > 0);
}
