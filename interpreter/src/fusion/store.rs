//! Bytes of constants: those of the model, and those that fusions add.

use std::ops::Range;
use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, ModelBytes, Subgraph};
use delegraph_core::kernel::{Budget, Charge};

/// The alignment of constants, in bytes.
const ALIGNMENT: usize = 16;

/// Elements that are changed between two polls.
const PIECE: usize = 1 << 20;

/// Bytes that are appended to those of the model, charged to the budget of the pipeline.
#[derive(Debug)]
pub(super) struct Store {
    /// The offset of the first added byte.
    start: usize,
    bytes: Vec<u8>,
    /// The number of the first new subgraph.
    first: usize,
    /// Subgraphs that are appended to those of the model.
    pub(super) subgraphs: Vec<Subgraph>,
    /// The charge for the bytes.
    pub(super) charge: Charge,
    budget: Arc<Budget>,
    /// The first error of adding or changing bytes.
    failed: Option<Error>,
}

impl Store {
    pub(super) fn new(model: &Model, budget: &Arc<Budget>) -> Self {
        Store {
            start: model.bytes().len().next_multiple_of(ALIGNMENT),
            bytes: Vec::new(),
            first: model.subgraphs().len(),
            subgraphs: Vec::new(),
            charge: budget.charge(0).unwrap_or_default(),
            budget: budget.clone(),
            failed: None,
        }
    }

    /// Returns the memory and time that the pipeline may use.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Checks that all bytes could be added and changed, and polls.
    ///
    /// # Errors
    /// The first error, once; those of [`Budget::check`].
    pub(super) fn check(&mut self) -> Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.budget.check(),
        }
    }

    /// Returns whether two constants of together `bytes` bytes can be added within the budget.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let needed = self.budget.used().saturating_add(bytes).saturating_add(2 * ALIGNMENT);
        needed <= self.budget.memory()
    }

    /// Adds a subgraph, and returns its number.
    pub(super) fn add_subgraph(&mut self, subgraph: Subgraph) -> usize {
        self.subgraphs.push(subgraph);
        self.first + self.subgraphs.len() - 1
    }

    /// Adds bytes, and returns their range. If there is no memory for them, the range is empty, and [`Store::check`]
    /// is an error.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Range<usize> {
        self.add_with(bytes.len(), |all| all.extend_from_slice(bytes))
    }

    /// As [`Store::add`], for `len` zeros.
    pub(super) fn add_zeros(&mut self, len: usize) -> Range<usize> {
        self.add_with(len, |all| all.resize(all.len() + len, 0))
    }

    /// As [`Store::add`], for a copy of bytes of the model, or of added ones.
    pub(super) fn add_copy(&mut self, model: &Model, range: Range<usize>) -> Range<usize> {
        if !self.has_added(&range) {
            return self.add(model.bytes().get(range).unwrap_or_default());
        }
        let source = range.start - self.start..range.end - self.start;
        self.add_with(source.len(), |all| all.extend_from_within(source))
    }

    fn add_with(&mut self, len: usize, append: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        if let Err(error) = self.reserve(len) {
            self.failed.get_or_insert(error);
            let at = self.start + self.bytes.len();
            return at..at;
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.start + self.bytes.len();
        append(&mut self.bytes);
        start..start + len
    }

    /// Charges and reserves memory for `len` more bytes.
    fn reserve(&mut self, len: usize) -> Result<()> {
        let end = self.bytes.len().next_multiple_of(ALIGNMENT).saturating_add(len);
        self.charge.resize(end)?;
        let reserved = self.bytes.try_reserve(end - self.bytes.len());
        reserved.map_err(|_| Error::OutOfMemory(format!("{len} bytes for a constant")))
    }

    /// Returns whether the bytes of a range were added.
    pub(super) fn has_added(&self, range: &Range<usize>) -> bool {
        self.start <= range.start && range.start <= range.end && range.end <= self.start + self.bytes.len()
    }

    /// Changes the floats in a range of added bytes. `f` gets the index of each one, and its value. If the time is
    /// over, [`Store::check`] is an error, and the floats are unusable.
    pub(super) fn change_floats(&mut self, range: &Range<usize>, f: impl Fn(usize, f32) -> f32) {
        if !self.has_added(range) {
            return;
        }
        let budget = self.budget.clone();
        let bytes = &mut self.bytes[range.start - self.start..range.end - self.start];
        let mut pieces = bytes.as_chunks_mut::<4>().0.chunks_mut(PIECE).enumerate();
        let changed: Result<()> = pieces.try_for_each(|(piece, floats)| {
            budget.check()?;
            for (i, float) in floats.iter_mut().enumerate() {
                *float = f(piece * PIECE + i, f32::from_le_bytes(*float)).to_le_bytes();
            }
            Ok(())
        });
        if let Err(error) = changed {
            self.failed.get_or_insert(error);
        }
    }

    pub(super) fn get<'a>(&'a self, model: &'a Model, range: Range<usize>) -> Option<&'a [u8]> {
        match range.start.checked_sub(self.start) {
            Some(start) => self.bytes.get(start..range.end.checked_sub(self.start)?),
            None => model.bytes().get(range),
        }
    }

    /// Returns the model's bytes followed by the added ones; `None` if none were added.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn joined(&self, model: &Model) -> Result<Option<ModelBytes>> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (mut all, len) = (Vec::new(), self.start + self.bytes.len());
        all.try_reserve_exact(len)
            .map_err(|_| Error::OutOfMemory(format!("{len} bytes for a rewritten model")))?;
        all.extend_from_slice(model.bytes());
        all.resize(self.start, 0);
        all.extend_from_slice(&self.bytes);
        Ok(Some(ModelBytes::new(all)))
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder, TensorType};

    use super::*;

    fn model() -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1]);
        let y = graph.node(BuiltinOp::ABS, Params::None).inputs([x]).output("y");
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    }

    #[test]
    fn added_bytes_are_charged() {
        let (model, budget) = (model(), Budget::new(100));
        let mut store = Store::new(&model, &budget);
        let first = store.add(&[1.5f32, -2.0].map(f32::to_le_bytes).concat());
        let second = store.add_copy(&model, first.clone());
        store.change_floats(&second, |i, v| v + i as f32);
        assert_eq!(store.get(&model, first), Some(&[1.5f32, -2.0].map(f32::to_le_bytes).concat()[..]));
        assert_eq!(store.get(&model, second), Some(&[1.5f32, -1.0].map(f32::to_le_bytes).concat()[..]));
        assert_eq!(budget.used(), 24);
        assert!(store.check().is_ok() && store.has_room(44) && !store.has_room(45));
        assert!(store.add_zeros(69).is_empty());
        assert!(store.check().unwrap_err().to_string().contains("101 bytes are needed"));
        assert!(store.check().is_ok());
        assert_eq!(store.add_zeros(68).len(), 68);
        let charge = std::mem::take(&mut store.charge);
        drop(store);
        assert_eq!((charge.bytes(), budget.used()), (100, 100));
    }

    #[test]
    fn changing_floats_ends_with_the_budget() {
        let (model, budget) = (model(), Budget::new(100));
        let mut store = Store::new(&model, &budget);
        let range = store.add_zeros(8);
        budget.cancel();
        store.change_floats(&range, |_, _| 1.0);
        assert_eq!(store.get(&model, range), Some(&[0; 8][..]));
        assert!(matches!(store.check(), Err(Error::Cancelled)));
    }
}
