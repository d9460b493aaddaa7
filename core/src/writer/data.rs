//! The data of a file, and its placement.

use std::collections::HashMap;
use std::ops::Range;

use flatbuffers::{FlatBufferBuilder, Push, PushAlignment, Vector, WIPOffset};

use crate::graph::{Model, Subgraph, Tensor};
use crate::types::TensorType;

/// The alignment of all data, from the start of the file.
pub(super) const ALIGNMENT: usize = 16;

/// The place of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the tables.
    Inline,
    /// After the FlatBuffer, from this position on.
    Behind(usize),
}

/// Every piece of data that a model has: constants, metadata and the options of custom ops.
pub(super) struct Data<'m> {
    file: &'m [u8],
    /// The range of each buffer's data. Buffer 0 has none.
    pub(super) buffers: Vec<Range<usize>>,
    numbers: HashMap<Range<usize>, u32>,
    /// The number of the buffer for constants without elements.
    empty: Option<u32>,
    /// The largest end of constants that begin at the same byte. A constant that needs less of a shared buffer still
    /// shares it.
    ends: HashMap<usize, usize>,
    /// Every piece, with its offset from the first one where all are stored after the FlatBuffer.
    behind: Vec<(Range<usize>, usize)>,
    places: HashMap<Range<usize>, usize>,
    len: usize,
    inline_len: usize,
}

impl<'m> Data<'m> {
    pub(super) fn of(model: &'m Model) -> Self {
        let mut data = Data {
            file: model.bytes(),
            buffers: vec![Range::default()],
            numbers: HashMap::new(),
            empty: None,
            ends: HashMap::new(),
            behind: Vec::new(),
            places: HashMap::new(),
            len: 0,
            inline_len: 0,
        };
        let tensors = || model.subgraphs().iter().flat_map(Subgraph::tensors);
        for (range, _) in tensors().filter_map(|t| Some((t.data()?, fixed_size(t).then_some(())?))) {
            let end = data.ends.entry(range.start).or_default();
            *end = range.end.max(*end);
        }
        for tensor in tensors() {
            match data.range_of(tensor) {
                Some(range) if range.is_empty() && data.empty.is_none() => {
                    data.empty = Some(data.buffers.len() as u32);
                    data.buffers.push(range);
                }
                Some(range) => data.add_buffer(range),
                None => {}
            }
        }
        for range in model.metadata_entries().iter().map(|(_, range)| range).chain(model.unnamed_metadata()) {
            data.add_buffer(range.clone());
        }
        for node in model.subgraphs().iter().flat_map(Subgraph::nodes) {
            // In the tables, nodes cannot share their options.
            data.add_inline(&node.custom_options());
            data.add_piece(node.custom_options());
        }
        data
    }

    fn range_of(&self, tensor: &Tensor) -> Option<Range<usize>> {
        let range = tensor.data()?;
        let end = self.ends.get(&range.start).filter(|_| fixed_size(tensor));
        Some(range.start..end.copied().unwrap_or(range.end))
    }

    fn add_buffer(&mut self, range: Range<usize>) {
        if range.is_empty() || self.numbers.contains_key(&range) {
            return;
        }
        self.numbers.insert(range.clone(), self.buffers.len() as u32);
        self.buffers.push(range.clone());
        self.add_inline(&range);
        self.add_piece(range);
    }

    fn add_inline(&mut self, range: &Range<usize>) {
        self.inline_len = self.inline_len.saturating_add(range.len()).saturating_add(2 * ALIGNMENT);
    }

    fn add_piece(&mut self, range: Range<usize>) {
        if range.is_empty() || self.places.contains_key(&range) {
            return;
        }
        self.places.insert(range.clone(), self.len);
        self.behind.push((range.clone(), self.len));
        self.len = self.len.saturating_add(range.len()).next_multiple_of(ALIGNMENT);
    }

    pub(super) fn bytes(&self, range: &Range<usize>) -> &'m [u8] {
        self.file.get(range.clone()).unwrap_or_default()
    }

    /// Returns the number of the buffer with this data; 0 if there is none.
    pub(super) fn buffer(&self, range: &Range<usize>) -> u32 {
        self.numbers.get(range).copied().unwrap_or_default()
    }

    /// Returns the number of a tensor's buffer; 0 if it has no data.
    pub(super) fn buffer_of(&self, tensor: &Tensor) -> u32 {
        match self.range_of(tensor) {
            Some(range) if range.is_empty() => self.empty.unwrap_or_default(),
            Some(range) => self.buffer(&range),
            None => 0,
        }
    }

    /// Returns an upper bound of the number of bytes that all data takes inside the tables.
    pub(super) fn inline_len(&self) -> usize {
        self.inline_len
    }

    /// Offset and size of a piece, if the first one begins at `start`.
    pub(super) fn behind(&self, range: &Range<usize>, start: usize) -> (u64, u64) {
        let place = self.places.get(range).copied().unwrap_or_default();
        (start.saturating_add(place) as u64, range.len() as u64)
    }

    /// Appends every piece to `file`, from `start` on.
    pub(super) fn append(&self, file: &mut Vec<u8>, start: usize) {
        file.reserve_exact(start.saturating_add(self.len).saturating_sub(file.len()));
        for (range, place) in &self.behind {
            file.resize(start.saturating_add(*place), 0);
            file.extend_from_slice(self.bytes(range));
        }
    }
}

/// Whether type and shape determine the number of bytes of a tensor's data.
fn fixed_size(tensor: &Tensor) -> bool {
    tensor.ty() != TensorType::String
}

/// A byte of a list that begins at a multiple of [`ALIGNMENT`].
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Byte(u8);

impl Push for Byte {
    type Output = u8;

    unsafe fn push(&self, to: &mut [u8], _: usize) {
        if let Some(to) = to.first_mut() {
            *to = self.0;
        }
    }

    fn alignment() -> PushAlignment {
        PushAlignment::new(ALIGNMENT)
    }
}

/// Writes bytes whose first one is aligned.
pub(super) fn aligned<'f>(fb: &mut FlatBufferBuilder<'f>, bytes: &[u8]) -> WIPOffset<Vector<'f, u8>> {
    fb.create_vector(bytemuck::cast_slice::<u8, Byte>(bytes))
}
