//! The element types of tensors on the device.

/// The type of an element, stored in one 32-bit word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit float.
    #[default]
    F32,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 0 for false, 1 for true.
    Bool,
}

impl Element {
    /// Returns the WGSL type.
    pub(crate) fn wgsl(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 | Self::Bool => "u32",
        }
    }
}
