//! LSTM of integers, one step or a sequence of them.

use crate::binding::bindings;
use crate::kernel::{check_dispatch, looped};
use crate::lstm::{Layout, bytes_of_cells, rows};
use crate::rescale::Factor;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "lstm_quantized";

/// Words of each gate's numbers, which precede the weights.
const NUMBERS: usize = 16;

/// All steps of an LSTM of 8-bit values and weights, 16-bit states and gates. The contributions of the input to the
/// gates are precomputed: `[rows, 4 * cells]`, with gates in the order input, forget, cell, output.
///
/// Bindings: `Input(0)` (these contributions), `Input(1)` ([`Spec::constants`]), `Input(2)` (the last output of each sequence),
/// `Input(3)` (its state), `Output` ([`Spec::layout`]), `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Number of sequences.
    pub sequences: u32,
    /// Number of steps of each.
    pub steps: u32,
    /// Whether rows are sorted by step before sequence.
    pub time_major: bool,
    /// Number of cells; at most 65535 where gates are normalized.
    pub cells: u32,
    /// Number of outputs; equal to the number of cells if there is no projection.
    pub outputs: u32,
    /// Whether the input gate is one minus the forget gate.
    pub coupled: bool,
    /// Whether gates have peephole connections from the state.
    pub peephole: bool,
    /// Whether gates are normalized over the cells.
    pub norm: bool,
    /// Whether products are scaled to 8 bits before they are added, and functions are [`Weights::tables`].
    pub narrow: bool,
    /// From the product of state and output gate to the hidden values, and their zero point.
    pub hidden: (Factor, i32),
    /// From the sums of the projection to the outputs.
    pub projection: Option<Factor>,
    /// Zero point of the outputs.
    pub output_zero: i32,
    /// Exponent of the state's scale, a power of two.
    pub state_exponent: i32,
    /// Maximum magnitude of a state.
    pub cell_clip: i32,
    /// Maximum magnitude of a projected output.
    pub output_clip: i32,
    /// Alignment of the parts of the output, in elements.
    pub alignment: u32,
}

/// The numbers of a gate; zeros for an absent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// From the product with the last output to the gate, or to 8 bits.
    pub last: Factor,
    /// Zero points of the 8-bit products with the last output and with the input.
    pub zeros: [i32; 2],
    /// From the 8-bit products to the gate, with the input and with the last output. The latter may be negative.
    pub narrow: [Factor; 2],
    /// From products of peephole weights and states to the gate.
    pub peephole: Factor,
    /// Multiplier and shift of the factor from normalized values to the gate; with [`Spec::narrow`], the bits of two
    /// floats: the scales of [`Weights::norm`] and [`Weights::bias`].
    pub norm: [i32; 2],
    /// Replaces a variance that is not positive. Unused with [`Spec::narrow`].
    pub least: i32,
}

/// The weights of an LSTM as the model stores them, with gates in the order input, forget, cell, output. Absent weights are
/// empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights<'a> {
    /// The numbers of each gate.
    pub gates: [Gate; 4],
    /// `[cells, outputs]` of each gate.
    pub recurrent: [&'a [i8]; 4],
    /// `[cells]` of the input, forget and output gates.
    pub peephole: [&'a [i16]; 3],
    /// `[cells]` of each gate.
    pub norm: [&'a [i16]; 4],
    /// `[cells]` of each gate, where gates are normalized; otherwise part of the input's contributions.
    pub bias: [&'a [i32]; 4],
    /// `[outputs, cells]`
    pub projection: &'a [i8],
    /// `[outputs]`
    pub projection_bias: &'a [i32],
    /// Results for all 16-bit integers in ascending order: the logistic function, `tanh` of gates, `tanh` of states.
    pub tables: [&'a [i16]; 3],
}

/// Offsets of the parts of the constants.
struct Parts {
    recurrent: u32,
    peephole: u32,
    norm: u32,
    bias: u32,
    projection: u32,
    projection_bias: u32,
    tables: u32,
    elements: u32,
}

impl Spec {
    /// Returns the parts of the output.
    ///
    /// # Errors
    /// For 2^31 elements or more.
    pub fn layout(&self) -> Result<Layout, ShaderError> {
        Layout::new(NAME, [self.sequences, self.steps], [self.cells, self.outputs], self.alignment, false)
    }

    fn parts(&self) -> Result<Parts, ShaderError> {
        let (cells, outputs) = (self.cells, self.outputs);
        let mut at = NUMBERS as u32 * 4;
        let mut part = |there: bool, extents: [u32; 2]| {
            let start = at;
            if there {
                at = elements(NAME, &[start.saturating_add(elements(NAME, &extents)?)])?;
            }
            Ok::<u32, ShaderError>(start)
        };
        let projected = self.projection.is_some();
        Ok(Parts {
            recurrent: part(true, [cells, outputs])?,
            peephole: part(self.peephole, [3, cells])?,
            norm: part(self.norm, [4, cells])?,
            bias: part(self.norm, [4, cells])?,
            projection: part(projected, [outputs, cells.div_ceil(4)])?,
            projection_bias: part(projected, [outputs, 1])?,
            tables: part(self.narrow, [3, 1 << 15])?,
            elements: at,
        })
    }

    /// Returns the weights as the kernel reads them. Values missing from the slices count as zero.
    ///
    /// # Errors
    /// For 2^31 words or more.
    pub fn constants(&self, weights: &Weights<'_>) -> Result<Vec<i32>, ShaderError> {
        fn at<T: Copy + Into<i32>>(values: &[T], i: usize) -> i32 {
            values.get(i).copied().map_or(0, Into::into)
        }
        let word = |bytes: [i32; 4]| i32::from_le_bytes(bytes.map(|b| b as u8));
        let mut packed = Vec::with_capacity(self.parts()?.elements as usize);
        for gate in &weights.gates {
            let Gate { last, zeros, narrow: [of_input, of_last], peephole, norm, least } = *gate;
            let numbers = [
                [last.multiplier, last.shift, zeros[0], zeros[1]],
                [of_input.multiplier, of_input.shift, of_last.multiplier, of_last.shift],
                [peephole.multiplier, peephole.shift, norm[0], norm[1]],
                [least, 0, 0, 0],
            ];
            packed.extend(numbers.as_flattened());
        }
        let (cells, outputs) = (self.cells as usize, self.outputs as usize);
        // Neighbouring invocations read neighbouring cells, or outputs.
        for i in 0..cells * outputs {
            let from = i % cells * outputs + i / cells;
            packed.push(word(weights.recurrent.map(|gate| at(gate, from))));
        }
        let mut each = |there: bool, values: &dyn Fn(usize) -> i32| {
            packed.extend((0..cells).filter(|_| there).map(values));
        };
        weights.peephole.iter().for_each(|gate| each(self.peephole, &|i| at(gate, i)));
        weights.norm.iter().for_each(|gate| each(self.norm, &|i| at(gate, i)));
        weights.bias.iter().for_each(|gate| each(self.norm, &|i| at(gate, i)));
        if self.projection.is_some() {
            packed.extend(bytes_of_cells(weights.projection, cells, outputs).map(u32::cast_signed));
            packed.extend((0..outputs).map(|i| at(weights.projection_bias, i)));
        }
        if self.narrow {
            for table in weights.tables {
                let pair = |i: usize| at(table, 2 * i) & 0xffff | at(table, 2 * i + 1) << 16;
                packed.extend((0..1 << 15).map(pair));
            }
        }
        Ok(packed)
    }
}

impl Spec {
    /// Returns the iterations of one of `workgroup` invocations.
    fn iterations(&self, workgroup: u32) -> u64 {
        // The loops of exact divisions and roots.
        const EXACT: u64 = 32;
        let [my_cells, my_outputs] = [self.cells, self.outputs].map(|n| n.div_ceil(workgroup));
        let projection = if self.projection.is_some() { looped(self.cells, 0) } else { 0 };
        let mut step = looped(my_cells, looped(self.outputs, 0)) + 2 * looped(my_cells, EXACT);
        step += looped(my_outputs, projection);
        if self.norm {
            step += 4 * (looped(self.cells, 0) + EXACT);
        }
        looped(my_outputs, 0) + looped(my_cells, 0) + looped(self.steps, step)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For parameters of the cell that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let (parts, layout) = (self.parts()?, self.layout()?);
        elements(NAME, &[self.sequences, self.steps, self.cells, 4])?;
        let invalid = self.projection.is_none() && self.outputs != self.cells
            || self.peephole && self.outputs > self.cells
            || self.narrow && !(self.coupled && self.norm && self.projection.is_some() && !self.peephole)
            || self.norm && self.cells > u32::from(u16::MAX)
            || self.outputs == 0
            || self.cells == 0
            || !(-15..=-9).contains(&self.state_exponent);
        if invalid {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let most = caps.max_invocations_per_workgroup.min(256);
        let workgroup = self.cells.max(self.outputs).next_power_of_two().clamp(32, most.max(32));
        let template = Template::new(NAME, include_str!("wgsl/lstm_quantized.wgsl"))
            .number("WORKGROUP", workgroup)
            .flag("COUPLED", self.coupled)
            .flag("PEEPHOLE", self.peephole)
            .flag("NORM", self.norm)
            .flag("NARROW", self.narrow)
            .flag("PROJECTION", self.projection.is_some());
        let [sequence_stride, step_stride, _] = rows(self.time_major, false, [self.sequences, self.steps]);
        let group = if self.time_major { self.sequences } else { 1 };
        let peephole_end = elements(NAME, &[group, self.outputs])?;
        let peephole_stride = if self.time_major { self.cells } else { 0 };
        let projection = self.projection.unwrap_or_default();
        let uniform = Uniform::default()
            .u32s([self.steps, self.cells, self.outputs])
            .u32s([sequence_stride, step_stride])
            .u32s([parts.recurrent, parts.peephole, parts.norm, parts.bias])
            .u32s([parts.projection, parts.projection_bias, parts.tables])
            .u32s([layout.last, layout.state, layout.gates, layout.elements - self.sequences * self.cells])
            .u32s([peephole_stride, peephole_end])
            .i32s([self.output_zero, self.state_exponent, self.cell_clip, self.output_clip])
            .i32s([self.hidden.0.multiplier, self.hidden.0.shift, self.hidden.1])
            .i32s([projection.multiplier, projection.shift, 0]);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(4)),
            uniform: uniform.finish(),
            dispatch: check_dispatch(NAME, caps, [self.sequences.into(), 1, 1])?,
            iterations: self.iterations(workgroup),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
