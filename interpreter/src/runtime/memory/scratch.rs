//! Temporaries of a step, and memory that its kernel keeps between invocations.

use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::kernel::{AlignedBuffer, Budget};
use smallvec::SmallVec;

/// Sizes and memory of a step's temporaries.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Bytes of each temporary in the arena; zero for persistent ones, which have separate memory.
    requests: SmallVec<[usize; 4]>,
    pointers: Vec<(*mut u8, usize)>,
    /// Persistent temporaries, ascending, each with its number.
    persistent: SmallVec<[(usize, AlignedBuffer); 1]>,
    /// Memory of deferred steps, which are not in the arena's plan.
    own: Vec<AlignedBuffer>,
}

// SAFETY: the pointers refer to the arena, to `persistent` or to `own`. The arena belongs to the same subgraph, and all
// of them move to another thread only together with it.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Sets the sizes that a kernel requested, in bytes, and which of them are persistent. Persistent memory keeps its
    /// contents if all sizes are unchanged. Otherwise all of it is zeroed, since the contents of the parts belong
    /// together.
    ///
    /// # Errors
    /// If persistent memory cannot be allocated, or exceeds what is left of `budget`.
    pub(crate) fn request(
        &mut self,
        bytes: &[usize],
        persistent: &[usize],
        budget: &Arc<Budget>,
    ) -> Result<()> {
        self.requests.clear();
        self.requests.extend_from_slice(bytes);
        let requests = &mut self.requests;
        let sizes: SmallVec<[usize; 2]> =
            persistent.iter().map(|&i| std::mem::take(&mut requests[i])).collect();
        if self.persistent.iter().map(|(_, memory)| memory.len()).eq(sizes.iter().copied()) {
            self.persistent.iter_mut().zip(persistent).for_each(|((i, _), &now)| *i = now);
            return Ok(());
        }
        self.persistent.clear();
        for (&i, size) in persistent.iter().zip(sizes) {
            let mut memory = AlignedBuffer::charged(budget)?;
            memory.resize(size)?;
            self.persistent.push((i, memory));
        }
        Ok(())
    }

    /// Returns the bytes of each temporary that needs memory in the arena.
    pub(crate) fn requests(&self) -> &[usize] {
        &self.requests
    }

    /// Returns pointer and length of each temporary.
    pub(crate) fn pointers(&self) -> &[(*mut u8, usize)] {
        &self.pointers
    }

    /// Places the temporaries in the arena. `pointers` has one entry per request in [`Scratch::requests`].
    pub(crate) fn bind(&mut self, pointers: Vec<(*mut u8, usize)>) {
        self.pointers = pointers;
        for (number, memory) in &mut self.persistent {
            self.pointers[*number] = (memory.bytes_mut().as_mut_ptr(), memory.len());
        }
    }

    /// Removes the pointers to the temporaries, before the arena is dropped.
    pub(crate) fn unbind(&mut self) {
        self.pointers.clear();
    }

    /// Allocates separate memory for the temporaries.
    ///
    /// # Errors
    /// If the memory cannot be allocated, or exceeds what is left of `budget`.
    pub(crate) fn allocate(&mut self, budget: &Arc<Budget>) -> Result<()> {
        self.own.truncate(self.requests.len());
        while self.own.len() < self.requests.len() {
            self.own.push(AlignedBuffer::charged(budget)?);
        }
        let mut pointers = std::mem::take(&mut self.pointers);
        pointers.clear();
        for (buffer, &bytes) in self.own.iter_mut().zip(&self.requests) {
            buffer.resize(bytes)?;
            pointers.push((buffer.bytes_mut().as_mut_ptr(), bytes));
        }
        self.bind(pointers);
        Ok(())
    }
}
