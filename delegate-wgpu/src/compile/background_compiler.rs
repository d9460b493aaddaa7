//! Background compilation: a thread that finds and compiles variants for other input sizes, one after the other. The
//! thread ends with the device's last delegate.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use delegraph_core::error::counted;

use super::pipelines::Pipelines;
use super::variants::VariantSearch;

/// Compiles variants for all delegates on a device.
#[derive(Default)]
pub(crate) struct BackgroundCompiler {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when the queue changes, and when a request starts or ends.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    worker: Option<JoinHandle<()>>,
    /// The number of threads that wait for an empty queue. While there are any, all items may start.
    waiting: usize,
    /// Whether the worker is processing an item.
    busy: bool,
    /// Whether the worker must end.
    stop: bool,
}

struct Item {
    variants: VariantSearch,
    /// Whether runtime checks are left out.
    trusted: bool,
    request: Weak<VariantRequest>,
    /// Shared with the request. The worker never holds the request itself: its drop notifies the worker.
    started: Arc<AtomicBool>,
}

/// A request for variants, held by an interpreter's delegate and its kernels. Dropping it cancels the remaining work.
pub(crate) struct VariantRequest {
    /// Whether the worker may start.
    started: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl VariantRequest {
    /// Starts the work; called at the first result, which the work must not delay.
    pub(crate) fn start(&self) {
        if !self.started.swap(true, Ordering::Relaxed) {
            drop(lock(&self.shared));
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for VariantRequest {
    fn drop(&mut self) {
        let cancelled = {
            let mut queue = lock(&self.shared);
            let (active, cancelled) = queue.items.drain(..).partition(|item| item.request.strong_count() > 0);
            queue.items = active;
            cancelled
        };
        self.shared.changed.notify_all();
        // Dropped without the lock: freeing the items takes time.
        drop::<VecDeque<Item>>(cancelled);
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Queue> {
    shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BackgroundCompiler {
    /// Creates a request. With `patient`, the work starts at [`VariantRequest::start`].
    pub(crate) fn request(&self, patient: bool) -> Arc<VariantRequest> {
        let started = Arc::new(AtomicBool::new(!patient));
        Arc::new(VariantRequest { started, shared: Arc::clone(&self.shared) })
    }

    /// Compiles the variants that `variants` finds while `request` is held. Errors are logged: a kernel that fails to
    /// compile is reported when it runs.
    pub(crate) fn compile(
        &self,
        pipelines: &Arc<Pipelines>,
        variants: VariantSearch,
        trusted: bool,
        request: &Arc<VariantRequest>,
    ) {
        let mut queue = lock(&self.shared);
        let started = Arc::clone(&request.started);
        queue.items.push_back(Item { variants, trusted, request: Arc::downgrade(request), started });
        if queue.worker.is_none() {
            let (shared, pipelines) = (Arc::clone(&self.shared), Arc::clone(pipelines));
            let name = String::from("delegraph-compile");
            match thread::Builder::new().name(name).spawn(move || work(&shared, &pipelines)) {
                Ok(worker) => queue.worker = Some(worker),
                // On platforms without threads, kernels are compiled when they are needed.
                Err(_) => queue.items.clear(),
            }
        }
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Waits until all requested variants are compiled, including those of requests that have not started.
    pub(crate) fn wait(&self) {
        let mut queue = lock(&self.shared);
        queue.waiting += 1;
        self.shared.changed.notify_all();
        let left = |queue: &mut Queue| queue.busy || !queue.items.is_empty();
        let mut queue = self.shared.changed.wait_while(queue, left).unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
    }
}

impl Drop for BackgroundCompiler {
    fn drop(&mut self) {
        let worker = {
            let mut queue = lock(&self.shared);
            queue.stop = true;
            queue.worker.take()
        };
        self.shared.changed.notify_all();
        if let Some(worker) = worker {
            drop(worker.join());
        }
    }
}

/// Waits for the next item that may start, and returns it; `None` when the worker must end.
fn next(shared: &Shared) -> Option<Item> {
    let mut queue = lock(shared);
    queue.busy = false;
    loop {
        if queue.stop {
            queue.items.clear();
            return None;
        }
        let all_may_start = queue.waiting > 0;
        let may_start = |item: &Item| all_may_start || item.started.load(Ordering::Relaxed);
        if let Some(item) = queue.items.iter().position(may_start).and_then(|i| queue.items.remove(i)) {
            queue.busy = true;
            return Some(item);
        }
        if queue.items.is_empty() && queue.waiting > 0 {
            shared.changed.notify_all();
        }
        queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn work(shared: &Shared, pipelines: &Pipelines) {
    // Hashes of the node groups whose variants are all compiled: with runtime checks, and without.
    let mut compiled_groups = [HashSet::new(), HashSet::new()];
    while let Some(Item { mut variants, trusted, request, .. }) = next(shared) {
        let start = web_time::Instant::now();
        let keep_going = || !lock(shared).stop && request.strong_count() > 0;
        let mut count = 0;
        let compiled_groups = &mut compiled_groups[usize::from(trusted)];
        let mut all = || {
            while let Some(found) = variants.next(compiled_groups, &keep_going) {
                for variant in &found {
                    if !keep_going() {
                        return;
                    }
                    match pipelines.get(variant, trusted) {
                        Ok(_) => count += 1,
                        Err(e) => log::debug!("{}: {e}", variant.key),
                    }
                }
            }
        };
        // After a panic the queue continues. Missing kernels are compiled when they are needed.
        if catch_unwind(AssertUnwindSafe(&mut all)).is_err() {
            log::warn!("some variants for other sizes are not compiled in advance: a panic");
        }
        let ms = start.elapsed().as_secs_f64() * 1e3;
        log::debug!("{} for other sizes in {ms:.1} ms", counted(count, "variant"));
        pipelines.save();
    }
}
