//! What tensors hold, as far as kernels care.

/// What an element is. Each takes one 32-bit word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit float.
    #[default]
    F32,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// Unsigned word: zero is false, one is true.
    Bool,
}

impl Element {
    /// The type in WGSL.
    pub(crate) fn wgsl(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 | Self::Bool => "u32",
        }
    }
}
