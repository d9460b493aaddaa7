//! Reading and writing extensible structs, text, and messages, for both sides of the interface.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use delegraph_core::Error;

use super::abi::*;
use super::fusions_abi::*;
use super::ops_abi::*;

/// A struct that begins with its size.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, and all of its bytes may be zero.
pub(super) unsafe trait Growing: Copy {}

macro_rules! growing {
    ($($ty:ty),+ $(,)?) => {$(
        // SAFETY: `repr(C)`, `size: usize` comes first; numbers, pointers and optional functions may all be zero.
        unsafe impl Growing for $ty {}
    )+};
}
growing!(
    DelegraphError,
    DelegraphGraph,
    DelegraphModel,
    DelegraphNode,
    DelegraphTensor,
    DelegraphRejection,
    DelegraphPartition,
    DelegraphBuffer,
    DelegraphKernelCall,
    DelegraphStats,
    DelegraphHost,
    DelegraphOpNode,
    DelegraphFusionResult,
);

/// Reads the struct at `pointer`; fields beyond its declared size are zero. `None` for a null or misaligned pointer,
/// or an invalid size.
///
/// # Safety
/// `pointer` is null, or valid for reads of its size field and, up to the size of `T`, of the declared size.
pub(super) unsafe fn read<T: Growing>(pointer: *const T) -> Option<T> {
    if pointer.is_null() || !pointer.is_aligned() {
        return None;
    }
    // SAFETY: the struct begins with its size (`Growing`), which is valid for reads (this function's condition).
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return None;
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: reads and writes at most the declared size and the size of `T`. Bytes that are not written are zero,
    // which `Growing` allows.
    unsafe {
        let bytes = value.as_mut_ptr().cast::<u8>();
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), bytes, size.min(size_of::<T>()));
        Some(value.assume_init())
    }
}

/// Writes `value` to the struct at `pointer`, up to its declared size. Returns false for a null or misaligned
/// pointer, or an invalid size.
///
/// # Safety
/// As [`read`], and the same bytes are valid for writes.
pub(super) unsafe fn write<T: Growing>(pointer: *mut T, value: &T) -> bool {
    if pointer.is_null() || !pointer.is_aligned() {
        return false;
    }
    // SAFETY: as in `read`.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return false;
    }
    let written = size.min(size_of::<T>());
    // SAFETY: writes at most the declared size, and reads at most the size of `T`. The size is then set to the number
    // of valid bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), pointer.cast::<u8>(), written);
        pointer.cast::<usize>().write(written);
    }
    true
}

/// Returns `len` values at `data`; an empty slice for a length of 0. `None` if the pointer or the length is invalid.
///
/// # Safety
/// If `data` is neither null nor misaligned, it is valid for reads of `len` values during `'a`.
pub(super) unsafe fn slice<'a, T>(data: *const T, len: usize) -> Option<&'a [T]> {
    if len == 0 {
        return Some(&[]);
    }
    let fits = len.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if data.is_null() || !data.is_aligned() || !fits {
        return None;
    }
    // SAFETY: not null, aligned, not too long; the caller guarantees the rest.
    Some(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Describes text for the other side.
pub(super) fn text(text: &str) -> DelegraphText {
    DelegraphText { data: text.as_ptr().cast(), len: text.len() }
}

/// Copies text of the other side. Invalid UTF-8 is replaced, very long text is truncated.
///
/// # Safety
/// As [`slice`].
pub(super) unsafe fn text_of(text: DelegraphText) -> String {
    const LONGEST: usize = 4096;
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { slice(text.data.cast::<u8>(), text.len.min(LONGEST)) };
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// A buffer for a message of the other side.
pub(super) struct MessageRoom {
    bytes: [u8; 2048],
}

impl MessageRoom {
    pub(super) fn new() -> Self {
        MessageRoom { bytes: [0; 2048] }
    }

    /// Returns the description of the buffer for the other side.
    pub(super) fn slot(&mut self) -> DelegraphError {
        let (message, capacity) = (self.bytes.as_mut_ptr().cast::<c_char>(), self.bytes.len());
        DelegraphError { size: size_of::<DelegraphError>(), message, capacity, len: 0 }
    }

    /// Returns the message. A length beyond the buffer is truncated, invalid UTF-8 replaced.
    pub(super) fn message(&self, slot: &DelegraphError) -> String {
        let bytes = &self.bytes[..slot.len.min(self.bytes.len())];
        let bytes = bytes.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).trim().to_owned()
    }
}

/// Writes a message into the buffer of the other side.
///
/// # Safety
/// `slot` is null or points to a struct with a buffer of the declared capacity.
pub(super) unsafe fn put_message(slot: *mut DelegraphError, message: &str) {
    // SAFETY: guaranteed by the caller.
    let Some(mut error) = (unsafe { read(slot) }) else { return };
    if error.message.is_null() {
        return;
    }
    let mut len = message.len().min(error.capacity);
    while !message.is_char_boundary(len) {
        len -= 1;
    }
    error.len = len;
    // SAFETY: `message` is valid for `capacity` bytes, and `len` is not larger.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), error.message.cast::<u8>(), len);
        write(slot, &error);
    }
}

/// Returns a status and a message for an error.
pub(super) fn status_of(error: &Error) -> (i32, String) {
    match error {
        Error::Unsupported(text) => (DELEGRAPH_UNSUPPORTED, text.clone()),
        Error::InvalidNode(text) => (DELEGRAPH_INVALID, text.clone()),
        Error::OutOfMemory(text) => (DELEGRAPH_OUT_OF_MEMORY, text.clone()),
        Error::Cancelled => (DELEGRAPH_CANCELLED, error.to_string()),
        // Sources do not cross the interface; their messages do.
        other => (DELEGRAPH_FAILED, other.chain()),
    }
}

/// Returns the error that a status and a message represent.
pub(super) fn error_of(status: i32, message: String) -> Error {
    let text = if message.is_empty() { "it gave no reason".to_owned() } else { message };
    match status {
        DELEGRAPH_UNSUPPORTED => Error::Unsupported(text),
        DELEGRAPH_INVALID => Error::InvalidNode(text),
        DELEGRAPH_OUT_OF_MEMORY => Error::OutOfMemory(text),
        DELEGRAPH_PANICKED => Error::State(format!("it panicked: {text}")),
        DELEGRAPH_CANCELLED => Error::Cancelled,
        DELEGRAPH_FAILED | DELEGRAPH_BAD_OPTION | DELEGRAPH_NOT_FOUND => Error::Kernel(text),
        other => Error::Kernel(format!("it returned the unknown status {other}: {text}")),
    }
}

/// As [`error_of`], for a library that is opened or creates its delegate: there is no node yet.
pub(super) fn open_error(status: i32, message: String) -> Error {
    match error_of(status, message) {
        Error::InvalidNode(text) => Error::State(text),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_of_other_sizes_are_read_as_far_as_both_know_them() {
        let whole = DelegraphStats {
            size: size_of::<DelegraphStats>(),
            device_bytes: 7,
            upload_nanoseconds: 1,
            device_nanoseconds: 2,
            readback_nanoseconds: 3,
            dispatches: 9,
        };
        let check = |size: usize, want: Option<(u64, usize)>| {
            let stats = DelegraphStats { size, ..whole };
            // SAFETY: `read` copies at most `size_of::<DelegraphStats>()` bytes, whatever the declared size is.
            let got = unsafe { read(&raw const stats) };
            assert_eq!(got.map(|s| (s.device_bytes, s.dispatches)), want, "{size}");
        };
        check(0, None);
        check(8, Some((0, 0)));
        check(16, Some((7, 0)));
        check(size_of::<DelegraphStats>(), Some((7, 9)));
        check(usize::MAX, Some((7, 9)));
        let mut small = DelegraphStats { size: 16, device_bytes: 0, ..whole };
        // SAFETY: a struct of this test.
        assert!(unsafe {
            write(&raw mut small, &DelegraphStats { device_bytes: 5, dispatches: 1, ..whole })
        });
        assert_eq!((small.size, small.device_bytes, small.dispatches), (16, 5, 9));
        // SAFETY: null is allowed.
        assert!(unsafe { read::<DelegraphStats>(std::ptr::null()) }.is_none());
    }

    #[test]
    fn messages_are_truncated_and_repaired() {
        let mut room = MessageRoom::new();
        let mut slot = room.slot();
        // SAFETY: a struct and a buffer of this test.
        unsafe { put_message(&raw mut slot, &"é".repeat(2000)) };
        assert_eq!((slot.len, room.message(&slot).chars().count()), (2048, 1024));
        slot.len = usize::MAX;
        room.bytes[..4].copy_from_slice(b"a\xffb\0");
        assert_eq!(room.message(&slot), "a\u{fffd}b");
    }

    #[test]
    fn errors_keep_their_kind() {
        for error in [
            Error::Unsupported("a".into()),
            Error::InvalidNode("b".into()),
            Error::OutOfMemory("c".into()),
            Error::Kernel("d".into()),
            Error::Cancelled,
        ] {
            let (status, text) = status_of(&error);
            assert_eq!(error_of(status, text).to_string(), error.to_string());
        }
        assert_eq!(
            error_of(77, String::new()).to_string(),
            "it returned the unknown status 77: it gave no reason"
        );
        assert_eq!(open_error(DELEGRAPH_INVALID, "no licence".into()).to_string(), "no licence");
        assert!(matches!(open_error(DELEGRAPH_UNSUPPORTED, String::new()), Error::Unsupported(_)));
    }
}
