//! Applying, resizing and removing delegates; profiling, cancelling and awaiting an invocation.

use std::sync::{Arc, Mutex};

use delegraph_core::Error;
use delegraph_delegate_api::PartitionOptions;
use delegraph_interpreter::{CancellationToken, Interpreter, Profiler, StepEvent};

use crate::support::{ABS, ADD, NEG, Scripted, X, chain, on_cpu, partitions, run, with};

#[test]
fn a_resize_asks_the_delegate_again() {
    let model = chain(&[NEG, ADD]);
    let delegate = Scripted::new("d", &[NEG, ADD]);
    let seen = delegate.seen.clone();
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    run(&mut interpreter, &X).unwrap();
    interpreter.resize_input(0, &[2]).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, 2.0]).unwrap(), [0.0, -1.0]);
    interpreter.resize_input(0, &[4]).unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    let once = |shape| {
        [
            "prepare 0".into(),
            "kernel 0 [0, 1]".into(),
            format!("prepare kernel, outputs [{shape}]"),
            "invoke".into(),
        ]
    };
    assert_eq!(seen.log(), [once(4), once(2), once(4)].concat());
    // A resize to the current shape does not call the delegate.
    interpreter.resize_input(0, &[4]).unwrap();
    run(&mut interpreter, &X).unwrap();
    assert_eq!(seen.log().len(), 13);
}

#[test]
fn removing_restores_the_plan_and_adding_changes_it_again() {
    let model = chain(&[NEG, ABS, ADD]);
    let mut interpreter = with(&model, [Scripted::new("d", &[NEG, ADD])]).build().unwrap();
    assert_eq!(partitions(&interpreter), [[0], [2]]);
    let mut removed = interpreter.remove_delegates();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert_eq!(partitions(&interpreter).len(), 0);
    assert!(interpreter.report().delegates.is_empty());
    let limits = PartitionOptions::default().with_max_partitions(1);
    interpreter.add_delegate(removed.pop().unwrap(), limits);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert_eq!(partitions(&interpreter), [[0]]);
}

/// Records steps, and cancels when progress is reported.
struct Watch {
    steps: Arc<Mutex<Vec<String>>>,
    cancel: Option<CancellationToken>,
}

impl Profiler for Watch {
    fn step(&mut self, event: &StepEvent<'_>) {
        let nodes: Vec<_> = event.nodes.iter().map(|n| n.0).collect();
        let times: Vec<_> = event.node_times.iter().map(|t| (t.node.0, t.time.as_nanos())).collect();
        self.steps.lock().unwrap().push(format!("{nodes:?} {:?} {times:?}", event.delegate));
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.steps.lock().unwrap().push(format!("{done} of {total}"));
        if let Some(token) = &self.cancel {
            token.cancel();
        }
    }
}

#[test]
fn times_per_node_and_progress_reach_the_profiler() {
    let mut interpreter = with(&chain(&[NEG, ADD, ABS]), [Scripted::new("d", &[NEG, ADD])]).build().unwrap();
    let steps: Arc<Mutex<Vec<String>>> = Arc::default();
    interpreter.set_profiler(Some(Box::new(Watch { steps: steps.clone(), cancel: None })));
    run(&mut interpreter, &X).unwrap();
    let seen = steps.lock().unwrap().clone();
    assert_eq!(seen, ["1 of 2", r#"[0, 1] Some("d") [(0, 7), (1, 7)]"#, "[2] None []"]);
}

#[test]
fn cancelling_reaches_a_kernel_that_is_running() {
    let model = chain(&[NEG]);
    let mut interpreter = with(&model, [Scripted::new("d", &[NEG])]).build().unwrap();
    let cancel = Some(interpreter.cancellation_token());
    interpreter.set_profiler(Some(Box::new(Watch { steps: Arc::default(), cancel })));
    assert!(matches!(run(&mut interpreter, &X), Err(Error::Cancelled)));
    interpreter.set_profiler(None);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
}

fn started(model: &delegraph_core::Model) -> Interpreter {
    let mut interpreter = with(model, [Scripted::new("d", &[NEG])]).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    interpreter
}

#[test]
fn an_invocation_can_be_waited_for() {
    let model = chain(&[NEG, ABS]);
    let mut interpreter = started(&model);
    interpreter.invoke_async().wait().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
}

#[test]
fn an_invocation_can_be_awaited_and_cancelled() {
    let model = chain(&[NEG, ABS]);
    let mut interpreter = started(&model);
    pollster::block_on(interpreter.invoke_async()).unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
    interpreter.cancellation_token().cancel();
    let result = pollster::block_on(interpreter.invoke_async());
    assert!(matches!(result, Err(Error::Cancelled)));
    pollster::block_on(interpreter.invoke_async()).unwrap();
}

#[test]
fn a_failure_of_a_delegate_is_the_result_of_the_future() {
    use crate::support::Hook;
    let model = chain(&[NEG]);
    let delegate = Scripted::new("d", &[NEG]).failing(Hook::Invoke, true);
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    let result = pollster::block_on(interpreter.invoke_async());
    assert!(matches!(result, Err(Error::Delegate { .. })));
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    let failures = pollster::block_on(interpreter.invoke_async_with_fallback()).unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
}
