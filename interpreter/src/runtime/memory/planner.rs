//! The memory planner: one arena for every tensor with a known shape, shared over time.
//!
//! Finding the smallest arena for given lifetimes is NP-hard, so several cheap plans are made until one reaches the
//! lower bound. For real models, one of the first plans does. Plans are deterministic.

use std::cmp::Reverse;

use delegraph_core::kernel::ALIGNMENT;

use super::request::Request;
use super::{greedy, sweep};

/// The placement of each request in the arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The offset of each request, in bytes.
    pub(crate) offsets: Vec<usize>,
    /// Bytes of the arena.
    pub(crate) arena_bytes: usize,
    /// Bytes without sharing: the sum of all requests.
    pub(crate) naive_bytes: usize,
    /// Maximum number of live bytes at one step: a lower bound of every plan.
    pub(crate) lower_bound_bytes: usize,
}

/// Places requests by [`sweep`] and, if that exceeds the lower bound, by [`greedy`] if its arena is smaller. `None` if
/// sizes overflow.
pub(crate) fn plan(requests: &[Request]) -> Option<Plan> {
    let aligned = |size: usize| size.checked_next_multiple_of(ALIGNMENT);
    let sizes: Vec<usize> = requests.iter().map(|r| aligned(r.size)).collect::<Option<_>>()?;
    let naive_bytes = sizes.iter().try_fold(0usize, |sum, &s| sum.checked_add(s))?;
    // The offset of an empty request is irrelevant.
    let mut order: Vec<usize> = (0..requests.len()).filter(|&i| sizes[i] > 0).collect();
    order.sort_by_key(|&i| (requests[i].first, Reverse(sizes[i]), i));
    let (mut best, lower_bound_bytes) = sweep::place(requests, &sizes, &order);
    if best.arena_bytes > lower_bound_bytes
        && let Some(greedy) = greedy::place(requests, &sizes, order, lower_bound_bytes)
        && greedy.arena_bytes < best.arena_bytes
    {
        best = greedy;
    }
    Some(Plan { offsets: best.offsets, arena_bytes: best.arena_bytes, naive_bytes, lower_bound_bytes })
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

    /// Creates requests from `(size in units of ALIGNMENT, first, last)`.
    fn lines(requests: &[(usize, usize, usize)]) -> Vec<Request> {
        requests.iter().map(|&(size, first, last)| request(size * ALIGNMENT, first, last)).collect()
    }

    #[test]
    fn longest_lifetimes_may_have_to_be_placed_first() {
        // From a hand landmark model: if placed by size, time or overlap, the small requests split the arena.
        let requests = lines(&[(1, 0, 1), (50, 1, 2), (12, 2, 3), (1, 3, 7), (28, 4, 5), (28, 5, 6)]);
        let plan = plan(&requests).unwrap();
        assert!(by_size(&requests) > plan.lower_bound_bytes);
        assert_eq!(plan.arena_bytes, plan.lower_bound_bytes);
    }

    #[test]
    fn the_search_improves_on_all_orders() {
        // From a pose landmark model.
        let requests = lines(&[(99, 0, 2), (99, 2, 3), (2, 3, 7), (99, 4, 6), (99, 6, 7), (1, 1, 5)]);
        let plan = plan(&requests).unwrap();
        assert!(by_size(&requests) > plan.lower_bound_bytes);
        assert_eq!(plan.arena_bytes, plan.lower_bound_bytes);
    }

    #[test]
    fn large_graphs_are_planned_too() {
        // A chain, and a step that reads everything, for which visiting all pairs is too slow.
        let chain: Vec<_> = (0..100_000).map(|i| request(1000 + i % 977, i, i + 1)).collect();
        let fan: Vec<_> = (0..100_000).map(|i| request(1000 + i % 977, i / 2, 50_000 + i % 7)).collect();
        for requests in [chain, fan] {
            let plan = plan(&requests).unwrap();
            assert_eq!(plan.arena_bytes, plan.lower_bound_bytes);
        }
    }

    /// Returns the arena of a plan that places the largest requests first, each into the smallest gap.
    fn by_size(requests: &[Request]) -> usize {
        let aligned = |i: usize| requests[i].size.next_multiple_of(ALIGNMENT);
        let mut order: Vec<usize> = (0..requests.len()).filter(|&i| requests[i].size > 0).collect();
        order.sort_by_key(|&i| (Reverse(aligned(i)), requests[i].first, i));
        let mut placed: Vec<(usize, usize)> = Vec::new();
        for &i in &order {
            let (mut best, mut end) = ((usize::MAX, None), 0);
            placed.sort();
            for &(offset, j) in &placed {
                if requests[j].first <= requests[i].last && requests[i].first <= requests[j].last {
                    if offset >= end + aligned(i) && offset - end < best.0 {
                        best = (offset - end, Some(end));
                    }
                    end = end.max(offset + aligned(j));
                }
            }
            placed.push((best.1.unwrap_or(end), i));
        }
        placed.iter().map(|&(offset, i)| offset + aligned(i)).max().unwrap_or(0)
    }

    /// Checks that all requests that are live at the same step are disjoint.
    fn assert_disjoint(requests: &[Request], offsets: &[usize]) {
        for (i, a) in requests.iter().enumerate() {
            for (j, b) in requests.iter().enumerate().skip(i + 1) {
                let in_time = a.first <= b.last && b.first <= a.last;
                let apart = offsets[i] + a.size <= offsets[j] || offsets[j] + b.size <= offsets[i];
                assert!(!in_time || apart || a.size == 0 || b.size == 0, "{a:?} and {b:?}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_overlaps(raw in proptest::collection::vec((0usize..2000, 0usize..40, 0usize..10), 0..60)) {
            let requests: Vec<_> = raw.iter().map(|&(s, f, l)| request(s, f, f + l)).collect();
            let found = plan(&requests).unwrap();
            for (i, a) in requests.iter().enumerate() {
                assert!(found.offsets[i].is_multiple_of(ALIGNMENT));
                assert!(a.size == 0 || found.offsets[i] + a.size <= found.arena_bytes);
            }
            assert_disjoint(&requests, &found.offsets);
            assert!(found.lower_bound_bytes <= found.arena_bytes && found.arena_bytes <= found.naive_bytes);
            assert!(found.arena_bytes <= by_size(&requests));
            assert_eq!(plan(&requests), Some(found));
        }

        #[test]
        fn the_bound_is_the_maximum_of_live_bytes(raw in proptest::collection::vec((1usize..50, 0usize..20, 0usize..9), 1..30)) {
            let requests = lines(&raw.iter().map(|&(s, f, l)| (s, f, f + l)).collect::<Vec<_>>());
            let alive = |t| requests.iter().filter(|r| r.first <= t && t <= r.last).map(|r| r.size).sum();
            assert_eq!(plan(&requests).unwrap().lower_bound_bytes, (0..30).map(alive).max().unwrap());
        }

        #[test]
        fn sweep_plans_do_not_overlap(raw in proptest::collection::vec((1usize..9, 0usize..20, 0usize..9), 0..40)) {
            let requests = lines(&raw.iter().map(|&(s, f, l)| (s, f, f + l)).collect::<Vec<_>>());
            let sizes: Vec<usize> = requests.iter().map(|r| r.size).collect();
            let mut order: Vec<usize> = (0..requests.len()).collect();
            order.sort_by_key(|&i| requests[i].first);
            let (placed, _) = sweep::place(&requests, &sizes, &order);
            assert_disjoint(&requests, &placed.offsets);
        }
    }
}
