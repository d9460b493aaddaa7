//! CAST, BITCAST.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};
use half::{bf16, f16};

use crate::common::float8::Float8;
use crate::common::index::{packed, set_packed};
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, copy_bytes, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::CAST, prepared(cast), 1..=9).add_builtin(
        BuiltinOp::BITCAST,
        prepared(bitcast),
        1,
    );
}

fn bitcast(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    cx.output_is_view_of(0);
    Ok(Box::new(|cx| {
        copy_bytes(cx.input_bytes(0)?, cx.output_bytes(0)?, cx.parallel());
        Ok(())
    }))
}

pub(super) fn cast(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let count = input.shape().elements();
    // The shape does not determine the number of bytes of strings.
    if input.ty() == output.ty() && input.ty().bits().is_some() {
        return bitcast(cx);
    }
    let (read, write) = (reader("input", input)?, writer("output", output)?);
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        let mut pace = Pace::new(cx);
        (0..count).try_for_each(|i| {
            write(output, i, read(input, i));
            pace.spend(4)
        })
    }))
}

/// A number of any type, without loss.
#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i64),
    Real(f64),
}

type Read = fn(&[u8], usize) -> Number;
type Write = fn(&mut [u8], usize, Number);

fn at<const N: usize>(bytes: &[u8], i: usize) -> [u8; N] {
    bytes.as_chunks().0[i]
}

fn put<const N: usize>(bytes: &mut [u8], i: usize, value: [u8; N]) {
    bytes.as_chunks_mut().0[i] = value;
}

fn reader(operand: &str, tensor: TensorView<'_>) -> Result<Read> {
    use Number::{Integer, Real};
    Ok(match tensor.ty() {
        TensorType::Float32 => |b, i| Real(f32::from_le_bytes(at(b, i)).into()),
        TensorType::Float64 => |b, i| Real(f64::from_le_bytes(at(b, i))),
        TensorType::Float16 => |b, i| Real(f16::from_le_bytes(at(b, i)).into()),
        TensorType::BFloat16 => |b, i| Real(bf16::from_le_bytes(at(b, i)).into()),
        // The imaginary part is dropped.
        TensorType::Complex64 => |b, i| Real(f32::from_le_bytes(at(b, 2 * i)).into()),
        TensorType::Bool => |b, i| Integer((b[i] != 0).into()),
        TensorType::Int8 => |b, i| Integer(b[i].cast_signed().into()),
        TensorType::UInt8 => |b, i| Integer(b[i].into()),
        TensorType::Int16 => |b, i| Integer(i16::from_le_bytes(at(b, i)).into()),
        TensorType::UInt16 => |b, i| Integer(u16::from_le_bytes(at(b, i)).into()),
        TensorType::Int32 => |b, i| Integer(i32::from_le_bytes(at(b, i)).into()),
        TensorType::UInt32 => |b, i| Integer(u32::from_le_bytes(at(b, i)).into()),
        TensorType::Int64 => |b, i| Integer(i64::from_le_bytes(at(b, i))),
        TensorType::Int4 => |b, i| Integer(((packed(b, 4, i) << 4).cast_signed() >> 4).into()),
        TensorType::UInt4 => |b, i| Integer(packed(b, 4, i).into()),
        TensorType::Int2 => |b, i| Integer(((packed(b, 2, i) << 6).cast_signed() >> 6).into()),
        TensorType::Float8E4M3FN => |b, i| Real(Float8::E4M3FN.decode(b[i]).into()),
        TensorType::Float8E5M2 => |b, i| Real(Float8::E5M2.decode(b[i]).into()),
        _ => return Err(unsupported_type(operand, tensor)),
    })
}

fn writer(operand: &str, tensor: TensorView<'_>) -> Result<Write> {
    Ok(match tensor.ty() {
        TensorType::Float32 => |b, i, v| put(b, i, v.single().to_le_bytes()),
        TensorType::Float64 => |b, i, v| put(b, i, v.double().to_le_bytes()),
        TensorType::Float16 => |b, i, v| put(b, i, f16::from_f32(v.single()).to_le_bytes()),
        TensorType::BFloat16 => |b, i, v| put(b, i, bf16::from_f32(v.single()).to_le_bytes()),
        TensorType::Complex64 => |b, i, v| {
            put(b, 2 * i, v.single().to_le_bytes());
            put(b, 2 * i + 1, 0f32.to_le_bytes());
        },
        TensorType::Bool => |b, i, v| b[i] = v.is_true().into(),
        TensorType::Int8 => |b, i, v| b[i] = v.within(i8::MIN.into(), i8::MAX.into()) as u8,
        TensorType::UInt8 => |b, i, v| b[i] = v.within(0, u8::MAX.into()) as u8,
        TensorType::Int16 => {
            |b, i, v| put(b, i, (v.within(i16::MIN.into(), i16::MAX.into()) as i16).to_le_bytes())
        }
        TensorType::UInt16 => |b, i, v| put(b, i, (v.within(0, u16::MAX.into()) as u16).to_le_bytes()),
        TensorType::Int32 => {
            |b, i, v| put(b, i, (v.within(i32::MIN.into(), i32::MAX.into()) as i32).to_le_bytes())
        }
        TensorType::UInt32 => |b, i, v| put(b, i, (v.within(0, u32::MAX.into()) as u32).to_le_bytes()),
        TensorType::Int64 => |b, i, v| put(b, i, v.within(i64::MIN, i64::MAX).to_le_bytes()),
        TensorType::Int4 => |b, i, v| set_packed(b, 4, i, v.within(-8, 7) as u8),
        TensorType::UInt4 => |b, i, v| set_packed(b, 4, i, v.within(0, 15) as u8),
        TensorType::Int2 => |b, i, v| set_packed(b, 2, i, v.within(-2, 1) as u8),
        TensorType::Float8E4M3FN => |b, i, v| b[i] = Float8::E4M3FN.encode(v.single()),
        TensorType::Float8E5M2 => |b, i, v| b[i] = Float8::E5M2.encode(v.single()),
        _ => return Err(unsupported_type(operand, tensor)),
    })
}

impl Number {
    fn single(self) -> f32 {
        match self {
            Number::Integer(v) => v as f32,
            Number::Real(v) => v as f32,
        }
    }

    fn double(self) -> f64 {
        match self {
            Number::Integer(v) => v as f64,
            Number::Real(v) => v,
        }
    }

    fn is_true(self) -> bool {
        match self {
            Number::Integer(v) => v != 0,
            Number::Real(v) => v != 0.0,
        }
    }

    /// Conversion to an integer of this range: real numbers are truncated and clamped, NaN becomes the maximum, and
    /// integers keep their lower bits.
    fn within(self, low: i64, high: i64) -> i64 {
        match self {
            Number::Integer(v) => v,
            Number::Real(v) if v.is_nan() => high,
            Number::Real(v) => (v as i64).clamp(low, high),
        }
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::cast::CastParams;
    use delegraph_core::types::Bool;

    use super::*;
    use crate::testing::{T, check, error};

    fn params() -> Params {
        Params::Cast(
            CastParams::default().in_data_type(TensorType::Float32).out_data_type(TensorType::Float32),
        )
    }

    #[test]
    fn converts() {
        let reals = || Some(T::new(&[6], &[-1.7f32, 0.0, 1.7, 300.0, f32::INFINITY, f32::NAN]));
        check(BuiltinOp::CAST, 1, params(), &[reals()], &[T::new(&[6], &[-1i8, 0, 1, 127, 127, 127])]);
        check(BuiltinOp::CAST, 1, params(), &[reals()], &[T::new(&[6], &[0u16, 0, 1, 300, 65_535, 65_535])]);
        let want = [true, false, true, true, true, true].map(Bool::from);
        check(BuiltinOp::CAST, 1, params(), &[reals()], &[T::new(&[6], &want)]);
        let ints = || Some(T::new(&[3], &[-1i32, 300, i32::MIN]));
        check(BuiltinOp::CAST, 1, params(), &[ints()], &[T::new(&[3], &[255u8, 44, 0])]);
        let want = [-1.0f32, 300.0, -2_147_483_648.0];
        check(BuiltinOp::CAST, 1, params(), &[ints()], &[T::new(&[3], &want)]);
        let e = error(BuiltinOp::CAST, 1, params(), &[ints()], &[T::new(&[3], &[0u64; 3])]);
        assert!(e.contains("output \"t1\" of type UINT64"), "{e}");
    }

    #[test]
    fn reinterprets() {
        let (x, bytes) = (Some(T::new(&[1], &[1.0f32])), T::new(&[1, 4], &[0u8, 0, 128, 63]));
        check(BuiltinOp::BITCAST, 1, Params::None, &[x], std::slice::from_ref(&bytes));
        check(BuiltinOp::BITCAST, 1, Params::None, &[Some(bytes)], &[T::new(&[1], &[1.0f32])]);
    }
}
