//! Division of work: tasks per thread, and the minimum of work for several threads.

use std::sync::atomic::{AtomicU64, Ordering};

use delegraph_core::kernel::{Parallel, Serial};

/// Minimum number of elements per task: about a microsecond of a cheap function.
pub(crate) const PER_TASK: usize = 8 << 10;

/// Maximum number of elements per task: some 10 ms, after which the work may be interrupted.
const MAX_PER_TASK: usize = 8 << 20;

/// Returns the threads for an amount of work, in elements of a cheap function. Starting work on another thread takes a
/// microsecond or two.
pub fn threads_for(par: &dyn Parallel, work: usize) -> &dyn Parallel {
    if is_one_task(work) { &Serial } else { par }
}

/// The calling thread of several, for a task that is divided further. Ends with the work of all threads.
pub struct OneThread<'p>(pub &'p dyn Parallel);

// SAFETY: `run` calls `f` at most once per number, on the calling thread.
unsafe impl Parallel for OneThread<'_> {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..tasks).take_while(|_| !self.is_interrupted()).for_each(f);
    }

    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }
}

/// Returns whether an amount of work, in elements of a cheap function, is one task of the calling thread. For small
/// tensors, kernels then skip the divisions of [`chunk_len`], which take longer than the elements.
pub(crate) fn is_one_task(work: usize) -> bool {
    work < 2 * PER_TASK
}

/// Returns the number of items per task, for `count` items that are each as much work as `each` elements: about four
/// tasks per thread, of at least `PER_TASK` elements. A single thread gets as few tasks as possible. Tasks end after some
/// 10 ms, so that the work may be interrupted in between.
pub fn chunk_len(par: &dyn Parallel, count: usize, each: usize) -> usize {
    let threads = par.threads();
    let [least, most] = [PER_TASK, MAX_PER_TASK].map(|elements| elements / each.max(1));
    let len = if threads < 2 { count } else { count.div_ceil(threads.saturating_mul(4)).max(least) };
    len.min(most).max(1)
}

/// Task numbers `0..tasks`, divided into equal shares. A thread whose share is empty takes tasks from the end of other
/// shares.
///
/// Shares are contiguous, so that in consecutive kernels each thread finds its part of a tensor in its cache.
pub(crate) struct Shares<'a>(pub(crate) &'a [AtomicU64]);

/// Position of a share's first task in its word; the end of the share is in the lower bits.
const HALF: u32 = 32;

impl Shares<'_> {
    /// Divides `tasks` tasks, at most `u32::MAX`. No thread may take tasks meanwhile.
    pub(crate) fn deal(&self, tasks: usize) {
        let (tasks, count) = (tasks as u64, self.0.len().max(1) as u64);
        for (i, share) in (0u64..).zip(self.0) {
            let (from, to) = (tasks * i / count, tasks * (i + 1) / count);
            share.store(from << HALF | to, Ordering::Relaxed);
        }
    }

    /// Returns the next task for the owner of share `mine`; `None` if all shares are empty.
    pub(crate) fn take(&self, mine: usize) -> Option<usize> {
        let halves = |share: u64| (share >> HALF, share & u64::from(u32::MAX));
        let first = |share: u64| {
            let (from, to) = halves(share);
            (from < to).then(|| share + (1 << HALF))
        };
        let last = |share: u64| {
            let (from, to) = halves(share);
            (from < to).then(|| share - 1)
        };
        let of = |share: &AtomicU64, change: &dyn Fn(u64) -> Option<u64>| {
            share.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).ok()
        };
        if let Some(share) = self.0.get(mine).and_then(|share| of(share, &first)) {
            return Some(halves(share).0 as usize);
        }
        let others = self.0.iter().cycle().skip(mine + 1).take(self.0.len().saturating_sub(1));
        others.into_iter().find_map(|share| of(share, &last)).map(|share| halves(share).1 as usize - 1)
    }
}

/// Minimum number of tasks for `work` elements, whatever the number of threads.
pub(crate) fn min_tasks(work: usize) -> usize {
    work.div_ceil(MAX_PER_TASK).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;
    // SAFETY: `run` never calls `f`.
    unsafe impl Parallel for Two {
        fn threads(&self) -> usize {
            2
        }
        fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
    }

    #[test]
    fn each_task_is_taken_once() {
        for threads in 1..6 {
            let shares: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            let shares = Shares(&shares);
            for tasks in [0, 1, 2, 7, 100] {
                // Order 0: one thread takes all; 1: threads alternate; 2: the last thread starts with its own share.
                for order in 0..3 {
                    shares.deal(tasks);
                    let mut taken = Vec::new();
                    let own = tasks * (threads - 1) / threads..tasks;
                    for turn in 0.. {
                        let mine = [0, turn % threads, threads - 1][order];
                        let Some(task) = shares.take(mine) else { break };
                        assert!(order < 2 || turn >= own.len() || own.contains(&task));
                        taken.push(task);
                    }
                    taken.sort_unstable();
                    assert_eq!(taken, Vec::from_iter(0..tasks), "{threads} threads, {tasks} tasks");
                }
            }
        }
    }

    #[test]
    fn small_work_stays_together() {
        assert_eq!(
            (threads_for(&Two, PER_TASK).threads(), threads_for(&Two, 2 * PER_TASK).threads()),
            (1, 2)
        );
        assert_eq!(chunk_len(&Serial, 100, 1), 100);
        assert_eq!(chunk_len(&Two, 100, PER_TASK), 13);
        assert_eq!(chunk_len(&Two, 1000, PER_TASK / 200), 204);
        assert_eq!(chunk_len(&Two, 0, 0), PER_TASK);
    }

    #[test]
    fn tasks_of_large_work_are_bounded() {
        for par in [&Serial as &dyn Parallel, &Two] {
            assert_eq!(chunk_len(par, 1000 * MAX_PER_TASK, 1), MAX_PER_TASK);
            assert_eq!(chunk_len(par, 1000, MAX_PER_TASK / 10), 10);
            assert_eq!(chunk_len(par, 1000, usize::MAX), 1);
        }
    }
}
