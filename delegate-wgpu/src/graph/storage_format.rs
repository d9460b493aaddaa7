//! Conversion between a tensor's bytes and the 32-bit words of its elements on the device.

use delegraph_core::TensorType;
use half::{bf16, f16};

use crate::graph::Element;

/// The conversion between a tensor's elements and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StorageFormat {
    /// One word per element.
    #[default]
    Word,
    /// Two words per element; the value has an innermost dimension for them.
    WordPair,
    Bool,
    I2,
    I4,
    U4,
    I8,
    U8,
    I16,
    U16,
    F16,
    BF16,
}

impl StorageFormat {
    /// Element type and storage format of a tensor type; `None` for types that the device does not store.
    pub(crate) fn of(ty: TensorType) -> Option<(Element, StorageFormat)> {
        Some(match ty {
            TensorType::Float32 => (Element::F32, StorageFormat::Word),
            TensorType::Complex64 => (Element::F32, StorageFormat::WordPair),
            TensorType::Int64 => (Element::U32, StorageFormat::WordPair),
            TensorType::Float16 => (Element::F32, StorageFormat::F16),
            TensorType::BFloat16 => (Element::F32, StorageFormat::BF16),
            TensorType::Int32 => (Element::I32, StorageFormat::Word),
            TensorType::UInt32 => (Element::U32, StorageFormat::Word),
            TensorType::Int16 => (Element::I32, StorageFormat::I16),
            TensorType::UInt16 => (Element::I32, StorageFormat::U16),
            TensorType::Int8 => (Element::I32, StorageFormat::I8),
            TensorType::UInt8 => (Element::I32, StorageFormat::U8),
            TensorType::Int4 => (Element::I32, StorageFormat::I4),
            TensorType::UInt4 => (Element::I32, StorageFormat::U4),
            TensorType::Int2 => (Element::I32, StorageFormat::I2),
            TensorType::Bool => (Element::Bool, StorageFormat::Bool),
            _ => return None,
        })
    }

    /// Converts elements to words, up to the end of the shorter slice.
    pub(crate) fn widen(self, bytes: &[u8], words: &mut [u32]) {
        let halves = bytes.as_chunks::<2>().0.iter();
        match self {
            StorageFormat::Word | StorageFormat::WordPair => {
                words.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(w, b)| {
                    *w = u32::from_le_bytes(*b);
                })
            }
            StorageFormat::Bool => words.iter_mut().zip(bytes).for_each(|(w, &b)| *w = u32::from(b != 0)),
            StorageFormat::I2 | StorageFormat::I4 | StorageFormat::U4 => {
                let (bits, per_byte) = (self.bits(), 8 / self.bits());
                for (i, w) in words.iter_mut().enumerate() {
                    let Some(&byte) = bytes.get(i / per_byte) else { return };
                    // Moves the element to the top bits, so that the shift down extends the sign.
                    let top = u32::from(byte) << (32 - bits - i % per_byte * bits);
                    *w = match self {
                        StorageFormat::U4 => top >> 28,
                        _ => (top.cast_signed() >> (32 - bits)).cast_unsigned(),
                    };
                }
            }
            StorageFormat::I8 => words.iter_mut().zip(bytes).for_each(|(w, &b)| {
                *w = i32::from(b.cast_signed()).cast_unsigned();
            }),
            StorageFormat::U8 => words.iter_mut().zip(bytes).for_each(|(w, &b)| *w = b.into()),
            StorageFormat::I16 => words.iter_mut().zip(halves).for_each(|(w, b)| {
                *w = i32::from(i16::from_le_bytes(*b)).cast_unsigned();
            }),
            StorageFormat::U16 => {
                words.iter_mut().zip(halves).for_each(|(w, b)| *w = u16::from_le_bytes(*b).into())
            }
            StorageFormat::F16 => words.iter_mut().zip(halves).for_each(|(w, b)| {
                *w = f16::from_le_bytes(*b).to_f32().to_bits();
            }),
            StorageFormat::BF16 => words.iter_mut().zip(halves).for_each(|(w, b)| {
                *w = bf16::from_le_bytes(*b).to_f32().to_bits();
            }),
        }
    }

    /// Returns the words of all elements in `bytes`, little-endian.
    pub(crate) fn widened(self, bytes: &[u8]) -> Vec<u8> {
        let mut words = vec![0; bytes.len() * 8 / self.bits()];
        self.widen(bytes, &mut words);
        bytemuck::pod_collect_to_vec(&words)
    }

    /// Converts little-endian `words` to elements.
    pub(crate) fn narrow(self, words: &[u8], bytes: &mut [u8]) {
        let words = words.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w));
        match self {
            StorageFormat::Word | StorageFormat::WordPair => {
                bytes.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(b, w)| *b = w.to_le_bytes());
            }
            StorageFormat::Bool => bytes.iter_mut().zip(words).for_each(|(b, w)| *b = u8::from(w != 0)),
            StorageFormat::I2 | StorageFormat::I4 | StorageFormat::U4 => {
                let (bits, per_byte) = (self.bits(), 8 / self.bits());
                let mask = u8::MAX >> (8 - bits);
                bytes.fill(0);
                for (i, w) in words.enumerate() {
                    let Some(byte) = bytes.get_mut(i / per_byte) else { return };
                    *byte |= (w as u8 & mask) << (i % per_byte * bits);
                }
            }
            StorageFormat::I8 | StorageFormat::U8 => {
                bytes.iter_mut().zip(words).for_each(|(b, w)| *b = w as u8)
            }
            StorageFormat::I16 | StorageFormat::U16 | StorageFormat::F16 | StorageFormat::BF16 => {
                let half = |w: u32| match self {
                    StorageFormat::F16 => f16::from_f32(f32::from_bits(w)).to_bits(),
                    StorageFormat::BF16 => bf16::from_f32(f32::from_bits(w)).to_bits(),
                    _ => w as u16,
                };
                let halves = bytes.as_chunks_mut::<2>().0.iter_mut();
                halves.zip(words).for_each(|(b, w)| *b = half(w).to_le_bytes());
            }
        }
    }

    /// Returns whether elements have the same format on the device and in the model.
    pub(crate) fn is_identity(self) -> bool {
        matches!(self, StorageFormat::Word | StorageFormat::WordPair)
    }

    /// Returns whether several elements share a byte in the model.
    pub(crate) fn is_packed(self) -> bool {
        self.bits() < 8
    }

    /// Bits in the model per word on the device.
    fn bits(self) -> usize {
        match self {
            StorageFormat::I2 => 2,
            StorageFormat::I4 | StorageFormat::U4 => 4,
            StorageFormat::Bool | StorageFormat::I8 | StorageFormat::U8 => 8,
            StorageFormat::I16 | StorageFormat::U16 | StorageFormat::F16 | StorageFormat::BF16 => 16,
            StorageFormat::Word | StorageFormat::WordPair => 32,
        }
    }

    /// Returns the bytes in the model for `words` words on the device.
    pub(crate) fn bytes_of(self, words: usize) -> usize {
        words.saturating_mul(self.bits()).div_ceil(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_unchanged_by_conversion() {
        let check = |ty: TensorType, bytes: &[u8], words: &[u32]| {
            let (_, format) = StorageFormat::of(ty).unwrap();
            assert_eq!(format.widened(bytes), bytemuck::pod_collect_to_vec::<u32, u8>(words), "{ty}");
            let mut back = vec![0; bytes.len()];
            format.narrow(&format.widened(bytes), &mut back);
            assert_eq!(back, bytes, "{ty}");
        };
        check(TensorType::Int32, &[1, 2, 3, 4], &[0x0403_0201]);
        check(TensorType::Bool, &[1, 0], &[1, 0]);
        check(TensorType::Int4, &[0x7f, 0x08], &[u32::MAX, 7, 0xffff_fff8, 0]);
        check(TensorType::UInt4, &[0x7f], &[15, 7]);
        check(TensorType::Int2, &[0b1001_1100], &[0, u32::MAX, 1, 0xffff_fffe]);
        check(TensorType::Int8, &[0x80, 0x7f], &[0xffff_ff80, 0x7f]);
        check(TensorType::UInt8, &[0x80, 0x7f], &[0x80, 0x7f]);
        check(TensorType::Int16, &[0, 0x80], &[0xffff_8000]);
        check(TensorType::UInt16, &[0, 0x80], &[0x8000]);
        check(TensorType::Float16, &f16::from_f32(-1.5).to_le_bytes(), &[(-1.5_f32).to_bits()]);
        check(TensorType::BFloat16, &bf16::from_f32(-1.5).to_le_bytes(), &[(-1.5_f32).to_bits()]);
        check(TensorType::Complex64, &[1, 2, 3, 4, 5, 6, 7, 8], &[0x0403_0201, 0x0807_0605]);
        check(TensorType::Int64, &[1, 2, 3, 4, 5, 6, 7, 8], &[0x0403_0201, 0x0807_0605]);
        assert_eq!(StorageFormat::of(TensorType::Float64), None);
    }
}
