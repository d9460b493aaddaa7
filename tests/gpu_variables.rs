//! Resource variables on the GPU: values stay on the device between invocations, and CPU kernels, saved state and other
//! delegates have the same values. Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::ops::binary::AddParams;
use delegraph::core::ops::concatenation::ConcatenationParams;
use delegraph::core::ops::control_flow::CallOnceParams;
use delegraph::core::ops::slice::StridedSliceParams;
use delegraph::core::ops::variables::VarHandleParams;
use delegraph::core::{Bool, BuiltinOp, Element, ModelBuilder, NodeId, Op, Params, SubgraphBuilder};
use delegraph::delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, PartitionOptions, Rejection, Runner, VersionTable,
};
use delegraph::delegate_wgpu::WgpuDelegate;
use delegraph::{Error, Interpreter, Model, Result, Simple, SimpleDelegate, TensorType};

/// Channels of the rings below: values of 2 KB are mirrored on the CPU, values of 256 KB are not.
const SIZES: [usize; 2] = [64, 8192];
const ROWS: usize = 8;

fn handle() -> VarHandleParams {
    VarHandleParams::default().container("c".into()).shared_name("v".into())
}

fn add_handle(graph: &mut SubgraphBuilder) -> delegraph::core::TensorId {
    let handle_id = graph.tensor("handle", TensorType::Resource, [1]);
    graph.node(BuiltinOp::VAR_HANDLE, handle()).inputs([]).writes([handle_id]);
    handle_id
}

/// A buffer of the last rows, as in streaming models. The output is the stored rows and the new row, and the variable
/// keeps the last rows of the output. With `double`, the rows are added to themselves before.
fn ring<T: Element>(channels: usize, double: bool) -> Model {
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", T::TYPE, [1, channels]);
    let once = CallOnceParams::default().init_subgraph_index(1);
    main.node(BuiltinOp::CALL_ONCE, once).inputs([]).writes([]);
    let v = add_handle(&mut main);
    let old = main.tensor("old", T::TYPE, [ROWS, channels]);
    main.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([old]);
    let join = ConcatenationParams::default();
    let mut all = main.node(BuiltinOp::CONCATENATION, join).inputs([old, x]).output("all");
    if double {
        all = main.node(BuiltinOp::ADD, AddParams::default()).inputs([all, all]).output("double");
    }
    let ends = [[1, 0], [ROWS as i32 + 1, channels as i32], [1, 1]];
    let ends = ends.map(|ends| main.constant("", [2], &ends));
    let last = main.node(BuiltinOp::STRIDED_SLICE, StridedSliceParams::default());
    let last = last.inputs([all, ends[0], ends[1], ends[2]]).output("last");
    main.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, last]).writes([]);
    // The value that was assigned in this invocation.
    let new = main.tensor("new", T::TYPE, [ROWS, channels]);
    main.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([new]);
    main.outputs([all, new]);
    let mut init = SubgraphBuilder::new("init");
    let v = add_handle(&mut init);
    let bytes = vec![0; ROWS * channels * size_of::<T>()];
    let zeros = init.constant_bytes("zeros", T::TYPE, [ROWS, channels], &bytes);
    init.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, zeros]).writes([]);
    ModelBuilder::new().subgraph(main).subgraph(init).build().unwrap()
}

fn cpu(model: &Model) -> Interpreter {
    Interpreter::builder(model.clone()).build().unwrap()
}

fn gpu(model: &Model, delegate: &WgpuDelegate) -> Interpreter {
    Interpreter::builder(model.clone()).delegate(delegate.clone()).build().unwrap()
}

/// Fills the input with the data of invocation `run`.
fn fill<T: Element>(interpreter: &mut Interpreter, run: usize, make: fn(usize) -> T) {
    let input = interpreter.input_mut::<T>(0).unwrap();
    input.iter_mut().enumerate().for_each(|(i, x)| *x = make(i * 7 + run * 31));
}

fn float(i: usize) -> f32 {
    (i % 41) as f32 / 8.0 - 2.0
}

/// Runs one invocation on CPU and GPU, and compares the outputs.
#[track_caller]
fn step<T: Element + PartialEq + std::fmt::Debug>(
    [cpu, gpu]: [&mut Interpreter; 2],
    run: usize,
    make: fn(usize) -> T,
) {
    for interpreter in [&mut *cpu, &mut *gpu] {
        fill(interpreter, run, make);
        interpreter.invoke().unwrap();
    }
    compare::<T>(cpu, gpu, run);
}

#[track_caller]
fn compare<T: Element + PartialEq + std::fmt::Debug>(
    cpu: &mut Interpreter,
    gpu: &mut Interpreter,
    run: usize,
) {
    for output in 0..2 {
        assert_eq!(gpu.output::<T>(output).unwrap(), cpu.output::<T>(output).unwrap(), "invocation {run}");
    }
}

/// Returns the nodes that run on the CPU.
fn on_cpu(interpreter: &Interpreter) -> Vec<String> {
    let nodes = interpreter.report().nodes.iter();
    nodes
        .filter(|node| !matches!(node.runner, Runner::Delegate { .. }))
        .map(|node| node.op.to_string())
        .collect()
}

#[track_caller]
fn check_runs<T: Element + PartialEq + std::fmt::Debug>(delegate: &WgpuDelegate, make: fn(usize) -> T) {
    for channels in SIZES {
        let model = ring::<T>(channels, false);
        let (mut cpu, mut gpu) = (cpu(&model), gpu(&model, delegate));
        assert_eq!(on_cpu(&gpu), ["CALL_ONCE"]);
        assert_eq!(gpu.report().partitions.len(), 1);
        (0..12).for_each(|run| step([&mut cpu, &mut gpu], run, make));
        cpu.reset_variables().unwrap();
        gpu.reset_variables().unwrap();
        (12..16).for_each(|run| step([&mut cpu, &mut gpu], run, make));
    }
}

#[test]
fn state_stays_on_the_device_and_is_reset() {
    let Some(delegate) = gpu::delegate() else { return };
    check_runs::<f32>(&delegate, float);
    check_runs::<i32>(&delegate, |i| i as i32 * 7919 - 100);
    check_runs::<i8>(&delegate, |i| i as i8);
    check_runs::<i16>(&delegate, |i| (i * 97) as i16);
    check_runs::<u8>(&delegate, |i| i as u8);
    check_runs::<Bool>(&delegate, |i| Bool(u8::from(i % 3 == 0)));
}

#[test]
fn a_value_that_is_not_assigned_again_stays() {
    let Some(delegate) = gpu::delegate() else { return };
    // The first invocation assigns on the CPU, all others read.
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", TensorType::Float32, [4]);
    main.node(BuiltinOp::CALL_ONCE, CallOnceParams::default().init_subgraph_index(1)).inputs([]).writes([]);
    let v = add_handle(&mut main);
    let value = main.tensor("value", TensorType::Float32, [4]);
    main.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([value]);
    let sum = main.node(BuiltinOp::ADD, AddParams::default()).inputs([x, value]).output("sum");
    main.outputs([sum, value]);
    let mut init = SubgraphBuilder::new("init");
    let v = add_handle(&mut init);
    let values = init.constant("values", [4], &[1.0f32, -2.0, 3.0, 0.5]);
    init.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, values]).writes([]);
    let model = ModelBuilder::new().subgraph(main).subgraph(init).build().unwrap();
    let (mut cpu, mut gpu) = (cpu(&model), gpu(&model, &delegate));
    assert_eq!(on_cpu(&gpu), ["CALL_ONCE"]);
    (0..3).for_each(|run| step([&mut cpu, &mut gpu], run, float));
}

#[test]
fn kernels_on_the_cpu_and_other_devices_share_the_variables() {
    let (Some(one), Some(other)) = (gpu::delegate(), gpu::delegate()) else { return };
    for channels in SIZES {
        let model = ring::<f32>(channels, true);
        // Nodes: CALL_ONCE, VAR_HANDLE, READ, CONCATENATION, ADD, STRIDED_SLICE, ASSIGN, READ.
        for [first, second] in
            [[vec![2], vec![]], [vec![6], vec![]], [vec![7], vec![]], [vec![6], vec![0, 1, 2, 3, 4, 5, 7]]]
        {
            let excluded = |nodes: &[usize]| {
                let nodes = nodes.iter().map(|node| NodeId(*node));
                PartitionOptions::default().with_excluded_nodes(nodes)
            };
            let builder = Interpreter::builder(model.clone()).delegate_with(one.clone(), excluded(&first));
            let builder = match second.as_slice() {
                [] => builder,
                // Node 6 runs on another device than all others.
                nodes => builder.delegate_with(other.clone(), excluded(nodes)),
            };
            let (mut cpu, mut gpu) = (cpu(&model), builder.build().unwrap());
            (0..5).for_each(|run| step([&mut cpu, &mut gpu], run, float));
        }
    }
}

#[test]
fn delegates_come_and_go_without_a_change_of_state() {
    let Some(delegate) = gpu::delegate() else { return };
    for channels in SIZES {
        let model = ring::<f32>(channels, true);
        let (mut cpu, mut gpu) = (cpu(&model), gpu(&model, &delegate));
        (0..3).for_each(|run| step([&mut cpu, &mut gpu], run, float));
        assert_eq!(gpu.remove_delegates().len(), 1);
        (3..5).for_each(|run| step([&mut cpu, &mut gpu], run, float));
        gpu.add_delegate(delegate.clone(), PartitionOptions::default());
        (5..8).for_each(|run| step([&mut cpu, &mut gpu], run, float));
        assert_eq!(on_cpu(&gpu), ["CALL_ONCE"]);
    }
}

#[test]
fn interpreters_on_one_device_have_variables_of_their_own() {
    let Some(delegate) = gpu::delegate() else { return };
    let model = ring::<f32>(SIZES[1], true);
    let mut pairs = [(); 2].map(|()| (cpu(&model), gpu(&model, &delegate)));
    for run in 0..6 {
        for (offset, (cpu, gpu)) in pairs.iter_mut().enumerate() {
            // The second one runs half as often, on other data.
            if run % (offset + 1) == 0 {
                step([cpu, gpu], run + 100 * offset, float);
            }
        }
    }
}

#[test]
fn an_abandoned_run_changes_no_variable() {
    let Some(delegate) = gpu::delegate() else { return };
    for channels in SIZES {
        let model = ring::<f32>(channels, true);
        let (mut cpu, mut gpu) = (cpu(&model), gpu(&model, &delegate));
        (0..2).for_each(|run| step([&mut cpu, &mut gpu], run, float));
        fill(&mut gpu, 9, float);
        let finished = {
            let mut run = pin!(gpu.invoke_async());
            matches!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
        };
        if finished {
            fill(&mut cpu, 9, float);
            cpu.invoke().unwrap();
        }
        (2..5).for_each(|run| step([&mut cpu, &mut gpu], run, float));
    }
}

/// Claims ADD. Its kernel fails after `fails_at` invocations.
struct Failing {
    versions: VersionTable,
    fails_at: usize,
}

struct FailingKernel {
    runs: usize,
    fails_at: usize,
}

impl SimpleDelegate for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> std::result::Result<(), Rejection> {
        let is_add = *node.op() == Op::Builtin(BuiltinOp::ADD);
        if is_add { Ok(()) } else { Err(Rejection::UnsupportedOp { op: node.op().clone() }) }
    }

    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(FailingKernel { runs: 0, fails_at: self.fails_at }))
    }
}

impl Kernel for FailingKernel {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.runs += 1;
        if self.runs > self.fails_at {
            return Err(Error::delegate("failing", "as the test wants it"));
        }
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = x + x);
        Ok(())
    }
}

impl DelegateKernel for FailingKernel {}

/// `v = v - x`, then `(v + v, v)`: a failure of the addition comes after the assignment.
fn accumulator(size: usize) -> Model {
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", TensorType::Float32, [size]);
    main.node(BuiltinOp::CALL_ONCE, CallOnceParams::default().init_subgraph_index(1)).inputs([]).writes([]);
    let v = add_handle(&mut main);
    let old = main.tensor("old", TensorType::Float32, [size]);
    main.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([old]);
    let difference = main.node(BuiltinOp::SUB, delegraph::core::ops::binary::SubParams::default());
    let new = difference.inputs([old, x]).output("new");
    main.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, new]).writes([]);
    let twice = main.node(BuiltinOp::ADD, AddParams::default()).inputs([new, new]).output("twice");
    main.outputs([twice, new]);
    let mut init = SubgraphBuilder::new("init");
    let v = add_handle(&mut init);
    let zeros = init.constant("zeros", [size], &vec![0.0f32; size]);
    init.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, zeros]).writes([]);
    ModelBuilder::new().subgraph(main).subgraph(init).build().unwrap()
}

#[test]
fn a_fallback_repeats_an_invocation_from_the_same_state() {
    let Some(delegate) = gpu::delegate() else { return };
    for size in [256, 65_536] {
        let model = accumulator(size);
        let mut cpu = cpu(&model);
        let versions = VersionTable::new(&[(BuiltinOp::ADD, 1)]);
        let failing = Simple(Failing { versions, fails_at: 3 });
        let builder = Interpreter::builder(model.clone()).delegate(failing).delegate(delegate.clone());
        let mut gpu = builder.build().unwrap();
        for run in 0..6 {
            for interpreter in [&mut cpu, &mut gpu] {
                fill(interpreter, run, float);
            }
            cpu.invoke().unwrap();
            let failures = gpu.invoke_with_fallback().unwrap();
            assert_eq!(failures.len(), usize::from(run == 3), "{failures:?}");
            compare::<f32>(&mut cpu, &mut gpu, run);
        }
        assert_eq!(on_cpu(&gpu), ["CALL_ONCE"]);
    }
}

#[test]
fn small_state_outlives_a_lost_device() {
    let Some(delegate) = gpu::delegate() else { return };
    let model = ring::<f32>(SIZES[0], true);
    let (mut cpu, mut gpu) = (cpu(&model), gpu(&model, &delegate));
    (0..3).for_each(|run| step([&mut cpu, &mut gpu], run, float));
    delegate.device_and_queue().0.destroy();
    for interpreter in [&mut cpu, &mut gpu] {
        fill(interpreter, 3, float);
    }
    cpu.invoke().unwrap();
    assert_eq!(gpu.invoke_with_fallback().unwrap().len(), 1);
    compare::<f32>(&mut cpu, &mut gpu, 3);
    (4..6).for_each(|run| step([&mut cpu, &mut gpu], run, float));
}

#[test]
fn errors_are_those_of_the_cpu() {
    let Some(delegate) = gpu::delegate() else { return };
    // Read before the assignment; read with a shape that differs from the assigned one, in the same invocation.
    for assigned in [None, Some([2usize, 3])] {
        let mut main = SubgraphBuilder::new("main");
        let shape = assigned.unwrap_or([3, 2]);
        let x = main.input("x", TensorType::Float32, shape);
        let v = add_handle(&mut main);
        if assigned.is_some() {
            main.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, x]).writes([]);
        }
        let read = main.tensor("read", TensorType::Float32, [3, 2]);
        main.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([read]);
        let y = main.node(BuiltinOp::NEG, Params::None).inputs([read]).output("y");
        main.outputs([y]);
        let model = ModelBuilder::new().subgraph(main).build().unwrap();
        let mut gpu = gpu(&model, &delegate);
        assert_eq!(on_cpu(&gpu), [""; 0]);
        let [on_cpu, on_gpu] = [&mut cpu(&model), &mut gpu].map(|i| i.invoke().unwrap_err().to_string());
        let what = match assigned {
            None => "the variable has no value yet",
            Some(_) => "the variable holds FLOAT32 [2, 3], expected FLOAT32 [3, 2]",
        };
        assert!(on_cpu.contains(what), "{on_cpu}");
        assert!(on_gpu.contains(what) && on_gpu.contains("READ_VARIABLE"), "{on_gpu}");
    }
}
