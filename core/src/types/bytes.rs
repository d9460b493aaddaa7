//! The bytes of a model. Constants, options and metadata are ranges of them.

use std::fmt;
use std::sync::Arc;

/// The bytes of a model file: owned, or shared with the mapping that they are in.
#[derive(Clone)]
pub struct ModelBytes {
    backing: Arc<dyn Backing>,
    /// The slice that the backing returned once: a later call may return bytes that were not verified.
    bytes: Shared,
}

/// A slice that is borrowed from the backing for as long as that exists.
#[derive(Clone, Copy)]
struct Shared(*const [u8]);

// SAFETY: the pointer is a field of `ModelBytes` only, beside the backing that owns the bytes and is `Send` and `Sync`,
// and `as_ref` reads the bytes like those of a shared slice.
unsafe impl Send for Shared {}
// SAFETY: see above.
unsafe impl Sync for Shared {}

/// The owner of a model's bytes.
pub trait Backing: AsRef<[u8]> + Send + Sync {
    /// Returns memory to the system if its contents can be read again, as the pages of a mapped file can. The bytes
    /// stay the same.
    fn release_pages(&self);
}

/// Bytes without a source to read them again from.
struct Held<T>(T);

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl<T: AsRef<[u8]> + Send + Sync> Backing for Held<T> {
    fn release_pages(&self) {}
}

impl ModelBytes {
    /// Wraps any value that holds bytes: a `Vec<u8>`, a static slice, a memory map.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::backed(Held(bytes))
    }

    /// Bytes whose memory can be returned to the system once kernels have packed the weights in them.
    pub fn backed(bytes: impl Backing + 'static) -> Self {
        let backing: Arc<dyn Backing> = Arc::new(bytes);
        let bytes = Shared(backing.as_ref().as_ref());
        ModelBytes { backing, bytes }
    }

    /// Returns the bytes' memory to the system where it can be read again: see [`Backing::release_pages`].
    pub fn release_pages(&self) {
        self.backing.release_pages();
    }
}

impl AsRef<[u8]> for ModelBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `backed` borrowed the slice from the value in `backing`. Only shared references to this value exist
        // until its last owner drops it.
        unsafe { &*self.bytes.0 }
    }
}

impl fmt::Debug for ModelBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.as_ref().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns other bytes in each call.
    struct Changing {
        calls: AtomicUsize,
        bytes: Vec<u8>,
    }

    impl AsRef<[u8]> for Changing {
        fn as_ref(&self) -> &[u8] {
            &self.bytes[self.calls.fetch_add(1, Ordering::Relaxed)..]
        }
    }

    #[test]
    fn bytes_stay_those_of_the_first_call() {
        let bytes = ModelBytes::new(Changing { calls: AtomicUsize::new(0), bytes: vec![1, 2, 3] });
        let copy = bytes.clone();
        assert_eq!(
            (bytes.as_ref(), copy.as_ref(), bytes.as_ref()),
            (&[1, 2, 3][..], &[1, 2, 3][..], &[1, 2, 3][..])
        );
        drop(bytes);
        assert_eq!(copy.as_ref(), [1, 2, 3]);
    }
}
