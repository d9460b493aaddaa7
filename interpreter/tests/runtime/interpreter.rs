//! Buffers, cancellation, profilers, reports and names of an interpreter.

use std::sync::{Arc, Mutex};

use delegraph_core::kernel::AlignedBuffer;
use delegraph_core::{Error, Model, ModelBytes, TensorId};
use delegraph_interpreter::{Interpreter, InterpreterBuilder, Profiler, StepEvent};

fn digits() -> InterpreterBuilder {
    let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
    Interpreter::builder(Model::from_bytes(ModelBytes::new(&file[..])).unwrap())
}

fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| i as f32 / len as f32).collect()
}

/// The model's output for a ramp.
fn expected() -> Vec<f32> {
    let mut interpreter = digits().build().unwrap();
    let input = interpreter.input_mut::<f32>(0).unwrap();
    input.copy_from_slice(&ramp(input.len()));
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

#[test]
fn bound_buffers_replace_copies() {
    let mut interpreter = digits().build().unwrap();
    let (input, output) = (interpreter.input_tensor(0).unwrap(), interpreter.output_tensor(0).unwrap());
    let (input, output) = (input.byte_size().unwrap(), output.byte_size().unwrap());
    let mut filled = AlignedBuffer::zeroed(input).unwrap();
    filled.bytes_mut().copy_from_slice(bytemuck::cast_slice(&ramp(input / 4)));
    assert!(interpreter.bind_input(0, filled).unwrap().is_none());
    assert!(interpreter.bind_output(0, AlignedBuffer::zeroed(output).unwrap()).unwrap().is_none());
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), expected());
    let result = interpreter.bind_output(0, AlignedBuffer::zeroed(output).unwrap()).unwrap().unwrap();
    assert_eq!(bytemuck::cast_slice::<u8, f32>(result.bytes()), expected());
    let wrong = interpreter.bind_input(0, AlignedBuffer::zeroed(input + 1).unwrap());
    assert!(wrong.unwrap_err().to_string().contains("a buffer of"));
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), expected());
}

#[test]
fn an_output_whose_shape_depends_on_data_is_not_bound() {
    use delegraph_core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder, TensorType};
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Bool, [4]);
    let rows = graph.tensor("rows", TensorType::Int64, [0, 1]);
    graph.node(BuiltinOp::WHERE, Params::None).inputs([x]).writes([rows]);
    graph.outputs([rows]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let mut interpreter = Interpreter::builder(model).build().unwrap();
    for _ in 0..2 {
        let bound = interpreter.bind_output(0, AlignedBuffer::zeroed(0).unwrap());
        assert!(matches!(bound, Err(Error::State(_))), "{bound:?}");
        interpreter.invoke().unwrap();
    }
}

#[test]
fn bound_buffers_that_no_longer_fit_are_left() {
    let mut interpreter = digits().build().unwrap();
    let output = interpreter.output_tensor(0).unwrap().byte_size().unwrap();
    interpreter.bind_output(0, AlignedBuffer::zeroed(output).unwrap()).unwrap();
    let mut shape = interpreter.input_tensor(0).unwrap().shape.dims().to_vec();
    shape[0] = 3;
    interpreter.resize_input(0, &shape).unwrap();
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap().len(), 3 * output / 4);
    assert!(interpreter.bind_output(0, AlignedBuffer::zeroed(3 * output).unwrap()).unwrap().is_none());
    interpreter.invoke().unwrap();
}

#[test]
fn all_tensors_may_be_kept() {
    let mut plain = digits().build().unwrap();
    let mut kept = digits().preserve_all_tensors().build().unwrap();
    for interpreter in [&mut plain, &mut kept] {
        let input = interpreter.input_mut::<f32>(0).unwrap();
        input.copy_from_slice(&ramp(input.len()));
        interpreter.invoke().unwrap();
    }
    assert_eq!(plain.output::<f32>(0).unwrap(), kept.output::<f32>(0).unwrap());
    assert!(kept.memory().arena_bytes > plain.memory().arena_bytes);
    // Every computed tensor still has its data.
    let subgraph = &kept.model().subgraphs()[0];
    let computed = subgraph.nodes().iter().flat_map(|n| n.outputs());
    for id in computed {
        assert!(!kept.tensor(*id).unwrap().bytes().is_empty());
    }
    assert!(kept.tensor(TensorId(1 << 20)).is_err());
}

#[test]
fn cancelling_ends_one_invocation() {
    let mut interpreter = digits().build().unwrap();
    let token = interpreter.cancellation_token();
    std::thread::spawn(move || token.cancel()).join().unwrap();
    assert!(matches!(interpreter.invoke(), Err(Error::Cancelled)));
    interpreter.invoke().unwrap();
    let token = interpreter.cancellation_token();
    token.cancel();
    token.clear();
    interpreter.invoke().unwrap();
}

struct Steps(Arc<Mutex<Vec<usize>>>);

impl Profiler for Steps {
    fn step(&mut self, event: &StepEvent<'_>) {
        assert_eq!((event.subgraph, event.delegate, event.deferred), (0, None, false));
        self.0.lock().unwrap().extend(event.nodes.iter().map(|n| n.0));
    }
}

#[test]
fn a_profiler_sees_every_step() {
    let mut interpreter = digits().build().unwrap();
    let steps = Arc::new(Mutex::new(Vec::new()));
    interpreter.set_profiler(Some(Box::new(Steps(steps.clone()))));
    interpreter.invoke().unwrap();
    let seen = std::mem::take(&mut *steps.lock().unwrap());
    assert!(!seen.is_empty() && seen.windows(2).all(|w| w[0] < w[1]), "{seen:?}");
    interpreter.set_profiler(None);
    interpreter.invoke().unwrap();
    assert!(steps.lock().unwrap().is_empty());
}

#[test]
fn every_prepared_subgraph_has_a_report_and_a_graph() {
    let interpreter = digits().build().unwrap();
    let (report, graph) = (interpreter.report(), interpreter.graph(0).unwrap());
    assert!(!report.nodes.is_empty());
    assert_eq!(report.nodes.len(), graph.nodes().count());
    assert!(graph.nodes().any(|n| n.cost().multiply_adds > 0));
    assert!(interpreter.graph(1).is_none());
    assert!(digits().prepare_later().build().unwrap().graph(0).is_none());
}

#[test]
fn names_find_inputs_and_outputs() {
    let interpreter = digits().build().unwrap();
    let signature = interpreter.model().signatures()[0].clone();
    assert_eq!(interpreter.input_index(&signature.inputs()[0].0), Some(0));
    assert_eq!(interpreter.output_index(&signature.outputs()[0].0), Some(0));
    assert_eq!(interpreter.input_index("missing"), None);
}

#[test]
fn interpreters_on_one_model_run_in_several_threads() {
    let model = digits().build().unwrap().model().clone();
    let want = expected();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (model, want) = (model.clone(), &want);
            scope.spawn(move || {
                let mut interpreter = Interpreter::builder(model).build().unwrap();
                let input = interpreter.input_mut::<f32>(0).unwrap();
                input.copy_from_slice(&ramp(input.len()));
                for _ in 0..20 {
                    interpreter.invoke().unwrap();
                    assert_eq!(interpreter.output::<f32>(0).unwrap(), want);
                }
            });
        }
    });
}

#[test]
fn subgraphs_are_selected_by_number() {
    let mut interpreter = digits().build().unwrap();
    interpreter.select_subgraph(0).unwrap();
    assert_eq!(interpreter.output_count(), 1);
    let error = interpreter.select_subgraph(1).unwrap_err();
    assert!(error.to_string().contains("subgraph 1 does not exist; the model has 1 subgraph"), "{error}");
    assert!(interpreter.subgraph_tensor(0, TensorId(0)).is_some());
    assert!(interpreter.subgraph_tensor(0, TensorId(99)).is_none());
    assert!(interpreter.subgraph_tensor(1, TensorId(0)).is_none());
    interpreter.reset_variable_tensors(0).unwrap();
    interpreter.reset_variable_tensors(7).unwrap();
}

#[test]
fn bytes_of_tensors_are_written_by_number() {
    let mut interpreter = digits().build().unwrap();
    let input = interpreter.model().subgraphs()[0].inputs()[0];
    let bytes = interpreter.tensor_bytes_mut(input).unwrap();
    let values = ramp(bytes.len() / 4);
    bytes.copy_from_slice(bytemuck::cast_slice(&values));
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), expected());
    assert!(matches!(interpreter.tensor_bytes_mut(TensorId(1)), Err(Error::State(_))));
    assert!(matches!(interpreter.tensor_bytes_mut(TensorId(99)), Err(Error::InvalidInput(_))));
}

#[test]
fn fixed_dimensions_are_resized_on_request() {
    let mut interpreter = digits().build().unwrap();
    assert!(interpreter.resize_input(0, &[1, 9, 8, 1]).is_err());
    interpreter.resize_input_to_any(0, &[1, 8]).unwrap();
    assert!(interpreter.prepare().is_err());
    interpreter.resize_input_to_any(0, &[1, 8, 8, 1]).unwrap();
    let input = interpreter.input_mut::<f32>(0).unwrap();
    input.copy_from_slice(&ramp(input.len()));
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), expected());
}

/// The clock is not read between nodes that access few bytes, unless their kernels are not builtin.
#[test]
fn a_time_limit_ends_small_nodes_of_unknown_kernels() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
    use delegraph_core::resolver::Registration;
    use delegraph_core::{
        BuiltinOp, ModelBuilder, MutableOpResolver, Params, Result, SubgraphBuilder, TensorType,
    };
    use delegraph_interpreter::{BuiltinOpResolver, ResourceLimits};

    struct Slow(Arc<AtomicUsize>);
    impl Kernel for Slow {
        fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
            cx.set_output_shape(0, cx.input(0)?.shape().clone())
        }

        fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            cx.output::<f32>(0).map(|y| y.fill(1.0))
        }
    }
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [1]);
    for i in 0..20 {
        let y = graph.tensor(&format!("y{i}"), TensorType::Float32, [1]);
        graph.custom("slow").inputs([x]).writes([y]);
        x = graph.node(BuiltinOp::NEG, Params::None).inputs([y]).output("");
    }
    graph.outputs([x]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    let count = Arc::clone(&ran);
    resolver.add_custom("slow", Registration::new(move |_| Ok(Slow(Arc::clone(&count)))), 1);
    let limits = ResourceLimits::default().with_time(Duration::from_millis(200));
    let mut interpreter = Interpreter::builder(model).resolver(resolver).limits(limits).build().unwrap();
    let ended = interpreter.invoke();
    assert!(matches!(ended, Err(Error::LimitExceeded(_))), "{ended:?}");
    let ran = ran.load(Ordering::Relaxed);
    assert!((1..20).contains(&ran), "{ran} nodes in a limit of 10");
}
