//! Warm-up of drivers that compile a pipeline in its first dispatch.
//!
//! Mesa's llvmpipe, the software adapter of most machines without a GPU, compiles one kernel after the other on the
//! queue's thread and leaves the other cores idle. While the first run compiles the kernels from the first to the
//! last, the threads of this module compile them from the last to the first, in empty dispatches on devices of their
//! own. Both share the driver's cache on disk. With two cores the first result takes about three quarters of the
//! time.
//!
//! The warm-up is optional: where the cache is off or read-only, the first run compiles everything. The threads end
//! with the first run, since drivers crash in a process that exits while they compile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use delegraph_core::error::counted;
use delegraph_shaders::{Access, Binding, Variant};

use super::pipelines::Pipelines;
use crate::device::checked;

/// Minimum number of kernels for which opening a device is worthwhile.
const MIN_KERNELS: usize = 6;
/// Maximum number of threads. Each opens a device, which takes several megabytes.
const MAX_THREADS: usize = 3;
/// Delay before compilation starts. A first run that ends earlier found its kernels in the driver's cache.
const HEAD_START: Duration = Duration::from_millis(150);
/// Size in bytes of the buffers bound to empty dispatches: at least the largest element or uniform block that a kernel
/// declares.
const BUFFER_BYTES: u64 = 1024;

/// Warm-up for an adapter whose driver compiles in the first dispatch and caches the result, on a machine with several
/// cores.
pub(crate) struct Warmup {
    adapter: wgpu::Adapter,
    threads: usize,
}

impl Warmup {
    /// Creates a warm-up; `None` for other adapters, without a driver cache, and on machines with one core.
    pub(crate) fn new(adapter: &wgpu::Adapter) -> Option<Self> {
        let set = |name| std::env::var(name).is_ok_and(|value| !matches!(&*value, "" | "0" | "false" | "no"));
        let kept = !set("MESA_SHADER_CACHE_DISABLE") && !set("MESA_GLSL_CACHE_DISABLE");
        let late = adapter.get_info().driver == "llvmpipe";
        let threads =
            std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1).min(MAX_THREADS);
        (threads > 0 && kept && late).then(|| Warmup { adapter: adapter.clone(), threads })
    }

    /// Compiles `kernels`, given in the order of their first run, until the result is dropped; `None` if they are too
    /// few.
    pub(crate) fn start(&self, mut kernels: Vec<Variant>, trusted: bool) -> Option<RunningWarmup> {
        // Kernels that read textures, and shaders of the application, are not compiled here.
        kernels.retain(|k| k.name != crate::custom::NAME && !k.bindings.contains(&Binding::Texture));
        if kernels.len() < MIN_KERNELS {
            return None;
        }
        let work = Arc::new(Work { waiting: Mutex::new(kernels), changed: Condvar::new() });
        let thread = |_| {
            let (adapter, work) = (self.adapter.clone(), Arc::clone(&work));
            let run = move || {
                if !work.has_work_after_head_start() {
                    return;
                }
                match compile(&adapter, &work, trusted) {
                    Ok(done) => log::debug!("warmed up {}", counted(done, "kernel")),
                    Err(e) => log::debug!("warm-up failed: {e}"),
                }
            };
            // Without threads, the first run compiles everything.
            std::thread::Builder::new().name("delegraph-warmup".into()).spawn(run).ok()
        };
        let threads = (0..self.threads).filter_map(thread).collect();
        Some(RunningWarmup { work, threads })
    }
}

/// The threads that compile during a first run. When dropped, each ends after its current kernel.
pub(crate) struct RunningWarmup {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for RunningWarmup {
    fn drop(&mut self) {
        self.work.clear();
        for thread in self.threads.drain(..) {
            // The thread logs its own errors.
            drop(thread.join());
        }
    }
}

/// Kernels in the order of their first run; threads take them from the end.
struct Work {
    waiting: Mutex<Vec<Variant>>,
    changed: Condvar,
}

impl Work {
    fn lock(&self) -> MutexGuard<'_, Vec<Variant>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Variant> {
        self.lock().pop()
    }

    fn clear(&self) {
        self.lock().clear();
        self.changed.notify_all();
    }

    /// Waits for the head start. Returns whether kernels are left.
    fn has_work_after_head_start(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), HEAD_START, |kernels| !kernels.is_empty());
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
}

/// Compiles waiting kernels on a new device, and returns their number.
fn compile(adapter: &wgpu::Adapter, work: &Work, trusted: bool) -> Result<usize, String> {
    let (device, queue) =
        pollster::block_on(crate::device::adapter::request(adapter, false)).map_err(|e| e.to_string())?;
    let pipelines = Pipelines::new(&device, None);
    let buffer = |usage| {
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: BUFFER_BYTES, usage, mapped_at_creation: false };
        device.create_buffer(&descriptor)
    };
    use wgpu::BufferUsages as Usage;
    let [read, written, uniform] = [Usage::STORAGE, Usage::STORAGE, Usage::UNIFORM].map(buffer);
    let mut done = 0;
    while let Some(kernel) = work.take() {
        let pipeline = pipelines.get(&kernel, trusted).map_err(|e| e.to_string())?;
        let one = || {
            let entry = |(binding, role): (u32, &Binding)| {
                let buffer = match role.access() {
                    Access::ReadWrite => &written,
                    Access::Uniform => &uniform,
                    Access::Read | Access::Texture => &read,
                };
                wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() }
            };
            let entries: Vec<_> = (0..).zip(&kernel.bindings).map(entry).collect();
            let layout = &pipeline.get_bind_group_layout(0);
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout,
                entries: &entries,
            });
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(0, 0, 0);
            drop(pass);
            queue.submit([encoder.finish()]);
            device.poll(wgpu::PollType::wait_indefinitely()).map_err(|e| e.to_string())
        };
        checked(&device, one).map_err(|e| e.to_string())??;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use delegraph_shaders::unary::{Spec, Unary};
    use delegraph_shaders::{Caps, Shader};

    fn kernels() -> Vec<Variant> {
        let steps = [Unary::Abs, Unary::Exp, Unary::Log, Unary::Neg, Unary::Sin, Unary::Sqrt, Unary::Tanh];
        let kernel = |step| Spec { steps: vec![step], elements: 8 }.kernel(&Caps::WEBGPU).unwrap().variant;
        steps.into_iter().map(kernel).collect()
    }

    /// Any adapter works: compiling a kernel without need is not an error.
    fn adapter() -> Option<wgpu::Adapter> {
        crate::device::adapter::any_adapter()
    }

    fn work(waiting: Vec<Variant>) -> Work {
        Work { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    #[test]
    fn every_kernel_is_accepted_by_a_second_device() {
        let Some(adapter) = adapter() else { return };
        let work = work(kernels());
        assert_eq!(compile(&adapter, &work, false), Ok(kernels().len()));
        assert_eq!(compile(&adapter, &work, false), Ok(0));
    }

    #[test]
    fn the_last_kernels_are_compiled_first() {
        let (kernels, work) = (kernels(), work(kernels()));
        for kernel in kernels.iter().rev() {
            assert_eq!(work.take().map(|k| k.key), Some(kernel.key.clone()));
        }
        assert!(work.take().is_none());
    }

    #[test]
    fn short_first_runs_are_not_warmed_up() {
        let Some(adapter) = adapter() else { return };
        let warmup = Warmup { adapter, threads: 2 };
        let running = warmup.start(kernels(), false).unwrap();
        let work = Arc::clone(&running.work);
        drop(running);
        assert_eq!(Arc::strong_count(&work), 1, "the threads are gone");
        assert!(work.take().is_none());
    }

    #[test]
    fn longer_first_runs_are_warmed_up_until_they_end() {
        let Some(adapter) = adapter() else { return };
        let warmup = Warmup { adapter, threads: 2 };
        assert!(warmup.start(kernels().split_off(2), false).is_none(), "too few");
        let running = warmup.start(kernels(), false).unwrap();
        let work = Arc::clone(&running.work);
        while work.take().is_some_and(|_| Arc::strong_count(&work) == 4) {
            std::thread::sleep(HEAD_START);
        }
        drop(running);
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
