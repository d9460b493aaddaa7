//! Values that a model carries for its runtime.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One value per type. A copy starts without values: a value made for one model may be wrong for an edited one.
#[derive(Default)]
pub(super) struct Extensions(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Extensions {
    /// Returns the value of type `T`, which is created on first use.
    pub(super) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let find = |values: &[Arc<dyn Any + Send + Sync>]| {
            values.iter().find_map(|value| value.clone().downcast::<T>().ok())
        };
        if let Some(found) = find(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        // Without the lock: `T::default` may request another extension.
        let made = Arc::<T>::default();
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        find(&values).unwrap_or_else(|| {
            values.push(made.clone());
            made
        })
    }
}

impl Clone for Extensions {
    fn clone(&self) -> Self {
        Extensions::default()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "{} extensions", values.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_type_has_one_value_and_copies_have_none() {
        let extensions = Extensions::default();
        let count: Arc<AtomicUsize> = extensions.get();
        count.store(7, Ordering::Relaxed);
        assert_eq!(extensions.get::<AtomicUsize>().load(Ordering::Relaxed), 7);
        assert_eq!(*extensions.get::<u8>(), 0);
        assert_eq!(extensions.clone().get::<AtomicUsize>().load(Ordering::Relaxed), 0);
    }
}
