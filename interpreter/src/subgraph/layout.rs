//! Where the tensors and temporaries of a subgraph are: the arena is planned by their lifetimes.

use delegraph_core::TensorType;
use delegraph_core::error::{Error, Result};
use delegraph_core::kernel::{AlignedBuffer, Placement};

use super::{MemoryReport, Step, SubgraphRuntime, Turn, own_strings};
use crate::engine::Env;
use crate::in_place;
use crate::memory::{self, Request};

/// The first and the last step that need a tensor's memory.
type Life = Option<(usize, usize)>;

impl SubgraphRuntime {
    /// Gives every tensor with a known shape its place in the arena.
    pub(super) fn plan_memory(&mut self, env: &mut Env<'_>) -> Result<()> {
        let model = self.model.clone();
        let subgraph = &model.subgraphs[self.index];
        // A bound buffer that no longer fits is given up; `resize_input` says so.
        for tensor in self.tensors.iter_mut().filter(|t| t.placement() == Placement::Bound) {
            if tensor.bytes().len() != tensor.byte_size()? {
                tensor.clear_data();
            }
        }
        let (mut root, mut life) = self.lives(env.settings.preserve_all_tensors)?;
        let in_place = self.steps.iter().enumerate().filter_map(|(s, step)| match *step {
            Step::Node(id) if self.nodes[id.0].turn == Turn::Static => {
                Some((s, subgraph.node(id), self.nodes[id.0].overwritable.as_slice()))
            }
            _ => None,
        });
        let saved = in_place::share(in_place, &self.tensors, &mut root, &mut life)?;
        let mut requests = Vec::new();
        let mut owners = Vec::new();
        for (i, life) in life.iter().enumerate() {
            if let Some((first, last)) = *life {
                requests.push(Request { size: self.tensors[i].byte_size()?, first, last });
                owners.push(i);
            }
        }
        for (s, step) in self.steps.iter().enumerate() {
            let bytes: &[usize] = match *step {
                Step::Node(id) if self.nodes[id.0].turn == Turn::Static => &self.nodes[id.0].scratch.bytes,
                Step::Node(_) => &[],
                Step::Partition(p) if self.partitions[p].dynamic => &[],
                Step::Partition(p) => &self.partitions[p].scratch.bytes,
            };
            requests.extend(bytes.iter().map(|&size| Request { size, first: s, last: s }));
        }
        let plan =
            memory::plan(&requests).ok_or_else(|| Error::OutOfMemory("the arena's size overflows".into()))?;
        env.check_size(plan.arena_bytes)?;
        self.arena = AlignedBuffer::zeroed(plan.arena_bytes)?;
        self.point_into_arena(&plan.offsets, &requests, &owners, &root);
        let constants = self.tensors.iter().filter(|t| t.is_constant()).map(|t| t.bytes().len()).sum();
        self.memory = MemoryReport {
            arena_bytes: plan.arena_bytes,
            naive_bytes: plan.naive_bytes.saturating_add(saved),
            lower_bound_bytes: plan.lower_bound_bytes,
            weights_bytes: constants,
        };
        Ok(())
    }

    /// For each tensor the one whose memory it uses (its own, unless it is a view), and the first and the last step that
    /// need this memory; none where the arena does not hold it. Views are settled here.
    fn lives(&mut self, preserve_all: bool) -> Result<(Vec<usize>, Vec<Life>)> {
        let model = self.model.clone();
        let subgraph = &model.subgraphs[self.index];
        let last_step = self.steps.len();
        let mut root: Vec<usize> = (0..self.tensors.len()).collect();
        let mut life: Vec<Life> = vec![None; self.tensors.len()];
        for input in &subgraph.inputs {
            if self.tensors[input.0].ty == TensorType::String {
                own_strings(&mut self.tensors[input.0])?;
            } else if self.tensors[input.0].placement() == Placement::None {
                // Inputs keep what the caller wrote, so that it can invoke again.
                life[input.0] = Some((0, last_step));
            }
        }
        for (s, step) in self.steps.iter().enumerate() {
            let (inputs, outputs, planned) = match *step {
                Step::Node(id) => {
                    let (node, runtime) = (subgraph.node(id), &mut self.nodes[id.0]);
                    let planned = runtime.turn == Turn::Static || runtime.turn == Turn::View;
                    if let Some(viewed) = runtime.view_of.filter(|_| planned) {
                        let bound =
                            node.outputs.iter().any(|t| self.tensors[t.0].placement() == Placement::Bound);
                        let source = node.input(viewed).map(|t| root[t.0]);
                        let size = |t: usize| self.tensors[t].byte_size().ok();
                        let fits = |t: usize| node.outputs.first().is_some_and(|o| size(o.0) == size(t));
                        let source = source.filter(|&t| life[t].is_some() && !bound && fits(t));
                        runtime.turn = if source.is_some() { Turn::View } else { Turn::Static };
                        if let (Some(source), Some(output)) = (source, node.outputs.first()) {
                            root[output.0] = source;
                        }
                    }
                    (node.inputs.as_slice(), node.outputs.as_slice(), planned)
                }
                Step::Partition(p) => {
                    let partition = &self.partitions[p];
                    (partition.inputs.as_slice(), &*partition.params.outputs, !partition.dynamic)
                }
            };
            for id in outputs.iter().filter(|_| planned) {
                match &mut self.tensors[id.0] {
                    tensor if tensor.ty == TensorType::String => {
                        own_strings(tensor)?;
                        continue;
                    }
                    tensor if tensor.placement() == Placement::Bound => continue,
                    _ => {}
                }
                life[root[id.0]].get_or_insert((s, s)).1 = s.max(life[root[id.0]].map_or(0, |l| l.1));
            }
            for id in inputs.iter().flatten() {
                if let Some(life) = &mut life[root[id.0]] {
                    life.1 = life.1.max(s);
                }
            }
        }
        for output in &subgraph.outputs {
            if let Some(life) = &mut life[root[output.0]] {
                life.1 = last_step;
            }
        }
        if preserve_all {
            life.iter_mut().flatten().for_each(|life| life.1 = last_step);
        }
        Ok((root, life))
    }

    fn point_into_arena(
        &mut self,
        offsets: &[usize],
        requests: &[Request],
        owners: &[usize],
        root: &[usize],
    ) {
        let base = self.arena.bytes_mut().as_mut_ptr();
        let place = |r: usize| (base.wrapping_add(offsets[r]), requests[r].size);
        let mut placed = vec![None; self.tensors.len()];
        for (r, &owner) in owners.iter().enumerate() {
            placed[owner] = Some(place(r));
        }
        for (tensor, &root) in self.tensors.iter_mut().zip(root) {
            if let Some((data, len)) = placed[root] {
                // SAFETY: the plan keeps `offset + size` within the arena, which lives as long as the tensors and is
                // replaced only together with these pointers; tensors alive at one step do not overlap, but where one is
                // written over another in place.
                unsafe { tensor.set_data(Placement::Arena, data, len) };
            }
        }
        let mut next = owners.len();
        for step in &self.steps {
            let scratch = match *step {
                Step::Node(id) if self.nodes[id.0].turn == Turn::Static => &mut self.nodes[id.0].scratch,
                Step::Node(_) => continue,
                Step::Partition(p) if self.partitions[p].dynamic => continue,
                Step::Partition(p) => &mut self.partitions[p].scratch,
            };
            let count = scratch.bytes.len();
            scratch.point((next..next + count).map(place).collect());
            next += count;
        }
    }
}
