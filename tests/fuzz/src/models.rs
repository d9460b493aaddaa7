//! Model files: loading, writing, running, fusing.

use std::hint::black_box;
use std::time::Duration;

use delegraph_conformance::seeded::{self, SplitMix64};
use delegraph_core::{Model, ModelBytes, Result};
use delegraph_interpreter::fusion::Pipeline;
use delegraph_interpreter::{
    BuiltinOpResolver, CancellationToken, Interpreter, InterpreterBuilder, ReferenceOpResolver,
    ResourceLimits,
};

/// Memory limit of a fuzzed interpreter.
const MEMORY: usize = 256 << 20;
/// Bytes of an input that are filled: a model may list a large one hundreds of times.
const FILLED: usize = 1 << 20;
/// Time limit of a fuzzed interpreter, below the fuzzer's own limit.
const TIME: Duration = Duration::from_secs(2);

/// The limits of fuzzed interpreters.
fn limits() -> ResourceLimits {
    ResourceLimits::default().with_memory(MEMORY).with_total_time(TIME)
}

/// Loads, writes and loads again. Writing may return an error; otherwise, the second model must be equal to the first.
pub fn loader(bytes: &[u8]) {
    let Ok(model) = Model::from_bytes(ModelBytes::new(bytes.to_vec())) else { return };
    let Ok(file) = model.to_bytes() else { return };
    match Model::from_bytes(ModelBytes::new(file)) {
        Ok(again) => {
            let difference = model.difference(&again);
            assert!(difference.is_none(), "what was written differs: {difference:?}");
        }
        Err(error) => panic!("what was written cannot be read: {error}"),
    }
}

/// Runs on the CPU, with the optimized and with the reference kernels.
pub fn cpu(bytes: &[u8]) {
    let Ok(model) = Model::from_bytes(ModelBytes::new(bytes.to_vec())) else { return };
    let optimized = Interpreter::builder(model.clone()).resolver(BuiltinOpResolver::new());
    let _ = run(optimized.limits(limits()));
    let _ = run(Interpreter::builder(model).resolver(ReferenceOpResolver::new()).limits(limits()));
}

/// Runs on the GPU if there is one.
#[cfg(feature = "wgpu")]
pub fn wgpu(bytes: &[u8]) {
    let Some(delegate) = delegate() else { return };
    let Ok(model) = Model::from_bytes(ModelBytes::new(bytes.to_vec())) else { return };
    let _ = run(Interpreter::builder(model).delegate(delegate).limits(limits()));
}

/// Returns a delegate on the device that all runs of a process share; `None` without an adapter.
#[cfg(feature = "wgpu")]
pub fn delegate() -> Option<delegraph_delegate_wgpu::WgpuDelegate> {
    use delegraph_delegate_wgpu::{PipelineCache, WgpuDelegate, WgpuOptions};
    use std::sync::OnceLock;

    static DELEGATE: OnceLock<Option<WgpuDelegate>> = OnceLock::new();
    let options =
        || WgpuOptions::default().with_pipeline_cache(PipelineCache::Off).with_max_gpu_bytes(MEMORY as u64);
    DELEGATE.get_or_init(|| WgpuDelegate::new(options()).ok()).clone()
}

/// Fuses with three combinations of options, and runs the fused models.
pub fn fusion(bytes: &[u8]) {
    let Ok(model) = Model::from_bytes(ModelBytes::new(bytes.to_vec())) else { return };
    let pipelines = [
        Pipeline::new(),
        Pipeline::new().allow_custom().allow_hybrid().stateful(),
        Pipeline::new().keep_composites(),
    ];
    for pipeline in pipelines {
        if let Ok(fused) = pipeline.limits(limits()).run(&model) {
            let _ = run(Interpreter::builder(fused.model).limits(limits()));
        }
    }
}

/// Builds, explains, resizes and runs with the builder's settings and one thread.
///
/// # Errors
/// The first error.
pub fn run(builder: InterpreterBuilder) -> Result<()> {
    run_watched(builder.threads(1), drop)
}

/// As [`run`], with the builder's threads; `watch` gets a token that cancels the calls.
///
/// # Errors
/// As [`run`].
pub fn run_watched(builder: InterpreterBuilder, watch: impl FnOnce(CancellationToken)) -> Result<()> {
    let mut interpreter = builder.prepare_later().build()?;
    watch(interpreter.cancellation_token());
    interpreter.prepare()?;
    // `explain` shows what is in it.
    let _ = format!("{:?}", interpreter.report());
    once(&mut interpreter)?;
    once(&mut interpreter)?;
    for i in 0..interpreter.input_count().min(4) {
        let mut shape = interpreter.input_tensor(i)?.shape.to_vec();
        let Some(extent) = shape.first_mut() else { continue };
        *extent = extent.saturating_add(1) % 1000;
        interpreter.resize_input(i, &shape)?;
    }
    once(&mut interpreter)
}

/// Runs once, with random inputs, formats the shape of every output and reads its bytes.
fn once(interpreter: &mut Interpreter) -> Result<()> {
    interpreter.prepare()?;
    for i in 0..interpreter.input_count() {
        let ty = interpreter.input_tensor(i)?.ty;
        let bytes = interpreter.input_bytes_mut(i)?;
        let filled = bytes.len().min(FILLED);
        seeded::fill(ty, &mut bytes[..filled], &mut SplitMix64::new(7).for_input(i));
    }
    interpreter.invoke()?;
    for i in 0..interpreter.output_count() {
        let tensor = interpreter.output_tensor(i)?;
        let _ = tensor.shape.to_string();
        // One byte of each page: a sanitizer reports memory that is not there.
        black_box(tensor.bytes().iter().step_by(4096).fold(0u8, |sum, byte| sum ^ byte));
    }
    Ok(())
}
