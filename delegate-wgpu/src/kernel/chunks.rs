//! The division of long runs into submissions, between which a run can be interrupted.

use std::ops::Range;

/// Bytes that the dispatches of a submission may read and write. A software adapter takes a few tenths of a second for
/// them, a GPU less than a millisecond.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum number of dispatches of a submission.
const MAX_DISPATCHES: usize = 512;

/// Returns the dispatches of each submission, at least one range. `bytes`: those of each dispatch.
pub(super) fn chunks(bytes: impl IntoIterator<Item = u64>) -> Vec<Range<usize>> {
    let (mut done, mut chunk, mut filled) = (Vec::new(), 0..0, 0_u64);
    for bytes in bytes {
        let full = filled.saturating_add(bytes) > MAX_BYTES || chunk.len() == MAX_DISPATCHES;
        if full && !chunk.is_empty() {
            let next = chunk.end..chunk.end;
            done.push(std::mem::replace(&mut chunk, next));
            filled = 0;
        }
        chunk.end += 1;
        filled = filled.saturating_add(bytes);
    }
    done.push(chunk);
    done
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, MAX_DISPATCHES, chunks};

    #[test]
    fn short_runs_are_one_submission() {
        for bytes in [vec![], vec![u64::MAX], vec![1000; MAX_DISPATCHES]] {
            let chunks = chunks(bytes.iter().copied());
            assert!(chunks.len() == 1 && chunks[0] == (0..bytes.len()), "{chunks:?}");
        }
    }

    #[test]
    fn long_runs_are_divided_by_bytes_and_by_dispatches() {
        assert_eq!(chunks([MAX_BYTES / 2, MAX_BYTES / 2, 1]), [0..2, 2..3]);
        assert_eq!(chunks([u64::MAX, 1, u64::MAX]), [0..1, 1..2, 2..3]);
        let most = MAX_DISPATCHES;
        assert_eq!(chunks(vec![0; 2 * most + 1]), [0..most, most..2 * most, 2 * most..2 * most + 1]);
    }
}
