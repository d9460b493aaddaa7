//! The division of long runs into submissions, between which a run can be interrupted.

use std::ops::Range;
use std::time::Duration;

/// Maximum estimated time of the dispatches of a submission, unless it has a single one.
const MAX_TIME: Duration = Duration::from_millis(250);
/// Maximum number of dispatches of a submission.
const MAX_DISPATCHES: usize = 512;

/// Returns the dispatches of each submission, at least one range. `times`: the estimated time of each dispatch.
pub(super) fn chunks(times: impl IntoIterator<Item = Duration>) -> Vec<Range<usize>> {
    let (mut done, mut chunk, mut filled) = (Vec::new(), 0..0, Duration::ZERO);
    for time in times {
        let full = filled.saturating_add(time) > MAX_TIME || chunk.len() == MAX_DISPATCHES;
        if full && !chunk.is_empty() {
            let next = chunk.end..chunk.end;
            done.push(std::mem::replace(&mut chunk, next));
            filled = Duration::ZERO;
        }
        chunk.end += 1;
        filled = filled.saturating_add(time);
    }
    done.push(chunk);
    done
}

#[cfg(test)]
mod tests {
    use super::{Duration, MAX_DISPATCHES, MAX_TIME, chunks};

    #[test]
    fn short_runs_are_one_submission() {
        let short = Duration::from_nanos(1000);
        for times in [vec![], vec![Duration::MAX], vec![short; MAX_DISPATCHES]] {
            let chunks = chunks(times.iter().copied());
            assert!(chunks.len() == 1 && chunks[0] == (0..times.len()), "{chunks:?}");
        }
    }

    #[test]
    fn long_runs_are_divided_by_time_and_by_dispatches() {
        let (half, little, most) = (MAX_TIME / 2, Duration::from_nanos(1), MAX_DISPATCHES);
        assert_eq!(chunks([half, half, little]), [0..2, 2..3]);
        assert_eq!(chunks([Duration::MAX, little, Duration::MAX]), [0..1, 1..2, 2..3]);
        assert_eq!(
            chunks(vec![Duration::ZERO; 2 * most + 1]),
            [0..most, most..2 * most, 2 * most..2 * most + 1]
        );
    }
}
