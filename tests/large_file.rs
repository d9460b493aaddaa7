//! Model files that are mapped, not read: with data beyond 2 GiB, and one that becomes shorter.
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

/// A model that adds 4 MiB of constants to its input. Each run reads the constants from the mapped file.
#[cfg(target_os = "linux")]
fn sum() -> Vec<u8> {
    use delegraph::core::ops::binary::AddParams;
    use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType};
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1024, 1024]);
    let constant = graph.constant("c", [1024, 1024], &vec![0.5f32; 1 << 20]);
    let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, constant]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().bytes().to_vec()
}

#[cfg(target_os = "linux")]
#[test]
fn truncating_a_model_in_use_is_an_error() {
    use std::process::Stdio;
    use std::time::Duration;

    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = (folder.path().join("sum.tflite"), sum());
    let arguments = ["bench", path.to_str().unwrap(), "--seconds", "30", "--json"];
    for wait in [0, 1, 4, 16] {
        std::fs::write(&path, &bytes).unwrap();
        let mut command = common::command(&arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500 * wait));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let ran = child.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
        // A file that is loaded after it became shorter is damaged.
        assert_eq!(ran.status.code(), Some(4), "{out}\n{err}");
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["error"]["exit_code"], 4, "{out}");
        if err.contains("was truncated while it was read") {
            assert_eq!(document["error"]["message"], "a mapped file was truncated while it was read");
            return;
        }
    }
    panic!("no run had read the file");
}
