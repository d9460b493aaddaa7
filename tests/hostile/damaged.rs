//! Damaged files.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use delegraph::interpreter::ResourceLimits;
use delegraph::{Interpreter, Model, ModelBytes};
use delegraph_conformance::seeded::SplitMix64;
use serde_json::{Value, json};

use crate::common::tree;

/// The memory limit of an interpreter: above the needs of any model here, far below the size of a damaged shape.
const MEMORY_LIMIT: usize = 64 << 20;
/// The time limit of one file.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Remembers the largest allocation.
struct Watching;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system allocator; default methods use `alloc` and `dealloc`.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Loads, builds and runs a model, and returns the error if there is one. Fails on panics, hangs and large allocations.
fn attempt(name: &str, bytes: Vec<u8>) -> Result<(), delegraph::Error> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let run = || {
            let model = Model::from_bytes(ModelBytes::new(bytes))?;
            // Writing a model that can be read succeeds or returns an error.
            if let Ok(file) = model.to_bytes() {
                let again = Model::from_bytes(ModelBytes::new(file)).unwrap();
                assert_eq!(model.difference(&again), None);
            }
            Interpreter::builder(model)
                .limits(ResourceLimits::default().with_memory(MEMORY_LIMIT))
                .build()?
                .invoke()
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

/// Returns the file with one random kind of damage.
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
    let mut g = SplitMix64::new(1);
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
fn files_that_are_not_models_are_named() {
    let text = attempt("zip", b"PK\x03\x04 this is a zip file".to_vec()).unwrap_err().to_string();
    assert!(text.contains("not a .tflite file"), "{text}");
    let text = attempt("nothing", Vec::new()).unwrap_err().to_string();
    assert!(text.contains("a file of 0 bytes is too short"), "{text}");
}

/// Replacements of a number in a file: extremes, and neighbours of the correct value.
fn strange(value: &Value) -> Vec<Value> {
    match value.as_i64() {
        Some(v) => {
            vec![json!(v + 1), json!(-77), json!(i32::MAX), json!(i32::MIN), json!(u64::MAX)]
        }
        None if value.is_boolean() => vec![json!(0), json!(1), json!(255)],
        None => vec![json!("NaN"), json!("inf"), json!(-1.0), json!(0.0)],
    }
}

/// The int8 model with more features: sparse weights, weights in blocks, a variable, a call of another subgraph.
fn rich() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits_int8.tflite");
    let mut model = tree::read(&std::fs::read(path).unwrap());
    let mut add = |list: &str, value: Value| {
        let at = model.pointer(list).and_then(Value::as_array).unwrap().len();
        tree::set(&mut model, &format!("{list}/-"), value);
        at
    };
    let data = add("/buffers", json!({ "data": [1, 2, 3, 4, 5, 6, 7, 8] }));
    add(
        "/subgraphs/0/tensors",
        json!({ "shape": [4, 4], "type": 9, "buffer": data, "sparsity": {
            "traversal_order": [0, 1, 2], "block_map": [1], "dim_metadata": [
                { "dense_size": 4 },
                { "format": 1, "array_segments_type": 1, "array_segments": { "values": [0, 1, 2, 3, 4] },
                  "array_indices_type": 3, "array_indices": { "values": [0, 1, 1, 0] } },
                { "dense_size": 2 },
            ] } }),
    );
    let scales = add("/subgraphs/0/tensors", json!({ "shape": [2, 2], "type": 1, "buffer": data }));
    let blocks = json!({ "scales": scales, "zero_points": -1, "block_size": 4 });
    let quantization = json!({ "details_type": 2, "details": blocks });
    add(
        "/subgraphs/0/tensors",
        json!({ "shape": [2, 8], "type": 17, "buffer": data, "quantization": quantization }),
    );
    let axes = json!({ "scales": scales, "zero_points": -1, "quantized_dimensions": [0, 1] });
    let quantization = json!({ "details_type": 3, "details": axes });
    add(
        "/subgraphs/0/tensors",
        json!({ "shape": [2, 4], "type": 9, "buffer": data, "quantization": quantization }),
    );
    add("/subgraphs/0/tensors", json!({ "shape": [2, 4], "type": 9, "is_variable": true }));
    let callee = add("/subgraphs", json!({ "tensors": [], "inputs": [], "outputs": [], "operators": [] }));
    let code = add("/operator_codes", json!({ "deprecated_builtin_code": 127, "builtin_code": 129 }));
    let options = json!({ "init_subgraph_index": callee });
    add(
        "/subgraphs/0/operators",
        json!({ "opcode_index": code, "inputs": [], "outputs": [], "builtin_options_type": 103,
                "builtin_options": options }),
    );
    model
}

/// Numbers that name something in the file or in the format; other numbers are invalid.
const NAMES: [&str; 22] = [
    "array_indices_type",
    "array_segments_type",
    "block_map",
    "buffer",
    "external_buffer",
    "format",
    "fused_activation_function",
    "init_subgraph_index",
    "inputs",
    "opcode_index",
    "outputs",
    "padding",
    "quantized_bias_type",
    "quantized_dimensions",
    "scales",
    "subgraph_index",
    "tensor_index",
    "traversal_order",
    "type",
    "values",
    "version",
    "weights_format",
];

/// Every number of a file except weights, stored or at its default: versions, codes, enums, indices, offsets, sizes,
/// shapes, scales. Each is set to all replacements in turn.
#[test]
fn every_number_may_be_anything() {
    let model = rich();
    attempt("nothing changed", tree::write(&model)).unwrap();
    let (mut cases, mut errors) = (0, 0);
    for (path, value) in tree::numbers(&model) {
        for value in strange(&value) {
            let name = format!("{path} = {value}");
            let mut damaged = model.clone();
            let field = path.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap();
            let certain = NAMES.contains(&field) && [json!(-77), json!(i32::MAX)].contains(&value);
            tree::set(&mut damaged, &path, value);
            // With another code, a union has another table.
            if let Some(union) = path.strip_suffix("_type").filter(|p| damaged.pointer(p).is_some()) {
                tree::set(&mut damaged, union, json!({}));
            }
            cases += 1;
            match attempt(&name, tree::write(&damaged)) {
                Ok(()) => assert!(!certain, "{name} was not noticed"),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors * 2 > cases, "only {errors} of {cases} damaged files were noticed");
}
