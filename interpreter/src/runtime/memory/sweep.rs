//! A sweep through time that assigns each request the smallest hole that is free at its first step, in `n log n` for
//! `n` requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::request::{Placed, Request};

/// Places the requests of `order`, which is sorted by first step. Also returns the maximum number of live bytes at one
/// step.
pub(super) fn place(requests: &[Request], sizes: &[usize], order: &[usize]) -> (Placed, usize) {
    let (mut offsets, mut arena_bytes) = (vec![0usize; requests.len()], 0usize);
    let (mut live, mut most_live) = (0usize, 0usize);
    let mut ends = BinaryHeap::new();
    let mut holes = Holes::default();
    for &i in order {
        while let Some(&Reverse((last, j))) = ends.peek()
            && last < requests[i].first
        {
            ends.pop();
            live -= sizes[j];
            holes.free(offsets[j], sizes[j]);
        }
        offsets[i] = holes.take(sizes[i]).unwrap_or_else(|| {
            let start = holes.take_last(arena_bytes).unwrap_or(arena_bytes);
            arena_bytes = start + sizes[i];
            start
        });
        ends.push(Reverse((requests[i].last, i)));
        live += sizes[i];
        most_live = most_live.max(live);
    }
    (Placed { offsets, arena_bytes }, most_live)
}

/// The free ranges of an arena; two ranges are never adjacent.
#[derive(Default)]
struct Holes {
    /// Sizes by offset.
    sizes: BTreeMap<usize, usize>,
    /// Size and offset of each range.
    by_size: BTreeSet<(usize, usize)>,
}

impl Holes {
    fn insert(&mut self, offset: usize, size: usize) {
        self.sizes.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: usize, size: usize) {
        self.sizes.remove(&offset);
        self.by_size.remove(&(size, offset));
    }

    fn free(&mut self, mut offset: usize, mut size: usize) {
        if let Some((&before, &length)) = self.sizes.range(..offset).next_back()
            && before + length == offset
        {
            self.remove(before, length);
            (offset, size) = (before, length + size);
        }
        if let Some(&length) = self.sizes.get(&(offset + size)) {
            self.remove(offset + size, length);
            size += length;
        }
        self.insert(offset, size);
    }

    /// Takes the start of the smallest sufficient hole.
    fn take(&mut self, size: usize) -> Option<usize> {
        let &(length, offset) = self.by_size.range((size, 0)..).next()?;
        self.remove(offset, length);
        if length > size {
            self.insert(offset + size, length - size);
        }
        Some(offset)
    }

    /// Takes the entire hole that ends at `end`.
    fn take_last(&mut self, end: usize) -> Option<usize> {
        let (&offset, &length) = self.sizes.last_key_value()?;
        (offset + length == end).then(|| self.remove(offset, length))?;
        Some(offset)
    }
}
