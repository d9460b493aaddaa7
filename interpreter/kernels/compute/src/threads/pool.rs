//! A pool of threads that starts work without allocating, as `invoke` requires: thread pool crates allocate if a thread
//! outside of the pool submits work.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use delegraph_core::kernel::Parallel;

use crate::threads::share::Shares;

/// A fixed number of threads, including the caller. The others sleep while there is no work.
pub struct ThreadPool {
    shared: Arc<Shared>,
    /// Held while tasks run. A second caller runs its tasks on its own thread.
    owner: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

/// State shared with the workers.
///
/// `state` holds: job number (16 bits) | open (1 bit) | workers inside (15 bits). Joining and closing modify the same
/// word, so no worker can enter a job that its owner has closed and is about to drop.
struct Shared {
    state: AtomicU32,
    job: Mutex<Option<Job>>,
    /// One per thread, the caller's first.
    shares: Box<[AtomicU64]>,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    sleep_lock: Mutex<()>,
    wake: Condvar,
}

#[derive(Clone, Copy)]
struct Job {
    f: *const (dyn Fn(usize) + Sync + 'static),
}

// SAFETY: `f` is `Sync`, and `ThreadPool::run` keeps it alive while a thread can reach it.
unsafe impl Send for Job {}

const OPEN: u32 = 1 << 15;
const INSIDE: u32 = OPEN - 1;
const JOB: u32 = !(OPEN | INSIDE);
const ONE_JOB: u32 = 1 << 16;

/// Number of times that a worker polls for the next job before it sleeps: some tens of microseconds, which is the gap
/// between two kernels of a model. Waking a thread takes about as long.
const MAX_POLLS: u32 = 2_000;

impl ThreadPool {
    /// Creates a pool of `threads` threads (at least 1), including the thread that calls [`Parallel::run`]. The pool is
    /// smaller if the system refuses threads; [`Parallel::threads`] returns the actual number.
    pub fn new(threads: usize) -> Self {
        let wanted = threads.saturating_sub(1).min(INSIDE as usize);
        let shared = Arc::new(Shared {
            state: AtomicU32::new(0),
            job: Mutex::new(None),
            shares: (0..=wanted).map(|_| AtomicU64::new(0)).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep_lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let workers = (0..wanted)
            .map_while(|i| {
                let shared = Arc::clone(&shared);
                let number = i + 1;
                thread::Builder::new()
                    .name(format!("delegraph-{number}"))
                    .spawn(move || shared.work(number))
                    .ok()
            })
            .collect();
        Self { shared, owner: Mutex::new(()), workers }
    }
}

// SAFETY: `Shares` returns each task once, and the serial path counts. `run` returns after the last worker has left the
// job, and neither `run` nor a worker unwinds: `guarded` contains every panic, including that of dropping a payload.
unsafe impl Parallel for ThreadPool {
    fn take_panicked(&self) -> bool {
        self.shared.panicked.swap(false, Ordering::Relaxed)
    }

    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Never panics: [`Parallel::take_panicked`] reports panics of tasks.
    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let owner = match self.owner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if owner.is_none() || self.workers.is_empty() || tasks < 2 || u32::try_from(tasks).is_err() {
            self.shared.guarded(|| (0..tasks).for_each(f));
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Workers use `f` between joining and leaving the job, and this function
        // returns after the job is closed and the last worker has left it.
        let f: *const (dyn Fn(usize) + Sync + 'static) =
            unsafe { std::mem::transmute(std::ptr::from_ref::<dyn Fn(usize) + Sync>(f)) };
        let job = Job { f };
        *lock(&shared.job) = Some(job);
        shared.shares().deal(tasks);
        let number = shared.state.load(Ordering::Relaxed).wrapping_add(ONE_JOB) & JOB;
        shared.state.store(number | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&shared.sleep_lock));
            shared.wake.notify_all();
        }
        shared.take_tasks(job, 0);
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut polls = 0u32;
        while shared.state.load(Ordering::Acquire) & INSIDE != 0 {
            polls = polls.saturating_add(1);
            if polls < MAX_POLLS { std::hint::spin_loop() } else { thread::yield_now() }
        }
        *lock(&shared.job) = None;
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.sleep_lock));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // Cannot fail: a worker contains the panics of its tasks.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Remaining tasks of each thread. If the system refused a thread, the others take its share.
    fn shares(&self) -> Shares<'_> {
        Shares(&self.shares)
    }

    /// The main loop of a worker.
    fn work(&self, number: usize) {
        let mut last = self.state.load(Ordering::Acquire) & JOB;
        while let Some(state) = self.next_job(last) {
            last = state & JOB;
            if self.join(state) {
                let job = *lock(&self.job);
                if let Some(job) = job {
                    self.take_tasks(job, number);
                }
                self.state.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Waits for an open job other than `last`; `None` when the pool stops.
    fn next_job(&self, last: u32) -> Option<u32> {
        let found = |state: u32| (state & OPEN != 0 && state & JOB != last).then_some(state);
        loop {
            for _ in 0..MAX_POLLS {
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                if let Some(state) = found(self.state.load(Ordering::Acquire)) {
                    return Some(state);
                }
                std::hint::spin_loop();
            }
            let mut sleep_lock = lock(&self.sleep_lock);
            // The thread is counted before the last check of the state. A caller that opens a job after that check sees
            // a sleeper and takes the lock, which this thread releases only by waiting.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            while found(self.state.load(Ordering::SeqCst)).is_none() && !self.stop.load(Ordering::SeqCst) {
                sleep_lock = self.wake.wait(sleep_lock).unwrap_or_else(PoisonError::into_inner);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Enters the job that `state` was read from, unless it was closed in the meantime.
    fn join(&self, state: u32) -> bool {
        let enter = |s: u32| (s & OPEN != 0 && s & JOB == state & JOB).then_some(s.wrapping_add(1));
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    fn take_tasks(&self, job: Job, number: usize) {
        self.guarded(|| {
            while let Some(task) = self.shares().take(number) {
                // SAFETY: this thread has entered the job or owns it, so the owner keeps `f` alive.
                unsafe { (*job.f)(task) }
            }
        });
    }

    /// Runs `f` and records a panic. Never unwinds, as the caller may have to wait for workers that still run the job.
    fn guarded(&self, f: impl FnOnce()) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
        self.panicked.store(true, Ordering::Relaxed);
        // Dropping a payload may panic, too. The payload of that panic is leaked, as dropping it may panic again.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// Without threads and unwinding, as in WebAssembly, there is nothing to test.
#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::*;
    use crate::Serial;

    fn check_each_once(pool: &dyn Parallel, tasks: usize) {
        let hits: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(tasks, &|i| {
            hits[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{tasks} tasks");
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [0, 1, 2, 5] {
            let pool = ThreadPool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for round in 0..200 {
                check_each_once(&pool, round % 17);
            }
            thread::sleep(std::time::Duration::from_millis(5));
            check_each_once(&pool, 100);
        }
        check_each_once(&Serial, 9);
    }

    #[test]
    fn nested_and_concurrent_calls_finish() {
        let pool = ThreadPool::new(3);
        let count = AtomicUsize::new(0);
        pool.run(4, &|_| {
            pool.run(5, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(count.load(Ordering::Relaxed), 20);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..50).for_each(|_| check_each_once(&pool, 8)));
            }
        });
    }

    #[test]
    fn a_panicking_task_is_reported_and_survived() {
        for threads in [1, 3] {
            let pool = ThreadPool::new(threads);
            pool.run(8, &|i| {
                if i == 5 {
                    // Unlike `panic!`, this prints nothing.
                    std::panic::resume_unwind(Box::new(()));
                }
            });
            assert!(pool.take_panicked());
            assert!(!pool.take_panicked());
            check_each_once(&pool, 32);
        }
    }

    #[test]
    fn a_payload_that_panics_on_drop_is_contained() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(Bomb));
            }
        }
        for threads in [1, 3] {
            let pool = ThreadPool::new(threads);
            for _ in 0..4 {
                let done = AtomicUsize::new(0);
                pool.run(8, &|i| {
                    if i % 3 == 1 {
                        std::panic::resume_unwind(Box::new(Bomb));
                    }
                    thread::yield_now();
                    done.fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.load(Ordering::Relaxed) <= 5);
                assert!(pool.take_panicked());
            }
            check_each_once(&pool, 32);
        }
    }
}
