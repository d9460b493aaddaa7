//! The memory planner: one arena for every tensor whose shape is known, shared over time.

use delegraph_core::kernel::ALIGNMENT;

/// Memory that somebody needs from step `first` to step `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes.
    pub(crate) size: usize,
    /// The step that writes it first.
    pub(crate) first: usize,
    /// The step that reads it last.
    pub(crate) last: usize,
}

/// Where everything goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The offset of each request.
    pub(crate) offsets: Vec<usize>,
    /// Bytes of the arena.
    pub(crate) arena_bytes: usize,
    /// Bytes without sharing: the sum of all requests.
    pub(crate) naive_bytes: usize,
    /// No plan can do with less: the most bytes that are alive at one step.
    pub(crate) lower_bound_bytes: usize,
}

/// Places requests greedily, each into the smallest gap between those it overlaps in time. Three orders are tried
/// (the largest first; the most crowded steps first; as they come) and the smallest arena wins. `None` where sizes
/// overflow.
pub(crate) fn plan(requests: &[Request]) -> Option<Plan> {
    let aligned = |size: usize| size.checked_next_multiple_of(ALIGNMENT);
    let sizes: Vec<usize> = requests.iter().map(|r| aligned(r.size)).collect::<Option<_>>()?;
    let naive_bytes = sizes.iter().try_fold(0usize, |sum, &s| sum.checked_add(s))?;
    let lower_bound_bytes = lower_bound(requests, &sizes);
    let live = live_bytes(requests, &sizes);
    let crowd = |r: &Request| live.get(r.first..=r.last).and_then(|l| l.iter().max()).copied().unwrap_or(0);
    let by_size = |i: usize| (std::cmp::Reverse(sizes[i]), requests[i].first, i);
    let mut order: Vec<usize> = (0..requests.len()).filter(|&i| sizes[i] > 0).collect();
    let mut best: Option<Plan> = None;
    for attempt in 0..3 {
        match attempt {
            0 => order.sort_by_key(|&i| by_size(i)),
            1 => order.sort_by_cached_key(|&i| (std::cmp::Reverse(crowd(&requests[i])), by_size(i))),
            _ => order.sort_by_key(|&i| (requests[i].first, by_size(i))),
        }
        let (offsets, arena_bytes) = place(requests, &sizes, &order);
        if best.as_ref().is_none_or(|b| arena_bytes < b.arena_bytes) {
            best = Some(Plan { offsets, arena_bytes, naive_bytes, lower_bound_bytes });
        }
        if arena_bytes == lower_bound_bytes {
            break;
        }
    }
    best
}

/// Places requests in this order; returns their offsets and the end of the last.
fn place(requests: &[Request], sizes: &[usize], order: &[usize]) -> (Vec<usize>, usize) {
    let mut offsets = vec![0usize; requests.len()];
    // Placed requests by offset, so that the gaps are found in one pass.
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    let mut arena_bytes = 0usize;
    for &i in order {
        let request = requests[i];
        let overlaps = |&j: &usize| requests[j].first <= request.last && request.first <= requests[j].last;
        let (mut best, mut end) = (None::<(usize, usize)>, 0usize);
        for j in placed.iter().copied().filter(overlaps) {
            let gap = offsets[j].saturating_sub(end);
            if gap >= sizes[i] && best.is_none_or(|(size, _)| gap < size) {
                best = Some((gap, end));
            }
            end = end.max(offsets[j] + sizes[j]);
        }
        offsets[i] = best.map_or(end, |(_, offset)| offset);
        arena_bytes = arena_bytes.max(offsets[i] + sizes[i]);
        let at = placed.partition_point(|&j| offsets[j] <= offsets[i]);
        placed.insert(at, i);
    }
    (offsets, arena_bytes)
}

/// Bytes alive at each step.
fn live_bytes(requests: &[Request], sizes: &[usize]) -> Vec<usize> {
    let steps = requests.iter().map(|r| r.last + 1).max().unwrap_or(0);
    let mut starts = vec![0usize; steps + 1];
    let mut ends = vec![0usize; steps + 1];
    for (r, &size) in requests.iter().zip(sizes) {
        starts[r.first] += size;
        ends[r.last + 1] += size;
    }
    let mut live = 0;
    let step = |(start, end): (&usize, &usize)| {
        live = live + start - end;
        live
    };
    starts.iter().zip(&ends).map(step).collect()
}

fn lower_bound(requests: &[Request], sizes: &[usize]) -> usize {
    live_bytes(requests, sizes).into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(size: usize, first: usize, last: usize) -> Request {
        Request { size, first, last }
    }

    #[test]
    fn inverted_residuals_reach_the_bound() {
        // Blocks as in MobileNet: widen, filter, narrow, add the block's input.
        let mut requests = vec![request(3 * 4096, 0, 1)];
        for block in 0..6 {
            let (at, narrow) = (1 + 4 * block, 4096 >> (block / 2));
            requests.push(request(narrow, at, at + 3));
            requests.push(request(6 * narrow, at + 1, at + 2));
            requests.push(request(6 * narrow, at + 2, at + 3));
            requests.push(request(narrow, at + 3, at + 4));
        }
        let plan = plan(&requests).unwrap();
        assert_eq!(plan.arena_bytes, plan.lower_bound_bytes);
        assert_eq!(plan.lower_bound_bytes, 13 * 4096);
        assert!(plan.naive_bytes > 3 * plan.arena_bytes);
    }

    #[test]
    fn overflow_is_none() {
        assert_eq!(plan(&[request(usize::MAX, 0, 1)]), None);
        assert_eq!(plan(&[request(usize::MAX / 2, 0, 1); 3]), None);
    }

    proptest::proptest! {
        #[test]
        fn nothing_overlaps(raw in proptest::collection::vec((0usize..2000, 0usize..40, 0usize..10), 0..60)) {
            let requests: Vec<_> = raw.iter().map(|&(s, f, l)| request(s, f, f + l)).collect();
            let plan = plan(&requests).unwrap();
            for (i, a) in requests.iter().enumerate() {
                assert!(plan.offsets[i].is_multiple_of(ALIGNMENT));
                assert!(a.size == 0 || plan.offsets[i] + a.size <= plan.arena_bytes);
                for (j, b) in requests.iter().enumerate().skip(i + 1) {
                    let in_time = a.first <= b.last && b.first <= a.last;
                    let (x, y) = (plan.offsets[i], plan.offsets[j]);
                    assert!(!in_time || x + a.size <= y || y + b.size <= x || a.size == 0 || b.size == 0);
                }
            }
            assert!(plan.lower_bound_bytes <= plan.arena_bytes && plan.arena_bytes <= plan.naive_bytes);
        }
    }
}
