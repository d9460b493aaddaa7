//! LSTM of integers, one step or a sequence of them.

use crate::kernel::check_dispatch;
use crate::lstm::{Layout, bytes_of_cells, rows};
use crate::rescale::Factor;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "lstm_quantized";

/// Words of each gate's numbers in front of the weights.
const NUMBERS: usize = 16;

/// All steps of an LSTM of 8-bit values and weights, 16-bit states and gates. What its gates get from the input is computed
/// before: `[rows, 4 * cells]`, gates in the order input, forget, cell, output.
///
/// Bindings: `Input(0)` (that), `Input(1)` ([`Spec::constants`]), `Input(2)` (the last output of each sequence),
/// `Input(3)` (its state), `Output` ([`Spec::layout`]), `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Sequences.
    pub sequences: u32,
    /// Steps of each.
    pub steps: u32,
    /// Whether rows are sorted by step before sequence.
    pub time_major: bool,
    /// Cells; at most 65535 where gates are normalized.
    pub cells: u32,
    /// Outputs; as many as cells without a projection.
    pub outputs: u32,
    /// The input gate is what the forget gate leaves.
    pub coupled: bool,
    /// Gates see the state.
    pub peephole: bool,
    /// Gates are normalized over the cells.
    pub norm: bool,
    /// Products are brought to 8 bits before they are added; functions have [`Weights::tables`].
    pub narrow: bool,
    /// From the product of state and output gate to the hidden values, with what stands for zero.
    pub hidden: (Factor, i32),
    /// From the sums of the projection to the outputs.
    pub projection: Option<Factor>,
    /// What stands for zero in the outputs.
    pub output_zero: i32,
    /// The state counts 2 to this power.
    pub state_exponent: i32,
    /// The greatest magnitude of a state.
    pub cell_clip: i32,
    /// The greatest magnitude of a projected output.
    pub output_clip: i32,
    /// Of what the parts of the output begin at multiples, in elements.
    pub alignment: u32,
}

/// The numbers of a gate; zeros where it is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// From the product with the last output to the gate, or to 8 bits.
    pub last: Factor,
    /// What stands for zero in the 8-bit products, with the last output and with the input.
    pub zeros: [i32; 2],
    /// From the 8-bit products to the gate, with the input and with the last output. The latter may be negative.
    pub narrow: [Factor; 2],
    /// From products of peephole weights and states to the gate.
    pub peephole: Factor,
    /// From normalized values to the gate, or the bits of two floats: the scales of factors and biases.
    pub norm: [i32; 2],
    /// The variance taken for one that is too small.
    pub least: i32,
}

/// The weights of an LSTM as its model stores them; gates in the order input, forget, cell, output. What is empty is
/// not there.
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
    /// `[cells]` of each gate, where it is normalized; else they are part of what gates get from the input.
    pub bias: [&'a [i32]; 4],
    /// `[outputs, cells]`
    pub projection: &'a [i8],
    /// `[outputs]`
    pub projection_bias: &'a [i32],
    /// Results of all 16-bit integers from the lowest on: the logistic function, `tanh` of gates, `tanh` of states.
    pub tables: [&'a [i16]; 3],
}

/// Where the parts of the constants begin.
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
    /// The parts of the output.
    ///
    /// # Errors
    /// When it has too many elements.
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

    /// Weights as the kernel reads them. Values missing from the slices count as zero.
    ///
    /// # Errors
    /// When there are too many.
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
        // Neighbouring invocations have neighbouring cells, or outputs.
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

    /// The kernel.
    ///
    /// # Errors
    /// When a tensor is larger than one dispatch reaches, and when the parts of the cell don't go together.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
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
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let most = caps.max_invocations_per_workgroup.min(256);
        let workgroup = self.cells.max(self.outputs).next_power_of_two().clamp(32, most.max(32));
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/lstm_quantized.wgsl"))
            .number("UNIFORM", 5)
            .number("WORKGROUP", workgroup)
            .flag("COUPLED", self.coupled)
            .flag("PEEPHOLE", self.peephole)
            .flag("NORM", self.norm)
            .flag("NARROW", self.narrow)
            .flag("PROJECTION", self.projection.is_some())
            .render()?;
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
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![
                Binding::Input(0),
                Binding::Input(1),
                Binding::Input(2),
                Binding::Input(3),
                Binding::Output,
                Binding::Uniform,
            ],
            uniform: uniform.finish(),
            dispatch: check_dispatch(NAME, caps, [self.sequences.into(), 1, 1])?,
            features: Features::default(),
        })
    }
}
