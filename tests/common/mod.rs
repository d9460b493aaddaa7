//! Helpers of the tests of the command: running it, and tiny models made in memory.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Only tests call this.

#[path = "../fuzz/src/tree.rs"]
pub mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};

/// One of the embedded models, or a file in their folder.
pub fn digits(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/digits").join(file)
}

/// The four embedded models.
pub const DIGITS: [&str; 4] =
    ["digits_float32.tflite", "digits_float16.tflite", "digits_dynamic_range.tflite", "digits_int8.tflite"];

/// The result of a run of the command.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Standard output, which must be one JSON document.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Fails unless the exit code is `code` and standard error contains `text`.
    pub fn expect(self, code: i32, text: &str) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(self.stderr.contains(text), "\"{text}\" is not in: {}", self.stderr);
        self
    }
}

/// Runs the command; fails if a signal or a panic ended it.
pub fn delegraph(arguments: &[&str]) -> Ran {
    run(&mut command(arguments))
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_delegraph"));
    command.args(arguments).env_remove("RUST_LOG").env("NO_COLOR", "1");
    command
}

/// The build folder of crates that tests write. It is shared, so that common dependencies are compiled once.
pub fn nested_target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("nested")
}

/// Cargo for a crate that a test wrote into `folder`, without network and with the versions of this workspace.
pub fn nested_cargo(arguments: &[&str], folder: &Path) -> Command {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    std::fs::copy(lock, folder.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--offline", "--quiet"]).current_dir(folder);
    cargo.env("CARGO_TARGET_DIR", nested_target()).env_remove("RUSTFLAGS");
    // The crates of this workspace are tested with checks elsewhere. With checks, compiling them takes twice as long.
    for setting in ["DEBUG", "DEBUG_ASSERTIONS", "OVERFLOW_CHECKS"] {
        cargo.env(format!("CARGO_PROFILE_DEV_{setting}"), "false");
    }
    cargo.env("CARGO_INCREMENTAL", "0");
    cargo
}

pub fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
    Ran { code: output.status.code().expect("a signal ended it"), stdout, stderr }
}

pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A model of one node: two float32 vectors of 4 elements in, one out.
pub struct Tiny {
    /// The code of the builtin operator; 32 is a custom one.
    pub code: i32,
    pub version: i32,
    pub custom_name: Option<&'static str>,
    /// The node's operator code; the only valid one is 0.
    pub opcode_index: u32,
    /// The tensors that the node reads. There are three tensors; number 2 is the output.
    pub inputs: [i32; 2],
}

impl Default for Tiny {
    /// ADD version 1.
    fn default() -> Self {
        Tiny { code: 0, version: 1, custom_name: None, opcode_index: 0, inputs: [0, 1] }
    }
}

impl Tiny {
    /// Returns the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let name = self.custom_name.map(|name| b.create_string(name));
        let code = table(&mut b, |b| {
            // Field 0 holds codes up to 127 only; old readers use it.
            b.push_slot::<i8>(field(0), self.code.min(127) as i8, 0);
            if let Some(name) = name {
                b.push_slot_always(field(1), name);
            }
            b.push_slot::<i32>(field(2), self.version, 1);
            b.push_slot::<i32>(field(3), self.code, 0);
        });
        let codes = b.create_vector(&[code]);
        let tensors: Vec<_> = ["a", "b", "sum"]
            .iter()
            .map(|name| {
                let (shape, name) = (b.create_vector(&[4i32]), b.create_string(name));
                table(&mut b, |b| {
                    b.push_slot_always(field(0), shape);
                    b.push_slot_always(field(3), name);
                })
            })
            .collect();
        let (tensors, inputs, outputs) =
            (b.create_vector(&tensors), b.create_vector(&self.inputs), b.create_vector(&[2i32]));
        let node = table(&mut b, |b| {
            b.push_slot::<u32>(field(0), self.opcode_index, 0);
            b.push_slot_always(field(1), inputs);
            b.push_slot_always(field(2), outputs);
        });
        let (nodes, inputs) = (b.create_vector(&[node]), b.create_vector(&[0i32, 1]));
        let subgraph = table(&mut b, |b| {
            b.push_slot_always(field(0), tensors);
            b.push_slot_always(field(1), inputs);
            b.push_slot_always(field(2), outputs);
            b.push_slot_always(field(3), nodes);
        });
        let buffer = table(&mut b, |_| {});
        let (subgraphs, buffers) = (b.create_vector(&[subgraph]), b.create_vector(&[buffer]));
        let model = table(&mut b, |b| {
            b.push_slot::<u32>(field(0), 3, 0);
            b.push_slot_always(field(1), codes);
            b.push_slot_always(field(2), subgraphs);
            b.push_slot_always(field(4), buffers);
        });
        b.finish(model, Some("TFL3"));
        b.finished_data().to_vec()
    }

    /// Returns the file, written to `folder`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let file = folder.join("tiny.tflite");
        std::fs::write(&file, self.bytes()).unwrap();
        file
    }
}

fn table<'b>(
    b: &mut FlatBufferBuilder<'b>,
    fields: impl FnOnce(&mut FlatBufferBuilder<'b>),
) -> WIPOffset<TableFinishedWIPOffset> {
    let start = b.start_table();
    fields(b);
    b.end_table(start)
}

/// The position of field number `n` in a table's vtable.
fn field(n: u16) -> u16 {
    4 + 2 * n
}
