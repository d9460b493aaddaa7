//! Models that pass verification and need too many resources: they fail within the limits, with an error that names the
//! limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use delegraph::core::Error;
use delegraph::core::error::{Limit, LimitExceeded};
use delegraph::interpreter::ResourceLimits;
use delegraph::{BuiltinOpResolver, Interpreter, Model, ReferenceOpResolver};

use crate::models::{self, Call, Giant, Sizes};

/// A small limit of memory, and one of time that a busy machine does not reach.
fn limits() -> ResourceLimits {
    ResourceLimits::default().with_memory(32 << 20).with_time(Duration::from_secs(20))
}

/// Prepares and runs a model on both kernel sets.
fn run(model: &Model, limits: &ResourceLimits) -> [Result<(), Error>; 2] {
    let model = Arc::new(model.clone());
    let run = |builder: delegraph::interpreter::InterpreterBuilder| {
        let start = Instant::now();
        let result = builder.limits(limits.clone()).build().and_then(|mut interpreter| interpreter.invoke());
        // Preparing and running have a time limit each.
        let allowed = 2 * limits.time.unwrap_or(Duration::from_secs(20)) + Duration::from_secs(1);
        assert!(start.elapsed() < allowed, "{:?}: {result:?}", start.elapsed());
        result
    };
    [
        run(Interpreter::builder_with_resolver(model.clone(), BuiltinOpResolver::new())),
        run(Interpreter::builder_with_resolver(model, ReferenceOpResolver::new())),
    ]
}

/// The limit that an error names.
fn exceeded(error: &Error) -> Option<&LimitExceeded> {
    match error {
        Error::AtNode { source, .. } => exceeded(source),
        Error::LimitExceeded(exceeded) => Some(exceeded),
        _ => None,
    }
}

/// Both kernel sets must name `limit`.
fn check(name: &str, model: &Model, limit: Limit) {
    let short = Duration::from_millis(500);
    let limits = if limit == Limit::Time { limits().with_time(short) } else { limits() };
    for result in run(model, &limits) {
        let error = result.err().unwrap_or_else(|| panic!("{name}: no error"));
        let found = exceeded(&error).unwrap_or_else(|| panic!("{name}: {error}"));
        assert_eq!(found.limit(), limit, "{name}: {error}");
        let above = match *found {
            LimitExceeded::Memory { needed, allowed }
            | LimitExceeded::CallDepth { needed, allowed }
            | LimitExceeded::InlinedNodes { needed, allowed }
            | LimitExceeded::Preparations { needed, allowed } => needed > allowed,
            _ => true,
        };
        assert!(above, "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains("ResourceLimits::with_"), "{name}: {text}");
        assert!(error.help().unwrap().contains("raises the limit"), "{name}");
    }
}

#[test]
fn pairs_of_matrices_are_charged() {
    let model = models::many_products(1 << 20);
    let limits = |bytes| limits().with_memory(bytes);
    // Input and output have 8 MiB, and the pairs of the optimized kernel 16 MiB.
    let [optimized, reference] = run(&model, &limits(12 << 20));
    reference.unwrap();
    let error = optimized.unwrap_err();
    assert_eq!(exceeded(&error).unwrap().limit(), Limit::Memory, "{error}");
    for result in run(&model, &limits(64 << 20)) {
        result.unwrap();
    }
}

#[test]
fn tables_of_sounds_are_charged() {
    check("AudioSpectrogram", &models::spectrograms(4), Limit::Memory);
    check("Mfcc", &models::cepstral_coefficients(), Limit::Memory);
}

#[test]
fn large_windows_end_in_time() {
    for (i, model) in models::large_windows().iter().enumerate() {
        check(&format!("window {i}"), model, Limit::Time);
    }
}

#[test]
fn deep_calls_name_the_call_depth() {
    for call in [Call::Function, Call::If, Call::Case, Call::While] {
        check(&format!("{call:?}"), &models::chain(call, 500), Limit::CallDepth);
        for result in run(&models::chain(call, 20), &limits()) {
            result.unwrap();
        }
    }
    // Bodies of composites are inlined; the resulting nesting is within the limit.
    for result in run(&models::chain(Call::Composite, 500), &limits()) {
        result.unwrap();
    }
}

#[test]
fn a_deep_call_fits_a_small_stack() {
    let deep = || {
        for call in Call::ALL {
            let limits = limits().with_call_depth(ResourceLimits::default().call_depth);
            for result in run(&models::chain(call, ResourceLimits::default().call_depth), &limits) {
                result.unwrap();
            }
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(deep).unwrap().join().unwrap();
}

#[test]
fn nested_composites_name_the_inlined_nodes() {
    for depth in [18, 24, 40] {
        let large = limits().with_memory(1 << 30);
        for result in run(&models::tree(Call::Composite, depth), &large) {
            let error = result.unwrap_err();
            assert_eq!(exceeded(&error).unwrap().limit(), Limit::InlinedNodes, "depth {depth}: {error}");
        }
    }
    let few = limits().with_inlined_nodes(100);
    assert!(run(&models::tree(Call::Composite, 4), &few).iter().all(Result::is_ok));
    let error = run(&models::tree(Call::Composite, 8), &few)[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("above the limit of 100 (inlined nodes)"), "{error}");
}

#[test]
fn alternating_shapes_name_the_preparations() {
    for call in [Call::Function, Call::If] {
        let long = limits().with_preparations(1000);
        for result in run(&models::alternating_shapes(call, 20), &long) {
            let error = result.unwrap_err();
            assert_eq!(exceeded(&error).unwrap().limit(), Limit::Preparations, "{error}");
        }
        for result in run(&models::alternating_shapes(call, 4), &long) {
            result.unwrap();
        }
    }
}

#[test]
fn endless_work_names_the_time() {
    check("calls", &models::tree(Call::Function, 40), Limit::Time);
    for steps in [0, 1, 10] {
        check(&format!("{steps} steps"), &models::endless(steps), Limit::Time);
    }
}

#[test]
fn giant_results_name_the_memory() {
    for giant in Giant::ALL {
        for sizes in [Sizes::Constant, Sizes::AtRunTime] {
            for (count, elements) in [(1, 1 << 30), (20, 1 << 20)] {
                let model = models::giants(giant, count, elements, sizes);
                check(&format!("{giant:?} {sizes:?} {count} x {elements}"), &model, Limit::Memory);
            }
            for result in run(&models::giants(giant, 2, 1000, sizes), &limits()) {
                result.unwrap_or_else(|e| panic!("{giant:?} {sizes:?}: {e}"));
            }
        }
    }
}

#[test]
fn constants_that_cost_too_much_are_left_to_invocations() {
    // 2^30 multiply-adds are above a limit of 2^20.
    let model = models::giant_product(1024);
    let limits = limits().with_time(None).with_folding_multiply_adds(1 << 20);
    let interpreter = Interpreter::builder(model).limits(limits).build().unwrap();
    let folded: Vec<bool> = (0..2).map(|i| interpreter.report().nodes[i].runner == folded()).collect();
    assert_eq!(folded, [true, false]);
    // A result far above the size of the file.
    let model = models::giants(Giant::Fill, 1, 1 << 20, Sizes::Constant);
    let limits = ResourceLimits::default().with_folded_bytes(1 << 20);
    let mut interpreter = Interpreter::builder(model).limits(limits).build().unwrap();
    assert!(interpreter.report().nodes[0].runner != self::folded());
    interpreter.invoke().unwrap();
    assert!(interpreter.output::<f32>(0).unwrap().iter().all(|&x| x == 1.0));
}

fn folded() -> delegraph::delegate_api::Runner {
    delegraph::delegate_api::Runner::Folded
}

#[test]
fn tables_are_charged() {
    for length in [1 << 22, 1 << 30] {
        check("transform", &models::transform(1, length), Limit::Memory);
    }
    assert!(run(&models::transform(1, 128), &limits()).iter().all(Result::is_ok));
    // There is nothing to compute, so no table is made.
    for size in [128, 1 << 22, 1 << 30] {
        assert!(run(&models::resize_of_nothing(size), &limits()).iter().all(Result::is_ok));
        assert!(run(&models::transform(0, size), &limits()).iter().all(Result::is_ok));
    }
}

#[test]
fn packed_weights_are_charged_with_their_padding() {
    let [optimized, reference] = run(&models::shared_weights(100, 1 << 16), &limits());
    assert_eq!(exceeded(&optimized.unwrap_err()).unwrap().limit(), Limit::Memory);
    reference.unwrap();
    for result in run(&models::shared_weights(3, 1 << 10), &limits()) {
        result.unwrap();
    }
}

#[test]
fn boxes_of_a_mirror_are_charged() {
    // The output fits, the list of its 2^24 boxes does not.
    check("mirror", &models::mirrored(24), Limit::Memory);
    for result in run(&models::mirrored(8), &limits()) {
        result.unwrap();
    }
}

#[test]
fn scales_are_charged_for_each_node() {
    check("scales", &models::shared_scales(200, 1 << 16), Limit::Memory);
    for result in run(&models::shared_scales(10, 1 << 16), &limits()) {
        result.unwrap();
    }
}

#[test]
fn strings_of_tables_are_charged() {
    check("defaults", &models::defaults_of_a_table(1000, 1 << 17), Limit::Memory);
    for result in run(&models::defaults_of_a_table(10, 1 << 17), &limits()) {
        result.unwrap();
    }
}

#[test]
fn loops_over_nothing_end() {
    for deferred in [false, true] {
        for result in run(&models::gather_of_nothing(deferred), &limits()) {
            result.unwrap();
        }
        for result in run(&models::reduction_of_nothing(deferred), &limits()) {
            assert_eq!(exceeded(&result.unwrap_err()).unwrap().limit(), Limit::Memory);
        }
    }
}

#[test]
fn shapes_of_nothing_have_results() {
    let model = Arc::new(models::shape_of_nothing());
    for resolver in [
        Interpreter::builder_with_resolver(model.clone(), BuiltinOpResolver::new()),
        Interpreter::builder_with_resolver(model, ReferenceOpResolver::new()),
    ] {
        let mut interpreter = resolver.limits(limits()).build().unwrap();
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<i32>(0).unwrap(), [i32::MAX, i32::MAX, 3, 0]);
    }
}

#[test]
fn the_memory_of_an_interpreter_is_returned() {
    let model = Arc::new(models::giants(Giant::Tile, 3, 1 << 20, Sizes::AtRunTime));
    let limits = ResourceLimits::default().with_memory(13 << 20);
    let mut interpreter = Interpreter::builder(model).limits(limits).build().unwrap();
    for _ in 0..5 {
        interpreter.invoke().unwrap();
    }
}

#[test]
fn a_token_cancels_preparing_and_kernels() {
    let mut interpreter = Interpreter::builder(models::endless(0)).build().unwrap();
    let token = interpreter.cancellation_token();
    token.cancel();
    assert!(matches!(interpreter.invoke(), Err(Error::Cancelled)));
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        token.cancel();
    });
    let start = Instant::now();
    assert!(matches!(interpreter.invoke(), Err(Error::Cancelled)));
    assert!(start.elapsed() < Duration::from_secs(5));
    canceller.join().unwrap();
    // Preparing 2^18 times takes seconds.
    let model = models::alternating_shapes(Call::Function, 18);
    let limits = ResourceLimits::default().with_preparations(usize::MAX);
    let mut interpreter = Interpreter::builder(model).limits(limits).prepare_later().build().unwrap();
    interpreter.cancellation_token().cancel();
    assert!(matches!(interpreter.prepare(), Err(Error::Cancelled)));
}

#[test]
fn a_cut_preparation_leaves_no_constants() {
    for size in [512, 2048] {
        let builder = Interpreter::builder(models::giant_product(size));
        let mut interpreter = builder.prepare_later().build().unwrap();
        let token = interpreter.cancellation_token();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            token.cancel();
        });
        let prepared = interpreter.prepare();
        canceller.join().unwrap();
        // A token that is cancelled after the call ends the next one.
        let cancelled = prepared.and_then(|()| interpreter.invoke());
        assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
        interpreter.invoke().unwrap();
        assert!(interpreter.output::<f32>(0).unwrap().iter().all(|&x| x == size as f32));
    }
}

#[test]
fn many_inputs_take_no_more_than_their_share() {
    let start = Instant::now();
    for model in [models::many_inputs(100_000), models::many_outputs(30_000)] {
        let mut interpreter = Interpreter::builder(model).build().unwrap();
        interpreter.invoke().unwrap();
    }
    // Quadratic work takes minutes in this profile.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[cfg(target_os = "linux")]
mod command {
    use super::*;
    use crate::process::measure;

    /// Runs the verbs on a model with small limits. No verb may crash or exceed the limits.
    fn all_verbs(name: &str, model: &Model) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.tflite");
        std::fs::write(&file, model.to_bytes().unwrap()).unwrap();
        let (file, output) = (file.to_str().unwrap(), folder.path().join("out.tflite"));
        let output = output.to_str().unwrap();
        let verbs: [&[&str]; 9] = [
            &["run", file],
            &["run", file, "--delegate", "reference"],
            &["run", file, "--delegate", "wgpu"],
            &["explain", file],
            &["explain", file, "--delegate", "wgpu"],
            &["inspect", file],
            &["graph", file],
            &["fuse", file, "-o", output],
            &["bench", file, "--runs", "1", "--warmup", "0"],
        ];
        for verb in verbs {
            let ran = measure(&[verb, &["--max-memory", "128M", "--timeout", "2"]].concat());
            let name = format!("{name}: {verb:?}");
            let code = ran.status.code().unwrap_or_else(|| panic!("{name}: {}: {}", ran.status, ran.stderr));
            assert!([0, 1, 3, 4].contains(&code), "{name}: {code}: {}", ran.stderr);
            assert!(
                !ran.stderr.contains("panicked") && !ran.stderr.contains("internal"),
                "{name}: {}",
                ran.stderr
            );
            assert!(ran.processor_time < Duration::from_secs(4), "{name}: {:?}", ran.processor_time);
            assert!(ran.peak < (128 << 20) + (768 << 20), "{name}: {} bytes", ran.peak);
        }
    }

    #[test]
    fn a_rewritten_model_that_cannot_be_compared_in_time_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (file, output) = (folder.path().join("model.tflite"), folder.path().join("fused.tflite"));
        std::fs::write(&file, models::endless(3).to_bytes().unwrap()).unwrap();
        let arguments = ["fuse", file.to_str().unwrap(), "-o", output.to_str().unwrap(), "--timeout", "2"];
        let ran = measure(&arguments);
        assert_eq!(ran.status.code(), Some(1), "{}", ran.stderr);
        assert!(!output.exists());
        let ran = measure(&[&arguments[..], &["--samples", "0"]].concat());
        assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
        assert!(output.exists());
    }

    #[test]
    fn calls() {
        for call in Call::ALL {
            all_verbs(&format!("{call:?}"), &models::chain(call, 3000));
        }
        all_verbs("2^24 nodes", &models::tree(Call::Composite, 24));
        all_verbs("2^20 preparations", &models::alternating_shapes(Call::If, 20));
    }

    #[test]
    fn giants() {
        for (giant, sizes) in [
            (Giant::Fill, Sizes::Constant),
            (Giant::Fill, Sizes::AtRunTime),
            (Giant::TileStrings, Sizes::Constant),
            (Giant::OneHot, Sizes::AtRunTime),
        ] {
            let name = format!("{giant:?} {sizes:?}");
            all_verbs(&name, &models::giants(giant, 20, 1 << 28, sizes));
            all_verbs(&name, &models::giants(giant, 1, 20 << 20, sizes));
        }
        all_verbs("product", &models::giant_product(4096));
        all_verbs("resize", &models::resize_of_nothing(i32::MAX));
        all_verbs("transform", &models::transform(1, 1 << 30));
    }

    #[test]
    fn loops_and_lists() {
        all_verbs("endless", &models::endless(0));
        all_verbs("inputs", &models::many_inputs(100_000));
        all_verbs("names", &models::overlapping_names(100_000));
    }

    #[test]
    fn nothing_aborts_without_limits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.tflite");
        for (name, model) in [
            ("calls", models::chain(Call::While, 3000)),
            ("composites", models::tree(Call::Composite, 30)),
            ("folding", models::giants(Giant::Fill, 40, 1 << 30, Sizes::Constant)),
            ("resize", models::resize_of_nothing(i32::MAX)),
            ("transform", models::transform(0, 1 << 30)),
        ] {
            std::fs::write(&file, model.to_bytes().unwrap()).unwrap();
            for verb in ["run", "explain", "inspect"] {
                let ran = measure(&[verb, file.to_str().unwrap()]);
                assert!(ran.status.code().is_some(), "{name}, {verb}: {}: {}", ran.status, ran.stderr);
                assert!(!ran.stderr.contains("panicked"), "{name}, {verb}: {}", ran.stderr);
            }
        }
    }
}
