//! Bytes of constants: those of the model, and those that fusions add.

use std::ops::Range;

use delegraph_core::graph::{Model, ModelBytes, Subgraph};

/// The alignment of constants, in bytes.
const ALIGNMENT: usize = 16;

/// Bytes that are appended to those of the model.
#[derive(Debug, Clone)]
pub(super) struct Store {
    /// The offset of the first added byte.
    start: usize,
    bytes: Vec<u8>,
    /// The number of the first new subgraph.
    first: usize,
    /// Subgraphs that are appended to those of the model.
    pub(super) subgraphs: Vec<Subgraph>,
}

impl Store {
    pub(super) fn new(model: &Model) -> Self {
        let start = model.bytes().len().next_multiple_of(ALIGNMENT);
        Store { start, bytes: Vec::new(), first: model.subgraphs().len(), subgraphs: Vec::new() }
    }

    /// Adds a subgraph, and returns its number.
    pub(super) fn add_subgraph(&mut self, subgraph: Subgraph) -> usize {
        self.subgraphs.push(subgraph);
        self.first + self.subgraphs.len() - 1
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> Range<usize> {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.start + self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..start + bytes.len()
    }

    pub(super) fn get<'a>(&'a self, model: &'a Model, range: Range<usize>) -> Option<&'a [u8]> {
        match range.start.checked_sub(self.start) {
            Some(start) => self.bytes.get(start..range.end.checked_sub(self.start)?),
            None => model.bytes().get(range),
        }
    }

    /// Returns the model's bytes followed by the added ones; `None` if none were added.
    pub(super) fn joined(&self, model: &Model) -> Option<ModelBytes> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut all = Vec::with_capacity(self.start + self.bytes.len());
        all.extend_from_slice(model.bytes());
        all.resize(self.start, 0);
        all.extend_from_slice(&self.bytes);
        Some(ModelBytes::new(all))
    }
}
