//! Who does what: tasks dealt to threads, and when work is too small to be shared.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Parallel, Serial};

/// Elements that a thread should have to itself: some microseconds of a cheap function.
pub(crate) const PER_TASK: usize = 16 << 10;

/// The threads that so much work, counted in elements of a cheap function, is worth: handing a part of it to another
/// thread takes a microsecond or two.
pub(crate) fn crew(par: &dyn Parallel, work: usize) -> &dyn Parallel {
    if work < 2 * PER_TASK { &Serial } else { par }
}

/// How many of `count` equal things make a task, where each is as much work as `each` elements: enough for every thread
/// to have several, if that leaves each with [`PER_TASK`].
pub(crate) fn bundle(par: &dyn Parallel, count: usize, each: usize) -> usize {
    let threads = par.threads();
    if threads < 2 {
        return count.max(1);
    }
    let least = PER_TASK / each.max(1);
    count.div_ceil(threads.saturating_mul(4)).max(least).max(1)
}

/// Numbers `0..tasks`, dealt in equal shares. Who has none left takes from the end of the others'.
///
/// A thread's share lies together, so that from one kernel to the next each thread finds the same part of a tensor in
/// its cache.
pub(crate) struct Shares<'a>(pub(crate) &'a [AtomicU64]);

/// Of a share: where it begins and ends.
const HALF: u32 = 32;

impl Shares<'_> {
    /// Deals; nobody may be taking. At most `u32::MAX` tasks.
    pub(crate) fn deal(&self, tasks: usize) {
        let (tasks, count) = (tasks as u64, self.0.len().max(1) as u64);
        for (i, share) in (0u64..).zip(self.0) {
            let (from, to) = (tasks * i / count, tasks * (i + 1) / count);
            share.store(from << HALF | to, Ordering::Relaxed);
        }
    }

    /// The next task for the owner of share `mine`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_taken_once_whoever_asks() {
        for threads in 1..6 {
            let shares: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            let shares = Shares(&shares);
            for tasks in [0, 1, 2, 7, 100] {
                // One thread takes all; in turn; the last one has its share alone to begin with.
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
        struct Two;
        impl Parallel for Two {
            fn threads(&self) -> usize {
                2
            }
            fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
        }
        assert_eq!((crew(&Two, PER_TASK).threads(), crew(&Two, 2 * PER_TASK).threads()), (1, 2));
        assert_eq!(bundle(&Serial, 100, 1), 100);
        assert_eq!(bundle(&Two, 100, PER_TASK), 13);
        assert_eq!(bundle(&Two, 1000, PER_TASK / 200), 202);
        assert_eq!(bundle(&Two, 0, 0), PER_TASK);
    }
}
