//! Sparse constant tensors: which elements are stored, and how to expand them.

use std::fmt;
use std::ops::Range;

use crate::types::ModelBytes;
use crate::types::printable::counted;
use crate::types::shape::checked_product;

/// One level of a sparse tensor's storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// Every index of the dimension is stored.
    Dense {
        /// The dimension's size.
        size: usize,
    },
    /// Only listed indices are stored (compressed sparse rows).
    Csr {
        /// `segments[i]..segments[i + 1]` are the entries of `indices` that belong to position `i` of the level above.
        segments: Indices,
        /// The index of each stored entry.
        indices: Indices,
    },
}

impl Level {
    /// Creates a level that stores only `indices`, in the smallest types that hold them.
    pub fn csr(segments: &[usize], indices: &[usize]) -> Self {
        Level::Csr { segments: Indices::smallest(segments), indices: Indices::smallest(indices) }
    }
}

/// The type in which indices are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A byte each.
    UInt8,
    /// Two bytes each.
    UInt16,
    /// Four bytes each. The format's type is signed; the loader rejects negative indices.
    Int32,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Width::UInt8 => 1,
            Width::UInt16 => 2,
            Width::Int32 => 4,
        }
    }
}

/// A list of indices. Large models have millions of them, so the indices of a file stay in its bytes.
#[derive(Clone)]
pub struct Indices {
    width: Width,
    bytes: ModelBytes,
    range: Range<usize>,
}

impl Indices {
    /// `values` in the smallest type that holds all of them.
    pub fn smallest(values: &[usize]) -> Self {
        if let Ok(bytes) = values.iter().map(|&v| v.try_into()).collect::<Result<Vec<u8>, _>>() {
            return Indices::from(bytes);
        }
        if let Ok(halves) = values.iter().map(|&v| v.try_into()).collect::<Result<Vec<u16>, _>>() {
            return Indices::from(halves);
        }
        // No dimension is as large as a value that does not fit, so the saturated index is out of range as before.
        Indices::from(values.iter().map(|&v| v.try_into().unwrap_or(u32::MAX)).collect::<Vec<u32>>())
    }

    /// Creates values in a range of `bytes`, little-endian.
    pub(crate) fn in_file(width: Width, bytes: ModelBytes, range: Range<usize>) -> Self {
        Indices { width, bytes, range }
    }

    fn owned(width: Width, bytes: Vec<u8>) -> Self {
        Indices { width, range: 0..bytes.len(), bytes: ModelBytes::new(bytes) }
    }

    /// Returns the type in which they are stored.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.range.len() / self.width.bytes()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns index `i` of the list; `None` if the list is shorter.
    pub fn get(&self, i: usize) -> Option<usize> {
        self.list().get(i)
    }

    /// Iterates over all indices.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.list().range(0..self.len())
    }

    fn list(&self) -> List<'_> {
        let bytes = self.bytes.as_ref().get(self.range.clone()).unwrap_or_default();
        match self.width {
            Width::UInt8 => List::Bytes(bytes),
            Width::UInt16 => List::Halves(bytes.as_chunks().0),
            Width::Int32 => List::Words(bytes.as_chunks().0),
        }
    }
}

impl From<Vec<u8>> for Indices {
    fn from(values: Vec<u8>) -> Self {
        Indices::owned(Width::UInt8, values)
    }
}

impl From<Vec<u16>> for Indices {
    fn from(values: Vec<u16>) -> Self {
        Indices::owned(Width::UInt16, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
}

impl From<Vec<u32>> for Indices {
    fn from(values: Vec<u32>) -> Self {
        Indices::owned(Width::Int32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
}

impl PartialEq for Indices {
    fn eq(&self, other: &Self) -> bool {
        self.width == other.width && self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Indices {}

impl fmt::Debug for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<usize> = self.iter().collect();
        write!(f, "{:?}({values:?})", self.width)
    }
}

/// Borrowed indices, by the type in which they are stored.
#[derive(Clone, Copy)]
enum List<'a> {
    Bytes(&'a [u8]),
    Halves(&'a [[u8; 2]]),
    Words(&'a [[u8; 4]]),
}

impl<'a> List<'a> {
    fn len(self) -> usize {
        match self {
            List::Bytes(list) => list.len(),
            List::Halves(list) => list.len(),
            List::Words(list) => list.len(),
        }
    }

    fn get(self, i: usize) -> Option<usize> {
        match self {
            List::Bytes(list) => list.get(i).map(|&v| v.into()),
            List::Halves(list) => list.get(i).map(|&v| u16::from_le_bytes(v).into()),
            List::Words(list) => list.get(i).and_then(|&v| u32::from_le_bytes(v).try_into().ok()),
        }
    }

    /// Iterates over the values in `range`, in order; fewer if the list is shorter.
    fn range(self, range: Range<usize>) -> impl Iterator<Item = usize> + 'a {
        range.map_while(move |i| self.get(i))
    }
}

/// The layout of a sparse constant's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sparsity {
    /// The order in which dimensions are traversed. Original dimensions are numbered first, block dimensions from the
    /// rank on.
    pub traversal_order: Vec<usize>,
    /// For each block dimension, the original dimension that it splits.
    pub block_map: Vec<usize>,
    /// One level per entry of `traversal_order`.
    pub levels: Vec<Level>,
}

/// Maximum number of block dimensions: a tensor has no more dimensions that they could split.
const MAX_BLOCKS: usize = 64;

/// Entries and elements between two polls: less than a millisecond.
const STEPS: usize = 1 << 16;

/// Bytes that are cleared between two polls: less than 50 ms.
const CLEARED: usize = 32 << 20;

/// Counts steps, and polls every few of them.
struct Polls<'p> {
    is_interrupted: &'p dyn Fn() -> bool,
    left: usize,
}

impl<'p> Polls<'p> {
    fn new(is_interrupted: &'p dyn Fn() -> bool) -> Self {
        Polls { is_interrupted, left: STEPS }
    }

    /// Counts a step. Returns whether the work is to end.
    fn interrupted(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => {
                self.left = STEPS;
                (self.is_interrupted)()
            }
        }
    }
}

/// Why sparse storage does not describe a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid sparsity: {0}")]
pub struct SparsityError(String);

fn bad<T>(message: impl Into<String>) -> Result<T, SparsityError> {
    Err(SparsityError(message.into()))
}

impl Sparsity {
    /// Sizes of the block dimensions, in the order of `block_map`.
    fn block_sizes(&self, rank: usize) -> Result<Vec<usize>, SparsityError> {
        let mut sizes = vec![0; self.block_map.len()];
        for (level, &dim) in self.levels.iter().zip(&self.traversal_order) {
            if let Some(block) = dim.checked_sub(rank) {
                match (level, sizes.get_mut(block)) {
                    (Level::Dense { size }, Some(slot)) if *size > 0 => *slot = *size,
                    (Level::Csr { .. }, Some(_)) => return bad("a block dimension must be dense"),
                    _ => return bad(format!("block dimension {block} of size 0 or out of range")),
                }
            }
        }
        Ok(sizes)
    }

    /// Returns the number of stored elements, where the levels fit each other; `None` if it overflows.
    pub(crate) fn stored(&self) -> Option<usize> {
        self.levels.iter().try_fold(1usize, |stored, level| match level {
            Level::Dense { size } => stored.checked_mul(*size),
            Level::Csr { indices, .. } => Some(indices.len()),
        })
    }

    /// Checks traversal order, blocks and levels against `shape`; returns the number of stored elements.
    ///
    /// # Errors
    /// [`SparsityError`] with the first mismatch.
    pub fn validate(&self, shape: &[usize]) -> Result<usize, SparsityError> {
        let stored = self.check(shape, &mut Polls::new(&|| false))?;
        Ok(stored.unwrap_or_default())
    }

    /// As [`Sparsity::validate`]; `None` if the work was interrupted.
    fn check(&self, shape: &[usize], polls: &mut Polls<'_>) -> Result<Option<usize>, SparsityError> {
        let rank = shape.len();
        if self.block_map.len() > MAX_BLOCKS {
            return bad(format!("{} block dimensions are more than {MAX_BLOCKS}", self.block_map.len()));
        }
        let total = rank.saturating_add(self.block_map.len());
        if self.traversal_order.len() != total || self.levels.len() != total {
            return bad(format!(
                "rank {rank} with {} needs {}; traversal order has {}, dimension metadata {}",
                counted(self.block_map.len(), "block dimension"),
                counted(total, "level"),
                self.traversal_order.len(),
                self.levels.len()
            ));
        }
        let mut seen = vec![false; total];
        for &dim in &self.traversal_order {
            match seen.get_mut(dim) {
                Some(slot) if !*slot => *slot = true,
                Some(_) => return bad(format!("traversal order names dimension {dim} twice")),
                None => {
                    let last = total.saturating_sub(1);
                    return bad(format!(
                        "traversal order names dimension {dim}; the dimensions are 0 to {last}"
                    ));
                }
            }
        }
        if let Some(dim) = self.block_map.iter().find(|&&dim| dim >= rank) {
            return bad(format!("block map names dimension {dim} of a rank {rank} tensor"));
        }
        let blocks = self.block_sizes(rank)?;
        let mut outer = shape.to_vec();
        for (&dim, &size) in self.block_map.iter().zip(&blocks) {
            let Some(extent) = outer.get_mut(dim).filter(|e| size > 0 && **e % size == 0) else {
                return bad(format!("block size {size} does not divide dimension {dim}"));
            };
            *extent /= size.max(1);
        }
        let mut stored = 1usize;
        for (level, &dim) in self.levels.iter().zip(&self.traversal_order) {
            let extent = outer.get(dim).or_else(|| blocks.get(dim.wrapping_sub(rank))).copied().unwrap_or(0);
            stored = match level {
                Level::Dense { size } if *size == extent => match stored.checked_mul(*size) {
                    Some(n) => n,
                    None => return bad("element count overflows"),
                },
                Level::Dense { size } => {
                    return bad(format!("dimension {dim} is {extent} long, but {size} in its metadata"));
                }
                Level::Csr { segments, indices } => {
                    let (segments, indices) = (segments.list(), indices.list());
                    let expected = stored.checked_add(1);
                    if Some(segments.len()) != expected || segments.get(0) != Some(0) {
                        return bad(format!(
                            "dimension {dim} has {} for {}",
                            counted(segments.len(), "segment"),
                            counted(stored, "row")
                        ));
                    }
                    if segments.get(stored) != Some(indices.len()) {
                        let end = segments.get(stored).unwrap_or_default();
                        return bad(format!(
                            "dimension {dim}: segments end at {end}, but the number of indices is {}",
                            indices.len()
                        ));
                    }
                    for row in rows(segments, stored) {
                        if polls.interrupted() {
                            return Ok(None);
                        }
                        if row.start > row.end {
                            return bad(format!(
                                "dimension {dim}: segments decrease from {} to {}",
                                row.start, row.end
                            ));
                        }
                        if row.end > indices.len() {
                            return bad(format!(
                                "dimension {dim}: segment {} exceeds the number of indices, {}",
                                row.end,
                                indices.len()
                            ));
                        }
                        let mut least = 0;
                        for index in indices.range(row) {
                            if polls.interrupted() {
                                return Ok(None);
                            }
                            if index < least || index >= extent {
                                return bad(format!(
                                    "dimension {dim}: indices out of order or not below {extent}"
                                ));
                            }
                            least = index.saturating_add(1);
                        }
                    }
                    indices.len()
                }
            };
        }
        Ok(Some(stored))
    }

    /// Expands `values` (the stored elements, `element` bytes each) into the dense row-major bytes of `shape`,
    /// absent elements zero. `dense` must have exactly that size.
    ///
    /// # Errors
    /// As [`Sparsity::validate`], and if `values` or `dense` have another size.
    pub fn densify(
        &self,
        shape: &[usize],
        element: usize,
        values: &[u8],
        dense: &mut [u8],
    ) -> Result<(), SparsityError> {
        self.densify_polled(shape, element, values, dense, &|| false)
    }

    /// As [`Sparsity::densify`]. Calls `is_interrupted` every few milliseconds, and leaves `dense` incomplete, without
    /// an error, once it returns true.
    ///
    /// # Errors
    /// As [`Sparsity::densify`].
    pub fn densify_polled(
        &self,
        shape: &[usize],
        element: usize,
        values: &[u8],
        dense: &mut [u8],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), SparsityError> {
        let mut polls = Polls::new(is_interrupted);
        let Some(stored) = self.check(shape, &mut polls)? else { return Ok(()) };
        let bytes = |n: Option<usize>| n.and_then(|n| n.checked_mul(element));
        if Some(values.len()) != bytes(Some(stored)) || Some(dense.len()) != bytes(checked_product(shape)) {
            return bad(format!("{} stored bytes and {} dense bytes do not fit", values.len(), dense.len()));
        }
        for part in dense.chunks_mut(CLEARED) {
            if is_interrupted() {
                return Ok(());
            }
            part.fill(0);
        }
        let rank = shape.len();
        let blocks = self.block_sizes(rank)?;
        // Bytes that one step of each traversed dimension moves in the dense tensor.
        let mut strides = vec![element; rank];
        for d in (1..rank).rev() {
            strides[d - 1] = strides[d].saturating_mul(shape[d]);
        }
        let mut steps = strides.clone();
        for (&dim, &size) in self.block_map.iter().zip(&blocks) {
            steps[dim] = steps[dim].saturating_mul(size);
        }
        steps.extend(self.block_map.iter().map(|&dim| strides[dim]));
        if stored == 0 {
            return Ok(());
        }
        let levels: Vec<(Walk<'_>, usize)> = self
            .levels
            .iter()
            .zip(&self.traversal_order)
            // One index adds nothing to positions and offsets. Every other dense level multiplies the elements, so that
            // visits of levels are not many more than elements and rows.
            .filter(|(level, _)| !matches!(level, Level::Dense { size: 1 }))
            .map(|(level, &dim)| match level {
                Level::Dense { size } => (Walk::Dense(*size), steps[dim]),
                Level::Csr { segments, indices } => (Walk::Csr(segments.list(), indices.list()), steps[dim]),
            })
            .collect();
        let mut ended = false;
        let fits = walk(&levels, 0, 0, &mut |stored| {
            ended = polls.interrupted();
            if ended {
                return false;
            }
            let Some((number, at)) = stored else { return true };
            let value = values.get(number.saturating_mul(element)..).and_then(|rest| rest.get(..element));
            let slot = dense.get_mut(at..).and_then(|rest| rest.get_mut(..element));
            let (Some(value), Some(slot)) = (value, slot) else { return false };
            slot.copy_from_slice(value);
            true
        });
        if fits || ended { Ok(()) } else { bad("an element is outside the tensor") }
    }
}

/// A level of storage, as [`walk`] reads it.
enum Walk<'a> {
    Dense(usize),
    Csr(List<'a>, List<'a>),
}

/// Calls `visit` for each stored element below `position` of the level above, in order, with its number among the
/// stored elements and its byte offset in the dense tensor, and without them for each row of a level of rows. `at` is
/// the byte offset of `position`. Returns false as soon as `visit` does, or if levels do not fit.
fn walk(
    levels: &[(Walk<'_>, usize)],
    position: usize,
    at: usize,
    visit: &mut impl FnMut(Option<(usize, usize)>) -> bool,
) -> bool {
    let Some(((level, step), inner)) = levels.split_first() else { return visit(Some((position, at))) };
    if matches!(level, Walk::Csr(..)) && !visit(None) {
        return false;
    }
    let mut child =
        |position: usize, i: usize| walk(inner, position, at.saturating_add(i.saturating_mul(*step)), visit);
    match level {
        Walk::Dense(size) => {
            let first = position.saturating_mul(*size);
            (0..*size).all(|i| child(first.saturating_add(i), i))
        }
        Walk::Csr(segments, indices) => match row(*segments, position) {
            Some(row) => row.into_iter().all(|i| indices.get(i).is_some_and(|index| child(i, index))),
            None => false,
        },
    }
}

/// Returns the range of the entries that belong to `position`; `None` if `segments` is too short.
fn row(segments: List<'_>, position: usize) -> Option<Range<usize>> {
    Some(segments.get(position)?..segments.get(position.checked_add(1)?)?)
}

/// The entries that belong to each of `count` positions.
fn rows(segments: List<'_>, count: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    (0..count).map_while(move |i| row(segments, i))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn blocks_of_one_are_not_walked_and_their_number_is_bounded() {
        let blocks = |count: usize| Sparsity {
            traversal_order: (0..=count).collect(),
            block_map: vec![0; count],
            levels: (0..=count).map(|i| Level::Dense { size: if i == 0 { 3 } else { 1 } }).collect(),
        };
        let mut dense = [0u8; 3];
        blocks(MAX_BLOCKS).densify(&[3], 1, &[7, 8, 9], &mut dense).unwrap();
        assert_eq!(dense, [7, 8, 9]);
        // A walk of this many levels would overflow the stack.
        let error = blocks(200_000).densify(&[3], 1, &[7, 8, 9], &mut dense).unwrap_err().to_string();
        assert!(error.contains("200000 block dimensions are more than 64"), "{error}");
    }

    #[test]
    fn expansion_ends_when_it_is_interrupted() {
        let count = 2 * STEPS;
        let sparsity = Sparsity {
            traversal_order: vec![0],
            block_map: vec![],
            levels: vec![Level::Dense { size: count }],
        };
        let (values, mut dense, polls) = (vec![1; count], vec![0; count], Cell::new(0));
        let second = || polls.replace(polls.get() + 1) > 0;
        sparsity.densify_polled(&[count], 1, &values, &mut dense, &second).unwrap();
        assert!(dense[..STEPS].iter().all(|v| *v == 1) && dense[STEPS..].iter().all(|v| *v == 0));
    }

    #[test]
    fn csr_rows_expand() {
        let sparsity = Sparsity {
            traversal_order: vec![0, 1],
            block_map: vec![],
            levels: vec![Level::Dense { size: 2 }, Level::csr(&[0, 1, 3], &[2, 0, 1])],
        };
        let mut dense = [9u8; 6];
        sparsity.densify(&[2, 3], 1, &[7, 8, 9], &mut dense).unwrap();
        assert_eq!(dense, [0, 0, 7, 8, 9, 0]);
    }

    #[test]
    fn blocks_expand() {
        // A 2×4 matrix of 1×2 blocks (block dimension 2 splits dimension 1); only one block is stored per row.
        let sparsity = Sparsity {
            traversal_order: vec![0, 1, 2],
            block_map: vec![1],
            levels: vec![Level::Dense { size: 2 }, Level::csr(&[0, 1, 2], &[1, 0]), Level::Dense { size: 2 }],
        };
        let mut dense = [0u8; 8];
        sparsity.densify(&[2, 4], 1, &[1, 2, 3, 4], &mut dense).unwrap();
        assert_eq!(dense, [0, 0, 1, 2, 3, 4, 0, 0]);
    }

    #[test]
    fn bad_storage_is_an_error() {
        let csr = |segments: &[usize], indices: &[usize]| Sparsity {
            traversal_order: vec![0, 1],
            block_map: vec![],
            levels: vec![Level::Dense { size: 2 }, Level::csr(segments, indices)],
        };
        assert!(csr(&[0, 1, 3], &[2, 0, 3]).validate(&[2, 3]).is_err(), "index out of range");
        assert!(csr(&[0, 2, 1], &[0, 1]).validate(&[2, 3]).is_err(), "segments decrease");
        assert!(csr(&[0, 1], &[0]).validate(&[2, 3]).is_err(), "too few segments");
        assert!(csr(&[0, 0, 2], &[1, 1]).validate(&[2, 3]).is_err(), "index twice");
        assert!(csr(&[0, 1, 2], &[0, 1]).validate(&[2, 3, 4]).is_err(), "rank");
    }
}
