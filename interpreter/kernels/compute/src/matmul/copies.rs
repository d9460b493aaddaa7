//! Short copies of windows.

/// Bytes that short copies move at a time.
pub(crate) const STEP: usize = 16;

/// Copies `len` elements. If both slices are longer, more is copied, without calling `memcpy`.
#[inline]
pub(crate) fn copy_short<T: bytemuck::Pod>(from: &[T], at: usize, to: &mut [T], to_at: usize, len: usize) {
    copy_rows(from, (at, 0), to, (to_at, len), 1);
}

/// Copies `count` rows of `len` elements, which are `down` elements apart, to consecutive memory. If both slices are
/// longer, more is copied after each row, so that whole steps are moved without calling `memcpy`.
#[inline]
pub(crate) fn copy_rows<T: bytemuck::Pod>(
    from: &[T],
    (at, down): (usize, usize),
    to: &mut [T],
    (to_at, len): (usize, usize),
    count: usize,
) {
    let (from, to) = (&from[at..], &mut to[to_at..]);
    let bytes = len * size_of::<T>();
    let whole = bytes.next_multiple_of(STEP);
    let (last, last_to) = ((count - 1) * down * size_of::<T>(), (count - 1) * bytes);
    if last + whole > size_of_val(from) || last_to + whole > size_of_val(to) {
        for row in 0..count {
            to[row * len..][..len].copy_from_slice(&from[row * down..][..len]);
        }
        return;
    }
    let (mut from, mut to) = (from.as_ptr().cast::<[u8; STEP]>(), to.as_mut_ptr().cast::<[u8; STEP]>());
    for _ in 0..count {
        for step in 0..whole / STEP {
            // SAFETY: the last step of the last row ends inside both slices, and they do not overlap, as one of them is
            // mutable. The elements are plain data of any alignment.
            unsafe { to.wrapping_add(step).write_unaligned(from.wrapping_add(step).read_unaligned()) };
        }
        (from, to) = (from.wrapping_byte_add(down * size_of::<T>()), to.wrapping_byte_add(bytes));
    }
}
