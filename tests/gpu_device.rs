//! One device for several interpreters and threads: shared objects, their lifetime, and failures of the device.
//! Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use std::thread;
use std::time::Duration;

use delegraph::core::ops::Padding;
use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::delegate_wgpu::{PipelineCache, WgpuDelegate, WgpuOptions};
use delegraph::interpreter::ResourceLimits;
use delegraph::{Interpreter, Model, TensorType};

fn options() -> WgpuOptions {
    WgpuOptions::default().with_pipeline_cache(PipelineCache::Off)
}

fn delegate() -> Option<WgpuDelegate> {
    gpu::opened(WgpuDelegate::new(options()))
}

/// `layers` convolutions of `channels` channels with filters of 3 by 3, on an input of `size` by `size`.
fn convolutions(size: usize, channels: usize, layers: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [1, size, size, channels]);
    for layer in 0..layers {
        let count = channels * 9 * channels;
        let filter = |i: usize| ((i * 7 + layer) % 11) as f32 / (11.0 * 9.0 * channels as f32) - 0.002;
        let filter: Vec<f32> = (0..count).map(filter).collect();
        let filter = graph.constant("", [channels, 3, 3, channels], &filter);
        let bias = graph.constant("", [channels], &vec![0.1f32; channels]);
        let params = Conv2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
        x = graph.node(BuiltinOp::CONV_2D, params).inputs([x, filter, bias]).output("");
    }
    x = graph.node(BuiltinOp::TANH, Params::None).inputs([x]).output("");
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn fill(interpreter: &mut Interpreter, seed: usize) {
    let input = interpreter.input_mut::<f32>(0).unwrap();
    input.iter_mut().enumerate().for_each(|(i, x)| *x = ((i * 31 + seed) % 17) as f32 / 17.0);
}

fn on(delegate: &WgpuDelegate, model: impl Into<std::sync::Arc<Model>>) -> Interpreter {
    let interpreter = Interpreter::builder(model).delegate(delegate.clone()).build().unwrap();
    let report = interpreter.report();
    assert_eq!(report.delegated_nodes(), report.nodes.len(), "{:?}", report.failures);
    interpreter
}

fn run(interpreter: &mut Interpreter, seed: usize) -> Vec<f32> {
    fill(interpreter, seed);
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

#[track_caller]
fn check_close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(approx::abs_diff_eq!(g, w, epsilon = 1e-4), "element {i} is {g}, expected {w}");
    }
}

fn on_the_cpu(model: Model, seed: usize) -> Vec<f32> {
    run(&mut Interpreter::builder(model).build().unwrap(), seed)
}

#[test]
fn interpreters_share_pipelines_and_weights() {
    let Some(delegate) = delegate() else { return };
    let mut first = on(&delegate, convolutions(8, 16, 3));
    delegate.finish_compiling();
    let (pipelines, bytes) = (delegate.compiled_pipelines(), delegate.uploaded_bytes());
    assert!(pipelines > 0 && bytes >= 3 * 4 * 9 * 16 * 16, "{pipelines}, {bytes}");
    let mut second = on(&delegate, convolutions(8, 16, 3));
    // A second delegate on the same device.
    let (device, queue) = delegate.device_and_queue();
    let (device, queue) = (device.clone(), queue.clone());
    let other = WgpuDelegate::with_device(device, queue, delegate.adapter_info().clone(), options());
    let mut third = on(&other, convolutions(8, 16, 3));
    delegate.finish_compiling();
    assert_eq!((delegate.compiled_pipelines(), delegate.uploaded_bytes()), (pipelines, bytes));
    assert_eq!(other.uploaded_bytes(), bytes);
    let want = on_the_cpu(convolutions(8, 16, 3), 1);
    for interpreter in [&mut first, &mut second, &mut third] {
        check_close(&run(interpreter, 1), &want);
    }
    drop((first, second));
    check_close(&run(&mut third, 1), &want);
    drop(third);
    assert_eq!(delegate.uploaded_bytes(), 0, "weights go with the last interpreter");
}

#[test]
fn a_resize_compiles_nothing_and_leaves_nothing() {
    let Some(delegate) = delegate() else { return };
    let mut interpreter = on(&delegate, convolutions(8, 16, 2));
    run(&mut interpreter, 0);
    delegate.finish_compiling();
    let (pipelines, bytes) = (delegate.compiled_pipelines(), delegate.uploaded_bytes());
    for size in (9..20).chain([33, 64, 8]) {
        interpreter.resize_input(0, &[1, size, size + 1, 16]).unwrap();
        run(&mut interpreter, size);
        assert_eq!(delegate.compiled_pipelines(), pipelines, "at size {size}");
        // Parameters of kernels differ, weights do not.
        assert!(delegate.uploaded_bytes().abs_diff(bytes) < 4096, "at size {size}");
    }
    for batch in [2, 7, 1] {
        interpreter.resize_input(0, &[batch, 8, 9, 16]).unwrap();
        run(&mut interpreter, batch);
        assert_eq!(delegate.compiled_pipelines(), pipelines, "with {batch} images");
    }
    interpreter.resize_input(0, &[1, 8, 8, 16]).unwrap();
    check_close(&run(&mut interpreter, 3), &on_the_cpu(convolutions(8, 16, 2), 3));
    assert_eq!(delegate.uploaded_bytes(), bytes);
}

#[test]
fn threads_share_a_device() {
    let Some(delegate) = delegate() else { return };
    let want: Vec<_> = (0..4).map(|seed| on_the_cpu(convolutions(12, 8, 2), seed)).collect();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (delegate, want) = (&delegate, &want);
            scope.spawn(move || {
                let mut interpreter = on(delegate, convolutions(12, 8, 2));
                for _ in 0..8 {
                    check_close(&run(&mut interpreter, seed), &want[seed]);
                }
            });
        }
    });
}

#[test]
fn interpreters_come_and_go() {
    let Some(delegate) = delegate() else { return };
    let model = std::sync::Arc::new(convolutions(8, 8, 2));
    let want = on_the_cpu(convolutions(8, 8, 2), 5);
    let mut many: Vec<_> = (0..20).map(|_| on(&delegate, model.clone())).collect();
    let bytes = delegate.uploaded_bytes();
    many.iter_mut().for_each(|interpreter| check_close(&run(interpreter, 5), &want));
    drop(many);
    for _ in 0..30 {
        let mut interpreter = on(&delegate, model.clone());
        assert_eq!(delegate.uploaded_bytes(), bytes);
        check_close(&run(&mut interpreter, 5), &want);
    }
    assert_eq!(delegate.uploaded_bytes(), 0);
}

#[test]
fn a_lost_device_is_an_error_and_the_cpu_takes_over() {
    let Some(delegate) = delegate() else { return };
    let mut interpreter = on(&delegate, convolutions(8, 8, 2));
    let want = run(&mut interpreter, 2);
    delegate.device_and_queue().0.destroy();
    fill(&mut interpreter, 2);
    let error = interpreter.invoke().unwrap_err().to_string();
    assert!(error.contains("lost") && error.contains("0 (CONV_2D)"), "{error}");
    let failures = interpreter.invoke_with_fallback().unwrap();
    assert_eq!(failures.len(), 1);
    check_close(interpreter.output(0).unwrap(), &want);
    assert_eq!(interpreter.report().delegated_nodes(), 0);
    assert_eq!(interpreter.report().failures.len(), 1);
    // A later interpreter reports the failure in preparation, and runs on the CPU.
    let later = Interpreter::builder(convolutions(8, 8, 2)).delegate(delegate);
    let mut later = later.build().unwrap();
    check_close(&run(&mut later, 2), &want);
    assert_eq!(later.report().failures.len(), 1, "{:?}", later.report().failures);
}

#[test]
fn a_device_may_be_lost_in_the_middle() {
    let Some(delegate) = delegate() else { return };
    let model = || convolutions(96, 32, 24);
    let mut interpreter = on(&delegate, model());
    run(&mut interpreter, 1);
    fill(&mut interpreter, 3);
    let device = delegate.device_and_queue().0.clone();
    let destroyer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        device.destroy();
    });
    // Faster machines may finish before.
    let mut failures = Vec::new();
    for _ in 0..1000 {
        failures = interpreter.invoke_with_fallback().unwrap();
        if !failures.is_empty() {
            break;
        }
    }
    destroyer.join().unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].to_string().contains("CONV_2D"), "{}", failures[0]);
    check_close(interpreter.output(0).unwrap(), &on_the_cpu(model(), 3));
}

#[test]
fn a_cap_on_memory_means_fewer_claims() {
    let model = || convolutions(16, 16, 6);
    let (mut fewest, mut some) = (usize::MAX, false);
    for most in [u64::MAX, 200_000, 120_000, 60_000, 1000, 0] {
        let options = options().with_max_gpu_bytes(most);
        let Some(delegate) = gpu::opened(WgpuDelegate::new(options)) else { return };
        let mut interpreter = Interpreter::builder(model()).delegate(delegate).build().unwrap();
        check_close(&run(&mut interpreter, 4), &on_the_cpu(model(), 4));
        let (report, stats) = (interpreter.report(), interpreter.delegate_stats());
        let used: u64 = stats.iter().map(|s| s.device_bytes).sum();
        assert!(used <= most, "{used} of {most}");
        let count = report.delegated_nodes();
        assert!(count <= fewest && report.failures.is_empty(), "{count} at {most}");
        some |= (1..report.nodes.len()).contains(&count);
        let said = |why: &delegraph::delegate_api::Rejection| {
            why.kind() == "DeviceLimit" && why.to_string().contains("max_gpu_bytes")
        };
        assert!(report.rejected().all(|(_, why)| said(why)));
        fewest = count;
    }
    assert!(some && fewest == 0, "a part of the model fits some of these");
}

#[test]
fn the_interpreters_limit_of_memory_is_the_delegates() {
    let model = || convolutions(16, 16, 6);
    let Some(delegate) = gpu::opened(WgpuDelegate::new(options())) else { return };
    let (mut all, mut fewer) = (0, false);
    // Below some limit the CPU cannot run the model either.
    for most in [1 << 30].into_iter().chain((1..=40).rev().map(|n| n * 8000)) {
        let limits = ResourceLimits::default().with_memory(most);
        let builder = Interpreter::builder(model()).delegate(delegate.clone()).limits(limits);
        let Ok(mut interpreter) = builder.build() else { break };
        let used: u64 = interpreter.delegate_stats().iter().map(|s| s.device_bytes).sum();
        assert!(used <= most as u64, "{used} of {most}");
        let count = interpreter.report().delegated_nodes();
        (all, fewer) = (all.max(count), fewer || count < all);
        check_close(&run(&mut interpreter, 4), &on_the_cpu(model(), 4));
    }
    assert!(all > 0 && fewer, "some limits leave nodes on the CPU");
}

/// A waker that counts how often it is woken.
#[derive(Default)]
struct Counter(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Counter {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_future_returns_while_the_device_works() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    let Some(delegate) = delegate() else { return };
    let model = convolutions(32, 16, 4);
    let want = on_the_cpu(model.clone(), 3);
    let mut interpreter = on(&delegate, model);
    fill(&mut interpreter, 3);
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(counter.clone());
    let mut polls = 0;
    {
        let mut invocation = pin!(interpreter.invoke_async());
        while invocation.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            polls += 1;
            // Every poll that returns pending causes another wake of the task.
            assert!(counter.0.load(std::sync::atomic::Ordering::SeqCst) >= polls);
        }
    }
    check_close(interpreter.output::<f32>(0).unwrap(), &want);
    // A dropped invocation, and a cancelled one, leave nothing behind.
    for cancelled in [false, true] {
        let mut invocation = Box::pin(interpreter.invoke_async());
        let mut poll = || invocation.as_mut().poll(&mut Context::from_waker(&waker));
        let first = poll();
        if cancelled && first.is_pending() {
            invocation.cancellation_token().cancel();
            let ended = invocation.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(matches!(ended, Poll::Ready(Err(delegraph::Error::Cancelled))), "{ended:?}");
        }
        drop(invocation);
        check_close(&run(&mut interpreter, 3), &want);
    }
}

#[test]
fn a_long_run_can_be_cancelled() {
    use delegraph::core::ops::cumsum::CumsumParams;
    let Some(delegate) = delegate() else { return };
    // The dispatches of a run read and write 4 GB.
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [1024, 4096]);
    let axis = graph.constant("axis", [1], &[0i32]);
    for _ in 0..128 {
        x = graph.node(BuiltinOp::CUMSUM, CumsumParams::default()).inputs([x, axis]).output("");
    }
    graph.outputs([x]);
    let mut interpreter = on(&delegate, ModelBuilder::new().subgraph(graph).build().unwrap());
    let timed = |interpreter: &mut Interpreter| {
        let start = std::time::Instant::now();
        (interpreter.invoke(), start.elapsed())
    };
    interpreter.input_mut::<f32>(0).unwrap().fill(0.0);
    let (result, whole) = timed(&mut interpreter);
    result.unwrap();
    let token = interpreter.cancellation_token();
    let end = thread::spawn(move || {
        thread::sleep(whole / 20);
        token.cancel();
    });
    let (result, part) = timed(&mut interpreter);
    end.join().unwrap();
    assert!(matches!(result, Err(delegraph::Error::Cancelled)), "{result:?}");
    assert!(part < whole * 9 / 10, "a whole run takes {whole:?}, the cancelled one {part:?}");
    interpreter.cancellation_token().clear();
    interpreter.invoke().unwrap();
    assert!(interpreter.output::<f32>(0).unwrap().iter().all(|x| *x == 0.0));
}
