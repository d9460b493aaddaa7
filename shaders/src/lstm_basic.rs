//! A step of the basic LSTM cell of integers.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "lstm_basic";

/// Computes outputs and states of cells from their gates before activation: 16-bit numbers with 3 integer bits in gates
/// and 4 in states; outputs are bytes with a scale of 1/128 and the zero point 128.
///
/// Bindings: `Input(0)` (`[sequences, 4, cells]`: the gates input, cell, forget, output), `Input(1)` (the states,
/// `[sequences, cells]`), `Output` (outputs, and the states from [`Spec::state`] on), `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of sequences.
    pub sequences: u32,
    /// Number of cells.
    pub cells: u32,
    /// Alignment of the states in the output, in elements.
    pub alignment: u32,
}

impl Spec {
    /// Returns the offset of the states in the output, in elements.
    ///
    /// # Errors
    /// For 2^31 elements or more.
    pub fn state(&self) -> Result<u32, ShaderError> {
        Ok((elements(NAME, &[self.sequences, self.cells, 4])? / 4).next_multiple_of(self.alignment.max(1)))
    }

    /// Returns the number of elements of the output.
    ///
    /// # Errors
    /// For 2^31 elements or more.
    pub fn elements(&self) -> Result<u32, ShaderError> {
        elements(NAME, &[self.state()?.saturating_add(self.sequences.saturating_mul(self.cells))])
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.elements()?;
        let walk = Walk::new(NAME, caps, &[self.sequences, self.cells])?;
        let template = walk.apply(Template::new(NAME, include_str!("wgsl/lstm_basic.wgsl")));
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([self.cells, self.state()?]);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
