//! RNN, one step or a sequence of them.

use crate::epilogue::Activation;
use crate::kernel::check_dispatch;
use crate::lstm::{bytes_of_cells, rows};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "rnn";

/// All steps of an RNN. What its units get from the input is computed before: `[rows, units]`, with their biases.
///
/// Bindings: `Input(0)` (that), `Input(1)` ([`Spec::constants`]), `Input(2)` (the last output of each sequence), `Output`
/// (the results of all steps, and the last ones from [`Spec::state`] on), `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Sequences.
    pub sequences: u32,
    /// Steps of each.
    pub steps: u32,
    /// Whether rows are sorted by step before sequence.
    pub time_major: bool,
    /// Whether the last step comes first.
    pub backward: bool,
    /// Units, which are the outputs.
    pub units: u32,
    /// Of the sums. Not [`Activation::Prelu`].
    pub activation: Activation,
    /// Recurrent weights are integers, for which last outputs are made integers.
    pub hybrid: Option<Hybrid>,
    /// Of what the parts of the output begin at multiples, in elements.
    pub alignment: u32,
}

/// Products of floats with weights of integers: each vector of floats becomes integers with a scale of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hybrid {
    /// The vectors' range takes all integers; else their largest magnitude becomes 127.
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
    /// Where in the output the last results of each sequence begin.
    ///
    /// # Errors
    /// When there are too many elements.
    pub fn state(&self) -> Result<u32, ShaderError> {
        let results = elements(NAME, &[self.sequences, self.steps, self.units])?;
        Ok(results.next_multiple_of(self.alignment.max(1)))
    }

    /// Elements of the output.
    ///
    /// # Errors
    /// When there are too many.
    pub fn elements(&self) -> Result<u32, ShaderError> {
        let parts = if self.hybrid.is_some() { 2 } else { 1 };
        elements(NAME, &[self.state()?.saturating_add(elements(NAME, &[self.sequences, self.units, parts])?)])
    }

    /// Weights as the kernel reads them. Values missing from the slices count as zero.
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

    /// The kernel.
    ///
    /// # Errors
    /// When a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.elements()?;
        elements(NAME, &[self.units, self.units])?;
        if self.units == 0 || self.activation == Activation::Prelu {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let most = caps.max_invocations_per_workgroup.min(256);
        let workgroup = self.units.next_power_of_two().clamp(32, most.max(32));
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/rnn.wgsl"))
            .number("UNIFORM", 4)
            .number("WORKGROUP", workgroup)
            .flag("HYBRID", self.hybrid.is_some())
            .flag("ASYMMETRIC", self.hybrid.is_some_and(|hybrid| hybrid.asymmetric))
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"))
            .render()?;
        let state = self.state()?;
        let uniform = Uniform::default()
            .u32s([self.steps, self.units])
            .u32s(rows(self.time_major, self.backward, [self.sequences, self.steps]))
            .u32s([state, state + self.sequences * self.units])
            .f32s(self.activation.params())
            .f32(self.hybrid.map_or(0.0, |hybrid| hybrid.scale))
            .u32(0);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![
                Binding::Input(0),
                Binding::Input(1),
                Binding::Input(2),
                Binding::Output,
                Binding::Uniform,
            ],
            uniform: uniform.finish(),
            dispatch: check_dispatch(NAME, caps, [self.sequences.into(), 1, 1])?,
            features: Features::default(),
        })
    }
}
