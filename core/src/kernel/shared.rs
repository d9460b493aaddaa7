//! What kernels of several interpreters on one model have in common.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smallvec::SmallVec;

use crate::error::Result;

/// A subgraph, a node, what of it, and for which variant.
type Key = (usize, usize, TypeId, SmallVec<[usize; 4]>);

/// What kernels made of constants and the next interpreter on the same model need not make again: packed weights.
///
/// It is kept as long as an interpreter uses it. A copy of a model, which may be changed, begins with nothing.
#[derive(Default)]
pub struct Shared(Mutex<HashMap<Key, Weak<dyn Any + Send + Sync>>>);

impl Shared {
    /// What `make` gives, or what it gave before for the same node of the same model, type and `variant`.
    pub(super) fn get<T: Send + Sync + 'static>(
        &self,
        (subgraph, node): (usize, usize),
        variant: &[usize],
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let key = (subgraph, node, TypeId::of::<T>(), variant.into());
        let find = |entries: &HashMap<Key, Weak<dyn Any + Send + Sync>>| {
            entries.get(&key).and_then(Weak::upgrade).and_then(|found| found.downcast().ok())
        };
        if let Some(found) = find(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(found);
        }
        // Without the lock: this takes time, and others make other things meanwhile.
        let made = Arc::new(make()?);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find(&entries) {
            return Ok(found);
        }
        let weak: Weak<T> = Arc::downgrade(&made);
        entries.insert(key, weak);
        Ok(made)
    }

    /// How many things there are, and how many users they have together.
    pub fn count(&self) -> (usize, usize) {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let users = entries.values().map(Weak::strong_count).filter(|&n| n > 0);
        users.fold((0, 0), |(things, all), n| (things + 1, all + n))
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Shared::default()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (things, users) = self.count();
        write!(f, "Shared({things} things, {users} users)")
    }
}
