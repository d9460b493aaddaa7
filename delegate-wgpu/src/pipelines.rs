//! Compiled pipelines: one per shader text, shared by all kernels on a device, kept on disk where the backend can.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delegraph_shaders::{Access, Binding, Kernel};

use crate::cache::CacheFile;
use crate::context::checked;

/// The pipelines of a device.
pub(crate) struct Pipelines {
    device: wgpu::Device,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    compiled: AtomicUsize,
    kept: Option<Kept>,
}

/// Whether runtime checks are left out, and the kernel's key.
type Key = (bool, String);

/// Locked while the pipeline is compiled, so that two threads never compile the same.
type Slot = Mutex<Option<Arc<wgpu::ComputePipeline>>>;

/// The backend's own cache, and the file that it is loaded from and saved to.
struct Kept {
    cache: wgpu::PipelineCache,
    file: CacheFile,
    /// Hash of what the file has.
    saved: Mutex<Option<blake3::Hash>>,
}

/// A backend's cache that is no larger has a header and no pipelines.
const EMPTY: usize = 128;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipelines {
    /// Pipelines for `device`; those in `file` need not be compiled again.
    pub(crate) fn new(device: &wgpu::Device, file: Option<CacheFile>) -> Self {
        let kept = file.filter(|_| device.features().contains(wgpu::Features::PIPELINE_CACHE)).map(|file| {
            let data = file.load();
            let saved = Mutex::new(data.as_deref().map(blake3::hash));
            let descriptor =
                wgpu::PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
            // SAFETY: the data are what `get_data` gave for this adapter and driver: the file says so, and its hash
            // that nothing was changed since.
            let cache = unsafe { device.create_pipeline_cache(&descriptor) };
            Kept { cache, file, saved }
        });
        let (slots, compiled) = Default::default();
        Pipelines { device: device.clone(), slots, compiled, kept }
    }

    /// How many were compiled, or taken from the backend's cache, so far.
    pub(crate) fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Compiles what is missing of `kernels`, on several threads, and returns that. What cannot be compiled is missing
    /// afterwards: [`Pipelines::get`] says why.
    pub(crate) fn compile<'k>(&self, kernels: &'k [Kernel], trusted: bool) -> Vec<&'k Kernel> {
        let mut missing: Vec<&Kernel> = Vec::new();
        {
            let mut slots = lock(&self.slots);
            for kernel in kernels {
                slots.entry((trusted, kernel.key.clone())).or_insert_with(|| {
                    missing.push(kernel);
                    Arc::default()
                });
            }
        }
        if missing.is_empty() {
            return missing;
        }
        let start = std::time::Instant::now();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(kernel) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = self.get(kernel, trusted) {
                    log::debug!("{}: {e}", kernel.key);
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        std::thread::scope(|scope| {
            // Where the platform has no threads, all of it is done below.
            for _ in 1..threads {
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        log::debug!("{} pipelines in {:.1} ms", missing.len(), start.elapsed().as_secs_f64() * 1e3);
        self.save();
        missing
    }

    /// The pipeline that runs `kernel`; compiled if it is not there yet.
    pub(crate) fn get(
        &self,
        kernel: &Kernel,
        trusted: bool,
    ) -> Result<Arc<wgpu::ComputePipeline>, wgpu::Error> {
        let slot = Arc::clone(lock(&self.slots).entry((trusted, kernel.key.clone())).or_default());
        let mut slot = lock(&slot);
        if let Some(pipeline) = &*slot {
            return Ok(Arc::clone(pipeline));
        }
        let start = std::time::Instant::now();
        let pipeline = Arc::new(checked(&self.device, || self.make(kernel, trusted))?);
        log::trace!("{:.1} ms: {}", start.elapsed().as_secs_f64() * 1e3, kernel.key);
        self.compiled.fetch_add(1, Ordering::Relaxed);
        *slot = Some(Arc::clone(&pipeline));
        Ok(pipeline)
    }

    /// Writes the backend's cache to its file if there is something new in it.
    pub(crate) fn save(&self) {
        let Some(kept) = &self.kept else { return };
        let Some(data) = kept.cache.get_data().filter(|data| data.len() > EMPTY) else { return };
        let hash = blake3::hash(&data);
        let mut saved = lock(&kept.saved);
        if *saved != Some(hash) {
            kept.file.save(&data);
            *saved = Some(hash);
        }
    }

    fn make(&self, kernel: &Kernel, trusted: bool) -> wgpu::ComputePipeline {
        // Shaders of applications keep the checks.
        let trusted = trusted && kernel.name != crate::custom::NAME;
        let label = Some(kernel.key.as_str());
        let source = wgpu::ShaderSource::Wgsl(kernel.wgsl.as_str().into());
        let descriptor = wgpu::ShaderModuleDescriptor { label, source };
        let module = if trusted {
            // SAFETY: the text comes from our own shaders. Their loops are bounded by the uniform block, their
            // indices by shapes that specs check against each other, and both run with all checks on in the tests.
            unsafe {
                let checks = wgpu::ShaderRuntimeChecks::unchecked();
                self.device.create_shader_module_trusted(descriptor, checks)
            }
        } else {
            self.device.create_shader_module(descriptor)
        };
        let buffer = |ty| wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None };
        let entry = |(binding, role): (u32, &Binding)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: match role.access() {
                Access::Read => buffer(wgpu::BufferBindingType::Storage { read_only: true }),
                Access::ReadWrite => buffer(wgpu::BufferBindingType::Storage { read_only: false }),
                Access::Uniform => buffer(wgpu::BufferBindingType::Uniform),
                Access::Texture => wgpu::BindingType::Texture {
                    sample_type: wgpu::TextureSampleType::Float { filterable: false },
                    view_dimension: wgpu::TextureViewDimension::D2,
                    multisampled: false,
                },
            },
            count: None,
        };
        let entries: Vec<_> = (0..).zip(&kernel.bindings).map(entry).collect();
        let group = wgpu::BindGroupLayoutDescriptor { label, entries: &entries };
        let group = self.device.create_bind_group_layout(&group);
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &module,
            entry_point: Some(kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: !trusted,
                ..Default::default()
            },
            cache: self.kept.as_ref().map(|kept| &kept.cache),
        })
    }
}
