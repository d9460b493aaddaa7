//! Delegates that fail or panic at each hook, and the state afterwards.

use delegraph_core::{Error, SubgraphBuilder, TensorType};
use delegraph_delegate_api::{Policy, Runner};

use crate::graphs::accumulator;
use crate::support::{
    ABS, ADD, Hook, MUL, NEG, Scripted, X, build, chain, on_cpu, partitions, reasons, run, step, with,
};

#[test]
fn a_failure_while_preparing_gives_everything_back_to_the_cpu() {
    let model = chain(&[NEG, ADD, ABS]);
    for hook in [Hook::Prepare, Hook::CreateKernel, Hook::PrepareKernel] {
        for panics in [false, true] {
            let delegate = Scripted::new("failing", &[NEG, ADD]).failing(hook, panics);
            let mut interpreter = with(&model, [delegate]).build().unwrap();
            assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model), "{hook:?}");
            let report = interpreter.report();
            assert_eq!(report.delegated_nodes(), 0);
            let failure = &report.failures[0];
            assert_eq!(failure.delegate, "failing");
            let message = &failure.message;
            let said = if panics {
                format!("scripted panic in {hook:?}")
            } else {
                format!("scripted error in {hook:?}")
            };
            assert!(message.contains(&said), "{message}");
            assert!(reasons(&interpreter).iter().all(|(_, kind)| *kind == "DelegateFailed"));
        }
    }
}

#[test]
fn with_policy_require_a_failure_is_the_error() {
    let model = chain(&[NEG]);
    for hook in [Hook::Prepare, Hook::CreateKernel, Hook::PrepareKernel] {
        let delegate = Scripted::new("failing", &[NEG]).failing(hook, false);
        let error = with(&model, [delegate]).policy(Policy::Require).build().err().unwrap();
        assert!(matches!(error, Error::Delegate { .. }), "{error}");
        assert!(error.to_string().contains("failing"), "{error}");
    }
}

/// A called subgraph is prepared with the node that calls it, which is not the cause of a delegate's failure.
#[test]
fn a_failure_in_a_called_subgraph_names_the_delegate() {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    let y = step(&mut body, NEG, x, "y");
    // A body that returns an input is called, not inlined.
    body.outputs([y, x]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let [a, b] = graph.composite("c", body).inputs([x]).outputs(["a", "b"]);
    graph.outputs([a, b]);
    let model = build(graph);
    let error = |hook| {
        let delegate = Scripted::new("failing", &[NEG]).failing(hook, false);
        with(&model, [delegate]).policy(Policy::Require).build().err().unwrap()
    };
    for hook in [Hook::Prepare, Hook::CreateKernel] {
        let error = error(hook);
        assert!(matches!(error, Error::Delegate { .. }), "{error}");
        assert!(error.to_string().starts_with("delegate failing: "), "{error}");
    }
    // Partitions are numbered per subgraph, so the error names the calling node as well.
    let error = error(Hook::PrepareKernel).to_string();
    for part in ["node 0 (STABLEHLO_COMPOSITE", "delegate failing: partition 0 (node 0): "] {
        assert!(error.contains(part), "\"{part}\" is not in: {error}");
    }
    // Without the policy, the CPU runs everything.
    let delegate = Scripted::new("failing", &[NEG]).failing(Hook::Prepare, false);
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), X.map(|x| -x));
    assert_eq!(interpreter.report().failures[0].delegate, "failing");
}

#[test]
fn another_delegate_gets_what_the_failing_one_had() {
    let model = chain(&[NEG, ADD, ABS]);
    for hook in [Hook::Prepare, Hook::CreateKernel, Hook::PrepareKernel] {
        let first = Scripted::new("failing", &[NEG, ADD, ABS]).failing(hook, true);
        let second = Scripted::new("sound", &[NEG, ADD]);
        let mut interpreter = with(&model, [first, second]).build().unwrap();
        assert_eq!(partitions(&interpreter), [[0, 1]]);
        assert_eq!(interpreter.report().partitions[0].delegate, 1);
        assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    }
}

#[test]
fn a_failure_while_running_names_delegate_partition_and_nodes() {
    let model = chain(&[NEG, ADD, ABS]);
    for panics in [false, true] {
        let delegate = Scripted::new("failing", &[NEG, ADD]).failing(Hook::Invoke, panics);
        let mut interpreter = with(&model, [delegate]).build().unwrap();
        let error = run(&mut interpreter, &X).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Delegate { .. }), "{text}");
        for part in ["failing", "partition 0", "nodes 0, 1", "in Invoke"] {
            assert!(text.contains(part), "\"{part}\" is not in: {text}");
        }
        // The delegate is tried again, because nothing was changed.
        assert!(interpreter.invoke().is_err());
    }
}

#[test]
fn a_fallback_drops_the_delegate_and_gives_what_the_cpu_gives() {
    let model = chain(&[NEG, ADD, ABS, MUL]);
    let failing = Scripted::new("failing", &[NEG, ADD]).failing(Hook::Invoke, true);
    let sound = Scripted::new("sound", &[ABS]);
    let mut interpreter = with(&model, [failing, sound]).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    let failures = interpreter.invoke_with_fallback().unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].to_string().contains("failing"));
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
    assert_eq!(interpreter.input_mut::<f32>(0).unwrap(), X);
    // The other delegate stays. The failed one is in the report and is not tried again, not even after a resize.
    assert_eq!(partitions(&interpreter), [[2]]);
    interpreter.resize_input(0, &[2]).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, 2.0]).unwrap().len(), 2);
    assert_eq!(interpreter.report().failures[0].delegate, "failing");
    assert!(interpreter.invoke_with_fallback().unwrap().is_empty());
}

#[test]
fn two_delegates_that_fail_are_both_dropped() {
    let model = chain(&[NEG, ABS]);
    let delegates = [NEG, ABS].map(|op| Scripted::new("failing", &[op]).failing(Hook::Invoke, false));
    let mut interpreter = with(&model, delegates).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    assert_eq!(interpreter.invoke_with_fallback().unwrap().len(), 2);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
}

#[test]
fn a_delegate_that_failed_while_preparing_gets_another_chance_after_a_resize() {
    let model = chain(&[NEG]);
    let delegate = Scripted::new("failing", &[NEG]).failing(Hook::PrepareKernel, false);
    let seen = delegate.seen.clone();
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    let before = seen.log().len();
    interpreter.resize_input(0, &[3]).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, 2.0, 3.0]).unwrap(), [-1.0, -2.0, -3.0]);
    assert!(seen.log().len() > before);
}

#[test]
fn a_fallback_finds_variables_as_they_were() {
    let model = accumulator();
    let mut plain = delegraph_interpreter::Interpreter::builder(model.clone()).build().unwrap();
    let failing = Scripted::new("failing", &[NEG]).failing(Hook::Invoke, false);
    let mut interpreter = with(&model, [failing]).build().unwrap();
    assert!(interpreter.report().nodes.iter().any(|n| matches!(n.runner, Runner::Delegate { .. })));
    for round in 0..3 {
        let expected = run(&mut plain, &X).unwrap();
        interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
        let failures = interpreter.invoke_with_fallback().unwrap();
        assert_eq!(failures.len(), usize::from(round == 0));
        assert_eq!(interpreter.output::<f32>(0).unwrap(), expected, "round {round}");
    }
}
