//! RFFT2D, IMAG, REAL, COMPLEX_ABS.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1, no_arithmetic,
    per_output,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    RFFT2D {
        codec: Codec::empty(BuiltinOptions::Rfft2dOptions),
        infer: infer_rfft2d,
        min_version: always_1,
        multiply_adds: multiply_adds_rfft2d,
        history: &[(1, "2.5.0")],
    }

    IMAG {
        codec: Codec::NONE,
        infer: infer_part,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }

    REAL {
        codec: Codec::NONE,
        infer: infer_part,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }

    COMPLEX_ABS {
        codec: Codec::NONE,
        infer: infer_part,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.5.0")],
    }
}

/// The spectrum of the two inner dimensions of input 0, cut or padded with zeros to the height and width in input 1:
/// `[…, height, width / 2 + 1]`; the other half mirrors it.
fn infer_rfft2d(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, lengths) = (cx.input(0)?, cx.input(1)?);
    if input.ty != TensorType::Float32 {
        return Err(InferError::new(format!("the input must be FLOAT32, got {}", input.ty)));
    }
    let [_, _, outer @ ..] = &input.shape.iter().rev().collect::<Vec<_>>()[..] else {
        return Err(InferError::new(format!("the input must have two dimensions, got {}", input.shape)));
    };
    let Some(lengths) = lengths.integers()? else { return cx.data_dependent(TensorType::Complex64) };
    let positive = |n: i64| usize::try_from(n).ok().filter(|&n| n > 0);
    let &[height, width] = lengths.as_slice() else {
        return Err(InferError::new(format!(
            "expected height and width, got {}",
            counted(lengths.len(), "number")
        )));
    };
    let (Some(height), Some(width)) = (positive(height), positive(width)) else {
        return Err(InferError::new(format!("cannot transform {height} by {width} elements")));
    };
    let outer = outer.iter().rev().map(|&&dim| dim);
    let shape = outer.chain([height, width / 2 + 1]).collect::<Shape>();
    Ok(smallvec![Inferred::known(TensorType::Complex64, shape)])
}

/// A real number for each complex one.
fn infer_part(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    let ty = match input.ty {
        TensorType::Complex64 => TensorType::Float32,
        TensorType::Complex128 => TensorType::Float64,
        ty => return Err(InferError::new(format!("the input must be COMPLEX64 or COMPLEX128, got {ty}"))),
    };
    Ok(smallvec![Inferred::known(ty, input.shape.clone())])
}

/// The number of steps of a fast transform is the number of binary digits of its length.
fn multiply_adds_rfft2d(s: &OpSignature<'_>) -> u64 {
    let inner = s.outputs.first().map_or(1, |o| o.shape.iter().rev().take(2).product::<usize>());
    s.output_elements().saturating_mul(u64::from(inner.max(1).ilog2()) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, refused};

    #[test]
    fn half_a_spectrum() {
        let inputs = |shape: &[usize], lengths: &[i32]| {
            [Some(T::new(TensorType::Float32, shape)), Some(T::list(lengths))]
        };
        let gives = |shape: &[usize], lengths: &[i32], want: &[usize]| {
            gives(&RFFT2D, Params::None, &inputs(shape, lengths), TensorType::Complex64, want);
        };
        gives(&[3, 8, 5], &[4, 16], &[3, 4, 9]);
        gives(&[8, 5], &[1, 1], &[1, 1]);
        gives(&[2, 7, 0, 5], &[2, 2], &[2, 7, 2, 2]);
        refused(&RFFT2D, Params::None, &inputs(&[8], &[4, 4]), 1, "two dimensions, got [8]");
        refused(&RFFT2D, Params::None, &inputs(&[8, 8], &[4]), 1, "got 1 number");
        refused(&RFFT2D, Params::None, &inputs(&[8, 8], &[4, 0]), 1, "4 by 0");
    }

    #[test]
    fn parts_are_real() {
        let input = |ty| [Some(T::new(ty, &[2, 3]))];
        gives(&REAL, Params::None, &input(TensorType::Complex64), TensorType::Float32, &[2, 3]);
        gives(&COMPLEX_ABS, Params::None, &input(TensorType::Complex128), TensorType::Float64, &[2, 3]);
        refused(&IMAG, Params::None, &input(TensorType::Float32), 1, "got FLOAT32");
    }
}
