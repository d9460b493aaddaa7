//! RANDOM_STANDARD_NORMAL, RANDOM_UNIFORM, MULTINOMIAL.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, TensorType, always_1, options, per_output, size_from,
};
use crate::types::Shape;

ops! {
    RANDOM_STANDARD_NORMAL {
        codec: RandomParams::CODEC,
        infer: infer_numbers,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.8.0")],
    }

    RANDOM_UNIFORM {
        codec: RandomParams::CODEC,
        infer: infer_numbers,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.8.0")],
    }

    MULTINOMIAL {
        codec: RandomParams::CODEC,
        infer: infer_samples,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.8.0")],
    }
}

options! {
    /// Params of RANDOM_STANDARD_NORMAL, RANDOM_UNIFORM, MULTINOMIAL.
    Random(RandomParams) in BuiltinOptions::RandomOptions(builtin_options_as_random_options, RandomOptionsArgs) as TfLiteRandomParams {
        /// The first half of the seed. If both halves are 0, every run of a model returns different numbers.
        seed: i64;
        /// The second half of the seed.
        seed2: i64;
    }
}

/// Numbers in the shape that input 0 lists.
fn infer_numbers(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let _: [usize; 1] = cx.shape_of_rank(0, "the list of dimensions")?;
    let shape = cx.input(0)?;
    if shape.ty != TensorType::Int32 {
        return Err(InferError::new(format!("the dimensions must be INT32, got {}", shape.ty)));
    }
    let Some(dims) = shape.integers()? else { return cx.data_dependent(TensorType::Float32) };
    let shape = dims.iter().map(|&d| size_from(d, "dimension")).collect::<Result<Shape, _>>()?;
    Ok(smallvec![Inferred::known(TensorType::Float32, shape)])
}

/// Log-odds `[batch, classes]` and the number of samples: a class for each, `[batch, samples]`.
fn infer_samples(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let [batch, _] = cx.shape_of_rank(0, "the log-odds")?;
    // The declared output type is the width of the class numbers.
    let ty = match cx.outputs.first().map(|o| o.ty) {
        Some(TensorType::Int32) => TensorType::Int32,
        _ => TensorType::Int64,
    };
    let Some(samples) = cx.input(1)?.integer("the number of samples")? else {
        return cx.data_dependent(ty);
    };
    Ok(smallvec![Inferred::known(ty, [batch, size_from(samples, "the number of samples")?])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, infer, refused};

    #[test]
    fn shapes() {
        let params = || Params::from(RandomParams::default());
        let float = TensorType::Float32;
        gives(&RANDOM_UNIFORM, params(), &[Some(T::list(&[3, 4]))], float, &[3, 4]);
        refused(&RANDOM_UNIFORM, params(), &[Some(T::list(&[3, -4]))], 1, "dimension -4 is negative");
        refused(&RANDOM_UNIFORM, params(), &[Some(T::constant(&[1], &[3i64]))], 1, "must be INT32");
        refused(&RANDOM_UNIFORM, params(), &[Some(T::constant(&[], &[3i32]))], 1, "must have rank 1");
        let unknown = [Some(T::new(TensorType::Int32, &[2]))];
        let inferred = infer(&RANDOM_STANDARD_NORMAL, params(), &unknown, &[float]).unwrap();
        assert_eq!(inferred.as_slice(), [Inferred::data_dependent(float)]);
    }

    #[test]
    fn samples() {
        let params = || Params::from(RandomParams::default());
        let inputs = |odds: &[usize], samples| {
            [Some(T::new(TensorType::Float32, odds)), Some(T::constant(&[], &[samples]))]
        };
        for ty in [TensorType::Int32, TensorType::Int64] {
            gives(&MULTINOMIAL, params(), &inputs(&[2, 5], 7), ty, &[2, 7]);
        }
        refused(&MULTINOMIAL, params(), &inputs(&[2, 5], -7), 1, "-7 is negative");
        refused(&MULTINOMIAL, params(), &inputs(&[5], 7), 1, "must have rank 2");
    }
}
