//! A model with data beyond 2 GiB in its file, which is mapped, not read.
#![cfg(all(unix, target_pointer_width = "64"))] // Only on systems with sparse files and 64-bit addresses.
#![allow(clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::io::{Seek, SeekFrom, Write};

use common::tree;
use delegraph::{Interpreter, Model};
use serde_json::{Value, json};

/// Beyond the range of a signed 32-bit offset.
const AT: u64 = (1 << 31) + 4096;
/// Beyond the range of an unsigned 32-bit offset.
const FAR: u64 = (1 << 32) + 4096;

fn outputs(model: Model) -> Vec<f32> {
    let mut interpreter = Interpreter::builder(model).build().unwrap();
    for (i, pixel) in interpreter.input_mut::<f32>(0).unwrap().iter_mut().enumerate() {
        *pixel = (i % 7) as f32 / 7.0;
    }
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

/// The resident memory of this process.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn weights_behind_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.tflite");
    let original = delegraph::load(common::digits("digits_float32.tflite")).unwrap();
    let mut model = tree::read(original.bytes());
    // The two largest buffers move to the end of the file.
    let size = |b: &Value| b.get("data").map_or(0, |data| data.as_str().unwrap().chars().count());
    let mut buffers: Vec<usize> = (0..model["buffers"].as_array().unwrap().len()).collect();
    buffers.sort_by_key(|&i| std::cmp::Reverse(size(&model["buffers"][i])));
    let mut file = std::fs::File::create(&path).unwrap();
    for (&i, at) in buffers[..2].iter().zip([AT, FAR]) {
        let data: Vec<u8> = model["buffers"][i]["data"].as_str().unwrap().chars().map(|c| c as u8).collect();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&data).unwrap();
        tree::set(&mut model, &format!("/buffers/{i}"), json!({ "offset": at, "size": data.len() }));
    }
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(&tree::write(&model)).unwrap();
    drop(file);
    #[cfg(target_os = "linux")]
    let before = resident_bytes();
    let large = delegraph::load(&path).unwrap();
    assert!(large.bytes().len() as u64 > FAR);
    assert_eq!(outputs(large), outputs(original));
    #[cfg(target_os = "linux")]
    assert!(resident_bytes() < before + (256 << 20), "the whole file was read");
    // One byte more than the file has.
    let (last, size) = (buffers[1], model["buffers"][buffers[1]]["size"].as_u64().unwrap());
    tree::set(&mut model, &format!("/buffers/{last}/size"), size + 1);
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&tree::write(&model)).unwrap();
    let error = delegraph::load(&path).unwrap_err().to_string();
    let text = format!(
        "buffer {last}: {} bytes at offset {FAR} are outside the file of {} bytes",
        size + 1,
        FAR + size
    );
    assert!(error.ends_with(&text), "{error}");
}

#[test]
fn custom_options_behind_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("options.tflite");
    let mut model =
        tree::read(&common::Tiny { code: 32, custom_name: Some("Frobnicate"), ..Default::default() }.bytes());
    tree::set(&mut model, "/subgraphs/0/operators/0/large_custom_options_offset", FAR);
    tree::set(&mut model, "/subgraphs/0/operators/0/large_custom_options_size", 5);
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&tree::write(&model)).unwrap();
    file.seek(SeekFrom::Start(FAR)).unwrap();
    file.write_all(b"hello").unwrap();
    drop(file);
    let model = delegraph::load(&path).unwrap();
    let options = model.subgraphs()[0].nodes()[0].custom_options();
    assert_eq!(&model.bytes()[options], b"hello");
}
