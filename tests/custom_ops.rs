//! Guarantees for authors of custom ops.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

#[allow(dead_code)]
#[path = "../examples/custom_sin.rs"]
mod custom_sin;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use delegraph::core::kernel::{InitContext, InvokeContext, Kernel, Persistent, PrepareContext, Temporary};
use delegraph::core::ops::binary::AddParams;
use delegraph::core::{
    BuiltinOp, ModelBuilder, NodeId, Op, OpResolver, Params, SubgraphBuilder, TensorId, ensure, ensure_eq,
};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::interpreter::ResourceLimits;
use delegraph::{
    BuiltinOpResolver, Interpreter, Model, MutableOpResolver, Policy, Registration, Result, TensorType,
};

const F: TensorType = TensorType::Float32;

fn asset(name: &str) -> Model {
    delegraph::load(format!("{}/assets/custom/{name}.tflite", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn one(graph: SubgraphBuilder) -> Model {
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// `y = Sin(x + 1)`, read from a `.tflite` file.
fn sin_by_hand() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F, [5]);
    let offset = graph.constant("offset", [], &[1.0f32]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, offset]).output("sum");
    let y = graph.tensor("y", F, [5]);
    graph.custom("Sin").inputs([sum]).writes([y]);
    graph.outputs([y]);
    Model::from_bytes(delegraph::ModelBytes::new(one(graph).to_bytes().unwrap())).unwrap()
}

/// A chain of custom ops over a float input of this shape, each with its options.
fn chain(ops: &[(&str, &[u8])], shape: &[usize]) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", F, shape);
    for (i, (name, options)) in ops.iter().enumerate() {
        let y = graph.tensor(&format!("y{i}"), F, shape);
        graph.custom(name).options(options).inputs([x]).writes([y]);
        x = y;
    }
    graph.outputs([x]);
    one(graph)
}

fn builtin() -> MutableOpResolver {
    MutableOpResolver::extending(BuiltinOpResolver::new())
}

fn with(name: &str, registration: Registration) -> MutableOpResolver {
    let mut resolver = builtin();
    resolver.add_custom(name, registration, 1);
    resolver
}

fn build(model: Model, resolver: impl OpResolver + 'static) -> Result<Interpreter> {
    Interpreter::builder(model).resolver(resolver).build()
}

#[track_caller]
fn run(interpreter: &mut Interpreter, x: &[f32]) -> Vec<f32> {
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(x);
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

const X: [f32; 5] = [-8.0, 0.5, 2.0, 2.2, 201.0];

#[test]
fn sin_of_the_guide() {
    for model in [asset("sin"), sin_by_hand()] {
        let y = custom_sin::run(model, &X).unwrap();
        for (x, y) in X.iter().zip(&y) {
            assert!(approx::abs_diff_eq!(*y, (x + 1.0).sin(), epsilon = 1e-6), "{x}: {y}");
        }
    }
}

#[test]
fn every_custom_op_without_a_kernel_is_listed() {
    let error = |model: Model| Interpreter::builder(model).build().err().unwrap();
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F, [5]);
    let [y, z] = ["y", "z"].map(|name| graph.tensor(name, F, [5]));
    graph.custom("Sin").inputs([x]).writes([y]);
    graph.custom("Cosh").version(3).inputs([y]).writes([z]);
    graph.outputs([z]);
    let several = error(one(graph));
    let text = r#"2 ops have no kernel:
  custom op "Sin" version 1: no custom op of this name is registered
    at node 0 (writes "y")
  custom op "Cosh" version 3: no custom op of this name is registered
    at node 1 (writes "z")"#;
    assert_eq!(several.to_string(), text);
    let help = several.help().unwrap();
    assert!(help.contains("`resolver.add_custom(\"Cosh\", registration, 3)`"), "{help}");
    let made_by_tensorflow = error(asset("atan")).to_string();
    assert!(made_by_tensorflow.contains("custom op \"Atan\" version 1"), "{made_by_tensorflow}");
    assert!(made_by_tensorflow.contains("atan.tflite"), "{made_by_tensorflow}");
}

/// The calls of the kernels of a test.
#[derive(Default)]
struct Log {
    made: AtomicUsize,
    prepared: AtomicUsize,
    dropped: AtomicUsize,
}

/// Adds the number of its runs to its input.
struct Counter {
    log: Arc<Log>,
    runs: f32,
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.log.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Kernel for Counter {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.log.prepared.fetch_add(1, Ordering::Relaxed);
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.runs += 1.0;
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = x + self.runs);
        Ok(())
    }
}

fn counter(log: &Arc<Log>, step: f32) -> Registration {
    let log = log.clone();
    Registration::new(move |_| {
        log.made.fetch_add(1, Ordering::Relaxed);
        Ok(Counter { log: log.clone(), runs: step - 1.0 })
    })
}

#[test]
fn a_kernel_is_made_once_per_node_and_dropped_once() {
    let log = Arc::new(Log::default());
    let model = chain(&[("Count", &[]), ("Count", &[]), ("Count", &[])], &[2]);
    let mut interpreter = build(model, with("Count", counter(&log, 1.0))).unwrap();
    // Three nodes, each with its own state.
    assert_eq!(run(&mut interpreter, &[0.0, 1.0]), [3.0, 4.0]);
    assert_eq!(run(&mut interpreter, &[0.0, 1.0]), [6.0, 7.0]);
    interpreter.resize_input(0, &[4]).unwrap();
    assert_eq!(run(&mut interpreter, &[0.0; 4]), [9.0; 4]);
    let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    assert_eq!((count(&log.made), count(&log.dropped)), (3, 0));
    drop(interpreter);
    assert_eq!((count(&log.made), count(&log.dropped)), (3, 3));
}

#[test]
fn prepare_comes_before_the_first_run_and_after_every_resize() {
    let log = Arc::new(Log::default());
    let mut interpreter = build(chain(&[("Count", &[])], &[2]), with("Count", counter(&log, 1.0))).unwrap();
    let mut before = 0;
    for size in [2, 5, 3, 2] {
        interpreter.resize_input(0, &[size]).unwrap();
        assert_eq!(run(&mut interpreter, &vec![0.0; size]).len(), size);
        let prepared = log.prepared.load(Ordering::Relaxed);
        assert!(prepared > before, "{size}");
        run(&mut interpreter, &vec![0.0; size]);
        assert_eq!(log.prepared.load(Ordering::Relaxed), prepared, "nothing changed");
        before = prepared;
    }
}

/// `input × scale`, where the scale is an option.
struct Scale(f32);

impl Kernel for Scale {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = x * self.0);
        Ok(())
    }
}

fn options(write: impl FnOnce(&mut flexbuffers::MapBuilder<'_>)) -> Vec<u8> {
    let mut builder = flexbuffers::Builder::default();
    let mut map = builder.start_map();
    write(&mut map);
    map.end_map();
    builder.take_buffer()
}

#[test]
fn options_are_a_map_or_raw_bytes() {
    let by_map = Registration::new(|cx| Ok(Scale(cx.options()?.get("scale")?)));
    let by_bytes = Registration::new(|cx| {
        let bytes: [u8; 4] = cx.custom_options.try_into().map_err(|_| {
            delegraph::Error::InvalidNode(format!("{} bytes of options, wanted 4", cx.custom_options.len()))
        })?;
        Ok(Scale(f32::from_le_bytes(bytes)))
    });
    let mut resolver = with("Scale", by_map);
    resolver.add_custom("RawScale", by_bytes, 1);
    let good = options(|map| map.push("scale", 2.5f32));
    let model = |op: &str, bytes: &[u8]| chain(&[("Scale", &good), (op, bytes)], &[2]);
    let raw = 4.0f32.to_le_bytes();
    let mut interpreter = build(model("RawScale", &raw), resolver.clone()).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, -2.0]), [10.0, -20.0]);

    let check = |op: &str, bytes: &[u8], want: &str| {
        let error = build(model(op, bytes), resolver.clone()).err().unwrap();
        // The place: the node, its op and its output. The cause: the key, the found and the expected value.
        let at = format!("node 1 (custom op \"{op}\" v1, writes \"y1\"): invalid node: {want}");
        assert_eq!(error.to_string(), at);
    };
    let wrong = options(|map| map.push("scale", "big"));
    check("Scale", &wrong, "option \"scale\" is the text \"big\", wanted a number");
    let missing = options(|map| map.push("factor", 1.0f32));
    check("Scale", &missing, "option \"scale\" is missing; there are: \"factor\"");
    check("Scale", &[], "0 bytes of options, which are not a FlexBuffer map");
    check("RawScale", &good, &format!("{} bytes of options, wanted 4", good.len()));
}

/// Returns its input's elements in reverse, twice, using a temporary. Adds a number from persistent memory to each,
/// which grows by 100 with each run.
#[derive(Default)]
struct Twice {
    temporary: Option<Temporary>,
    persistent: Option<Persistent>,
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Kernel for Twice {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let [n] = cx.input(0)?.dims()?;
        self.persistent = Some(cx.persistent_of::<f32>(n)?);
        self.temporary = Some(cx.temporary_of::<f32>(n)?);
        self.seen.lock().unwrap().push(n);
        cx.set_output_shape(0, [2, n])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (Some(temporary), Some(persistent)) = (self.temporary, self.persistent) else {
            return Err(delegraph::Error::State("not prepared".into()));
        };
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let (reversed, runs) = (cx.temporary::<f32>(temporary)?, cx.persistent::<f32>(persistent)?);
        ensure_eq!(runs.len(), input.len(), "persistent memory");
        reversed.iter_mut().zip(input.iter().rev()).for_each(|(r, x)| *r = *x);
        for (i, y) in output.iter_mut().enumerate() {
            *y = reversed[i % input.len()] + runs[i % input.len()];
        }
        runs.iter_mut().for_each(|r| *r += 100.0);
        Ok(())
    }
}

#[test]
fn outputs_are_resized_and_memory_is_temporary_or_persistent() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let registration = Registration::new({
        let seen = seen.clone();
        move |_| Ok(Twice { seen: seen.clone(), ..Twice::default() })
    });
    // The output's shape in the file is ignored.
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F, [3]);
    let [y, z] = ["y", "z"].map(|name| graph.tensor(name, F, [1]));
    graph.custom("Twice").inputs([x]).writes([y]);
    graph.custom("Twice").inputs([x]).writes([z]);
    graph.outputs([y, z]);
    let mut interpreter = build(one(graph), with("Twice", registration)).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, 2.0, 3.0]), [3.0, 2.0, 1.0, 3.0, 2.0, 1.0]);
    assert_eq!(*interpreter.output_tensor(0).unwrap().shape, [2, 3]);
    assert_eq!(run(&mut interpreter, &[1.0, 2.0, 3.0])[..3], [103.0, 102.0, 101.0]);
    // Each node has its own memory.
    assert_eq!(interpreter.output::<f32>(1).unwrap()[..3], [103.0, 102.0, 101.0]);
    // A new size resets the memory to zeros.
    interpreter.resize_input(0, &[2]).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, 2.0]), [2.0, 1.0, 2.0, 1.0]);
    assert_eq!(run(&mut interpreter, &[1.0, 2.0]), [102.0, 101.0, 102.0, 101.0]);
    assert!(seen.lock().unwrap().contains(&3) && seen.lock().unwrap().contains(&2));
    // Above the limit: an error before any allocation.
    let huge = Registration::new(|_| Ok(Twice::default()));
    let limited = Interpreter::builder(chain(&[("Twice", &[])], &[1000]))
        .resolver(with("Twice", huge))
        .limits(ResourceLimits::default().with_memory(1000))
        .build();
    assert!(limited.err().unwrap().to_string().contains("above the limit of 1000"));
}

/// Adds each input to a variable tensor, and returns the positive sums, whose number depends on the data.
struct Accumulate;

impl Kernel for Accumulate {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(2, 1)?;
        let shape = cx.input(0)?.shape().clone();
        cx.input(1)?.ensure_shape(&shape)?;
        cx.set_output_data_dependent(0)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, sum) = (cx.input::<f32>(0)?, cx.variable::<f32>(1)?);
        sum.iter_mut().zip(input).for_each(|(s, x)| *s += x);
        let positive = || sum.iter().filter(|s| **s > 0.0);
        cx.resize_output(0, [positive().count()])?;
        cx.output::<f32>(0)?.iter_mut().zip(positive()).for_each(|(y, s)| *y = *s);
        Ok(())
    }
}

#[test]
fn variables_keep_state_and_outputs_may_depend_on_data() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F, [3]);
    let sum = graph.variable("sum", F, [3]);
    let y = graph.tensor("y", F, [3]);
    graph.custom("Accumulate").inputs([x, sum]).writes([y]);
    graph.outputs([y]);
    let registration = Registration::new(|_| Ok(Accumulate)).with_side_effects();
    let mut interpreter = build(one(graph), with("Accumulate", registration)).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, -1.0, 0.0]), [1.0]);
    assert_eq!(run(&mut interpreter, &[1.0, 2.0, 3.0]), [2.0, 1.0, 3.0]);
    interpreter.reset_variables().unwrap();
    assert_eq!(run(&mut interpreter, &[0.0, 0.0, 5.0]), [5.0]);
}

#[test]
fn versions_of_custom_ops_and_builtin_ops_replaced() {
    let scale = |by: f32| Registration::new(move |_| Ok(Scale(by)));
    let model = |version: u32| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", F, [1]);
        let y = graph.tensor("y", F, [1]);
        graph.custom("Mine").version(version).inputs([x]).writes([y]);
        let z = graph.node(BuiltinOp::NEG, Params::None).inputs([y]).output("z");
        graph.outputs([z]);
        one(graph)
    };
    let mut resolver = builtin();
    resolver.add_custom("Mine", scale(2.0), 1..=2).add_custom("Mine", scale(3.0), 3);
    let mut results = [1, 2, 3].map(|v| run(&mut build(model(v), resolver.clone()).unwrap(), &[1.0])[0]);
    assert_eq!(results, [-2.0, -2.0, -3.0]);
    let error = build(model(4), resolver.clone()).err().unwrap().to_string();
    assert!(error.contains("custom op \"Mine\" version 4: registered here: 1 to 3"), "{error}");
    // A later registration takes precedence for its versions, also for builtin ops.
    resolver.add_custom("Mine", scale(5.0), 2).add_builtin(BuiltinOp::NEG, scale(10.0), 1);
    results = [1, 2, 3].map(|v| run(&mut build(model(v), resolver.clone()).unwrap(), &[1.0])[0]);
    assert_eq!(results, [20.0, 50.0, 30.0]);
}

/// A crate of kernels registers all of them with one function; they can be looked up.
mod my_kernels {
    use super::*;

    pub(super) fn register(resolver: &mut MutableOpResolver) {
        for (name, by) in [("mine.Double", 2.0), ("mine.Triple", 3.0), ("mine.Negate", -1.0)] {
            resolver.add_custom(name, Registration::new(move |_| Ok(Scale(by))), ());
        }
    }
}

#[test]
fn a_crate_registers_many_kernels() {
    let mut resolver = builtin();
    my_kernels::register(&mut resolver);
    let names: Vec<String> = resolver.registered().map(|(op, _)| op.to_string()).collect();
    assert_eq!(names.iter().filter(|name| name.contains("mine.")).count(), 3, "{names:?}");
    let model = chain(&[("mine.Double", &[]), ("mine.Triple", &[]), ("mine.Negate", &[])], &[1]);
    assert_eq!(run(&mut build(model, resolver).unwrap(), &[1.0]), [-6.0]);
}

/// Checks its operands.
struct Strict;

impl Kernel for Strict {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(1, 1)?;
        let [height, width] = cx.input(0)?.ensure_type(&[F, TensorType::Int8])?.dims()?;
        ensure!(height <= width, "{} is higher ({height}) than wide ({width})", cx.input(0)?.describe());
        cx.input(0)?.ensure_shape(&[2, 3])?;
        cx.set_output_shape(0, [height, width])
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn checks_name_file_node_tensor_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("strict.tflite");
    let check = |ty: TensorType, shape: &[usize], inputs: usize, want: &str| {
        let mut graph = SubgraphBuilder::new("main");
        let image = graph.input("image", ty, shape);
        let y = graph.tensor("y", ty, shape);
        graph.custom("Strict").inputs(vec![image; inputs]).writes([y]);
        graph.outputs([y]);
        one(graph).save(&file).unwrap();
        let error = build(delegraph::load(&file).unwrap(), with("Strict", Registration::new(|_| Ok(Strict))));
        let at = format!("{}: node 0 (custom op \"Strict\" v1, writes \"y\"): ", file.display());
        assert_eq!(error.err().unwrap().to_string(), at + want);
    };
    check(F, &[2, 3], 2, "invalid node: expected 1 input and 1 output, the node has 2 and 1");
    check(
        TensorType::Int32,
        &[2, 3],
        1,
        "not supported: input 0 (\"image\") is INT32, this kernel takes FLOAT32 or INT8",
    );
    check(F, &[2], 1, "invalid node: input 0 (\"image\") has the shape [2], wanted 2 dimensions");
    check(F, &[3, 2], 1, "invalid node: input 0 (\"image\") is higher (3) than wide (2)");
    check(F, &[2, 4], 1, "invalid node: input 0 (\"image\") has the shape [2, 4], wanted [2, 3]");
}

/// The factory gets the node of the file.
#[test]
fn the_factory_sees_the_node() {
    let look = |cx: &InitContext<'_>| {
        assert_eq!((cx.node.op().clone(), cx.node.version()), (Op::custom("Sin"), 1));
        assert_eq!(cx.subgraph.tensor(cx.node.outputs()[0]).shape().dims(), [5]);
        Ok(custom_sin::Sin)
    };
    let interpreter = build(asset("sin"), with("Sin", Registration::new(look))).unwrap();
    let node = interpreter.model().subgraphs()[0].node(NodeId(1));
    assert_eq!(*node.outputs(), [TensorId(interpreter.model().subgraphs()[0].outputs()[0].0)]);
}

/// x + 1 and Sin are one partition on the GPU, and accurate far from zero.
#[test]
fn a_custom_op_on_the_gpu_does_not_split_the_model() {
    let options = WgpuOptions::default().with_custom_op(custom_sin::gpu_sin().unwrap());
    let delegate = match WgpuDelegate::new(options) {
        Ok(delegate) => delegate,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    for model in [asset("sin"), sin_by_hand()] {
        let builder = Interpreter::builder(model).resolver(custom_sin::resolver()).policy(Policy::Require);
        let mut interpreter = builder.delegate(delegate.clone()).build().unwrap();
        assert_eq!((interpreter.report().partitions.len(), interpreter.report().delegated_nodes()), (1, 2));
        let check = |interpreter: &mut Interpreter, x: &[f32]| {
            for (x, y) in x.iter().zip(run(interpreter, x)) {
                let want = f64::from(x + 1.0).sin();
                assert!(approx::abs_diff_eq!(f64::from(y), want, epsilon = 1e-5), "{x}: {y}");
            }
        };
        check(&mut interpreter, &X);
        check(&mut interpreter, &[-4000.5, 4000.25, -0.0, 1e-7, -1.0]);
    }
    // With nodes on both sides: still one partition, and values stay on the device.
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", F, [4, 300]);
    let a = graph.node(BuiltinOp::ABS, Params::None).inputs([x]).output("a");
    let [b, c] = ["b", "c"].map(|name| graph.tensor(name, F, [4, 300]));
    graph.custom("Sin").inputs([a]).writes([b]);
    graph.custom("Sin").inputs([b]).writes([c]);
    let d = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([c, a]).output("d");
    graph.outputs([d]);
    let builder = Interpreter::builder(one(graph)).resolver(custom_sin::resolver());
    let mut interpreter = builder.delegate(delegate).build().unwrap();
    assert_eq!((interpreter.report().partitions.len(), interpreter.report().delegated_nodes()), (1, 4));
    let x: Vec<f32> = (0..1200).map(|i| i as f32 * 0.37 - 200.0).collect();
    for (x, y) in x.iter().zip(run(&mut interpreter, &x)) {
        let a = f64::from(x.abs());
        let want = a.sin().sin() + a;
        assert!(approx::abs_diff_eq!(f64::from(y), want, epsilon = 1e-5 * a.max(1.0)), "{x}: {y}");
    }
}
