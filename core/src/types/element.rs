//! Element types of tensors, as the format numbers them.

use bytemuck::Pod;

use crate::schema;

/// The element type of a tensor.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum TensorType {
    Float32 = 0,
    Float16 = 1,
    Int32 = 2,
    UInt8 = 3,
    Int64 = 4,
    String = 5,
    Bool = 6,
    Int16 = 7,
    Complex64 = 8,
    Int8 = 9,
    Float64 = 10,
    Complex128 = 11,
    UInt64 = 12,
    Resource = 13,
    Variant = 14,
    UInt32 = 15,
    UInt16 = 16,
    Int4 = 17,
    BFloat16 = 18,
    Int2 = 19,
    UInt4 = 20,
    Float8E4M3FN = 21,
    Float8E5M2 = 22,
}

impl TensorType {
    /// Every type, in the order of its code.
    pub const ALL: &'static [TensorType] = {
        use TensorType::*;
        &[
            Float32,
            Float16,
            Int32,
            UInt8,
            Int64,
            String,
            Bool,
            Int16,
            Complex64,
            Int8,
            Float64,
            Complex128,
            UInt64,
            Resource,
            Variant,
            UInt32,
            UInt16,
            Int4,
            BFloat16,
            Int2,
            UInt4,
            Float8E4M3FN,
            Float8E5M2,
        ]
    };

    /// Returns the type with this code of the format, if there is one.
    pub fn from_code(code: i8) -> Option<Self> {
        usize::try_from(code).ok().and_then(|i| Self::ALL.get(i)).copied()
    }

    pub(crate) fn from_schema(ty: schema::TensorType) -> Option<Self> {
        Self::from_code(ty.0)
    }

    /// Returns the bits per element; `None` for strings, resources and variants, which have no fixed size.
    pub fn bits(self) -> Option<usize> {
        use TensorType::*;
        Some(match self {
            Int2 => 2,
            Int4 | UInt4 => 4,
            UInt8 | Bool | Int8 | Float8E4M3FN | Float8E5M2 => 8,
            Float16 | BFloat16 | Int16 | UInt16 => 16,
            Float32 | Int32 | UInt32 => 32,
            Int64 | UInt64 | Float64 | Complex64 => 64,
            Complex128 => 128,
            // A resource is an int32 handle at run time, but it has no constant data.
            String | Resource | Variant => return None,
        })
    }

    /// Returns the bytes that `elements` elements take, sub-byte types packed and rounded up. `None` on overflow or
    /// where the type has no fixed size. A resource tensor holds one int32 handle per element.
    pub fn byte_size(self, elements: usize) -> Option<usize> {
        if self == TensorType::Resource {
            return elements.checked_mul(4);
        }
        elements.checked_mul(self.bits()?).map(|bits| bits.div_ceil(8))
    }

    /// Returns true for the float types.
    pub fn is_float(self) -> bool {
        use TensorType::*;
        matches!(self, Float32 | Float16 | Float64 | BFloat16 | Float8E4M3FN | Float8E5M2)
    }

    /// Returns the name that the format gives the type: `FLOAT32`, `INT8`, …
    pub fn name(self) -> &'static str {
        schema::TensorType(self as i8).variant_name().unwrap_or("?")
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One byte of a `BOOL` tensor. Any non-zero byte is true, so that a file cannot make an invalid `bool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl Bool {
    /// Returns the value as a `bool`.
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool(value.into())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of one [`TensorType`]. Other crates cannot implement it.
pub trait Element: Pod + Send + Sync + sealed::Sealed {
    /// The tensor type that holds such elements.
    const TYPE: TensorType;
}

macro_rules! elements {
    ($($rust:ty => $ty:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: TensorType = TensorType::$ty;
        }
    )*};
}
elements! {
    f32 => Float32, half::f16 => Float16, half::bf16 => BFloat16, f64 => Float64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64, Bool => Bool,
    // Real and imaginary part.
    [f32; 2] => Complex64, [f64; 2] => Complex128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_sizes() {
        for (code, ty) in TensorType::ALL.iter().enumerate() {
            assert_eq!(TensorType::from_code(code as i8), Some(*ty));
            assert_eq!(*ty as usize, code);
        }
        assert_eq!(TensorType::from_code(23), None);
        assert_eq!(TensorType::from_code(-1), None);
        assert_eq!(TensorType::Int4.byte_size(3), Some(2));
        assert_eq!(TensorType::Int2.byte_size(5), Some(2));
        assert_eq!(TensorType::Float32.byte_size(usize::MAX), None);
        assert_eq!(TensorType::String.byte_size(1), None);
    }
}
