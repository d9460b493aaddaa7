//! LiteRT delegates in Delegraph's interpreter. A delegate in C is compiled, if there is a C compiler, and runs with
//! correct and with all faulty behaviours.

#![cfg(all(unix, target_pointer_width = "64"))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod compile;

use std::path::Path;
use std::process::Command;

use compile::library;
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::{BuiltinOp, Error, Model, ModelBuilder, Params, SubgraphBuilder, TensorType};
use delegraph_delegate_api::plugin::{PluginError, PluginOptions};
use delegraph_delegate_api::{PartitionOptions, Policy, Runner};
use delegraph_interpreter::Interpreter;
use delegraph_litert::external::{ExternalDelegate, ExternalLibrary};

fn options(options: &[(&str, &str)]) -> PluginOptions {
    PluginOptions::new(options.iter().copied()).unwrap()
}

fn create(options_given: &[(&str, &str)]) -> Option<Result<ExternalDelegate, PluginError>> {
    // SAFETY: the library of this test, which follows LiteRT's header except where the option `as` chooses a fault.
    let library = unsafe { ExternalLibrary::open(library()?) }.unwrap();
    Some(library.delegate(&options(options_given)))
}

/// `((x + c) + (x + c)) * x + one`. The delegate does not claim the last ADD, which broadcasts.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3]);
    graph.resizable(x, [None, Some(3)]);
    let one = graph.constant("one", [1, 3], &[0.5f32, -1.0, 2.0]);
    let c = graph.constant("c", [2, 3], &[0.5f32, -1.0, 2.0, 3.0, -0.25, 1.5]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, c]).output("sum");
    let twice = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, sum]).output("twice");
    let product = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([twice, x]).output("product");
    let last = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([product, one]).output("last");
    graph.outputs([last, twice]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn run(interpreter: &mut Interpreter) -> Result<Vec<Vec<f32>>, Error> {
    let input = interpreter.input_mut::<f32>(0)?;
    input.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 * 0.75 - 1.0);
    interpreter.invoke()?;
    (0..2).map(|i| Ok(interpreter.output::<f32>(i)?.to_vec())).collect()
}

fn expected() -> Vec<Vec<f32>> {
    run(&mut Interpreter::builder(model()).build().unwrap()).unwrap()
}

#[test]
fn a_delegate_for_litert_runs_what_it_claims() {
    for ways in ["", "temporary", "persistent", "dynamic", "buffer"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let Some(delegate) = create(&[("as", ways), ("log", log.to_str().unwrap())]) else { return };
        let mut interpreter =
            Interpreter::builder(model()).delegate(Box::new(delegate.unwrap())).build().unwrap();
        let report = interpreter.report();
        assert_eq!(report.failures, [], "{ways}");
        assert_eq!((report.partitions.len(), report.delegated_nodes()), (1, 2), "{ways}");
        assert!(report.delegates[0].starts_with("litert:adder-"), "{:?}", report.delegates);
        for _ in 0..3 {
            assert_eq!(run(&mut interpreter).unwrap(), expected(), "{ways}");
        }
        drop(interpreter);
        let log = std::fs::read_to_string(log).unwrap();
        let count = |what: &str| log.lines().filter(|line| *line == what).count();
        assert_eq!(
            (count("invoke"), count("init"), count("free"), count("destroy")),
            (3, 1, 1, 1),
            "{ways}: {log}"
        );
        assert_eq!(count("free_handle"), usize::from(ways == "buffer"), "{ways}: {log}");
    }
}

#[test]
fn shapes_change_and_kernels_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3]);
    graph.resizable(x, [None, Some(3)]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
    graph.outputs([sum]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let Some(delegate) = create(&[("log", log.to_str().unwrap())]) else { return };
    let mut interpreter = Interpreter::builder(model).delegate(Box::new(delegate.unwrap())).build().unwrap();
    for rows in [2, 5, 1] {
        interpreter.resize_input(0, &[rows, 3]).unwrap();
        interpreter.input_mut::<f32>(0).unwrap().fill(1.25);
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.report().delegated_nodes(), 1);
        assert_eq!(interpreter.output::<f32>(0).unwrap(), vec![2.5; rows * 3]);
    }
    drop(interpreter);
    let log = std::fs::read_to_string(log).unwrap();
    let count = |what: &str| log.lines().filter(|line| *line == what).count();
    assert_eq!((count("init"), count("free"), count("destroy")), (count("free"), count("init"), 1), "{log}");
}

#[test]
fn shapes_that_depend_on_data_are_for_delegates_that_take_them() {
    let model = || {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Bool, [4]);
        let places = graph.tensor("places", TensorType::Int64, [4, 1]);
        let sum = graph.tensor("sum", TensorType::Int64, [4, 1]);
        graph.node(BuiltinOp::WHERE, Params::None).inputs([x]).writes([places]);
        graph.node(BuiltinOp::ADD, AddParams::default()).inputs([places, places]).writes([sum]);
        graph.outputs([sum]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    };
    for (ways, nodes) in [("", 0), ("dynamic_graph", 1)] {
        let Some(delegate) = create(&[("as", ways)]) else { return };
        let mut interpreter =
            Interpreter::builder(model()).delegate(Box::new(delegate.unwrap())).build().unwrap();
        assert_eq!(interpreter.report().delegated_nodes(), nodes, "{ways}");
        for set in [[true, false, true, true], [false, false, true, false], [false; 4]] {
            let bytes = interpreter.input_mut::<delegraph_core::Bool>(0).unwrap();
            bytes.iter_mut().zip(set).for_each(|(byte, set)| *byte = set.into());
            interpreter.invoke().unwrap();
            let want: Vec<i64> = (0..4).filter(|&i| set[i as usize]).map(|i| i * 2).collect();
            assert_eq!(interpreter.output::<i64>(0).unwrap(), want, "{ways}");
        }
    }
}

#[test]
fn limits_and_other_delegates_change_the_partitions() {
    let Some(first) = create(&[]) else { return };
    let Some(second) = create(&[]) else { return };
    let limits = PartitionOptions::default().with_min_nodes(3);
    let mut interpreter = Interpreter::builder(model())
        .delegate_with(Box::new(first.unwrap()), limits)
        .delegate(Box::new(second.unwrap()))
        .build()
        .unwrap();
    let runners: Vec<_> = interpreter.report().nodes.iter().map(|node| node.runner.clone()).collect();
    assert!(
        runners[..2].iter().all(|runner| matches!(runner, Runner::Delegate { delegate: 1, .. })),
        "{runners:?}"
    );
    assert_eq!(run(&mut interpreter).unwrap(), expected());
}

/// Failures while preparing, and parts of the resulting message.
const WHILE_PREPARING: &[(&str, &str)] = &[
    ("prepare_fails", "Prepare of the delegate returned kTfLiteDelegateError: no device 7 of acme"),
    ("node_out_of_range", "node 9999 is not in the execution plan"),
    ("null_place", "the place of the plan is null"),
    ("null_nodes", "the place of the node is null"),
    ("null_preview", "the place of the partitions is null"),
    ("null_list", "the list of nodes is null"),
    ("subgraph", "the context of subgraph 1 is not available"),
    ("other_delegate", "nodes were replaced for the delegate"),
    ("null_invoke", "its registration has no `invoke` function"),
    ("null_context", "Prepare of the delegate returned kTfLiteError"),
    ("repeated", "node 0 is in the list twice"),
    ("beyond", "node 1000 is not in the execution plan"),
    ("below", "node -1 is not in the execution plan"),
    ("negative_size", "the list of nodes has a length of -5"),
    ("twice", "node 0 is replaced twice"),
    ("init_fails", "init failed"),
    (
        "kernel_prepare_fails",
        "Prepare of a kernel returned kTfLiteError: adder.c:42 tea == coffee was not true.",
    ),
    ("resize_output", "gave output 4 (\"twice\") the shape [7, 9]; the op has [2, 3]"),
    ("resize_input", "ResizeTensor of tensor 0 (\"x\"), which is neither a temporary nor a dynamic output"),
    ("resize_negative", "a dimension of -3"),
    ("resize_null", "the new shape is null"),
    ("resize_stray", "is not a tensor of the context"),
    ("resize_between", "is not a tensor of the context"),
    ("many_tensors", "2147483647 more tensors; at most 65536 can be added"),
    ("negative_tensors", "-1 tensors cannot be added"),
    ("allocation", "has the allocation type 8"),
    ("given_temporary", "is not a tensor that was added"),
    ("stray_temporary", "temporary: tensor 1000000 is out of range"),
    ("null_temporaries", "the list of temporaries is null"),
];

#[test]
fn a_delegate_that_fails_while_preparing_loses_its_nodes() {
    for (ways, message) in WHILE_PREPARING {
        let Some(delegate) = create(&[("as", ways)]) else { return };
        let mut interpreter =
            Interpreter::builder(model()).delegate(Box::new(delegate.unwrap())).build().unwrap();
        let report = interpreter.report();
        let failures: Vec<&str> = report.failures.iter().map(|failure| failure.message.as_str()).collect();
        assert!(failures.len() == 1 && failures[0].contains(message), "{ways}: {failures:?}");
        assert_eq!(report.delegated_nodes(), 0, "{ways}");
        assert_eq!(run(&mut interpreter).unwrap(), expected(), "{ways}");
        let delegate = create(&[("as", ways)]).unwrap().unwrap();
        let builder = Interpreter::builder(model()).delegate(Box::new(delegate)).policy(Policy::Require);
        assert!(builder.build().is_err(), "{ways}");
    }
}

#[test]
fn a_delegate_that_fails_while_running_is_an_error() {
    for (ways, message) in [
        ("invoke_fails", "invoke returned kTfLiteDelegateError: the device is gone after 3 of 4.5 steps"),
        ("plan_while_running", "GetExecutionPlan is only for a delegate that prepares"),
        ("add_while_running", "AddTensors is only for a delegate or a kernel that prepares"),
        ("resize_while_running", "which is neither a temporary nor a dynamic output"),
        ("stale", "which has no handle of it or no CopyFromBufferHandle"),
        ("stale_value", "data_is_stale is 7, which is not a boolean"),
        ("no_memory", "at 0x0; 24 are needed"),
    ] {
        let Some(delegate) = create(&[("as", ways)]) else { return };
        let mut interpreter =
            Interpreter::builder(model()).delegate(Box::new(delegate.unwrap())).build().unwrap();
        assert_eq!(interpreter.report().delegated_nodes(), 2, "{ways}");
        let error = run(&mut interpreter).unwrap_err().chain();
        assert!(error.contains(message) && error.contains("litert:adder"), "{ways}: {error}");
        interpreter.invoke_with_fallback().unwrap();
        assert_eq!(run(&mut interpreter).unwrap(), expected(), "{ways}");
    }
}

#[test]
fn a_library_that_creates_no_delegate_is_an_error() {
    for (options, message) in [
        (&[("speed", "9")][..], "returned no delegate: there are the options as and log"),
        (&[("as", "no_prepare")], "it has no `Prepare` function"),
        (&[("as", "opaque")], "it is an opaque delegate"),
        (&[("as", "flags")], "its flags are 0x7fffffffffff: its structures are of an unknown version"),
    ] {
        let Some(created) = create(options) else { return };
        let error = Error::external(created.expect_err("an error")).chain();
        assert!(error.contains(message), "{options:?}: {error}");
    }
    let Some(library) = library() else { return };
    let open = |path: &Path| {
        // SAFETY: the file is not a library that the system loads, or a library without code that runs on loading.
        let opened = unsafe { ExternalLibrary::open(path) };
        Error::external(opened.expect_err("an error")).chain()
    };
    let bytes = std::fs::read(&library).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.so");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert!(open(&file).contains("truncated"), "{}", open(&file));
    assert!(open(&folder.path().join("none.so")).contains("cannot be read"));
    let source = folder.path().join("other.c");
    for (text, message) in [
        ("int other(void) { return 1; }", "it does not export `tflite_plugin_create_delegate`"),
        (
            "void *TfLiteIntArrayCreate(int); void *tflite_plugin_create_delegate(void) { return TfLiteIntArrayCreate(1); } \
             void tflite_plugin_destroy_delegate(void) {}",
            "undefined symbol: TfLiteIntArrayCreate",
        ),
    ] {
        let library = folder.path().join(format!("other{}.so", text.len()));
        std::fs::write(&source, text).unwrap();
        let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(cc.unwrap().success());
        assert!(open(&library).contains(message), "{}", open(&library));
    }
}

/// The example of the other direction, which runs all nodes on CPU kernels: through LiteRT's structures and back.
#[test]
fn a_delegate_of_delegraph_runs_through_both_interfaces() {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().and_then(Path::parent).unwrap();
    let library = folder.join("examples").join(libloading::library_filename("cpu_delegate"));
    if !library.exists() {
        println!("left out: {} is not built (`cargo test` without `--test` builds it)", library.display());
        return;
    }
    // SAFETY: a library of this package, which follows LiteRT's header.
    let library = unsafe { ExternalLibrary::open(library) }.unwrap();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/digits");
    for form in ["float32", "float16", "dynamic_range", "int8"] {
        let bytes = std::fs::read(assets.join(format!("digits_{form}.tflite"))).unwrap();
        let model = || Model::from_bytes(delegraph_core::ModelBytes::new(bytes.clone())).unwrap();
        let run = |interpreter: &mut Interpreter| {
            let input = interpreter.input_bytes_mut(0).unwrap();
            match form {
                "int8" => input.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 37) as u8),
                _ => {
                    let pixels = interpreter.input_mut::<f32>(0).unwrap();
                    pixels.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 17) as f32 / 16.0);
                }
            }
            interpreter.invoke().unwrap();
            interpreter.output_tensor(0).unwrap().bytes().to_vec()
        };
        let delegate = library.delegate(&options(&[("allow_unknown_host", "1")])).unwrap();
        let mut delegated = Interpreter::builder(model()).delegate(Box::new(delegate)).build().unwrap();
        assert_eq!(delegated.report().failures, [], "{form}");
        assert!(delegated.report().delegated_nodes() > 0, "{form}");
        let plain = run(&mut Interpreter::builder(model()).build().unwrap());
        for _ in 0..2 {
            let result = run(&mut delegated);
            if form == "int8" {
                assert_eq!(result, plain);
                continue;
            }
            // The library may use other kernels, whose sums have another order.
            let floats = |bytes: &[u8]| -> Vec<f32> {
                bytes.as_chunks().0.iter().map(|word| f32::from_ne_bytes(*word)).collect()
            };
            let (result, plain) = (floats(&result), floats(&plain));
            let close = approx::abs_diff_eq!(result[..], plain[..], epsilon = 1e-5);
            assert!(close, "{form}: {result:?}, {plain:?}");
        }
    }
}
