//! The bindings of a kernel.

/// The operand of a binding of group 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Storage: the op's input of this number, in the order that the spec documents.
    Input(u8),
    /// Storage: the result of `Spec::pack_weights`.
    Weights,
    /// Storage: the residual operand of an [`Epilogue`](crate::Epilogue), shaped like the output.
    Residual,
    /// Storage: PReLU slopes of an [`Epilogue`](crate::Epilogue), one per output channel.
    Slope,
    /// A two-dimensional texture of floats.
    Texture,
    /// Storage, written: the result.
    Output,
    /// Uniform: [`Kernel::uniform`](crate::Kernel::uniform).
    Uniform,
}

/// The access of a kernel to a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
    /// `var<uniform>`
    Uniform,
    /// `texture_2d<f32>`, read with `textureLoad`.
    Texture,
}

impl Binding {
    /// Returns how a kernel accesses this binding.
    pub fn access(self) -> Access {
        match self {
            Self::Output => Access::ReadWrite,
            Self::Uniform => Access::Uniform,
            Self::Texture => Access::Texture,
            Self::Input(_) | Self::Weights | Self::Residual | Self::Slope => Access::Read,
        }
    }
}

/// Returns the usual bindings: `inputs` inputs, the output, the uniform block.
pub(crate) fn bindings(inputs: u8) -> impl Iterator<Item = Binding> {
    (0..inputs).map(Binding::Input).chain([Binding::Output, Binding::Uniform])
}
