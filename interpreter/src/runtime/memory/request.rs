//! Requests for memory in an arena.

/// Memory that a tensor or temporary needs from step `first` to step `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes.
    pub(crate) size: usize,
    /// The step that writes it first.
    pub(crate) first: usize,
    /// The step that reads it last.
    pub(crate) last: usize,
}

/// The result of one strategy: offsets of all requests, and the size of the arena.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) offsets: Vec<usize>,
    pub(super) arena_bytes: usize,
}
