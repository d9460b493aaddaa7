//! Between a tensor's bytes and the 32-bit words that its elements take on the device.

use delegraph_core::TensorType;
use half::{bf16, f16};

use crate::graph::Element;

/// How the elements of a tensor become words, and words elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Words {
    /// They are words already.
    #[default]
    Same,
    /// They are two words already, and the value has a dimension for the two.
    Pairs,
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

impl Words {
    /// What a tensor's elements are on the device, and how they get there. `None` for types that don't fit a word.
    pub(crate) fn of(ty: TensorType) -> Option<(Element, Words)> {
        Some(match ty {
            TensorType::Float32 => (Element::F32, Words::Same),
            TensorType::Complex64 => (Element::F32, Words::Pairs),
            TensorType::Float16 => (Element::F32, Words::F16),
            TensorType::BFloat16 => (Element::F32, Words::BF16),
            TensorType::Int32 => (Element::I32, Words::Same),
            TensorType::UInt32 => (Element::U32, Words::Same),
            TensorType::Int16 => (Element::I32, Words::I16),
            TensorType::UInt16 => (Element::I32, Words::U16),
            TensorType::Int8 => (Element::I32, Words::I8),
            TensorType::UInt8 => (Element::I32, Words::U8),
            TensorType::Int4 => (Element::I32, Words::I4),
            TensorType::UInt4 => (Element::I32, Words::U4),
            TensorType::Int2 => (Element::I32, Words::I2),
            TensorType::Bool => (Element::Bool, Words::Bool),
            _ => return None,
        })
    }

    /// Writes the words of as many elements as both sides have.
    pub(crate) fn widen(self, bytes: &[u8], words: &mut [u32]) {
        let halves = bytes.as_chunks::<2>().0.iter();
        match self {
            Words::Same | Words::Pairs => {
                words.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(w, b)| {
                    *w = u32::from_le_bytes(*b);
                })
            }
            Words::Bool => words.iter_mut().zip(bytes).for_each(|(w, &b)| *w = u32::from(b != 0)),
            Words::I2 | Words::I4 | Words::U4 => {
                let (bits, per_byte) = (self.bits(), 8 / self.bits());
                for (i, w) in words.iter_mut().enumerate() {
                    let Some(&byte) = bytes.get(i / per_byte) else { return };
                    // At the top of a word; back down, it takes its sign along.
                    let top = u32::from(byte) << (32 - bits - i % per_byte * bits);
                    *w = match self {
                        Words::U4 => top >> 28,
                        _ => (top.cast_signed() >> (32 - bits)).cast_unsigned(),
                    };
                }
            }
            Words::I8 => words.iter_mut().zip(bytes).for_each(|(w, &b)| {
                *w = i32::from(b.cast_signed()).cast_unsigned();
            }),
            Words::U8 => words.iter_mut().zip(bytes).for_each(|(w, &b)| *w = b.into()),
            Words::I16 => words.iter_mut().zip(halves).for_each(|(w, b)| {
                *w = i32::from(i16::from_le_bytes(*b)).cast_unsigned();
            }),
            Words::U16 => words.iter_mut().zip(halves).for_each(|(w, b)| *w = u16::from_le_bytes(*b).into()),
            Words::F16 => words.iter_mut().zip(halves).for_each(|(w, b)| {
                *w = f16::from_le_bytes(*b).to_f32().to_bits();
            }),
            Words::BF16 => words.iter_mut().zip(halves).for_each(|(w, b)| {
                *w = bf16::from_le_bytes(*b).to_f32().to_bits();
            }),
        }
    }

    /// The words of all elements in `bytes`, little-endian.
    pub(crate) fn widened(self, bytes: &[u8]) -> Vec<u8> {
        let mut words = vec![0; bytes.len() * 8 / self.bits()];
        self.widen(bytes, &mut words);
        bytemuck::pod_collect_to_vec(&words)
    }

    /// Writes the elements that little-endian `words` stand for.
    pub(crate) fn narrow(self, words: &[u8], bytes: &mut [u8]) {
        let words = words.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w));
        match self {
            Words::Same | Words::Pairs => {
                bytes.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(b, w)| *b = w.to_le_bytes());
            }
            Words::Bool => bytes.iter_mut().zip(words).for_each(|(b, w)| *b = u8::from(w != 0)),
            Words::I2 | Words::I4 | Words::U4 => {
                let (bits, per_byte) = (self.bits(), 8 / self.bits());
                let mask = u8::MAX >> (8 - bits);
                bytes.fill(0);
                for (i, w) in words.enumerate() {
                    let Some(byte) = bytes.get_mut(i / per_byte) else { return };
                    *byte |= (w as u8 & mask) << (i % per_byte * bits);
                }
            }
            Words::I8 | Words::U8 => bytes.iter_mut().zip(words).for_each(|(b, w)| *b = w as u8),
            Words::I16 | Words::U16 | Words::F16 | Words::BF16 => {
                let half = |w: u32| match self {
                    Words::F16 => f16::from_f32(f32::from_bits(w)).to_bits(),
                    Words::BF16 => bf16::from_f32(f32::from_bits(w)).to_bits(),
                    _ => w as u16,
                };
                let halves = bytes.as_chunks_mut::<2>().0.iter_mut();
                halves.zip(words).for_each(|(b, w)| *b = half(w).to_le_bytes());
            }
        }
    }

    /// Whether elements look alike on the device and outside.
    pub(crate) fn are_kept(self) -> bool {
        matches!(self, Words::Same | Words::Pairs)
    }

    /// Whether several elements share a byte outside of the device.
    pub(crate) fn are_packed(self) -> bool {
        self.bits() < 8
    }

    /// Bits outside of the device of what a word holds there.
    fn bits(self) -> usize {
        match self {
            Words::I2 => 2,
            Words::I4 | Words::U4 => 4,
            Words::Bool | Words::I8 | Words::U8 => 8,
            Words::I16 | Words::U16 | Words::F16 | Words::BF16 => 16,
            Words::Same | Words::Pairs => 32,
        }
    }

    /// Bytes outside of the device of what so many words hold there.
    pub(crate) fn bytes_of(self, words: usize) -> usize {
        words.saturating_mul(self.bits()).div_ceil(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_the_trip() {
        let check = |ty: TensorType, bytes: &[u8], words: &[u32]| {
            let (_, how) = Words::of(ty).unwrap();
            assert_eq!(how.widened(bytes), bytemuck::pod_collect_to_vec::<u32, u8>(words), "{ty}");
            let mut back = vec![0; bytes.len()];
            how.narrow(&how.widened(bytes), &mut back);
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
        assert_eq!(Words::of(TensorType::Int64), None);
    }
}
