//! Kernels of custom ops in shared libraries, built separately with other flags, or in C.

#![cfg(any(unix, windows))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod libraries;

use std::path::{Path, PathBuf};
use std::process::Command;

use delegraph_core::error::ErrorKind;
use delegraph_core::ops::Params;
use delegraph_core::{
    Attributes, BuiltinOp, Model, ModelBuilder, MutableOpResolver, Result, SubgraphBuilder, TensorType,
};
use delegraph_delegate_api::plugin::{KernelLibrary, PluginError, PluginLibrary};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter};
use libraries::{chain, library};

fn open(path: &Path) -> Result<KernelLibrary, PluginError> {
    // SAFETY: the tests' own libraries, or files that are rejected before any of their code runs.
    unsafe { KernelLibrary::open(path) }
}

fn resolver(path: &Path) -> MutableOpResolver {
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    open(path).unwrap().register(&mut resolver);
    resolver
}

/// A chain of nodes with this op.
fn model(op: &str, version: u32, options: &[u8], nodes: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [3]);
    for i in 0..nodes {
        let y = graph.tensor(&format!("y{i}"), TensorType::Float32, [3]);
        graph.custom(op).version(version).options(options).inputs([x]).writes([y]);
        x = y;
    }
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn options(write: impl FnOnce(&mut flexbuffers::MapBuilder<'_>)) -> Vec<u8> {
    let mut builder = flexbuffers::Builder::default();
    let mut map = builder.start_map();
    write(&mut map);
    map.end_map();
    builder.take_buffer()
}

fn run(interpreter: &mut Interpreter, x: &[f32]) -> Result<Vec<f32>> {
    interpreter.input_mut::<f32>(0)?.copy_from_slice(x);
    interpreter.invoke()?;
    Ok(interpreter.output::<f32>(0)?.to_vec())
}

fn build(model: Model, path: &Path) -> Result<Interpreter> {
    Interpreter::builder(model).resolver(resolver(path)).threads(2).build()
}

fn close_to(got: &[f32], want: &[f32]) {
    approx::assert_abs_diff_eq!(*got, *want, epsilon = 1e-6);
}

const X: [f32; 3] = [-7.0, 1.5, 202.0];

/// Builds the library in the C file `source` with these definitions; `None` if there is no C compiler.
fn in_c(folder: &Path, name: &str, source: &str, definitions: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = folder.join(format!("lib{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-std=c11"]).args(definitions);
    cc.arg("-I").arg(root.join("delegate-api/include")).arg("-o").arg(&out).arg(root.join(source)).arg("-lm");
    match cc.output() {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(out)
        }
        Err(e) => {
            eprintln!("left out: no C compiler: {e}");
            None
        }
    }
}

#[test]
fn a_library_in_rust_runs_ops() {
    let path = library("example_kernels");
    let kernels = open(&path).unwrap();
    let ops: Vec<_> = kernels.ops().collect();
    assert_eq!(ops, [("Atan", 1..=1), ("MovingAverage", 1..=2), ("Sin", 1..=1)]);
    let mut interpreter = build(model("Sin", 1, &[], 2), &path).unwrap();
    // The interpreter and its kernels keep the library.
    drop(kernels);
    close_to(&run(&mut interpreter, &X).unwrap(), &X.map(|x| x.sin().sin()));

    // Two nodes with separate state in persistent memory; options, versions, another shape.
    let window = options(|map| {
        map.push("window", 2);
        map.push("scale", 2.0);
    });
    let mut interpreter = build(model("MovingAverage", 2, &window, 2), &path).unwrap();
    let mut next = |x: f32| run(&mut interpreter, &[x, 0.0, -x]).unwrap();
    assert_eq!(next(1.0), [4.0, 0.0, -4.0]);
    // (1 + 3) / 2 · 2 = 4; (2 + 4) / 2 · 2 = 6.
    assert_eq!(next(3.0), [6.0, 0.0, -6.0]);
    // (3 + 5) / 2 · 2 = 8; (4 + 8) / 2 · 2 = 12.
    assert_eq!(next(5.0), [12.0, 0.0, -12.0]);
    interpreter.resize_input(0, &[2]).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, 2.0]).unwrap(), [4.0, 8.0]);
}

/// A composite whose body negates.
fn composite(name: &str, version: i32, attributes: &Attributes) -> Model {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [3]);
    let y = body.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [3]);
    let y = graph.composite(name, body).version(version).attributes(attributes).inputs([x]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn a_kernel_of_a_library_runs_composites_of_its_name() {
    let path = library("example_kernels");
    close_to(
        &run(&mut build(composite("Sin", 1, &Attributes::new()), &path).unwrap(), &X).unwrap(),
        &X.map(f32::sin),
    );
    // There is no kernel for this version.
    assert_eq!(
        run(&mut build(composite("Sin", 2, &Attributes::new()), &path).unwrap(), &X).unwrap(),
        X.map(|x| -x)
    );
    let model = composite("MovingAverage", 2, &Attributes::new().with("window", 2));
    // The kernel gets the attributes and the version of the composite.
    let mut interpreter = build(model, &path).unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), X);
    assert_eq!(run(&mut interpreter, &[0.0; 3]).unwrap(), X.map(|x| x / 2.0));
}

#[test]
fn a_library_in_c_runs_ops() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = in_c(folder.path(), "sin", "examples/kernels-c/sin.c", &[]) else { return };
    let mut interpreter = build(model("Sin", 1, &[], 1), &path).unwrap();
    close_to(&run(&mut interpreter, &X).unwrap(), &X.map(f32::sin));
    interpreter.resize_input(0, &[1]).unwrap();
    close_to(&run(&mut interpreter, &[0.5]).unwrap(), &[0.5f32.sin()]);
    let cube = options(|map| map.push("exponent", 3));
    assert_eq!(
        run(&mut build(model("Power", 1, &cube, 1), &path).unwrap(), &[1.0, 2.0, 3.0]).unwrap(),
        [1.0, 8.0, 27.0]
    );

    // The application reports an invalid option.
    let check = |options: &[u8], want: &str| {
        let error = build(model("Power", 1, options, 1), &path).err().unwrap().to_string();
        let at = "node 0 (custom op \"Power\" v1, writes \"y0\"): invalid node: ";
        assert_eq!(error, format!("{at}libsin.so: {want}"));
    };
    check(&[], "0 bytes of options, which are not a FlexBuffer map");
    check(
        &options(|map| map.push("exponent", "three")),
        "option \"exponent\" is the text \"three\", wanted a number",
    );
    check(&options(|map| map.push("power", 3)), "option \"exponent\" is missing; there are: \"power\"");
}

#[test]
fn a_kernel_that_fails_is_an_error_with_its_node() {
    let path = library("faulty_plugin");
    let faulty = |at: &str, how: &str| {
        let options = options(|map| {
            map.push("at", at);
            map.push("how", how);
        });
        run(&mut build(model("Faulty", 3, &options, 1), &path)?, &X)
    };
    assert_eq!(faulty("", "error").unwrap(), X);
    // A panic while a kernel is freed does not reach the application.
    assert_eq!(faulty("drop", "panic").unwrap(), X);
    let check = |at: &str, how: &str, want: &str| {
        let error = faulty(at, how).unwrap_err().to_string();
        assert!(error.starts_with("node 0 (custom op \"Faulty\" v3, writes \"y0\"): "), "{error}");
        assert!(error.contains(want), "{error}");
    };
    for hook in ["create", "prepare", "invoke"] {
        check(hook, "error", &format!("the test wants an error in {hook}"));
        check(hook, "panic", &format!("it panicked: the test wants a panic in {hook} (lib.rs:"));
    }
    check("memory", "error", "above the limit");
    check("output", "error", "output 7 is missing");
    check("resize", "error", "cannot be resized");
    check("thread", "error", "panicked on another thread");
}

#[test]
fn libraries_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(library("example_kernels")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let check = |path: &Path, want: &str| {
        let error = chain(&open(path).err().unwrap());
        assert!(error.contains(want), "{error}");
    };
    check(&folder.path().join("absent.so"), "absent.so: cannot be read");
    check(&write("text.so", b"no library"), "not a shared library");
    for cut in [100, whole.len() / 2, whole.len() - 100] {
        check(&write("cut.so", &whole[..cut]), "");
    }
    // The other kind of library.
    check(&library("example_plugin"), "it is a library of delegates: `--delegate` takes it");
    // SAFETY: the tests' own library.
    let other = unsafe { PluginLibrary::open(library("example_kernels")) }.err().unwrap().to_string();
    assert!(other.contains("it is a library of kernels: `--ops` takes it"), "{other}");
    // One library may contain both.
    assert!(open(&library("faulty_plugin")).is_ok());
}

#[test]
fn tables_that_violate_the_interface_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let source = "interpreter/tests/libraries/wrong_kernels.c";
    let check = |name: &str, definition: &str, want: &str| {
        let Some(path) = in_c(folder.path(), name, source, &definition.split(',').collect::<Vec<_>>()) else {
            return;
        };
        let opened = open(&path);
        let error = match opened {
            Err(error) => chain(&error),
            Ok(_) => run(
                &mut match build(model("Wrong", 1, &[], 1), &path) {
                    Ok(interpreter) => interpreter,
                    Err(error) => return assert!(error.to_string().contains(want), "{error}"),
                },
                &X,
            )
            .unwrap_err()
            .to_string(),
        };
        assert!(error.contains(want), "{name}: {error}");
    };
    check(
        "version",
        "-DVERSION=99",
        "its plugin interface has version 99, this application's has version 2: update the application",
    );
    check("old", "-DVERSION=0", "build the plugin again");
    check("size", "-DSIZE=16", "its table of functions has 16 bytes");
    check("null", "-DTABLE=NULL", "its entry function returned null or a misaligned pointer");
    check("no_invoke", "-DINVOKE=NULL", "its table has no function `invoke_kernel`");
    check("no_ops", "-DOPS_LIST=NULL", "its list of ops is null");
    check("many", "-DOPS_COUNT=SIZE_MAX", "it lists 18446744073709551615 ops, more than 65536");
    check("no_name", "-DOP_NAME=NULL", "one of its ops has no name");
    check("bad_name", "-DOP_NAME=\"\\xff\"", "the name of an op: invalid utf-8");
    check("versions", "-DLOWEST=5", "the op \"Wrong\", versions 5 to 1");
    check("open", "-DOPEN_STATUS=DELEGRAPH_UNSUPPORTED", "not supported: no such device");
    check("status", "-DCREATE_STATUS=77", "it returned the unknown status 77");
    check(
        "misuse",
        "-DMISUSE",
        "the plugin is wrong: set_output_shape: it may be called in `prepare_kernel` only",
    );
    check("rank", "-DRANK=1000", "the shape has 1000 dimensions, more than 64");
    check("huge", "-DEXTENT=SIZE_MAX", "more bytes than can be addressed");
    check("operands", "-DCREATE_STATUS=DELEGRAPH_INVALID", "invalid node: liboperands.so: wrong on purpose");
    check("length", "-DMESSAGE_LENGTH=SIZE_MAX,-DINVOKE_STATUS=1", "wrong on purpose");
}

#[test]
fn invalid_calls_of_a_kernel_are_not_the_fault_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let source = "interpreter/tests/libraries/wrong_kernels.c";
    let node = "node 0 (custom op \"Wrong\" v1, writes \"y0\"): ";
    let prepare_only = "set_output_shape: it may be called in `prepare_kernel` only";
    let cases = [
        ("early", "-DMISUSE", prepare_only),
        ("rank", "-DRANK=1000", "set_output_shape: the shape has 1000 dimensions, more than 64"),
        ("output", "-DOUTPUT=5", "set_output_shape: output 5 is missing"),
    ];
    for (name, definition, want) in cases {
        let Some(path) = in_c(folder.path(), name, source, &[definition]) else { return };
        let error = build(model("Wrong", 1, &[], 1), &path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        assert_eq!(error.chain(), format!("{node}lib{name}.so: the plugin is wrong: {want}"));
    }
    // A valid call for which there is not enough memory.
    let definition = "-DRESIZED=(size_t)1<<50";
    let Some(path) = in_c(folder.path(), "large", source, &[definition]) else { return };
    let error = run(&mut build(model("Wrong", 1, &[], 1), &path).unwrap(), &X).unwrap_err().chain();
    assert!(error.contains("out of memory") && !error.contains("the plugin is wrong"), "{error}");
}
