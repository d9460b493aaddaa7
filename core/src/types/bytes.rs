//! The bytes of a model. Constants, options and metadata are ranges of them.

use std::fmt;
use std::sync::Arc;

/// The bytes of a model file: owned, or shared with the mapping that they are in.
#[derive(Clone)]
pub struct ModelBytes(Arc<dyn Backing>);

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
    /// Bytes held by any value that derefs to bytes: a `Vec<u8>`, a static slice, a memory map.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        ModelBytes(Arc::new(Held(bytes)))
    }

    /// Bytes whose memory can be returned to the system once kernels have packed the weights in them.
    pub fn backed(bytes: impl Backing + 'static) -> Self {
        ModelBytes(Arc::new(bytes))
    }

    /// Returns the bytes' memory to the system where it can be read again: see [`Backing::release_pages`].
    pub fn release_pages(&self) {
        self.0.release_pages();
    }
}

impl AsRef<[u8]> for ModelBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for ModelBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.as_ref().len())
    }
}
