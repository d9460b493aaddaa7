//! HASHTABLE, HASHTABLE_FIND, HASHTABLE_IMPORT, HASHTABLE_SIZE.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;

ops! {
    HASHTABLE {
        codec: HashtableParams::CODEC,
        infer: infer_table,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }

    HASHTABLE_FIND {
        codec: Codec::empty(BuiltinOptions::HashtableFindOptions),
        infer: infer_find,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }

    HASHTABLE_IMPORT {
        codec: Codec::empty(BuiltinOptions::HashtableImportOptions),
        infer: infer_import,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }

    HASHTABLE_SIZE {
        codec: Codec::empty(BuiltinOptions::HashtableSizeOptions),
        infer: infer_size,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }
}

options! {
    /// Params of HASHTABLE.
    Hashtable(HashtableParams) in BuiltinOptions::HashtableOptions(builtin_options_as_hashtable_options, HashtableOptionsArgs) as TfLiteHashtableParams {
        /// Nodes with the same number share one table.
        table_id: i32;
        /// The type of the keys.
        key_dtype: TensorType;
        /// The type of the values.
        value_dtype: TensorType;
    }
}

/// The handle `[1]` of a table.
fn infer_table(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 1)?;
    let p: &HashtableParams = cx.params()?;
    check_types(p.key_dtype, p.value_dtype)?;
    Ok(smallvec![Inferred::known(TensorType::Resource, [1])])
}

/// The values of the keys in input 1; input 2 is the value for keys that the table does not have.
fn infer_find(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    check_handle(cx)?;
    let (keys, default) = (cx.input(1)?, cx.input(2)?);
    check_types(keys.ty, default.ty)?;
    if default.shape.elements() == 0 {
        return Err(InferError::new("the default value is empty"));
    }
    Ok(smallvec![Inferred::known(default.ty, keys.shape.clone())])
}

/// No outputs: the op fills the table with the keys in input 1 and the values in input 2, unless it was filled before.
fn infer_import(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 0)?;
    check_handle(cx)?;
    let (keys, values) = (cx.input(1)?, cx.input(2)?);
    check_types(keys.ty, values.ty)?;
    if keys.shape != values.shape {
        return Err(InferError::new(format!(
            "keys {} and values {} differ in shape",
            keys.shape, values.shape
        )));
    }
    Ok(smallvec![])
}

/// The number of keys in the table, `[1]`.
fn infer_size(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    check_handle(cx)?;
    Ok(smallvec![Inferred::known(TensorType::Int64, [1])])
}

fn check_types(keys: TensorType, values: TensorType) -> Result<(), InferError> {
    match (keys, values) {
        (TensorType::Int64, TensorType::String) | (TensorType::String, TensorType::Int64) => Ok(()),
        _ => Err(InferError::new(format!(
            "a table maps {keys} to {values}; only INT64 to STRING and STRING to INT64 are supported"
        ))),
    }
}

fn check_handle(cx: &InferContext<'_>) -> Result<(), InferError> {
    let handle = cx.input(0)?;
    if handle.shape.elements() == 1 && handle.ty == TensorType::Resource {
        return Ok(());
    }
    Err(InferError::new(format!("expected the handle of one table, got {} {}", handle.ty, handle.shape)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, infer, refused};

    const INT: TensorType = TensorType::Int64;
    const STRING: TensorType = TensorType::String;

    #[test]
    fn tables_lead_from_keys_to_values() {
        let params = |key_dtype, value_dtype| {
            Params::Hashtable(
                HashtableParams::default().table_id(1).key_dtype(key_dtype).value_dtype(value_dtype),
            )
        };
        gives(&HASHTABLE, params(INT, STRING), &[], TensorType::Resource, &[1]);
        refused(&HASHTABLE, params(INT, INT), &[], 1, "maps INT64 to INT64; only");
        let handle = || Some(T::new(TensorType::Resource, &[1]));
        let x = |ty, shape: &[usize]| Some(T::new(ty, shape));
        let find = [handle(), x(STRING, &[2, 3]), x(INT, &[])];
        gives(&HASHTABLE_FIND, Params::None, &find, INT, &[2, 3]);
        let find = [x(INT, &[1]), x(STRING, &[2, 3]), x(INT, &[])];
        refused(&HASHTABLE_FIND, Params::None, &find, 1, "handle of one table, got INT64 [1]");
        gives(&HASHTABLE_SIZE, Params::None, &[handle()], INT, &[1]);
        let import = |values: &[usize]| [handle(), x(INT, &[2]), x(STRING, values)];
        assert!(infer(&HASHTABLE_IMPORT, Params::None, &import(&[2]), &[]).unwrap().is_empty());
        refused(&HASHTABLE_IMPORT, Params::None, &import(&[3]), 0, "[2] and values [3] differ");
    }
}
