//! Numbers of the interface: statuses, and types of elements.

use std::ffi::{CStr, c_int};

use delegraph::core::TensorType;
use delegraph::core::error::Error;

/// `TfLiteStatus`.
pub(crate) type Status = c_int;
/// Success.
pub(crate) const OK: Status = 0;
/// A failure.
pub(crate) const ERROR: Status = 1;
/// A failure of a delegate.
pub(crate) const DELEGATE_ERROR: Status = 2;
/// An op without a kernel.
pub(crate) const UNRESOLVED_OPS: Status = 7;
/// The application cancelled the call.
pub(crate) const CANCELLED: Status = 8;

/// Returns the status of an error.
pub(crate) fn status(error: &Error) -> Status {
    match error {
        Error::Cancelled => CANCELLED,
        Error::Delegate { .. } => DELEGATE_ERROR,
        Error::UnresolvedOps(_) => UNRESOLVED_OPS,
        Error::AtNode { source, .. } => status(source),
        _ => ERROR,
    }
}

/// Per `TfLiteType`, from 1: the type of the elements, and its name in the interface.
const TYPES: [(TensorType, &CStr); 23] = [
    (TensorType::Float32, c"FLOAT32"),
    (TensorType::Int32, c"INT32"),
    (TensorType::UInt8, c"UINT8"),
    (TensorType::Int64, c"INT64"),
    (TensorType::String, c"STRING"),
    (TensorType::Bool, c"BOOL"),
    (TensorType::Int16, c"INT16"),
    (TensorType::Complex64, c"COMPLEX64"),
    (TensorType::Int8, c"INT8"),
    (TensorType::Float16, c"FLOAT16"),
    (TensorType::Float64, c"FLOAT64"),
    (TensorType::Complex128, c"COMPLEX128"),
    (TensorType::UInt64, c"UINT64"),
    (TensorType::Resource, c"RESOURCE"),
    (TensorType::Variant, c"VARIANT"),
    (TensorType::UInt32, c"UINT32"),
    (TensorType::UInt16, c"UINT16"),
    (TensorType::Int4, c"INT4"),
    (TensorType::BFloat16, c"BFLOAT16"),
    (TensorType::Int2, c"INT2"),
    (TensorType::UInt4, c"UINT4"),
    (TensorType::Float8E4M3FN, c"FLOAT8E4M3FN"),
    (TensorType::Float8E5M2, c"FLOAT8E5M2"),
];

/// Returns the `TfLiteType` of elements of type `ty`.
pub(crate) fn number(ty: TensorType) -> c_int {
    let place = TYPES.iter().position(|(own, _)| *own == ty);
    place.and_then(|place| c_int::try_from(place + 1).ok()).unwrap_or(0)
}

/// Returns the type of the elements of a `TfLiteType`.
pub(crate) fn element(number: c_int) -> Option<TensorType> {
    entry(number).map(|(ty, _)| *ty)
}

/// Returns the name of a `TfLiteType`.
pub(crate) fn name(number: c_int) -> Option<&'static CStr> {
    if number == 0 { Some(c"NOTYPE") } else { entry(number).map(|(_, name)| *name) }
}

fn entry(number: c_int) -> Option<&'static (TensorType, &'static CStr)> {
    TYPES.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

/// The kinds of objects behind handles.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Model = 1,
    Options,
    Interpreter,
    SignatureRunner,
    Operator,
    TensorBuilder,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_number() {
        for &ty in TensorType::ALL {
            assert_eq!(TYPES.get(number(ty) as usize - 1).map(|(own, _)| *own), Some(ty));
        }
        assert_eq!(
            (number(TensorType::Float32), number(TensorType::Int8), number(TensorType::UInt4)),
            (1, 9, 21)
        );
        assert_eq!((name(0), name(7), name(99), name(-1)), (Some(c"NOTYPE"), Some(c"INT16"), None, None));
    }

    #[test]
    fn a_status_is_that_of_the_cause() {
        assert_eq!(status(&Error::Cancelled), CANCELLED);
        assert_eq!(status(&Error::delegate("d", "fails")), DELEGATE_ERROR);
        assert_eq!(status(&Error::State("not now".into())), ERROR);
    }
}
