//! MATRIX_DIAG, MATRIX_SET_DIAG.

use smallvec::smallvec;

use super::{Codec, InferContext, InferError, InferResult, Inferred, always_1, no_arithmetic};
use crate::schema::BuiltinOptions;

ops! {
    MATRIX_DIAG {
        codec: Codec::empty(BuiltinOptions::MatrixDiagOptions),
        infer: infer_diag,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0")],
    }

    MATRIX_SET_DIAG {
        codec: Codec::empty(BuiltinOptions::MatrixSetDiagOptions),
        infer: infer_set_diag,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0")],
    }
}

/// Square matrices `[…, n, n]` with the diagonals `[…, n]`, and zeros elsewhere.
fn infer_diag(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    let Some(&size) = input.shape.last() else {
        return Err(InferError::new("the diagonal is a scalar; at least one dimension is needed"));
    };
    let mut shape = input.shape.clone();
    shape.push(size);
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// The matrices `[…, rows, columns]` of input 0 with the diagonals `[…, min(rows, columns)]` of input 1.
fn infer_set_diag(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, diagonal) = (cx.input(0)?, cx.input(1)?);
    if diagonal.ty != input.ty {
        return Err(InferError::new(format!("diagonals of {} for matrices of {}", diagonal.ty, input.ty)));
    }
    let fits = match (input.shape.split_last_chunk(), diagonal.shape.split_last()) {
        (Some((outer, &[rows, columns])), Some((size, diagonals))) => {
            outer == diagonals && *size == rows.min(columns)
        }
        _ => false,
    };
    if !fits {
        let text = format!("diagonals {} do not fit matrices {}", diagonal.shape, input.shape);
        return Err(InferError::new(text));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{T, gives, refused};
    use crate::ops::{Params, TensorType};

    #[test]
    fn shapes() {
        let int = TensorType::Int32;
        let x = |shape: &[usize]| Some(T::new(int, shape));
        gives(&MATRIX_DIAG, Params::None, &[x(&[2, 3])], int, &[2, 3, 3]);
        gives(&MATRIX_DIAG, Params::None, &[x(&[0])], int, &[0, 0]);
        refused(&MATRIX_DIAG, Params::None, &[x(&[])], 1, "scalar");
        gives(&MATRIX_SET_DIAG, Params::None, &[x(&[5, 2, 3]), x(&[5, 2])], int, &[5, 2, 3]);
        refused(&MATRIX_SET_DIAG, Params::None, &[x(&[5, 2, 3]), x(&[5, 3])], 1, "[5, 3] do not fit");
        refused(&MATRIX_SET_DIAG, Params::None, &[x(&[3]), x(&[])], 1, "do not fit matrices [3]");
        let other = Some(T::new(TensorType::Int8, &[2]));
        refused(&MATRIX_SET_DIAG, Params::None, &[x(&[2, 2]), other], 1, "of INT8 for matrices of INT32");
    }
}
