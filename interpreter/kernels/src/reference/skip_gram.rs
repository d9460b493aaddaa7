//! SKIP_GRAM: combinations of a sentence's words.

use std::sync::Arc;

use delegraph_core::kernel::{Budget, Charged, PrepareContext};
use delegraph_core::ops::skip_gram::SkipGramParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::prepared::{Invoke, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SKIP_GRAM, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let params: SkipGramParams = cx.params::<SkipGramParams>()?.clone();
    Ok(Box::new(move |cx| {
        let sentences = cx.strings(0)?;
        if sentences.is_empty() {
            return Err(Error::Kernel("the input has 0 strings, expected one".into()));
        }
        let grams = grams(&params, &words(sentences.get(0)), cx.budget())?;
        cx.write_strings(0, [grams.len()], grams.iter().map(|gram| &**gram))
    }))
}

/// The words of a sentence. As in TFLite, text between a leading space and the next space is not a word.
fn words(sentence: &[u8]) -> Vec<&[u8]> {
    let space = |b: u8| b.is_ascii_whitespace() || b == 0x0b;
    let mut words = Vec::new();
    let mut start = 0;
    for (i, _) in sentence.iter().enumerate().skip(1).filter(|(_, b)| space(**b)) {
        if i > start && !space(sentence[start]) {
            words.push(&sentence[start..i]);
        }
        start = i + 1;
    }
    if sentence.len() > start {
        words.push(&sentence[start..]);
    }
    words
}

/// All combinations, ordered by their first words, longer ones first.
fn grams(params: &SkipGramParams, words: &[&[u8]], budget: &Arc<Budget>) -> Result<Charged<Charged<u8>>> {
    let mut grams = budget.reserved(0)?;
    let Some(size) = usize::try_from(params.ngram_size).ok().filter(|&n| n > 0 && n <= words.len()) else {
        return Ok(grams);
    };
    // The words chosen so far, and the next word to try.
    let mut chosen = budget.filled(0usize, size)?;
    let mut count = 1;
    loop {
        let next = chosen.get(count).map(|&next| next + 1).filter(|&next| next < words.len());
        let near = |next: usize| match count.checked_sub(1) {
            None => true,
            Some(before) => {
                i32::try_from(next - 1 - chosen[before]).is_ok_and(|skipped| skipped <= params.max_skip_size)
            }
        };
        if let Some(next) = next.filter(|&next| near(next)) {
            chosen[count] = next;
            count += 1;
            if let Some(following) = chosen.get_mut(count) {
                *following = next;
            }
            continue;
        }
        if count == size || (params.include_all_ngrams && count > 0) {
            budget.check()?;
            let chosen = chosen[..count].iter().map(|&word| words[word]);
            let len = chosen.clone().map(|word| word.len() + 1).sum::<usize>() - 1;
            let mut gram = budget.reserved(len)?;
            for (i, word) in chosen.enumerate() {
                let space = (i > 0).then_some(b' ');
                space.into_iter().chain(word.iter().copied()).try_for_each(|byte| gram.push(byte))?;
            }
            grams.push(gram)?;
        }
        match count.checked_sub(1) {
            Some(fewer) => count = fewer,
            None => return Ok(grams),
        }
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(ngram_size: i32, max_skip_size: i32, include_all_ngrams: bool) -> Params {
        SkipGramParams::default()
            .ngram_size(ngram_size)
            .max_skip_size(max_skip_size)
            .include_all_ngrams(include_all_ngrams)
            .into()
    }

    #[test]
    fn words_put_together() {
        let sentence = || [Some(T::strings(&[1], &["The quick\t brown fox\n jumps "]))];
        let run = |p, want: &[&str]| {
            check(BuiltinOp::SKIP_GRAM, 1, p, &sentence(), &[T::strings(&[want.len()], want)])
        };
        run(params(1, 1, false), &["The", "quick", "brown", "fox", "jumps"]);
        run(params(2, 0, false), &["The quick", "quick brown", "brown fox", "fox jumps"]);
        let with_skips =
            ["The quick", "The brown", "quick brown", "quick fox", "brown fox", "brown jumps", "fox jumps"];
        run(params(2, 1, false), &with_skips);
        let all =
            ["The quick", "The", "quick brown", "quick", "brown fox", "brown", "fox jumps", "fox", "jumps"];
        run(params(2, 0, true), &all);
        run(params(6, 0, true), &[]);
        run(params(0, 0, true), &[]);
        run(params(-1, 0, true), &[]);
        let number = [Some(T::new(&[1], &[0i32]))];
        let text = error(BuiltinOp::SKIP_GRAM, 1, params(1, 0, true), &number, &[T::strings(&[0], &[])]);
        assert!(text.contains("expected a string, got INT32"), "{text}");
    }

    #[test]
    fn sentences_without_words() {
        assert_eq!(words(b""), [b""; 0]);
        assert_eq!(words(b" a b"), [b"b"]);
        assert_eq!(words(b"a"), [b"a"]);
    }
}
