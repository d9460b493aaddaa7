//! Kernels that nothing waits for: found and compiled one after the other on a thread that ends with the device's last
//! delegate.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use crate::pipelines::Pipelines;
use crate::twins::Twins;

/// What is left to compile on a device.
#[derive(Default)]
pub(crate) struct Later {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told of everything that the queue says, and of what becomes of those who need something.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    worker: Option<JoinHandle<()>>,
    /// How many wait for all of it.
    waiting: usize,
    /// Whether the worker has taken something out that is not done.
    busy: bool,
    /// Whether it is to end.
    stop: bool,
}

struct Item {
    twins: Twins,
    /// Whether runtime checks are left out.
    trusted: bool,
    need: Weak<Need>,
    /// That of `need`, which is never held here: who lets the last one go tells.
    begun: Arc<AtomicBool>,
}

/// Who needs kernels later: an interpreter's delegate, and the kernels that it made.
pub(crate) struct Need {
    /// Whether it may begin.
    begun: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl Need {
    /// Says that the first result is there, which others are not to be late for.
    pub(crate) fn begin(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            drop(lock(&self.shared));
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Need {
    fn drop(&mut self) {
        let needless = {
            let mut queue = lock(&self.shared);
            let (needed, needless) = queue.items.drain(..).partition(|item| item.need.strong_count() > 0);
            queue.items = needed;
            needless
        };
        self.shared.changed.notify_all();
        // Takes longer than others should wait.
        drop::<VecDeque<Item>>(needless);
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Queue> {
    shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Later {
    /// Somebody who will need kernels. `patient`: not before a first result is there.
    pub(crate) fn need(&self, patient: bool) -> Arc<Need> {
        let begun = Arc::new(AtomicBool::new(!patient));
        Arc::new(Need { begun, shared: Arc::clone(&self.shared) })
    }

    /// Compiles what `twins` finds, for as long as there is the need. What cannot be compiled is told of by whoever runs
    /// it.
    pub(crate) fn compile(&self, pipelines: &Arc<Pipelines>, twins: Twins, trusted: bool, need: &Arc<Need>) {
        let mut queue = lock(&self.shared);
        let begun = Arc::clone(&need.begun);
        queue.items.push_back(Item { twins, trusted, need: Arc::downgrade(need), begun });
        if queue.worker.is_none() {
            let (shared, pipelines) = (Arc::clone(&self.shared), Arc::clone(pipelines));
            let name = String::from("delegraph-compile");
            match thread::Builder::new().name(name).spawn(move || work(&shared, &pipelines)) {
                Ok(worker) => queue.worker = Some(worker),
                // Where the platform has no threads, whoever runs a kernel compiles it.
                Err(_) => queue.items.clear(),
            }
        }
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Waits until nothing is left.
    pub(crate) fn wait(&self) {
        let mut queue = lock(&self.shared);
        queue.waiting += 1;
        self.shared.changed.notify_all();
        let left = |queue: &mut Queue| queue.busy || !queue.items.is_empty();
        let mut queue = self.shared.changed.wait_while(queue, left).unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
    }
}

impl Drop for Later {
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

/// The next item that may begin; `None` when it is time to end.
fn next(shared: &Shared) -> Option<Item> {
    let mut queue = lock(shared);
    queue.busy = false;
    loop {
        if queue.stop {
            queue.items.clear();
            return None;
        }
        let hurry = queue.waiting > 0;
        let may = |item: &Item| hurry || item.begun.load(Ordering::Relaxed);
        if let Some(item) = queue.items.iter().position(may).and_then(|i| queue.items.remove(i)) {
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
    // Nodes of which all kernels are compiled, by how their runtime checks are.
    let mut foreseen = [HashSet::new(), HashSet::new()];
    while let Some(Item { mut twins, trusted, need, .. }) = next(shared) {
        let start = std::time::Instant::now();
        let goes_on = || !lock(shared).stop && need.strong_count() > 0;
        let mut count = 0;
        let foreseen = &mut foreseen[usize::from(trusted)];
        let mut all = || {
            while let Some(kernels) = twins.next(foreseen, &goes_on) {
                for kernel in &kernels {
                    if !goes_on() {
                        return;
                    }
                    match pipelines.get(kernel, trusted) {
                        Ok(_) => count += 1,
                        Err(e) => log::debug!("{}: {e}", kernel.key),
                    }
                }
            }
        };
        // Whoever waits is told in any case, and a kernel that is not there is compiled by whoever runs it.
        if catch_unwind(AssertUnwindSafe(&mut all)).is_err() {
            log::warn!("kernels for other sizes are left out: looking for them panicked");
        }
        log::debug!("{count} kernels for all sizes in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        pipelines.save();
    }
}
