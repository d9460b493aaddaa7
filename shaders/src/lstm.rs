//! LSTM, one step or a sequence of them.

use crate::binding::bindings;
use crate::epilogue::Activation;
use crate::kernel::{check_dispatch, looped};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "lstm";

/// All steps of an LSTM. The contributions of the input to the gates are precomputed: `[rows, 4 * cells]`, with gates
/// in the order input, forget, cell, output.
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
    /// Whether steps run from the last to the first.
    pub backward: bool,
    /// Number of cells.
    pub cells: u32,
    /// Number of outputs; equal to the number of cells if there is no projection.
    pub outputs: u32,
    /// Whether the input gate is one minus the forget gate.
    pub coupled: bool,
    /// Whether recurrent weights are diagonal matrices.
    pub diagonal: bool,
    /// Whether gates have peephole connections from the state.
    pub peephole: bool,
    /// Whether gates are normalized over the cells.
    pub norm: bool,
    /// Whether outputs are projected.
    pub projection: bool,
    /// Maximum magnitude of a state; infinite for no limit.
    pub cell_clip: f32,
    /// Maximum magnitude of a projected output; infinite for no limit.
    pub output_clip: f32,
    /// Applied to candidates and states. Not [`Activation::Prelu`].
    pub activation: Activation,
    /// Present where recurrent weights (except diagonals) and the projection are integers: their other operands are
    /// quantized while running.
    pub hybrid: Option<Hybrid>,
    /// Alignment of the parts of the output, in elements.
    pub alignment: u32,
}

/// Products of floats with integer weights: each vector of floats is quantized with a scale of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hybrid {
    /// Whether the integers cover the vector's range. Otherwise its largest magnitude becomes 127.
    pub asymmetric: bool,
    /// Scales of the recurrent weights, in the order of the gates.
    pub recurrent: [f32; 4],
    /// The scale of the projection.
    pub projection: f32,
}

/// The weights of an LSTM as the model stores them, with gates in the order input, forget, cell, output. Absent weights are
/// empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights<'a> {
    /// `[cells, outputs]`, or diagonals `[cells]`, of each gate.
    pub recurrent: [&'a [f32]; 4],
    /// `[cells, outputs]` of each gate as integers, where [`Spec::hybrid`] is present and weights are not diagonals.
    pub integers: [&'a [i8]; 4],
    /// The projection as integers, `[outputs, cells]`.
    pub projected_integers: &'a [i8],
    /// `[cells]` of the input, forget and output gates.
    pub peephole: [&'a [f32]; 3],
    /// `[cells]` of each gate.
    pub norm: [&'a [f32]; 4],
    /// `[cells]` of each gate, where gates are normalized; otherwise part of the input's contributions.
    pub bias: [&'a [f32]; 4],
    /// `[outputs, cells]`
    pub projection: &'a [f32],
    /// `[outputs]`
    pub projection_bias: &'a [f32],
}

/// Offsets of the parts of the output, in elements, after the results of all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The last output of each sequence.
    pub last: u32,
    /// The state of each sequence.
    pub state: u32,
    /// The gates of the last step before their functions, `[sequences, 4, cells]`.
    pub gates: u32,
    /// The quantized vector of each sequence.
    pub(crate) steps: u32,
    /// Elements of the output.
    pub elements: u32,
}

impl Layout {
    pub(crate) fn new(
        kernel: &'static str,
        [sequences, steps]: [u32; 2],
        [cells, outputs]: [u32; 2],
        alignment: u32,
        hybrid: bool,
    ) -> Result<Self, ShaderError> {
        let alignment = alignment.max(1);
        let mut at = elements(kernel, &[sequences, steps, outputs])?;
        let mut part = |width: u32, times: u32| {
            let start = at.next_multiple_of(alignment);
            at = elements(kernel, &[start.saturating_add(elements(kernel, &[sequences, width, times])?)])?;
            Ok::<u32, ShaderError>(start)
        };
        let (last, state, gates) = (part(outputs, 1)?, part(cells, 1)?, part(cells, 4)?);
        let steps = part(cells.max(outputs), u32::from(hybrid))?;
        // Hidden values are the last part.
        part(cells, 1)?;
        Ok(Layout { last, state, gates, steps, elements: at })
    }
}

/// Offsets of the parts of the constants.
struct Parts {
    peephole: u32,
    norm: u32,
    bias: u32,
    projection: u32,
    projection_bias: u32,
    elements: u32,
}

impl Spec {
    /// Returns the parts of the output.
    ///
    /// # Errors
    /// For 2^31 elements or more.
    pub fn layout(&self) -> Result<Layout, ShaderError> {
        Layout::new(
            NAME,
            [self.sequences, self.steps],
            [self.cells, self.outputs],
            self.alignment,
            self.hybrid.is_some(),
        )
    }

    /// Returns whether recurrent weights are packed into words.
    fn packs(&self) -> bool {
        self.hybrid.is_some() && !self.diagonal
    }

    fn hidden(&self, layout: Layout) -> u32 {
        layout.elements - self.sequences * self.cells
    }

    fn parts(&self) -> Result<Parts, ShaderError> {
        let cells = self.cells;
        let words = if self.packs() { 1 } else { 4 };
        let recurrent = elements(NAME, &[words, cells, if self.diagonal { 1 } else { self.outputs }])?;
        let of = |there: bool, count: u32| if there { count } else { 0 };
        let peephole = recurrent;
        let norm = peephole.saturating_add(of(self.peephole, cells.saturating_mul(3)));
        let bias = norm.saturating_add(of(self.norm, cells.saturating_mul(4)));
        let projection = bias.saturating_add(of(self.norm, cells.saturating_mul(4)));
        let columns = if self.hybrid.is_some() { cells.div_ceil(4) } else { cells };
        let projected = elements(NAME, &[self.outputs, columns])?;
        let projection_bias = projection.saturating_add(of(self.projection, projected));
        let whole = projection_bias.saturating_add(of(self.projection, self.outputs));
        Ok(Parts { peephole, norm, bias, projection, projection_bias, elements: elements(NAME, &[whole])? })
    }

    /// Returns the weights as the kernel reads them. Values missing from the slices count as zero.
    ///
    /// # Errors
    /// For 2^31 words or more.
    pub fn constants(&self, weights: &Weights<'_>) -> Result<Vec<u32>, ShaderError> {
        let parts = self.parts()?;
        let mut packed = Vec::with_capacity(parts.elements as usize);
        let at = |values: &[f32], i: usize| values.get(i).map_or(0, |v| v.to_bits());
        let byte = |values: &[i8], i: usize| values.get(i).copied().unwrap_or(0).cast_unsigned();
        let (cells, outputs) = (self.cells as usize, self.outputs as usize);
        // Neighbouring invocations read neighbouring cells.
        let turned = |packed: &mut Vec<u32>, values: &[f32], rows: usize, width: usize| {
            packed.extend((0..width * rows).map(|i| at(values, i % rows * width + i / rows)));
        };
        if self.packs() {
            let from = |i: usize| i % cells * outputs + i / cells;
            let word = |i: usize| u32::from_le_bytes(weights.integers.map(|gate| byte(gate, from(i))));
            packed.extend((0..cells * outputs).map(word));
        } else {
            for gate in weights.recurrent {
                turned(&mut packed, gate, cells, if self.diagonal { 1 } else { outputs });
            }
        }
        let mut each = |there: bool, gates: &[&[f32]]| {
            gates.iter().filter(|_| there).for_each(|gate| turned(&mut packed, gate, cells, 1));
        };
        each(self.peephole, &weights.peephole);
        each(self.norm, &weights.norm);
        each(self.norm, &weights.bias);
        if self.projection {
            if self.hybrid.is_some() {
                packed.extend(bytes_of_cells(weights.projected_integers, cells, outputs));
            } else {
                turned(&mut packed, weights.projection, outputs, cells);
            }
            turned(&mut packed, weights.projection_bias, outputs, 1);
        }
        Ok(packed)
    }
}

impl Spec {
    /// Returns the iterations of one of `workgroup` invocations.
    fn iterations(&self, workgroup: u32) -> u64 {
        let [my_cells, my_outputs] = [self.cells, self.outputs].map(|n| n.div_ceil(workgroup));
        let recurrent = if self.diagonal { 0 } else { looped(self.outputs, 0) };
        let projection = if self.projection { looped(self.cells, 0) } else { 0 };
        let mut step = looped(my_cells, recurrent) + looped(my_cells, 0) + looped(my_outputs, projection);
        if self.norm {
            step += 8 * looped(self.cells, 0) + looped(my_cells, 0);
        }
        if self.hybrid.is_some() {
            step += looped(self.outputs, 0) + looped(my_outputs, 0) + projection + looped(my_cells, 0);
        }
        looped(my_outputs, 0) + looped(my_cells, 0) + looped(self.steps, step)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For numbers of outputs and cells that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let (parts, layout) = (self.parts()?, self.layout()?);
        elements(NAME, &[self.sequences, self.steps, self.cells, 4])?;
        let mismatched = !self.projection && self.outputs != self.cells;
        if mismatched || self.activation == Activation::Prelu || self.diagonal && self.outputs < self.cells {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let most = caps.max_invocations_per_workgroup.min(256);
        let workgroup = self.cells.max(self.outputs).next_power_of_two().clamp(32, most.max(32));
        let template = Template::new(NAME, include_str!("wgsl/lstm.wgsl"))
            .number("WORKGROUP", workgroup)
            .flag("COUPLED", self.coupled)
            .flag("DIAGONAL", self.diagonal)
            .flag("PEEPHOLE", self.peephole)
            .flag("NORM", self.norm)
            .flag("PROJECTION", self.projection)
            .flag("HYBRID", self.hybrid.is_some())
            .flag("ASYMMETRIC", self.hybrid.is_some_and(|hybrid| hybrid.asymmetric))
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let Hybrid { recurrent, projection, .. } =
            self.hybrid.unwrap_or(Hybrid { asymmetric: false, recurrent: [0.0; 4], projection: 0.0 });
        let uniform = Uniform::default()
            .u32s([self.steps, self.cells, self.outputs])
            .u32s(rows(self.time_major, self.backward, [self.sequences, self.steps]))
            .u32s([parts.peephole, parts.norm, parts.bias, parts.projection, parts.projection_bias])
            .u32s([layout.last, layout.state, layout.gates, self.hidden(layout), layout.steps])
            .f32s([self.cell_clip, self.output_clip])
            .f32s(self.activation.params())
            .f32s(recurrent)
            .f32(projection)
            .u32(0);
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

/// Returns the distance between sequences, the distance between steps, and the first step, in rows.
pub(crate) fn rows(time_major: bool, backward: bool, [sequences, steps]: [u32; 2]) -> [u32; 3] {
    let [sequence, step] = if time_major { [1, sequences] } else { [steps, 1] };
    match backward {
        true => [sequence, step.wrapping_neg(), steps.saturating_sub(1).saturating_mul(step)],
        false => [sequence, step, 0],
    }
}

/// Returns weights `[outputs, cells]` with four cells per word, the outputs innermost.
pub(crate) fn bytes_of_cells(weights: &[i8], cells: usize, outputs: usize) -> impl Iterator<Item = u32> {
    (0..cells.div_ceil(4) * outputs).map(move |i| {
        let (output, cell) = (i % outputs, i / outputs * 4);
        let weight = |c: usize| weights.get(output * cells + c).filter(|_| c < cells);
        let byte = |c: usize| weight(c).map_or(0, |w| w.cast_unsigned());
        u32::from_le_bytes([cell, cell + 1, cell + 2, cell + 3].map(byte))
    })
}
