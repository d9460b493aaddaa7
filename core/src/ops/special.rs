//! CUSTOM, DELEGATE, PLACEHOLDER_FOR_GREATER_OP_CODES: codes that do not identify an op by themselves. None of them can
//! run.

use super::{Codec, InferError, always_1, no_arithmetic};

ops! {
    /// The op has a name instead of a code.
    CUSTOM {
        codec: Codec::NONE,
        infer: |_| Err(InferError::new("CUSTOM is not a builtin op: a custom op is found by its name")),
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// Stands for nodes that a delegate claimed, in memory only.
    DELEGATE {
        codec: Codec::NONE,
        infer: |_| Err(InferError::new("DELEGATE is not a builtin op: it stands for nodes that a delegate runs, and is in no file")),
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// The code does not fit the 8-bit field of old files and is stored in another field.
    PLACEHOLDER_FOR_GREATER_OP_CODES {
        codec: Codec::NONE,
        infer: |_| Err(InferError::new("PLACEHOLDER_FOR_GREATER_OP_CODES is not a builtin op: the code is stored in another field")),
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::bad;

    #[test]
    fn none_of_them_runs() {
        for def in [&CUSTOM, &DELEGATE, &PLACEHOLDER_FOR_GREATER_OP_CODES] {
            bad(def, Params::None, &[], &[], "is not a builtin op");
        }
    }
}
