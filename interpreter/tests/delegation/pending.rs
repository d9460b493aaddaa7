//! Kernels whose work is pending: invoked by blocking and as a future, cancelled, dropped, and failing at each call.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, Error, Model, NodeId, Result};
use delegraph_delegate_api::{
    BufferHandle, Buffers, Delegate, DelegateContext, DelegateKernel, Submitted, VersionTable,
};
use delegraph_interpreter::{Interpreter, Profiler, StepEvent};

use crate::graphs::{accumulator, looped};
use crate::support::{ABS, ADD, MUL, NEG, Seen, TestBuffer, X, chain, on_cpu, partitions};

/// A call of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Submit,
    Poll,
    Finish,
    Abandon,
}

/// When a pending kernel wakes its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wakes {
    InPoll,
    FromAnotherThread,
    Never,
}

/// The script of a delegate, and the record of its calls.
struct Script {
    /// The number of polls in each run that find the work pending.
    pending: usize,
    wakes: Wakes,
    /// The call that fails, by an error or a panic.
    fails: Option<(Call, bool)>,
    /// Whether outputs stay in buffers if allowed.
    keeps: bool,
    calls: Mutex<Vec<Call>>,
    threads: Mutex<Vec<thread::ThreadId>>,
    seen: Arc<Seen>,
}

impl Script {
    fn new(pending: usize, wakes: Wakes) -> Self {
        let (calls, threads, seen) = Default::default();
        Script { pending, wakes, fails: None, keeps: false, calls, threads, seen }
    }

    /// Records a call.
    fn call(&self, call: Call) -> Result<()> {
        self.calls.lock().unwrap().push(call);
        self.threads.lock().unwrap().push(thread::current().id());
        match self.fails {
            Some((fails, true)) if fails == call => panic!("scripted panic in {call:?}"),
            Some((fails, false)) if fails == call => {
                Err(Error::Kernel(format!("scripted error in {call:?}")))
            }
            _ => Ok(()),
        }
    }

    fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

/// A delegate that runs one op, NEG or ABS, on a simulated slow device.
struct Slow(VersionTable, Arc<Script>);

impl Slow {
    fn new(op: BuiltinOp, script: &Arc<Script>) -> Self {
        Slow(VersionTable::new(&[(op, 1)]), script.clone())
    }
}

impl Delegate for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let all: Vec<NodeId> = cx.graph().nodes().map(|n| n.id()).collect();
        let script = self.1.clone();
        cx.claim(&all, move |params, graph| {
            let abs = params.nodes.iter().map(|n| *graph.node(*n).op() == ABS.into()).collect();
            Ok(Box::new(SlowKernel { script: script.clone(), abs, values: Vec::new(), left: 0 }))
        });
        Ok(())
    }
}

struct SlowKernel {
    script: Arc<Script>,
    /// Per node, whether it is an ABS and not a NEG.
    abs: Vec<bool>,
    values: Vec<f32>,
    /// The remaining polls that find the work pending.
    left: usize,
}

impl SlowKernel {
    fn write(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        if self.script.keeps && buffers.may_keep(0) {
            let buffer = TestBuffer { data: self.values.clone(), seen: self.script.seen.clone() };
            buffers.keep(0, BufferHandle::new(buffer));
        } else {
            cx.output::<f32>(0)?.copy_from_slice(&self.values);
        }
        Ok(())
    }
}

impl Kernel for SlowKernel {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        unreachable!("the interpreter submits")
    }
}

impl DelegateKernel for SlowKernel {
    fn accepts(&self, _: usize, buffer: &BufferHandle) -> bool {
        self.script.keeps && buffer.downcast_ref::<TestBuffer>().is_some()
    }

    fn keeps(&self, _: usize) -> bool {
        self.script.keeps
    }

    fn submit(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<Submitted> {
        self.script.call(Call::Submit)?;
        self.values = match buffers.input(0).and_then(|b| b.downcast_ref::<TestBuffer>()) {
            Some(buffer) => buffer.data.clone(),
            None => cx.input::<f32>(0)?.to_vec(),
        };
        for &abs in &self.abs {
            self.values.iter_mut().for_each(|x| *x = if abs { x.abs() } else { -*x });
        }
        self.left = self.script.pending;
        Ok(Submitted::Pending)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Err(error) = self.script.call(Call::Poll) {
            return Poll::Ready(Err(error));
        }
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(Ok(())) };
        self.left = left;
        match self.script.wakes {
            Wakes::InPoll => cx.waker().wake_by_ref(),
            Wakes::FromAnotherThread => {
                let waker = cx.waker().clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(1));
                    waker.wake();
                });
            }
            Wakes::Never => {}
        }
        Poll::Pending
    }

    fn finish(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        self.script.call(Call::Finish)?;
        self.write(cx, buffers)
    }

    fn abandon(&mut self) {
        self.script.call(Call::Abandon).unwrap();
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Counter {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls until the future is ready, each time only after it was woken. Returns the number of polls, too.
fn drive<F: Future>(future: F, counter: &Arc<Counter>) -> (F::Output, usize) {
    let waker = Waker::from(counter.clone());
    let mut future = pin!(future);
    for polls in 1.. {
        let before = counter.count();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, polls);
        }
        while counter.count() == before {
            thread::yield_now();
        }
    }
    unreachable!()
}

fn poll_once<F: Future + Unpin>(future: &mut F, counter: &Arc<Counter>) -> Poll<F::Output> {
    let waker = Waker::from(counter.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// An interpreter whose `op` runs on a slow delegate, with [`X`] as its input.
fn slow(model: &Model, op: BuiltinOp, script: &Arc<Script>) -> Interpreter {
    let mut interpreter =
        Interpreter::builder(model.clone()).delegate(Slow::new(op, script)).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    interpreter
}

#[test]
fn blocking_waits_for_each_pending_partition() {
    let model = chain(&[NEG, ADD, NEG, ABS, NEG]);
    for wakes in [Wakes::InPoll, Wakes::FromAnotherThread] {
        let script = Arc::new(Script::new(2, wakes));
        let mut interpreter = slow(&model, NEG, &script);
        assert_eq!(partitions(&interpreter), [[0], [2], [4]]);
        for _ in 0..2 {
            interpreter.invoke().unwrap();
            assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
            let once = [Call::Submit, Call::Poll, Call::Poll, Call::Poll, Call::Finish];
            assert_eq!(script.take_calls(), [once, once, once].concat());
        }
    }
}

/// Records the nodes of steps.
struct Steps(Arc<Mutex<Vec<usize>>>);

impl Profiler for Steps {
    fn step(&mut self, event: &StepEvent<'_>) {
        self.0.lock().unwrap().extend(event.nodes.iter().map(|n| n.0));
    }
}

#[test]
fn a_future_returns_at_each_pending_step_and_runs_on_the_thread_that_polls() {
    let model = chain(&[NEG, ADD, NEG, MUL]);
    for wakes in [Wakes::InPoll, Wakes::FromAnotherThread] {
        let script = Arc::new(Script::new(3, wakes));
        let mut interpreter = slow(&model, NEG, &script);
        let steps: Arc<Mutex<Vec<usize>>> = Arc::default();
        interpreter.set_profiler(Some(Box::new(Steps(steps.clone()))));
        let counter = Arc::default();
        {
            // Before the first poll nothing runs; after it, only the first partition has begun.
            let mut invocation = interpreter.invoke_async();
            assert!(script.take_calls().is_empty());
            assert!(poll_once(&mut invocation, &counter).is_pending());
            assert_eq!(script.take_calls(), [Call::Submit, Call::Poll]);
            assert!(steps.lock().unwrap().is_empty());
            let (result, polls) = drive(invocation, &counter);
            result.unwrap();
            // Three more polls of the first partition, the last of which also submits the second one; then three more
            // polls of the second one.
            assert_eq!(polls, 6);
        }
        assert_eq!(*steps.lock().unwrap(), [0, 1, 2, 3]);
        assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
        let here = thread::current().id();
        assert!(script.threads.lock().unwrap().iter().all(|id| *id == here));
    }
}

#[test]
fn work_that_is_done_at_once_takes_one_poll() {
    let model = chain(&[NEG, ADD, NEG]);
    let script = Arc::new(Script::new(0, Wakes::Never));
    let mut interpreter = slow(&model, NEG, &script);
    let (result, polls) = drive(interpreter.invoke_async(), &Arc::default());
    result.unwrap();
    assert_eq!(polls, 1);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
}

#[test]
fn cancelling_wakes_and_ends_a_pending_invocation() {
    let model = chain(&[ADD, NEG, NEG, ABS]);
    let script = Arc::new(Script::new(1, Wakes::Never));
    let mut interpreter = slow(&model, NEG, &script);
    let counter: Arc<Counter> = Arc::default();
    let mut invocation = interpreter.invoke_async();
    assert!(poll_once(&mut invocation, &counter).is_pending());
    assert_eq!(counter.count(), 0);
    invocation.cancellation_token().cancel();
    assert_eq!(counter.count(), 1);
    let ended = poll_once(&mut invocation, &counter);
    assert!(matches!(ended, Poll::Ready(Err(Error::Cancelled))), "{ended:?}");
    assert!(matches!(poll_once(&mut invocation, &counter), Poll::Ready(Err(Error::State(_)))));
    drop(invocation);
    assert_eq!(script.take_calls(), [Call::Submit, Call::Poll, Call::Abandon]);
    // The cancellation ended one invocation; the inputs are unchanged.
    let mut invocation = interpreter.invoke_async();
    assert!(poll_once(&mut invocation, &counter).is_pending());
    assert!(matches!(poll_once(&mut invocation, &counter), Poll::Ready(Ok(()))));
    drop(invocation);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
}

#[test]
fn dropping_a_pending_invocation_abandons_its_work() {
    let model = chain(&[NEG, ADD, NEG]);
    let script = Arc::new(Script::new(1, Wakes::InPoll));
    let mut interpreter = slow(&model, NEG, &script);
    for forgotten in [false, true] {
        let mut invocation = interpreter.invoke_async();
        assert!(poll_once(&mut invocation, &Arc::default()).is_pending());
        if forgotten {
            std::mem::forget(invocation);
        } else {
            drop(invocation);
        }
        let mut expected = vec![Call::Submit, Call::Poll];
        expected.extend((!forgotten).then_some(Call::Abandon));
        assert_eq!(script.take_calls(), expected);
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
        // The work of a forgotten future is abandoned before the kernel is used again.
        assert_eq!(script.take_calls().first() == Some(&Call::Abandon), forgotten);
    }
    // A resize drops the kernel with its work.
    let mut invocation = interpreter.invoke_async();
    assert!(poll_once(&mut invocation, &Arc::default()).is_pending());
    std::mem::forget(invocation);
    interpreter.resize_input(0, &[2]).unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X[..2]);
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), &on_cpu(&model)[..2]);
}

#[test]
fn a_failure_at_any_call_names_the_partition_and_can_fall_back() {
    let model = chain(&[ADD, NEG, ABS]);
    for call in [Call::Submit, Call::Poll, Call::Finish] {
        for panics in [false, true] {
            let script = || Arc::new(Script { fails: Some((call, panics)), ..Script::new(1, Wakes::InPoll) });
            let mut interpreter = slow(&model, NEG, &script());
            for error in [
                interpreter.invoke().unwrap_err(),
                drive(interpreter.invoke_async(), &Arc::default()).0.unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(matches!(error, Error::Delegate { .. }), "{text}");
                for part in ["slow", "partition 0 (node 1)", &format!("in {call:?}")] {
                    assert!(text.contains(part), "\"{part}\" is not in: {text}");
                }
            }
            assert_eq!(interpreter.invoke_with_fallback().unwrap().len(), 1);
            assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
            let mut interpreter = slow(&model, NEG, &script());
            let (failures, _) = drive(interpreter.invoke_async_with_fallback(), &Arc::default());
            assert_eq!(failures.unwrap().len(), 1);
            assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
            assert!(drive(interpreter.invoke_async_with_fallback(), &Arc::default()).0.unwrap().is_empty());
        }
    }
}

#[test]
fn no_call_follows_a_failure() {
    let model = chain(&[NEG]);
    for (call, calls) in [(Call::Submit, 1), (Call::Poll, 2), (Call::Finish, 4)] {
        let script = Arc::new(Script { fails: Some((call, false)), ..Script::new(1, Wakes::InPoll) });
        let mut interpreter = slow(&model, NEG, &script);
        interpreter.invoke().unwrap_err();
        assert_eq!(script.take_calls().len(), calls, "{call:?}");
        interpreter.invoke().unwrap_err();
        assert_eq!(script.take_calls()[0], Call::Submit);
    }
}

#[test]
fn a_fallback_of_a_future_finds_variables_as_they_were() {
    let model = accumulator();
    let script = Arc::new(Script { fails: Some((Call::Finish, false)), ..Script::new(2, Wakes::InPoll) });
    let mut interpreter = slow(&model, NEG, &script);
    let mut plain = Interpreter::builder(model).build().unwrap();
    for round in 0..3 {
        plain.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
        plain.invoke().unwrap();
        interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
        let failures = drive(interpreter.invoke_async_with_fallback(), &Arc::default()).0.unwrap();
        assert_eq!(failures.len(), usize::from(round == 0));
        assert_eq!(interpreter.output::<f32>(0).unwrap(), plain.output::<f32>(0).unwrap(), "round {round}");
    }
}

#[test]
fn outputs_that_a_pending_kernel_leaves_are_taken_by_the_next() {
    let model = chain(&[NEG, ABS, NEG]);
    let script = |pending| Script { keeps: true, ..Script::new(pending, Wakes::InPoll) };
    let (a, b) = (Arc::new(script(1)), Arc::new(script(2)));
    let builder = Interpreter::builder(model.clone()).delegate(Slow::new(NEG, &a));
    let mut interpreter = builder.delegate(Slow::new(ABS, &b)).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    let (result, polls) = drive(interpreter.invoke_async(), &Arc::default());
    result.unwrap();
    assert_eq!(polls, 1 + 1 + 2 + 1);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
    assert_eq!([&a, &b].map(|s| s.seen.reads.load(Ordering::Relaxed)), [0, 0]);
}

#[test]
fn a_called_subgraph_runs_to_its_end_within_one_step() {
    let model = looped("body");
    let script = Arc::new(Script::new(2, Wakes::FromAnotherThread));
    let mut interpreter = slow(&model, NEG, &script);
    let (result, polls) = drive(interpreter.invoke_async(), &Arc::default());
    result.unwrap();
    assert_eq!(polls, 1);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), X.map(|x| -x));
    let submitted = script.take_calls().iter().filter(|c| **c == Call::Submit).count();
    assert_eq!(submitted, 3);
}
