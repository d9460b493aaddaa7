//! The memory and time that work on a model may use. Kernels charge the memory that they allocate for a model, and poll
//! for cancellation and the deadline.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use web_time::Instant;

use crate::error::{Error, LimitExceeded, Result};

/// Deadlines are stored as nanoseconds after this instant. The clock is first read when a deadline is set: not every
/// target has a clock.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

static UNLIMITED: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(usize::MAX));

/// The value of [`Budget::deadline`] without a deadline.
const NO_DEADLINE: u64 = u64::MAX;

/// The number of values that [`Budget::collect`] computes between two checks of the time.
const CHECKED: usize = 1 << 14;

/// The memory and the time that one interpreter may use, shared by its tensors, kernels and threads.
///
/// - Memory: [`Budget::charge`] takes bytes before they are allocated, and the [`Charge`] returns them when it is
///   dropped. [`Budget::filled`] and [`Budget::collect`] charge and allocate; neither aborts when memory is short.
/// - Time: [`Budget::check`] is an error once the application cancelled or the deadline has passed. A kernel that may
///   run for more than about 50 ms calls it between chunks of its work.
pub struct Budget {
    memory: usize,
    used: AtomicUsize,
    cancelled: AtomicBool,
    /// Nanoseconds after [`EPOCH`], or [`NO_DEADLINE`].
    deadline: AtomicU64,
    /// The time limit that the deadline represents, in milliseconds.
    time_limit: AtomicU64,
}

impl Budget {
    /// Creates a budget of `memory` bytes, without a deadline.
    pub fn new(memory: usize) -> Arc<Self> {
        Arc::new(Budget {
            memory,
            used: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            deadline: AtomicU64::new(NO_DEADLINE),
            time_limit: AtomicU64::new(0),
        })
    }

    /// Returns the budget of work without limits.
    pub fn unlimited() -> &'static Arc<Self> {
        &UNLIMITED
    }

    /// Returns the limit of memory in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Rejects a size that exceeds the limit even when nothing else is in use.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] with the size and the limit.
    pub fn check_size(&self, bytes: usize) -> Result<()> {
        if bytes > self.memory { Err(self.exceeded(bytes)) } else { Ok(()) }
    }

    /// Takes `bytes` bytes until the charge is dropped.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] if less is left.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge> {
        self.take(bytes)?;
        Ok(Charge { budget: Some(self.clone()), bytes })
    }

    /// Returns `len` copies of `value` in charged memory.
    ///
    /// # Errors
    /// As [`Budget::charge`]; [`Error::OutOfMemory`] if the allocation fails.
    pub fn filled<T: Clone>(self: &Arc<Self>, value: T, len: usize) -> Result<Charged<T>> {
        let mut charged = self.reserved(len)?;
        charged.values.resize(len, value);
        Ok(charged)
    }

    /// Returns the items of an iterator in charged memory.
    ///
    /// # Errors
    /// As [`Budget::filled`] and [`Budget::check`].
    pub fn collect<T>(self: &Arc<Self>, items: impl ExactSizeIterator<Item = T>) -> Result<Charged<T>> {
        let len = items.len();
        let (mut charged, mut items) = (self.reserved(len)?, items.take(len));
        loop {
            self.check()?;
            let before = charged.values.len();
            charged.values.extend(items.by_ref().take(CHECKED));
            if charged.values.len() < before + CHECKED {
                return Ok(charged);
            }
        }
    }

    /// Returns charged memory for `len` values, without values.
    ///
    /// # Errors
    /// As [`Budget::filled`].
    pub fn reserved<T>(self: &Arc<Self>, len: usize) -> Result<Charged<T>> {
        let bytes = len.saturating_mul(size_of::<T>());
        let charge = self.charge(bytes)?;
        let mut values = Vec::new();
        values
            .try_reserve_exact(len)
            .map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for a kernel")))?;
        Ok(Charged { values, charge })
    }

    fn take(&self, bytes: usize) -> Result<()> {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.memory);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|used| self.exceeded(used.saturating_add(bytes)))
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn exceeded(&self, needed: usize) -> Error {
        LimitExceeded::Memory { needed: needed as u64, allowed: self.memory as u64 }.into()
    }

    /// Cancels the work in progress or, if there is none, the next work.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Returns whether [`Budget::cancel`] was called and not cleared.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Clears a cancellation, because its work has ended.
    pub fn clear_cancellation(&self) {
        self.cancelled.store(false, Ordering::Release);
    }

    /// Ends the work at `at`; `limit` is the time that the error names.
    pub fn set_deadline(&self, at: Instant, limit: Duration) {
        let nanoseconds = at.saturating_duration_since(*EPOCH).as_nanos();
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.time_limit.store(milliseconds, Ordering::Release);
        self.deadline.store(u64::try_from(nanoseconds).unwrap_or(NO_DEADLINE), Ordering::Release);
    }

    /// Removes the deadline.
    pub fn clear_deadline(&self) {
        self.deadline.store(NO_DEADLINE, Ordering::Release);
    }

    /// Returns whether the work was cancelled or the deadline has passed. Costs two atomic loads, and a clock read if
    /// there is a deadline.
    #[inline]
    pub fn is_interrupted(&self) -> bool {
        self.is_cancelled() || self.is_late()
    }

    /// Polls for the end of the work.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::LimitExceeded`] once the deadline has passed.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if self.is_late() { Err(self.late()) } else { Ok(()) }
    }

    #[cold]
    fn late(&self) -> Error {
        let limit = self.time_limit.load(Ordering::Acquire);
        LimitExceeded::Time { allowed: Duration::from_millis(limit) }.into()
    }

    #[inline]
    fn is_late(&self) -> bool {
        let deadline = self.deadline.load(Ordering::Acquire);
        deadline != NO_DEADLINE && EPOCH.elapsed().as_nanos() >= u128::from(deadline)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {} bytes in use)", self.used(), self.memory)
    }
}

/// Bytes of a [`Budget`], returned to it on drop. The default charges nothing, and belongs to no budget.
#[must_use = "a charge is returned when it is dropped"]
#[derive(Debug, Default)]
pub struct Charge {
    budget: Option<Arc<Budget>>,
    bytes: usize,
}

impl Charge {
    /// Returns the bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns its budget; `None` for the default, which charges nothing.
    pub fn budget(&self) -> Option<&Arc<Budget>> {
        self.budget.as_ref()
    }

    /// Changes the number of charged bytes to `bytes`. Has no effect without a budget.
    ///
    /// # Errors
    /// As [`Budget::charge`]; the charge is unchanged then.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        if let Some(budget) = &self.budget {
            match bytes.checked_sub(self.bytes) {
                Some(more) => budget.take(more)?,
                None => budget.give_back(self.bytes - bytes),
            }
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Returns an empty charge of the same budget.
    pub(super) fn empty(&self) -> Self {
        Charge { budget: self.budget.clone(), bytes: 0 }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.bytes);
        }
    }
}

/// Values in memory that is charged to a [`Budget`].
#[must_use = "the memory is freed when the values are dropped"]
#[derive(Debug)]
pub struct Charged<T> {
    values: Vec<T>,
    charge: Charge,
}

impl<T> Charged<T> {
    /// Appends a value. Memory grows as in a [`Vec`], and is charged.
    ///
    /// # Errors
    /// As [`Budget::filled`].
    pub fn push(&mut self, value: T) -> Result<()> {
        if self.values.len() == self.values.capacity() {
            let capacity = self.values.capacity().saturating_mul(2).max(16);
            let bytes = capacity.saturating_mul(size_of::<T>());
            self.charge.resize(bytes)?;
            let more = capacity - self.values.len();
            let reserved = self.values.try_reserve_exact(more);
            reserved.map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for a kernel")))?;
        }
        self.values.push(value);
        Ok(())
    }
}

impl<T> Default for Charged<T> {
    /// Returns memory without values and without a budget.
    fn default() -> Self {
        Charged { values: Vec::new(), charge: Charge::default() }
    }
}

impl<T> From<Vec<T>> for Charged<T> {
    /// Converts values in memory without a budget.
    fn from(values: Vec<T>) -> Self {
        Charged { values, charge: Charge::default() }
    }
}

impl<T> Deref for Charged<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for Charged<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<'a, T> IntoIterator for &'a Charged<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_returned() {
        let budget = Budget::new(100);
        let mut charge = budget.charge(60).unwrap();
        let error = budget.charge(41).unwrap_err().to_string();
        assert!(error.contains("101 bytes are needed, above the limit of 100"), "{error}");
        charge.resize(100).unwrap();
        assert!(charge.resize(101).is_err() && charge.bytes() == 100 && budget.used() == 100);
        charge.resize(10).unwrap();
        assert_eq!(budget.used(), 10);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn memory_is_charged_before_it_is_allocated() {
        let budget = Budget::new(1000);
        let values = budget.filled(7u32, 250).unwrap();
        assert_eq!((values.len(), values[249], budget.used()), (250, 7, 1000));
        assert!(budget.filled(0u8, 1).is_err());
        drop(values);
        assert!(budget.filled(0u64, usize::MAX / 4).is_err());
        // Miri aborts when memory is exhausted.
        assert!(cfg!(miri) || Budget::unlimited().filled(0u64, usize::MAX / 16).is_err());
        assert_eq!(*budget.collect((0..5).map(|i| i * i)).unwrap(), [0, 1, 4, 9, 16]);
        let mut grown = budget.reserved::<u8>(0).unwrap();
        (0..100u8).for_each(|i| grown.push(i).unwrap());
        assert_eq!((grown.len(), grown[99], budget.used()), (100, 99, 128));
        let full = (0..=900u16).map(|i| grown.push(i as u8)).find(Result::is_err);
        assert!(full.is_some());
        drop(grown);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn work_ends_when_it_is_cancelled_or_late() {
        let budget = Budget::new(0);
        assert!(budget.check().is_ok() && !budget.is_interrupted());
        budget.cancel();
        assert!(matches!(budget.check(), Err(Error::Cancelled)) && budget.is_interrupted());
        budget.clear_cancellation();
        let limit = Duration::from_secs(3);
        budget.set_deadline(Instant::now() + limit, limit);
        assert!(budget.check().is_ok());
        budget.set_deadline(Instant::now(), limit);
        let error = budget.check().unwrap_err().to_string();
        assert!(error.contains("time limit of 3 s"), "{error}");
        budget.clear_deadline();
        assert!(budget.check().is_ok());
    }
}
