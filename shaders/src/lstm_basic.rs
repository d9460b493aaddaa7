//! A step of the old LSTM cell of integers.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "lstm_basic";

/// Outputs and states of cells, of their gates before their functions: numbers of 16 bits, of which gates have 3 and
/// states 4 before the point; outputs are bytes that count 1/128 from 128 on.
///
/// Bindings: `Input(0)` (`[sequences, 4, cells]`: the gates input, cell, forget, output), `Input(1)` (the states,
/// `[sequences, cells]`), `Output` (outputs, and the states from [`Spec::state`] on), `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Sequences.
    pub sequences: u32,
    /// Cells.
    pub cells: u32,
    /// Of what the states begin at a multiple, in elements.
    pub alignment: u32,
}

impl Spec {
    /// Where in the output the states begin.
    ///
    /// # Errors
    /// When there are too many elements.
    pub fn state(&self) -> Result<u32, ShaderError> {
        Ok((elements(NAME, &[self.sequences, self.cells, 4])? / 4).next_multiple_of(self.alignment.max(1)))
    }

    /// Elements of the output.
    ///
    /// # Errors
    /// When there are too many.
    pub fn elements(&self) -> Result<u32, ShaderError> {
        elements(NAME, &[self.state()?.saturating_add(self.sequences.saturating_mul(self.cells))])
    }

    /// The kernel.
    ///
    /// # Errors
    /// When the tensors are larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.elements()?;
        let walk = Walk::new(NAME, caps, &[self.sequences, self.cells])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/lstm_basic.wgsl")))
            .number("UNIFORM", 3)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([self.cells, self.state()?]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
