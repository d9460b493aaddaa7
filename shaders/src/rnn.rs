//! RNN, one step or a sequence of them.

use crate::binding::bindings;
use crate::epilogue::Activation;
use crate::kernel::{check_dispatch, looped};
use crate::lstm::{bytes_of_cells, rows};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "rnn";

/// All steps of an RNN. The contributions of the input to the units are precomputed: `[rows, units]`, with the biases.
///
/// Bindings: `Input(0)` (these contributions), `Input(1)` ([`Spec::constants`]), `Input(2)` (the last output of each sequence), `Output`
/// (the results of all steps, and the last ones from [`Spec::state`] on), `Uniform`.
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
    /// Number of units, which are the outputs.
    pub units: u32,
    /// Applied to the sums. Not [`Activation::Prelu`].
    pub activation: Activation,
    /// Present where recurrent weights are integers: last outputs are quantized while running.
    pub hybrid: Option<Hybrid>,
    /// Alignment of the parts of the output, in elements.
    pub alignment: u32,
}

/// Products of floats with integer weights: each vector of floats is quantized with a scale of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hybrid {
    /// Whether the integers cover the vector's range. Otherwise its largest magnitude becomes 127.
    pub asymmetric: bool,
    /// The scale of the recurrent weights.
    pub scale: f32,
}

/// Recurrent weights, `[units, units]`.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// Floats.
    Floats(&'a [f32]),
    /// Integers.
    Integers(&'a [i8]),
}

impl Spec {
    /// Returns the offset in the output of the last results of each sequence, in elements.
    ///
    /// # Errors
    /// For 2^31 elements or more.
    pub fn state(&self) -> Result<u32, ShaderError> {
        let results = elements(NAME, &[self.sequences, self.steps, self.units])?;
        Ok(results.next_multiple_of(self.alignment.max(1)))
    }

    /// Returns the number of elements of the output.
    ///
    /// # Errors
    /// For 2^31 elements or more.
    pub fn elements(&self) -> Result<u32, ShaderError> {
        let parts = if self.hybrid.is_some() { 2 } else { 1 };
        elements(NAME, &[self.state()?.saturating_add(elements(NAME, &[self.sequences, self.units, parts])?)])
    }

    /// Returns the weights as the kernel reads them. Values missing from the slices count as zero.
    pub fn constants(&self, weights: Weights<'_>) -> Vec<u32> {
        let units = self.units as usize;
        match weights {
            // Neighbouring invocations have neighbouring units.
            Weights::Floats(weights) => (0..units * units)
                .map(|i| weights.get(i % units * units + i / units).map_or(0, |w| w.to_bits()))
                .collect(),
            Weights::Integers(weights) => bytes_of_cells(weights, units, units).collect(),
        }
    }
}

impl Spec {
    /// Returns the iterations of one of `workgroup` invocations.
    fn iterations(&self, workgroup: u32) -> u64 {
        let (all, mine) = (looped(self.units, 0), self.units.div_ceil(workgroup));
        let quantized = if self.hybrid.is_some() { all + looped(mine, 0) } else { 0 };
        looped(mine, 0) + looped(self.steps, quantized + looped(mine, all) + looped(mine, 0))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For an RNN without units, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.elements()?;
        elements(NAME, &[self.units, self.units])?;
        if self.units == 0 || self.activation == Activation::Prelu {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let most = caps.max_invocations_per_workgroup.min(256);
        let workgroup = self.units.next_power_of_two().clamp(32, most.max(32));
        let template = Template::new(NAME, include_str!("wgsl/rnn.wgsl"))
            .number("WORKGROUP", workgroup)
            .flag("HYBRID", self.hybrid.is_some())
            .flag("ASYMMETRIC", self.hybrid.is_some_and(|hybrid| hybrid.asymmetric))
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let state = self.state()?;
        let uniform = Uniform::default()
            .u32s([self.steps, self.units])
            .u32s(rows(self.time_major, self.backward, [self.sequences, self.steps]))
            .u32s([state, state + self.sequences * self.units])
            .f32s(self.activation.params())
            .f32(self.hybrid.map_or(0.0, |hybrid| hybrid.scale))
            .u32(0);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(3)),
            uniform: uniform.finish(),
            dispatch: check_dispatch(NAME, caps, [self.sequences.into(), 1, 1])?,
            iterations: self.iterations(workgroup),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
