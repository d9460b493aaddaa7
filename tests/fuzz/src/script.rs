//! The choices of the other side of an interface, read from a fuzzer's bytes.

use std::cell::RefCell;

thread_local! {
    static SCRIPT: RefCell<(Vec<u8>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Starts a script on this thread.
pub(crate) fn start(bytes: &[u8]) {
    SCRIPT.set((bytes.to_vec(), 0));
}

/// Returns the next byte; 0 at the end.
pub(crate) fn byte() -> u8 {
    SCRIPT.with_borrow_mut(|(bytes, at)| {
        let byte = bytes.get(*at).copied().unwrap_or(0);
        *at += 1;
        byte
    })
}

/// Returns whether the script is at its end.
pub(crate) fn ended() -> bool {
    SCRIPT.with_borrow(|(bytes, at)| *at >= bytes.len())
}

/// Returns a small or an extreme number.
pub(crate) fn number() -> i64 {
    const EDGES: [i64; 14] = [
        -1,
        -2,
        i32::MAX as i64,
        i32::MIN as i64,
        i64::MAX,
        i64::MIN,
        1 << 16,
        1 << 24,
        (1 << 24) + 1,
        1 << 31,
        1 << 32,
        255,
        64,
        1 << 40,
    ];
    let byte = byte();
    match byte.checked_sub(240) {
        Some(edge) => EDGES.get(usize::from(edge)).copied().unwrap_or(0),
        None => i64::from(byte % 16),
    }
}

/// Returns a number as a size or an index.
pub(crate) fn size() -> usize {
    number() as usize
}
