//! Compiling ahead, where a pipeline is compiled by its first dispatch.
//!
//! Mesa's llvmpipe, the software adapter of most machines without a GPU, does so, one kernel after the other on the
//! queue's thread, whatever the other cores do. While the first run takes the kernels from the first to the last, other
//! cores take them from the last to the first, in dispatches of no workgroups on devices of their own. They meet in the
//! driver's cache on disk, and with two cores the first result comes in about three quarters of the time.
//!
//! Nothing depends on it: where the cache is switched off or cannot be written, the first run compiles everything. All of
//! it ends with that run, since drivers fail in a process that ends while they compile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use delegraph_shaders::{Access, Binding, Kernel};

use crate::context::checked;
use crate::pipelines::Pipelines;

/// Fewer kernels than this are not worth a device.
const ENOUGH: usize = 6;
/// Most threads, each with a device of some megabytes.
const MOST_THREADS: usize = 3;
/// A first run that is over by then found its kernels in the driver's cache.
const HEAD_START: Duration = Duration::from_millis(150);
/// Bytes of buffers that nobody reads: no kernel declares an element or a block that is larger.
const ROOM: u64 = 1024;

/// An adapter that compiles late and keeps what it compiled, on a machine with more than one core.
pub(crate) struct Ahead {
    adapter: wgpu::Adapter,
    threads: usize,
}

impl Ahead {
    /// `None` for other adapters.
    pub(crate) fn new(adapter: &wgpu::Adapter) -> Option<Self> {
        let set = |name| std::env::var(name).is_ok_and(|value| !matches!(&*value, "" | "0" | "false" | "no"));
        let kept = !set("MESA_SHADER_CACHE_DISABLE") && !set("MESA_GLSL_CACHE_DISABLE");
        let late = adapter.get_info().driver == "llvmpipe";
        let threads =
            std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1).min(MOST_THREADS);
        (threads > 0 && kept && late).then(|| Ahead { adapter: adapter.clone(), threads })
    }

    /// Compiles `kernels`, which are in the order of their first run, until what is returned is dropped.
    pub(crate) fn start(&self, mut kernels: Vec<Kernel>, trusted: bool) -> Option<Running> {
        // What can run on buffers of this module.
        kernels.retain(|k| k.name != crate::custom::NAME && !k.bindings.contains(&Binding::Texture));
        if kernels.len() < ENOUGH {
            return None;
        }
        let work = Arc::new(Work { waiting: Mutex::new(kernels), changed: Condvar::new() });
        let thread = |_| {
            let (adapter, work) = (self.adapter.clone(), Arc::clone(&work));
            let run = move || {
                if !work.is_worth_it() {
                    return;
                }
                match compile(&adapter, &work, trusted) {
                    Ok(done) => log::debug!("compiled {done} kernels ahead"),
                    Err(e) => log::debug!("cannot compile ahead: {e}"),
                }
            };
            // Without threads the first run compiles everything.
            std::thread::Builder::new().name("delegraph-ahead".into()).spawn(run).ok()
        };
        let threads = (0..self.threads).filter_map(thread).collect();
        Some(Running { work, threads })
    }
}

/// The threads that compile beside a first run. Ends them when dropped, each after the kernel that it is at.
pub(crate) struct Running {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.work.clear();
        for thread in self.threads.drain(..) {
            // What it had to say is logged.
            drop(thread.join());
        }
    }
}

/// Kernels in the order of their first run. Threads take them from the end, and end with them.
struct Work {
    waiting: Mutex<Vec<Kernel>>,
    changed: Condvar,
}

impl Work {
    fn lock(&self) -> MutexGuard<'_, Vec<Kernel>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Kernel> {
        self.lock().pop()
    }

    fn clear(&self) {
        self.lock().clear();
        self.changed.notify_all();
    }

    /// Whether the head start left something.
    fn is_worth_it(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), HEAD_START, |kernels| !kernels.is_empty());
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
}

/// Has the driver compile what waits; how many kernels it did.
fn compile(adapter: &wgpu::Adapter, work: &Work, trusted: bool) -> Result<usize, String> {
    let (device, queue) = crate::device::request(adapter).map_err(|e| e.to_string())?;
    let pipelines = Pipelines::new(&device, None);
    let buffer = |usage| {
        let descriptor = wgpu::BufferDescriptor { label: None, size: ROOM, usage, mapped_at_creation: false };
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
    use delegraph_shaders::Caps;
    use delegraph_shaders::unary::{Spec, Unary};

    fn kernels() -> Vec<Kernel> {
        let steps = [Unary::Abs, Unary::Exp, Unary::Log, Unary::Neg, Unary::Sin, Unary::Sqrt, Unary::Tanh];
        let kernel = |step| Spec { steps: vec![step], elements: 8 }.kernel(&Caps::WEBGPU).unwrap();
        steps.into_iter().map(kernel).collect()
    }

    /// Any adapter will do: what is compiled for nothing elsewhere is no error.
    fn adapter() -> Option<wgpu::Adapter> {
        crate::device::any_adapter()
    }

    fn work(waiting: Vec<Kernel>) -> Work {
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
    fn the_last_kernels_go_first() {
        let (kernels, work) = (kernels(), work(kernels()));
        for kernel in kernels.iter().rev() {
            assert_eq!(work.take().map(|k| k.key), Some(kernel.key.clone()));
        }
        assert!(work.take().is_none());
    }

    #[test]
    fn a_first_run_that_is_over_soon_has_no_help() {
        let Some(adapter) = adapter() else { return };
        let ahead = Ahead { adapter, threads: 2 };
        let running = ahead.start(kernels(), false).unwrap();
        let work = Arc::clone(&running.work);
        drop(running);
        assert_eq!(Arc::strong_count(&work), 1, "the threads are gone");
        assert!(work.take().is_none());
    }

    #[test]
    fn a_first_run_that_takes_longer_has_help_to_its_end() {
        let Some(adapter) = adapter() else { return };
        let ahead = Ahead { adapter, threads: 2 };
        assert!(ahead.start(kernels().split_off(2), false).is_none(), "too few");
        let running = ahead.start(kernels(), false).unwrap();
        let work = Arc::clone(&running.work);
        while work.take().is_some_and(|_| Arc::strong_count(&work) == 4) {
            std::thread::sleep(HEAD_START);
        }
        drop(running);
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
