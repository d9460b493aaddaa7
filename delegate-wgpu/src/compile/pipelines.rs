//! Compiled pipelines: one per shader variant, shared by all kernels on a device, stored on disk where the backend
//! supports it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use delegraph_core::error::counted;
use delegraph_shaders::{Access, Binding, ShaderError, Variant, VariantKey};

use super::cache_file::CacheFile;
use crate::device::checked;

/// The pipelines of a device.
pub(crate) struct Pipelines {
    device: wgpu::Device,
    slots: Mutex<Slots<wgpu::ComputePipeline>>,
    compiled: AtomicUsize,
    /// The file that the backend's cache is loaded from and saved to, on backends that have a cache.
    file: Option<CacheFile>,
    /// Loaded with the first pipeline, since the constructor must not block.
    kept: OnceLock<Option<Kept>>,
}

/// Whether runtime checks are left out, and the variant.
type Key = (bool, VariantKey);

/// Locked while the pipeline is compiled, so that two threads never compile the same one.
type Slot<P> = Mutex<Option<Arc<P>>>;

type Slots<P> = HashMap<Key, Arc<Slot<P>>>;

/// Pipelines above this number are kept only while a kernel uses them: a process may run any number of models on one
/// device.
const MAX_PIPELINES: usize = 2048;

/// Removes pipelines that no kernel uses if there are more than `most`.
fn evict<P>(slots: &mut Slots<P>, most: usize) {
    if slots.len() <= most {
        return;
    }
    slots.retain(|_, slot| {
        // Another thread compiles or requests the pipeline of a slot with a second owner.
        let idle = Arc::get_mut(slot).map(|slot| slot.get_mut().unwrap_or_else(PoisonError::into_inner));
        idle.is_none_or(|pipeline| pipeline.as_ref().is_some_and(|pipeline| Arc::strong_count(pipeline) > 1))
    });
}

/// The backend's own cache.
struct Kept {
    cache: wgpu::PipelineCache,
    /// Hash of the file's contents.
    saved: Mutex<Option<blake3::Hash>>,
}

/// A backend's cache of at most this size in bytes has only a header, and no pipelines.
const EMPTY: usize = 128;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason why a variant has no pipeline.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PipelineError {
    /// The source cannot be rendered.
    #[error(transparent)]
    Source(#[from] ShaderError),
    /// The device cannot compile the source.
    #[error(transparent)]
    Device(#[from] wgpu::Error),
}

impl Pipelines {
    /// Pipelines for `device`; those in `file` are not compiled again.
    pub(crate) fn new(device: &wgpu::Device, file: Option<CacheFile>) -> Self {
        let file = file.filter(|_| device.features().contains(wgpu::Features::PIPELINE_CACHE));
        let (slots, compiled, kept) = Default::default();
        Pipelines { device: device.clone(), slots, compiled, file, kept }
    }

    /// The backend's cache with the contents of the file; `None` without a file.
    fn kept(&self) -> Option<&Kept> {
        let load = || {
            let data = self.file.as_ref()?.load();
            let saved = Mutex::new(data.as_deref().map(blake3::hash));
            let descriptor =
                wgpu::PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
            // SAFETY: the data is what `get_data` returned for this adapter and driver: `CacheFile::load` checks both
            // against the file's header, and the contents against their hash.
            let cache = unsafe { self.device.create_pipeline_cache(&descriptor) };
            Some(Kept { cache, saved })
        };
        self.kept.get_or_init(load).as_ref()
    }

    /// Returns the number of pipelines compiled, or loaded from the backend's cache, so far.
    pub(crate) fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Compiles the missing pipelines of `variants` on several threads, and returns their variants. A pipeline that
    /// cannot be compiled remains missing, and [`Pipelines::get`] returns its error.
    pub(crate) fn compile<'v>(
        &self,
        variants: impl IntoIterator<Item = &'v Variant>,
        trusted: bool,
    ) -> Vec<&'v Variant> {
        let mut missing: Vec<&Variant> = Vec::new();
        {
            let mut slots = lock(&self.slots);
            evict(&mut slots, MAX_PIPELINES);
            for variant in variants {
                slots.entry((trusted, variant.key.clone())).or_insert_with(|| {
                    missing.push(variant);
                    Arc::default()
                });
            }
        }
        if missing.is_empty() {
            return missing;
        }
        let start = web_time::Instant::now();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(variant) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = self.get(variant, trusted) {
                    log::debug!("{}: {e}", variant.key);
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        std::thread::scope(|scope| {
            // On platforms without threads, this thread does all of the work.
            for _ in 1..threads {
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        let ms = start.elapsed().as_secs_f64() * 1e3;
        log::debug!("{} in {ms:.1} ms", counted(missing.len(), "pipeline"));
        self.save();
        missing
    }

    /// Returns the pipeline of `variant`; compiled on the first request.
    pub(crate) fn get(
        &self,
        variant: &Variant,
        trusted: bool,
    ) -> Result<Arc<wgpu::ComputePipeline>, PipelineError> {
        let slot = Arc::clone(lock(&self.slots).entry((trusted, variant.key.clone())).or_default());
        let mut slot = lock(&slot);
        if let Some(pipeline) = &*slot {
            return Ok(Arc::clone(pipeline));
        }
        let start = web_time::Instant::now();
        let source = variant.source()?;
        let pipeline = Arc::new(checked(&self.device, || self.make(variant, &source, trusted))?);
        log::trace!("{:.1} ms: {}", start.elapsed().as_secs_f64() * 1e3, variant.key);
        self.compiled.fetch_add(1, Ordering::Relaxed);
        *slot = Some(Arc::clone(&pipeline));
        Ok(pipeline)
    }

    /// Writes the backend's cache to the file if the contents changed.
    pub(crate) fn save(&self) {
        let (Some(kept), Some(file)) = (self.kept(), &self.file) else { return };
        let Some(data) = kept.cache.get_data().filter(|data| data.len() > EMPTY) else { return };
        let hash = blake3::hash(&data);
        let mut saved = lock(&kept.saved);
        if *saved != Some(hash) {
            file.save(&data);
            *saved = Some(hash);
        }
    }

    fn make(&self, variant: &Variant, source: &str, trusted: bool) -> wgpu::ComputePipeline {
        // Shaders of custom ops keep the checks.
        let trusted = trusted && variant.name != crate::custom::NAME;
        let label = Some(variant.key.as_str());
        let source = wgpu::ShaderSource::Wgsl(source.into());
        let descriptor = wgpu::ShaderModuleDescriptor { label, source };
        let module = if trusted {
            // SAFETY: the source comes from `delegraph_shaders`. The uniform block bounds its loops, and specs check
            // the shapes that bound its indices; the tests run every shader with all checks on.
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
        let entries: Vec<_> = (0..).zip(&variant.bindings).map(entry).collect();
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
            entry_point: Some(variant.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: !trusted,
                ..Default::default()
            },
            cache: self.kept().map(|kept| &kept.cache),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_used_pipelines_stay_above_the_maximum() {
        let key = |name: &str| (true, VariantKey::from(name.to_owned()));
        let (used, unused) = (Arc::new(()), Arc::new(()));
        let (compiling, failed) = (Arc::default(), Arc::default());
        let mut slots: Slots<()> = HashMap::from([
            (key("used"), Arc::new(Mutex::new(Some(Arc::clone(&used))))),
            (key("unused"), Arc::new(Mutex::new(Some(unused)))),
            (key("compiling"), Arc::clone(&compiling)),
            (key("failed"), failed),
        ]);
        evict(&mut slots, 4);
        assert_eq!(slots.len(), 4);
        evict(&mut slots, 3);
        let mut left: Vec<_> = slots.keys().map(|(_, key)| key.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["compiling", "used"]);
    }
}
