//! Damaged files: whatever is wrong with one, the answer is an error or a result, never a panic, a hang or an absurd
//! allocation.

#![allow(clippy::panic)] // Clippy knows only `#[test]` functions as tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use delegraph::interpreter::seeded::SplitMix64;
use delegraph::{Interpreter, Model, ModelBytes};

/// What an interpreter may use: above what any model here needs, far below what a damaged shape may ask for.
const MEMORY_LIMIT: usize = 64 << 20;
/// For one file.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Remembers the largest allocation.
struct Watching;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system allocator's; what is not here is made of `alloc` and `dealloc`.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Loads, builds and runs; the error if there is one. Fails where that panics, hangs or allocates too much.
fn attempt(name: &str, bytes: Vec<u8>) -> Result<(), delegraph::Error> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let run = || {
            let model = Model::from_bytes(ModelBytes::new(bytes))?;
            Interpreter::builder(model).memory_limit(MEMORY_LIMIT).build()?.invoke()
        };
        _ = sender.send(run());
    });
    let result = match receiver.recv_timeout(TIME_LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => panic!("{name}: a panic"),
        Err(RecvTimeoutError::Timeout) => panic!("{name}: no end after {TIME_LIMIT:?}"),
    };
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest <= 2 * MEMORY_LIMIT, "{name}: {largest} bytes allocated at once");
    result
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
    let mut errors = 0;
    for form in ["float32", "float16", "dynamic_range", "int8"] {
        let path = format!("{}/assets/digits/digits_{form}.tflite", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(path).unwrap();
        for case in 0..150 {
            let bytes = damage(&file, &mut g);
            errors += usize::from(attempt(&format!("{form} {case}"), bytes).is_err());
        }
    }
    assert!(errors >= 100, "only {errors} of 600 damaged files were noticed");
}

#[test]
fn every_truncation_is_an_error() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits_int8.tflite");
    let file = std::fs::read(path).unwrap();
    for len in (0..file.len()).step_by(file.len() / 100) {
        let name = format!("{len} of {} bytes", file.len());
        assert!(attempt(&name, file[..len].to_vec()).is_err(), "{name}");
    }
}

#[test]
fn what_is_no_model_is_said() {
    let text = attempt("zip", b"PK\x03\x04 this is a zip file".to_vec()).unwrap_err().to_string();
    assert!(text.contains("not a .tflite file"), "{text}");
    let text = attempt("nothing", Vec::new()).unwrap_err().to_string();
    assert!(text.contains("0 bytes are too few"), "{text}");
}
