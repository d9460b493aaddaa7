//! Greedy plans: one request after the other, each into the smallest gap between those it overlaps in time. What
//! decides is the order, so several are tried, and the best is searched on.

use std::cmp::Reverse;

use super::{Placed, Request};
use crate::seeded::SplitMix64;

/// With more pairs of requests that overlap in time, no greedy plan is made: each looks at all of them.
const MAX_PAIRS: usize = 1 << 21;
/// The search ends after so many looks at a request or a pair: a millisecond or two.
const SEARCH_LOOKS: usize = 1 << 18;

/// The smallest of the greedy plans; none is tried after one that needs `bound` bytes. `order` is by first step.
/// `None` where too many requests overlap.
pub(super) fn place(
    requests: &[Request],
    sizes: &[usize],
    mut order: Vec<usize>,
    bound: usize,
) -> Option<Placed> {
    let overlaps = Overlaps::new(requests, sizes, &order)?;
    let life = |i: usize| requests[i].last - requests[i].first + 1;
    let first_come: [&dyn Fn(usize) -> usize; 4] =
        [&|i| overlaps.crowd[i], &|i| sizes[i], &life, &|i| sizes[i].saturating_mul(life(i))];
    let mut best: Option<(Placed, Vec<usize>)> = None;
    for most in first_come {
        order.sort_by_cached_key(|&i| (Reverse((most(i), sizes[i])), requests[i].first, i));
        let placed = overlaps.place(sizes, &order);
        if best.as_ref().is_none_or(|(b, _)| placed.arena_bytes < b.arena_bytes) {
            best = Some((placed, order.clone()));
        }
        if best.as_ref().is_some_and(|(b, _)| b.arena_bytes == bound) {
            break;
        }
    }
    best.map(|(placed, order)| overlaps.search(sizes, placed, order, bound))
}

/// Which requests overlap in time.
struct Overlaps {
    neighbours: Vec<Vec<usize>>,
    /// The most bytes that are alive during each request's life.
    crowd: Vec<usize>,
    pairs: usize,
}

impl Overlaps {
    fn new(requests: &[Request], sizes: &[usize], order: &[usize]) -> Option<Self> {
        let (mut neighbours, mut crowd) = (vec![Vec::new(); requests.len()], vec![0usize; requests.len()]);
        let (mut alive, mut pairs) = (Vec::<usize>::new(), 0usize);
        for &i in order {
            alive.retain(|&j| requests[j].last >= requests[i].first);
            pairs += alive.len();
            if pairs > MAX_PAIRS {
                return None;
            }
            alive.iter().for_each(|&j| neighbours[j].push(i));
            neighbours[i].clone_from(&alive);
            alive.push(i);
            // There can be more alive than before only where a request begins.
            let live: usize = alive.iter().map(|&j| sizes[j]).sum();
            alive.iter().for_each(|&j| crowd[j] = live.max(crowd[j]));
        }
        Some(Overlaps { neighbours, crowd, pairs })
    }

    /// The greedy plan of one order.
    fn place(&self, sizes: &[usize], order: &[usize]) -> Placed {
        let mut placed: Vec<Option<usize>> = vec![None; sizes.len()];
        let (mut taken, mut arena_bytes) = (Vec::new(), 0usize);
        for &i in order {
            taken.clear();
            taken.extend(self.neighbours[i].iter().filter_map(|&j| Some((placed[j]?, sizes[j]))));
            taken.sort_unstable();
            let (mut best, mut end) = (None::<(usize, usize)>, 0usize);
            for &(offset, size) in &taken {
                let gap = offset.saturating_sub(end);
                if gap >= sizes[i] && best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, end));
                }
                end = end.max(offset + size);
            }
            let offset = best.map_or(end, |(_, start)| start);
            placed[i] = Some(offset);
            arena_bytes = arena_bytes.max(offset + sizes[i]);
        }
        Placed { offsets: placed.into_iter().map(Option::unwrap_or_default).collect(), arena_bytes }
    }

    /// Lets a request that ends where the arena ends choose earlier, and keeps what does not make the arena larger.
    fn search(&self, sizes: &[usize], mut best: Placed, mut order: Vec<usize>, bound: usize) -> Placed {
        let mut random = SplitMix64::new(0, 0, 0);
        let mut below = |n: usize| (random.draw() % n.max(1) as u64) as usize;
        for _ in 0..SEARCH_LOOKS / (order.len() + 2 * self.pairs + 1) {
            if best.arena_bytes == bound {
                break;
            }
            let is_last = |&at: &usize| best.offsets[order[at]] + sizes[order[at]] == best.arena_bytes;
            let last: Vec<usize> = (0..order.len()).filter(is_last).collect();
            let Some(&from) = last.get(below(last.len())) else { break };
            let mut changed = order.clone();
            let request = changed.remove(from);
            changed.insert(below(from), request);
            // Another change now and then leads out of dead ends.
            if below(2) == 0 {
                let (a, b) = (below(changed.len()), below(changed.len()));
                changed.swap(a, b);
            }
            let placed = self.place(sizes, &changed);
            if placed.arena_bytes <= best.arena_bytes {
                (best, order) = (placed, changed);
            }
        }
        best
    }
}
