//! Greedy plans: requests are placed one after the other, each into the smallest gap between those that overlap in
//! time. The order determines the size, so several orders are tried, and a search improves the best one.

use std::cmp::Reverse;

use super::request::{Placed, Request};
use crate::random::Random;

/// Maximum number of pairs of requests that overlap in time. A greedy plan visits all pairs.
const MAX_PAIRS: usize = 1 << 21;
/// Maximum number of requests and pairs that the search visits, which takes a millisecond or two.
const MAX_SEARCH_VISITS: usize = 1 << 18;

/// Returns the smallest of the greedy plans; none is tried after one that needs `bound` bytes. `order` is by first
/// step. `None` if too many requests overlap.
pub(super) fn place(
    requests: &[Request],
    sizes: &[usize],
    mut order: Vec<usize>,
    bound: usize,
) -> Option<Placed> {
    let overlaps = Overlaps::new(requests, sizes, &order)?;
    let lifetime = |i: usize| requests[i].last - requests[i].first + 1;
    let first_come: [&dyn Fn(usize) -> usize; 4] =
        [&|i| overlaps.crowd[i], &|i| sizes[i], &lifetime, &|i| sizes[i].saturating_mul(lifetime(i))];
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

/// The requests that overlap in time.
struct Overlaps {
    neighbours: Vec<Vec<usize>>,
    /// Maximum number of live bytes during each request's lifetime.
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
            // The number of live bytes grows only where a request begins.
            let live: usize = alive.iter().map(|&j| sizes[j]).sum();
            alive.iter().for_each(|&j| crowd[j] = live.max(crowd[j]));
        }
        Some(Overlaps { neighbours, crowd, pairs })
    }

    /// Returns the greedy plan of one order.
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

    /// Moves a request that ends at the arena's end to an earlier position in the order, and keeps each order that does
    /// not enlarge the arena.
    fn search(&self, sizes: &[usize], mut best: Placed, mut order: Vec<usize>, bound: usize) -> Placed {
        let mut random = Random::new(0, 0);
        let mut below = |n: usize| (random.draw() % n.max(1) as u64) as usize;
        for _ in 0..MAX_SEARCH_VISITS / (order.len() + 2 * self.pairs + 1) {
            if best.arena_bytes == bound {
                break;
            }
            let is_last = |&at: &usize| best.offsets[order[at]] + sizes[order[at]] == best.arena_bytes;
            let last: Vec<usize> = (0..order.len()).filter(is_last).collect();
            let Some(&from) = last.get(below(last.len())) else { break };
            let mut changed = order.clone();
            let request = changed.remove(from);
            changed.insert(below(from), request);
            // An occasional second change escapes local minima.
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
