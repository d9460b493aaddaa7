//! Compiling: pipelines that all delegates on a device share, the file that stores them, background compilation for
//! other input sizes, and warm-up of drivers that compile in the first run.

mod background_compiler;
mod cache_file;
mod pipelines;
mod size_samples;
mod variants;
mod warmup;

use std::sync::Arc;

use delegraph_shaders::Variant;

use crate::device::Gpu;
use crate::device::options::WgpuOptions;
use background_compiler::BackgroundCompiler;
use cache_file::CacheFile;
use pipelines::{PipelineError, Pipelines};

pub(crate) use background_compiler::VariantRequest;
pub(crate) use variants::VariantSearch;
pub(crate) use warmup::{RunningWarmup, Warmup};

/// Compiler state that all delegates on a device share.
struct SharedCompiler {
    /// Declared before the pipelines that it compiles into, so that its thread ends first.
    background: BackgroundCompiler,
    pipelines: Arc<Pipelines>,
}

/// Compiles the kernels of one delegate.
pub(crate) struct Compiler {
    shared: Arc<SharedCompiler>,
    /// Whether shaders are compiled without bounds and loop checks.
    trusted: bool,
    /// Whether background compilation waits for the first result.
    patient: bool,
    /// Warm-up during first runs, for drivers that compile a pipeline in its first dispatch.
    warmup: Option<Warmup>,
}

impl Compiler {
    /// Creates the compiler of a delegate on `gpu`, whose adapter is described by `info`. If several delegates share a
    /// device, the options of the first one determine the pipeline cache file.
    pub(crate) fn new(
        gpu: &Gpu,
        info: &wgpu::AdapterInfo,
        options: &WgpuOptions,
        warmup: Option<Warmup>,
    ) -> Self {
        let shared = gpu.shared().state(|| {
            let file = CacheFile::new(&options.pipeline_cache, info);
            let pipelines = Arc::new(Pipelines::new(&gpu.device, file));
            SharedCompiler { background: BackgroundCompiler::default(), pipelines }
        });
        Compiler { shared, trusted: options.trusted_shaders, patient: gpu.caps.software, warmup }
    }

    /// Compiles the missing pipelines of `variants` on several threads, and returns those that the driver compiles only
    /// in the first run.
    pub(crate) fn compile<'v>(&self, variants: impl IntoIterator<Item = &'v Variant>) -> Vec<Variant> {
        let missing = self.shared.pipelines.compile(variants, self.trusted);
        if self.warmup.is_some() { missing.into_iter().cloned().collect() } else { Vec::new() }
    }

    /// Compiles the variants that [`Compiler::compile`] returned, during their first run, until the result is dropped.
    pub(crate) fn warm_up(&self, variants: Vec<Variant>) -> Option<RunningWarmup> {
        self.warmup.as_ref()?.start(variants, self.trusted)
    }

    /// Creates an interpreter's request for variants. Software drivers compile a kernel when it first runs, on the
    /// cores that run it; with these drivers, the work starts after the first result.
    pub(crate) fn request(&self) -> Arc<VariantRequest> {
        self.shared.background.request(self.patient)
    }

    /// Compiles the missing variants that `variants` finds, in the background.
    pub(crate) fn compile_later(&self, variants: VariantSearch, request: &Arc<VariantRequest>) {
        self.shared.background.compile(&self.shared.pipelines, variants, self.trusted, request);
    }

    /// Waits until the variants of [`Compiler::compile_later`] are compiled.
    pub(crate) fn finish_compiling(&self) {
        self.shared.background.wait();
    }

    /// Returns the pipeline of `variant`.
    pub(crate) fn pipeline(&self, variant: &Variant) -> Result<Arc<wgpu::ComputePipeline>, PipelineError> {
        self.shared.pipelines.get(variant, self.trusted)
    }

    /// Returns the number of pipelines compiled on the device so far.
    pub(crate) fn compiled(&self) -> usize {
        self.shared.pipelines.compiled()
    }
}
