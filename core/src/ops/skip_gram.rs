//! SKIP_GRAM.

use smallvec::smallvec;

use super::{InferContext, InferError, InferResult, Inferred, TensorType, always_1, no_arithmetic, options};

ops! {
    SKIP_GRAM {
        codec: SkipGramParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.5.0")],
    }
}

options! {
    /// Params of SKIP_GRAM.
    SkipGram(SkipGramParams) in BuiltinOptions::SkipGramOptions(builtin_options_as_skip_gram_options, SkipGramOptionsArgs) as TfLiteSkipGramParams {
        /// The number of words of a gram.
        ngram_size: i32;
        /// The maximum number of words to skip between two words of a gram.
        max_skip_size: i32;
        /// Whether grams of fewer than `ngram_size` words are included.
        include_all_ngrams: bool;
    }
}

/// A sentence gives a list of strings, one for each combination of its words.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let sentence = cx.input(0)?;
    if sentence.ty != TensorType::String || sentence.shape.elements() == 0 {
        let text = format!("expected a string, got {} {}", sentence.ty, sentence.shape);
        return Err(InferError::new(text));
    }
    Ok(smallvec![Inferred::data_dependent(TensorType::String)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{T, infer, refused};

    #[test]
    fn strings_alone() {
        let params = || SkipGramParams::default().into();
        let string = || Some(T::new(TensorType::String, &[1]));
        let inferred = infer(&SKIP_GRAM, params(), &[string()], &[TensorType::String]).unwrap();
        assert_eq!(inferred.as_slice(), [Inferred::data_dependent(TensorType::String)]);
        let number = || Some(T::new(TensorType::Int32, &[1]));
        refused(&SKIP_GRAM, params(), &[number()], 1, "expected a string");
        refused(&SKIP_GRAM, params(), &[Some(T::new(TensorType::String, &[0]))], 1, "expected a string");
        refused(&SKIP_GRAM, params(), &[string(), string()], 1, "expected 1 input");
    }
}
