//! Damaged files: whatever is wrong with one, the answer is an error or a result, never a panic, a hang or an absurd
//! allocation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use delegraph::interpreter::seeded::SplitMix64;
use delegraph::{Interpreter, Model, ModelBytes};

/// Loads, builds and runs; the error if there is one.
fn attempt(bytes: Vec<u8>) -> Result<(), delegraph::Error> {
    let model = Model::from_bytes(ModelBytes::new(bytes))?;
    let mut interpreter = Interpreter::builder(model).memory_limit(64 << 20).build()?;
    interpreter.invoke()
}

/// One of many ways to damage a file.
fn damage(file: &[u8], g: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let at = (g.draw() % file.len() as u64) as usize;
    match g.draw() % 5 {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << (g.draw() % 8),
        2 => {
            let value = [0, 1, 127, 0x7fff_ffff, 0xffff_ffff, g.draw() as u32][(g.draw() % 6) as usize];
            let end = (at + 4).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        3 => {
            let other = (g.draw() % file.len() as u64) as usize;
            let len = 16.min(file.len() - at.max(other));
            bytes.copy_within(at..at + len, other);
        }
        _ => {
            for _ in 0..8 {
                let at = (g.draw() % file.len() as u64) as usize;
                bytes[at] = g.draw() as u8;
            }
        }
    }
    bytes
}

#[test]
fn damaged_files_are_errors() {
    let mut g = SplitMix64::new(1, 0, 0);
    let (mut errors, mut panics) = (0, Vec::new());
    for form in ["float32", "float16", "dynamic_range", "int8"] {
        let path = format!("{}/assets/digits/digits_{form}.tflite", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(path).unwrap();
        for case in 0..150 {
            let bytes = damage(&file, &mut g);
            let start = Instant::now();
            match catch_unwind(AssertUnwindSafe(|| attempt(bytes))) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => errors += 1,
                Err(_) => panics.push(format!("{form} {case}")),
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{form} {case} takes too long");
        }
    }
    assert!(panics.is_empty(), "panics: {panics:?}");
    assert!(errors >= 100, "only {errors} of 600 damaged files were noticed");
}

#[test]
fn every_truncation_is_an_error() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits_int8.tflite");
    let file = std::fs::read(path).unwrap();
    for len in (0..file.len()).step_by(file.len() / 100) {
        assert!(attempt(file[..len].to_vec()).is_err(), "{len} of {} bytes", file.len());
    }
}

#[test]
fn what_is_no_model_is_said() {
    let text = attempt(b"PK\x03\x04 this is a zip file".to_vec()).unwrap_err().to_string();
    assert!(text.contains("not a .tflite file"), "{text}");
    let text = attempt(Vec::new()).unwrap_err().to_string();
    assert!(text.contains("0 bytes are too few"), "{text}");
}
