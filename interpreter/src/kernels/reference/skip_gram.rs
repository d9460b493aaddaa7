//! SKIP_GRAM: the words of a sentence, put together with others near them.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::skip_gram::SkipGramParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::kernels::prepared::{Invoke, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SKIP_GRAM, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let params: SkipGramParams = cx.params::<SkipGramParams>()?.clone();
    Ok(Box::new(move |cx| {
        let sentences = cx.strings(0)?;
        if sentences.is_empty() {
            return Err(Error::Kernel("there is no sentence".into()));
        }
        let grams = grams(&params, &words(sentences.get(0)));
        cx.write_strings(0, [grams.len()], grams.iter().map(Vec::as_slice))
    }))
}

/// The words of a sentence. As the field has it, what follows a space at the very start is no word until the next space.
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

/// All ways to put words together, those that begin with the same words after each other, the longer ones first.
fn grams(params: &SkipGramParams, words: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut grams = Vec::new();
    let Some(size) = usize::try_from(params.ngram_size).ok().filter(|&n| n > 0 && n <= words.len()) else {
        return grams;
    };
    // The words chosen so far, and behind them the one to try next.
    let mut chosen = vec![0usize; size];
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
            let gram: Vec<&[u8]> = chosen[..count].iter().map(|&word| words[word]).collect();
            grams.push(gram.join(&b' '));
        }
        match count.checked_sub(1) {
            Some(fewer) => count = fewer,
            None => return grams,
        }
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::kernels::testing::{T, check, error};

    fn params(ngram_size: i32, max_skip_size: i32, include_all_ngrams: bool) -> Params {
        SkipGramParams { ngram_size, max_skip_size, include_all_ngrams }.into()
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
