//! Injected failures of a device: the error names op and node, and with policy `Prefer` the interpreter computes the
//! correct result on the CPU. `tests/gpu_device.rs` loses the device during a run. All tests but the first are skipped
//! with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::delegate_wgpu::{AdapterChoice, GpuBuffer, PipelineCache, WgpuDelegate, WgpuOptions, wgpu};
use delegraph::{Interpreter, Model, Policy, TensorType};

const SIZE: usize = 64;

/// `-exp(x) - sin(exp(x))`
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [SIZE]);
    let y = graph.node(BuiltinOp::EXP, Params::None).inputs([x]).output("y");
    let [a, b] =
        [BuiltinOp::NEG, BuiltinOp::SIN].map(|op| graph.node(op, Params::None).inputs([y]).output(""));
    let difference = delegraph::core::ops::binary::SubParams::default();
    let z = graph.node(BuiltinOp::SUB, difference).inputs([a, b]).output("z");
    graph.outputs([z]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn input() -> Vec<f32> {
    (0..SIZE).map(|i| i as f32 / 32.0 - 1.0).collect()
}

fn fill(interpreter: &mut Interpreter) {
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&input());
}

#[track_caller]
fn check_result(interpreter: &Interpreter) {
    for (z, x) in interpreter.output::<f32>(0).unwrap().iter().zip(input()) {
        let y = x.exp();
        assert!(approx::abs_diff_eq!(*z, -y - y.sin(), epsilon = 1e-4), "{z} for {x}");
    }
}

fn options() -> WgpuOptions {
    WgpuOptions::default().with_pipeline_cache(PipelineCache::Off)
}

/// A device of the application.
fn device(
    thresholds: wgpu::MemoryBudgetThresholds,
) -> Option<(wgpu::Device, wgpu::Queue, wgpu::AdapterInfo)> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.flags = wgpu::InstanceFlags::empty();
    descriptor.memory_budget_thresholds = thresholds;
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&Default::default()));
    let adapter = adapter.inspect_err(|e| eprintln!("left out: {e}")).ok()?;
    let (device, queue) = pollster::block_on(adapter.request_device(&Default::default())).unwrap();
    Some((device, queue, adapter.get_info()))
}

fn delegate() -> Option<WgpuDelegate> {
    let (device, queue, info) = device(Default::default())?;
    Some(WgpuDelegate::with_device(device, queue, info, options()))
}

/// The delegate fails in preparation. With `Prefer`, the CPU runs all nodes from the start; with `Require`, it is an
/// error.
#[track_caller]
fn check_prepare(
    delegate: impl Fn() -> Box<dyn delegraph::delegate_api::Delegate>,
    said: &[&str],
) -> Interpreter {
    let mut interpreter = Interpreter::builder(model()).delegate(delegate()).build().unwrap();
    fill(&mut interpreter);
    interpreter.invoke().unwrap();
    check_result(&interpreter);
    let report = interpreter.report();
    assert_eq!(report.delegated_nodes(), 0);
    let [failure] = &report.failures[..] else { panic!("{:?}", report.failures) };
    let (name, why) = (&failure.delegate, &failure.message);
    assert!(name == "wgpu" && said.iter().all(|part| why.contains(part)), "{why}");
    let required = Interpreter::builder(model()).delegate(delegate()).policy(Policy::Require).build();
    let error = required.map(drop).unwrap_err().to_string();
    assert!(said.iter().all(|part| error.contains(part)), "{error}");
    interpreter
}

#[test]
fn without_an_adapter() {
    let adapter = AdapterChoice::named("an adapter that is nowhere");
    let open = || WgpuDelegate::open_or_report(options().with_adapter(adapter.clone()));
    check_prepare(open, &["no GPU adapter"]);
}

#[test]
fn without_memory() {
    // The driver's budget counts as exhausted from the start.
    let thresholds = wgpu::MemoryBudgetThresholds { for_resource_creation: Some(0), for_device_loss: None };
    let Some((device, queue, info)) = device(thresholds) else { return };
    let scope = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let usage = wgpu::BufferUsages::STORAGE;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 64, usage, mapped_at_creation: false };
    drop(device.create_buffer(&descriptor));
    if pollster::block_on(scope.pop()).is_none() {
        return eprintln!("left out: the driver of {} has no budget for memory", info.name);
    }
    let delegate = || -> Box<dyn delegraph::delegate_api::Delegate> {
        let (device, queue) = (device.clone(), queue.clone());
        Box::new(WgpuDelegate::with_device(device, queue, info.clone(), options()))
    };
    check_prepare(delegate, &["node 0 (EXP)", "256 bytes of device memory", "Out of memory"]);
}

/// After a first run, `break_it` causes a failure, which the next run reports.
#[track_caller]
fn check_invoke(delegate: WgpuDelegate, break_it: impl FnOnce(&Interpreter), said: &[&str]) {
    let builder = Interpreter::builder(model()).delegate(delegate).keep_outputs();
    let mut interpreter = builder.build().unwrap();
    assert_eq!(interpreter.report().delegated_nodes(), 4, "{:?}", interpreter.report().failures);
    fill(&mut interpreter);
    interpreter.invoke().unwrap();
    interpreter.fetch_output(0).unwrap();
    check_result(&interpreter);
    interpreter.invoke().unwrap();
    break_it(&interpreter);
    let error = interpreter.invoke().unwrap_err().to_string();
    assert!(said.iter().all(|part| error.contains(part)), "{error}");
    let failures = interpreter.invoke_with_fallback().unwrap();
    assert_eq!(failures.len(), 1);
    assert!(said.iter().all(|part| failures[0].to_string().contains(part)), "{}", failures[0]);
    check_result(&interpreter);
    assert_eq!((interpreter.report().delegated_nodes(), interpreter.report().failures.len()), (0, 1));
    // All later runs work.
    fill(&mut interpreter);
    interpreter.invoke().unwrap();
    check_result(&interpreter);
}

#[test]
fn with_an_error_of_validation() {
    let Some(delegate) = delegate() else { return };
    let break_it = |interpreter: &Interpreter| {
        let kept = interpreter.output_buffer(0).unwrap();
        kept.downcast_ref::<GpuBuffer>().unwrap().buffer().destroy();
    };
    // The steps were fused, possibly into a single step, which is named with all of its nodes.
    check_invoke(delegate, break_it, &["destroyed", "node", "(SUB)"]);
}

#[test]
fn with_a_device_of_the_application_that_is_lost() {
    let Some(delegate) = delegate() else { return };
    let lost = delegate.device_and_queue().0.clone();
    let lose = |interpreter: &Interpreter| {
        lost.destroy();
        // Outputs on the device are lost as well.
        let error = interpreter.output_buffer(0).unwrap().read(&mut [0; 4 * SIZE]).unwrap_err().to_string();
        assert!(error.contains("lost"), "{error}");
    };
    check_invoke(delegate, lose, &["lost", "0 (EXP)"]);
}
