//! Which values share a buffer.
//!
//! WebGPU does not allow a dispatch to bind a buffer for writing and to bind it a second time, even where the two
//! ranges are disjoint. So values are not packed side by side into one arena: a *slot* is a buffer that holds one
//! value at a time. Values whose lifetimes overlap are in different slots; the inputs and outputs of a dispatch
//! overlap.

use crate::graph::{Graph, Source, ValueId};

/// The lifetime of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// The size of the value.
    pub bytes: u64,
    /// The first step that uses the value.
    pub first: usize,
    /// The last step that uses the value.
    pub last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The result of [`assign`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Slots {
    /// Per lifetime, its slot.
    pub of: Vec<usize>,
    /// Per slot, its bytes.
    pub bytes: Vec<u64>,
}

/// Assigns a slot to each lifetime, greedily from the largest down: the smallest slot that is free during the
/// lifetime, or a new one (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020,
/// section 4).
pub(crate) fn assign(lifetimes: &[Lifetime]) -> Slots {
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lifetimes[i].bytes), lifetimes[i].first, i));
    let mut slots = Slots { of: vec![0; lifetimes.len()], bytes: Vec::new() };
    let mut tenants: Vec<Vec<usize>> = Vec::new();
    for i in order {
        let free = |slot: &usize| !tenants[*slot].iter().any(|&t| lifetimes[t].meets(&lifetimes[i]));
        // Slots are in descending order of size, so the last free one fits tightest.
        let slot = (0..tenants.len()).rev().find(free).unwrap_or_else(|| {
            slots.bytes.push(lifetimes[i].bytes);
            tenants.push(Vec::new());
            tenants.len() - 1
        });
        tenants[slot].push(i);
        slots.of[i] = slot;
    }
    slots
}

/// The slot of each value that needs memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// Per value, its slot; `None` for constants, views and unused values.
    pub slot: Vec<Option<usize>>,
    /// Per slot, its bytes.
    pub bytes: Vec<u64>,
}

/// Plans the memory of `graph`. Inputs are live before the first step, outputs until after the last.
pub(crate) fn plan(graph: &Graph<'_>) -> Plan {
    let uses = graph.uses();
    let last_step = graph.steps.len();
    let inputs: Vec<_> = graph.inputs.iter().map(|id| graph.root(*id).0).collect();
    let outputs: Vec<_> = graph.copied().map(|id| graph.root(*id).0).collect();
    let (mut planned, mut lifetimes) = (Vec::new(), Vec::new());
    for (i, value) in graph.values.iter().enumerate() {
        let id = ValueId(i);
        let touched = uses.writers[i].iter().chain(&uses.readers[i]).copied();
        let (from_outside, to_outside) = (inputs.contains(&id), outputs.contains(&id));
        let first = touched.clone().chain(from_outside.then_some(0)).min();
        let last = touched.chain(from_outside.then_some(0)).chain(to_outside.then_some(last_step)).max();
        if let (Source::Input | Source::Steps, Some(first), Some(last)) = (&value.source, first, last) {
            planned.push(i);
            lifetimes.push(Lifetime { bytes: value.bytes(), first, last });
        }
    }
    let slots = assign(&lifetimes);
    let mut plan = Plan { slot: vec![None; graph.values.len()], bytes: slots.bytes };
    for (value, slot) in planned.into_iter().zip(slots.of) {
        plan.slot[value] = Some(slot);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{input, step, value, view};
    use delegraph_shaders::unary;

    #[track_caller]
    fn check(lifetimes: &[(u64, usize, usize)], bytes: &[u64]) {
        let lifetimes: Vec<_> =
            lifetimes.iter().map(|&(bytes, first, last)| Lifetime { bytes, first, last }).collect();
        let slots = assign(&lifetimes);
        assert_eq!(slots.bytes, bytes);
        for (i, a) in lifetimes.iter().enumerate() {
            assert!(a.bytes <= slots.bytes[slots.of[i]]);
            for (j, b) in lifetimes.iter().enumerate().skip(i + 1) {
                assert!(!a.meets(b) || slots.of[i] != slots.of[j], "{i} and {j} share slot {}", slots.of[i]);
            }
        }
    }

    #[test]
    fn a_chain_needs_two_slots() {
        check(&[(8, 0, 0), (4, 0, 1), (8, 1, 2), (4, 2, 3)], &[8, 4]);
    }

    #[test]
    fn a_longer_lifetime_needs_a_third_slot() {
        check(&[(8, 0, 3), (8, 0, 1), (8, 1, 2), (8, 2, 3)], &[8, 8, 8]);
    }

    #[test]
    fn the_tightest_free_slot_is_taken() {
        check(&[(9, 0, 1), (5, 0, 1), (4, 2, 3)], &[9, 5]);
        check(&[], &[]);
    }

    #[test]
    fn inputs_and_outputs_of_a_step_never_share() {
        let mut graph = Graph::default();
        let copy = || unary::Spec { steps: vec![], elements: 16 };
        let a = input(&mut graph, &[16]);
        let (b, c, d) = (value(&mut graph, &[16]), value(&mut graph, &[16]), value(&mut graph, &[16]));
        step(&mut graph, copy(), &[a], b);
        let seen = view(&mut graph, b, &[4, 4]);
        step(&mut graph, copy(), &[seen], c);
        step(&mut graph, copy(), &[c], d);
        graph.outputs.push(d);
        let plan = plan(&graph);
        assert_eq!(plan.bytes.len(), 2);
        for step in &graph.steps {
            let slot = |id| plan.slot[graph.root(id).0.0].unwrap();
            assert!(step.reads().all(|id| slot(id) != slot(step.output)));
        }
    }

    #[test]
    fn an_unused_input_still_has_a_slot() {
        let mut graph = Graph::default();
        let a = input(&mut graph, &[4]);
        graph.outputs.push(a);
        assert_eq!(plan(&graph).slot[a.0], Some(0));
    }
}
