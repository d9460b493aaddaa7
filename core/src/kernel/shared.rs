//! Packed weights that the kernels of several interpreters on one model share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smallvec::SmallVec;

use crate::error::Result;

/// Subgraph, node, type of the packed weights, and variant.
type Key = (usize, usize, TypeId, SmallVec<[usize; 4]>);

/// Packed weights, which further interpreters on the same model use without packing them again.
///
/// An entry is kept as long as an interpreter uses it. Packed weights are an [extension](crate::Model::extension) of
/// the model: a copy of the model, and an edited one, start without any.
#[derive(Default)]
pub struct SharedWeights(Mutex<HashMap<Key, Weak<dyn Any + Send + Sync>>>);

impl SharedWeights {
    /// Returns the result of `make`, or an earlier one for the same node, type and `variant`.
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
        // Without the lock: packing takes time, and other threads pack other weights meanwhile.
        let made = Arc::new(make()?);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find(&entries) {
            return Ok(found);
        }
        // Other variants replace weights that no interpreter uses any more.
        if entries.len() == entries.capacity() {
            entries.retain(|_, weights| weights.strong_count() > 0);
        }
        let weak: Weak<T> = Arc::downgrade(&made);
        entries.insert(key, weak);
        Ok(made)
    }

    /// Returns the number of packed weights, and the total number of their users.
    pub fn count(&self) -> (usize, usize) {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let users = entries.values().map(Weak::strong_count).filter(|&n| n > 0);
        users.fold((0, 0), |(things, all), n| (things + 1, all + n))
    }
}

impl fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (things, users) = self.count();
        write!(f, "SharedWeights({things} packed, {users} users)")
    }
}
