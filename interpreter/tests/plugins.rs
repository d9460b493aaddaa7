//! Delegates in shared libraries, built separately with other flags.

#![cfg(any(unix, windows))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod libraries;

use std::path::{Path, PathBuf};
use std::process::Command;

use delegraph_core::ops::Params;
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::{BuiltinOp, Model, ModelBuilder, ModelBytes, SubgraphBuilder, TensorType};
use delegraph_delegate_api::plugin::{PluginError, PluginLibrary, PluginOptions};
use delegraph_delegate_api::{Delegate, Policy, Rejection, Runner};
use delegraph_interpreter::Interpreter;
use libraries::{chain, library};

fn open(path: &Path) -> Result<PluginLibrary, PluginError> {
    // SAFETY: the tests' own libraries, or files that are rejected before any of their code runs.
    unsafe { PluginLibrary::open(path) }
}

fn try_delegate(name: &str, options: &[(&str, &str)]) -> Result<Box<dyn Delegate>, PluginError> {
    let options = PluginOptions::new(options.iter().copied()).unwrap();
    Ok(Box::new(open(&library(name))?.delegate(&options)?))
}

fn delegate(name: &str, options: &[(&str, &str)]) -> Box<dyn Delegate> {
    try_delegate(name, options).unwrap()
}

/// `relu(x + c) * x`, then a maximum, then two more sums: ADD, RELU, MUL, MAXIMUM, ADD, ADD.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3]);
    graph.resizable(x, [None, Some(3)]);
    let c = graph.constant("c", [1], &[-0.5f32]);
    let add = |graph: &mut SubgraphBuilder, a, b, name: &str| {
        graph.node(BuiltinOp::ADD, AddParams::default()).inputs([a, b]).output(name)
    };
    let sum = add(&mut graph, x, c, "sum");
    let relu = graph.node(BuiltinOp::RELU, Params::None).inputs([sum]).output("relu");
    let product = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([relu, x]).output("product");
    let most = graph.node(BuiltinOp::MAXIMUM, Params::None).inputs([product, x]).output("most");
    let twice = add(&mut graph, most, most, "twice");
    let last = add(&mut graph, twice, x, "last");
    graph.outputs([last]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// `relu(x + x)`.
fn short() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
    let relu = graph.node(BuiltinOp::RELU, Params::None).inputs([sum]).output("relu");
    graph.outputs([relu]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn run(interpreter: &mut Interpreter) -> delegraph_core::Result<Vec<f32>> {
    for (i, x) in interpreter.input_mut::<f32>(0)?.iter_mut().enumerate() {
        *x = i as f32 * 0.75 - 1.0;
    }
    interpreter.invoke()?;
    Ok(interpreter.output::<f32>(0)?.to_vec())
}

fn on_the_cpu() -> Vec<f32> {
    run(&mut Interpreter::builder(model()).build().unwrap()).unwrap()
}

#[test]
fn a_plugin_runs_what_it_claims() {
    let from_file = Model::from_bytes(ModelBytes::new(model().to_bytes().unwrap())).unwrap();
    for model in [model(), from_file] {
        let builder = Interpreter::builder(model).delegate(delegate("example_plugin", &[]));
        let mut interpreter = builder.build().unwrap();
        let report = interpreter.report();
        assert_eq!(report.delegates, ["chains"]);
        assert_eq!((report.partitions.len(), report.delegated_nodes()), (2, 5), "{report:?}");
        let reason = report.nodes[3].rejections.last().map(|(_, reason)| reason);
        assert!(matches!(reason, Some(Rejection::UnsupportedOp { .. })), "{reason:?}");
        assert_eq!(run(&mut interpreter).unwrap(), on_the_cpu());
    }
}

#[test]
fn a_resized_input_is_prepared_again() {
    let mut interpreter =
        Interpreter::builder(model()).delegate(delegate("example_plugin", &[])).build().unwrap();
    let mut cpu = Interpreter::builder(model()).build().unwrap();
    for rows in [5, 1, 2] {
        interpreter.resize_input(0, &[rows, 3]).unwrap();
        cpu.resize_input(0, &[rows, 3]).unwrap();
        assert_eq!(run(&mut interpreter).unwrap(), run(&mut cpu).unwrap());
        assert_eq!(interpreter.report().delegated_nodes(), 5);
    }
}

#[test]
fn reasons_and_limits_cross() {
    let builder = Interpreter::builder(model()).delegate(delegate("example_plugin", &[("min_nodes", "3")]));
    let interpreter = builder.build().unwrap();
    let report = interpreter.report();
    assert_eq!(report.delegated_nodes(), 3);
    let reasons: Vec<_> = report.rejected().map(|(n, r)| (n.node.0, r.clone())).collect();
    let small = Rejection::PartitionTooSmall { nodes: 2, min: 3 };
    assert_eq!(reasons[1..], [(4, small.clone()), (5, small)]);
    let error =
        Interpreter::builder(model()).delegate(delegate("example_plugin", &[])).policy(Policy::Require);
    let error = error.build().err().unwrap().to_string();
    assert!(error.contains("node 3 (MAXIMUM v1): MAXIMUM is not supported"), "{error}");
}

#[test]
fn two_instances_have_their_own_options() {
    let library = open(&library("example_plugin")).unwrap();
    let instance = |min: &str| {
        let options = PluginOptions::new([("min_nodes", min)]).unwrap();
        Box::new(library.delegate(&options).unwrap())
    };
    let (first, second) = (instance("3"), instance("1"));
    drop(library.clone());
    let mut interpreter = Interpreter::builder(model()).delegate(first).delegate(second).build().unwrap();
    let owners: Vec<_> =
        interpreter.report().partitions.iter().map(|p| (p.delegate, p.nodes.len())).collect();
    assert_eq!(owners, [(0, 3), (1, 2)]);
    assert_eq!(run(&mut interpreter).unwrap(), on_the_cpu());
}

#[test]
fn a_failure_before_running_leaves_all_to_the_cpu() {
    for hook in ["prepare", "create_kernel", "prepare_kernel"] {
        for how in ["error", "panic"] {
            let faulty = delegate("faulty_plugin", &[("at", hook), ("how", how)]);
            let mut interpreter = Interpreter::builder(short()).delegate(faulty).build().unwrap();
            let report = interpreter.report();
            assert_eq!(report.delegated_nodes(), 0);
            assert!(report.nodes.iter().all(|n| n.runner == Runner::Cpu));
            let [failure] = report.failures.as_slice() else { panic!("{:?}", report.failures) };
            assert_eq!(failure.delegate, "faulty");
            let message = &failure.message;
            let wanted = match how {
                "panic" => format!("it panicked: the test wants a panic in {hook} (lib.rs:"),
                _ => format!("the test wants an error in {hook}"),
            };
            assert!(message.contains(&wanted), "{message}");
            assert_eq!(run(&mut interpreter).unwrap(), [0.0, 0.0, 1.0, 2.5]);
        }
    }
}

#[test]
fn a_failure_while_running_names_the_delegate_and_its_nodes() {
    for (hook, how, text) in [
        ("invoke", "error", "the test wants an error in invoke"),
        ("invoke", "panic", "it panicked: the test wants a panic in invoke (lib.rs:"),
        ("thread", "panic", "a task panicked on another thread"),
    ] {
        let faulty = delegate("faulty_plugin", &[("at", hook), ("how", how), ("scratch", "100")]);
        let mut interpreter = Interpreter::builder(short()).delegate(faulty).threads(2).build().unwrap();
        assert_eq!(interpreter.report().delegated_nodes(), 1);
        let error = run(&mut interpreter).unwrap_err().to_string();
        assert!(error.starts_with("delegate faulty: partition 0 (node 0): "), "{error}");
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn panics_while_dropping_end_nothing() {
    for hook in ["drop", "drop_kernel"] {
        let faulty = delegate("faulty_plugin", &[("at", hook), ("how", "panic")]);
        let mut interpreter = Interpreter::builder(short()).delegate(faulty).build().unwrap();
        assert_eq!(run(&mut interpreter).unwrap(), [0.0, 0.0, 1.0, 2.5]);
        drop(interpreter);
    }
}

#[test]
fn a_delegate_that_cannot_be_created_reports_the_reason() {
    let check = |name: &str, options: &[(&str, &str)], want: &str| {
        let error = try_delegate(name, options).err().expect("an error");
        assert!(chain(&error).contains(want), "{}", chain(&error));
        error
    };
    let error = check("faulty_plugin", &[("at", "create")], "the test wants an error in create");
    assert!(matches!(error, PluginError::Create { .. }), "{error:?}");
    check(
        "faulty_plugin",
        &[("at", "create"), ("how", "panic")],
        "it panicked: the test wants a panic in create",
    );
    let known = "the option \"nodes\" is not known; it takes: min_nodes";
    let error = check("example_plugin", &[("nodes", "1")], known);
    assert!(matches!(error, PluginError::Option { .. }), "{error:?}");
    check("example_plugin", &[("min_nodes", "x")], "option \"min_nodes\": \"x\" is not supported: ");
    check("example_plugin", &[("min_nodes", "\0")], "contains a zero byte");
}

#[test]
fn files_other_than_plugins_are_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-plugins");
    std::fs::create_dir_all(&folder).unwrap();
    let check = |path: &Path, want: &str| {
        let error = open(path).expect_err("an error");
        assert!(matches!(error, PluginError::InvalidFile { .. }), "{error:?}");
        let error = chain(&error);
        assert!(error.contains(want), "{error}");
    };
    check(&folder.join("absent.so"), "cannot be read");
    check(&folder, "not a file");
    let text = folder.join("text.so");
    std::fs::write(&text, "just some text, long enough to be looked at").unwrap();
    check(&text, "not a shared library");
    if let Ok(maps) = std::fs::read_to_string("/proc/self/maps") {
        let libc = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.contains("/libc.so"));
        let libc = libc.expect("this program uses the C library");
        check(Path::new(libc), "it does not export `delegraph_delegate_plugin`");
    }
}

#[test]
fn a_truncated_library_is_an_error_at_every_length() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("truncated");
    std::fs::create_dir_all(&folder).unwrap();
    let cut = folder.join("cut.so");
    std::fs::copy(library("example_plugin"), &cut).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&cut).unwrap();
    let whole = file.metadata().unwrap().len();
    assert!(open(&cut).is_ok());
    let mut lengths: Vec<u64> = (1..100).map(|i| whole - whole * i / 100).collect();
    lengths.extend([whole - 1, whole - 63, 4096, 4095, 1000, 120, 64, 63, 16, 4, 1, 0]);
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    for length in lengths {
        file.set_len(length).unwrap();
        let error = open(&cut).expect_err("an error");
        assert!(matches!(error, PluginError::InvalidFile { .. }), "{length}: {error:?}");
    }
}

/// Compiles C to a library; `None`, with the reason on standard output, where there is no C compiler.
fn compile(name: &str, source: &str, definitions: &[&str]) -> Option<PathBuf> {
    if cfg!(windows) || Command::new("cc").arg("--version").output().is_err() {
        println!("left out: there is no `cc`");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    std::fs::create_dir_all(&folder).unwrap();
    let (file, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&file, source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../delegate-api/include");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-shared", "-fPIC", "-I"]);
    cc.arg(include).args(definitions).arg("-o").arg(&library).arg(&file);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

#[test]
fn a_plugin_in_c_runs_what_it_claims() {
    let source = include_str!("../../examples/plugin-c/add_mul.c");
    let Some(path) = compile("add_mul", source, &[]) else { return };
    let library = open(&path).unwrap();
    let delegate = || Box::new(library.delegate(&PluginOptions::default()).unwrap());
    // Constants, a value inside the partition, and a value with other readers.
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3]);
    graph.resizable(x, [None, Some(3)]);
    let c = graph.constant("c", [2, 3], &[0.5f32, -1.0, 2.0, 3.0, -0.25, 1.5]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, c]).output("sum");
    let square = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([sum, sum]).output("square");
    let small = graph.node(BuiltinOp::MINIMUM, Params::None).inputs([square, x]).output("small");
    let last = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([small, square]).output("last");
    graph.outputs([last]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let mut interpreter = Interpreter::builder(model.clone()).delegate(delegate()).build().unwrap();
    assert_eq!((interpreter.report().partitions.len(), interpreter.report().delegated_nodes()), (2, 3));
    let cpu = run(&mut Interpreter::builder(model).build().unwrap()).unwrap();
    assert_eq!(run(&mut interpreter).unwrap(), cpu);
    // Each node that the plugin does not claim has a reason.
    let interpreter = Interpreter::builder(self::model()).delegate(delegate()).build().unwrap();
    let reason = interpreter.report().nodes[0].rejections.last().map(|(_, reason)| reason.clone());
    assert_eq!(reason, Some(Rejection::UnsupportedParam("operands of two shapes".into())));
    let options = PluginOptions::new([("speed", "9")]).unwrap();
    let error = chain(&library.delegate(&options).expect_err("an error"));
    assert!(error.ends_with("the option \"speed\" is not known; it takes none"), "{error}");
}

#[test]
fn c_and_rust_mean_the_same_structs() {
    use delegraph_delegate_api::plugin::abi::*;
    let mut source = "#include \"delegraph_plugin.h\"\n".to_owned();
    let mut check = |name: &str, size: usize| {
        source += &format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n");
    };
    macro_rules! structs {
        ($($ty:ident),+) => { $(check(stringify!($ty), size_of::<$ty>());)+ };
    }
    structs!(
        DelegraphText,
        DelegraphNodeTime,
        DelegraphError,
        DelegraphOption,
        DelegraphOpVersion,
        DelegraphGraph
    );
    structs!(
        DelegraphModel,
        DelegraphNode,
        DelegraphTensor,
        DelegraphRejection,
        DelegraphPartition,
        DelegraphBuffer
    );
    structs!(DelegraphKernelCall, DelegraphStats, DelegraphHost, DelegraphPlugin);
    compile("sizes", &source, &[]);
}

#[test]
fn a_plugin_of_another_interface_is_refused() {
    let source = "
        #include \"delegraph_plugin.h\"
        struct header { uint32_t abi_version; size_t size; };
        DELEGRAPH_EXPORT const DelegraphPlugin *delegraph_delegate_plugin(void) {
            static const struct header header = { VERSION, SIZE };
            return (const DelegraphPlugin *)(const void *)&header;
        }";
    let check = |name: &str, version: u32, size: usize, want: &str| {
        let definitions = [format!("-DVERSION={version}"), format!("-DSIZE={size}")];
        let Some(path) = compile(name, source, &definitions.each_ref().map(String::as_str)) else { return };
        let error = open(&path).expect_err("an error");
        assert!(matches!(error, PluginError::Incompatible { .. }), "{error:?}");
        assert!(error.to_string().contains(want), "{error}");
    };
    check(
        "newer",
        99,
        1000,
        "interface has version 99, this application's has version 2: update the application",
    );
    check(
        "older",
        0,
        1000,
        "interface has version 0, this application's has version 2: build the plugin again",
    );
    check("small", 2, 16, "its table of functions has 16 bytes, at least ");
}

/// The resident pages of this process, and whether a library is mapped.
#[cfg(target_os = "linux")]
fn memory(library: &str) -> (usize, bool) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    (pages, std::fs::read_to_string("/proc/self/maps").unwrap().contains(library))
}

#[test]
#[cfg(target_os = "linux")]
fn loading_and_unloading_does_not_grow() {
    // A copy, which no other test of this process has loaded.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("again");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("loaded_again_and_again.so");
    std::fs::copy(library("example_plugin"), &path).unwrap();
    let cycle = || {
        let library = open(&path).unwrap();
        let delegate = Box::new(library.delegate(&PluginOptions::default()).unwrap());
        drop(library);
        let mut interpreter = Interpreter::builder(model()).delegate(delegate).build().unwrap();
        run(&mut interpreter).unwrap();
        assert!(memory("loaded_again_and_again").1, "the kernels need it");
    };
    (0..20).for_each(|_| cycle());
    let (before, loaded) = memory("loaded_again_and_again");
    assert!(!loaded, "nothing needs it any more");
    (0..200).for_each(|_| cycle());
    let (after, _) = memory("loaded_again_and_again");
    println!("{before} pages before 200 cycles, {after} after");
    // Other tests of this process run at the same time.
    assert!(after < before + 4096, "{before} pages before, {after} after");
}
