//! SKIP_GRAM: combinations of a sentence's words.

use std::sync::Arc;

use delegraph_core::kernel::{Budget, Charged, PrepareContext};
use delegraph_core::ops::skip_gram::SkipGramParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::pace::{PIECE, Pace};
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
        let words = words(sentences.get(0), cx.budget())?;
        let grams = grams(&params, &words, cx.budget())?;
        cx.write_strings(0, [grams.len()], grams.iter().map(|gram| &**gram))
    }))
}

/// The words of a sentence. As in TFLite, text between a leading space and the next space is not a word.
fn words<'s>(sentence: &'s [u8], budget: &Arc<Budget>) -> Result<Charged<&'s [u8]>> {
    let space = |b: u8| b.is_ascii_whitespace() || b == 0x0b;
    let (mut words, mut pace) = (budget.reserved(0)?, Pace::of(budget));
    let mut start = 0;
    for (i, &byte) in sentence.iter().enumerate().skip(1) {
        pace.spend(1)?;
        if !space(byte) {
            continue;
        }
        if i > start && !space(sentence[start]) {
            words.push(&sentence[start..i])?;
        }
        start = i + 1;
    }
    if sentence.len() > start {
        words.push(&sentence[start..])?;
    }
    Ok(words)
}

/// Steps of a [`Pace`] for each word that the search tries, and for each word of a gram beside its bytes.
const WORD_STEPS: usize = 8;

/// All combinations, ordered by their first words, longer ones first.
fn grams(params: &SkipGramParams, words: &[&[u8]], budget: &Arc<Budget>) -> Result<Charged<Charged<u8>>> {
    let mut grams = budget.reserved(0)?;
    let Some(size) = usize::try_from(params.ngram_size).ok().filter(|&n| n > 0 && n <= words.len()) else {
        return Ok(grams);
    };
    // The words chosen so far, and the next word to try.
    let mut chosen = budget.filled(0usize, size)?;
    let mut count = 1;
    let mut pace = Pace::of(budget);
    loop {
        pace.spend(WORD_STEPS)?;
        // If only whole grams count, the last word to try leaves as many words after it as the gram still needs. The
        // search visits no other places: each one leads to a gram.
        let end = if params.include_all_ngrams { words.len() } else { words.len() - size + count + 1 };
        let next = chosen.get(count).map(|&next| next + 1).filter(|&next| next < end.min(words.len()));
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
            grams.push(gram(words, &chosen[..count], budget, &mut pace)?)?;
        }
        match count.checked_sub(1) {
            Some(fewer) => count = fewer,
            None => return Ok(grams),
        }
    }
}

/// The chosen words with spaces between them.
fn gram(words: &[&[u8]], chosen: &[usize], budget: &Arc<Budget>, pace: &mut Pace) -> Result<Charged<u8>> {
    let mut len = chosen.len().saturating_sub(1);
    for &word in chosen {
        pace.spend(1)?;
        len += words[word].len();
    }
    let mut gram = budget.reserved(len)?;
    for (i, &word) in chosen.iter().enumerate() {
        pace.spend(WORD_STEPS)?;
        if i > 0 {
            gram.push(b' ')?;
        }
        for piece in words[word].chunks(PIECE) {
            pace.spend(piece.len().saturating_mul(2))?;
            piece.iter().try_for_each(|&byte| gram.push(byte))?;
        }
    }
    Ok(gram)
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
        let of_three = [
            "The quick brown",
            "The quick fox",
            "The quick jumps",
            "The brown fox",
            "The brown jumps",
            "The fox jumps",
            "quick brown fox",
            "quick brown jumps",
            "quick fox jumps",
            "brown fox jumps",
        ];
        run(params(3, 2, false), &of_three);
        let number = [Some(T::new(&[1], &[0i32]))];
        let text = error(BuiltinOp::SKIP_GRAM, 1, params(1, 0, true), &number, &[T::strings(&[0], &[])]);
        assert!(text.contains("expected a string, got INT32"), "{text}");
    }

    #[test]
    fn words_that_do_not_fill_a_gram_are_not_combined() {
        let sentence = vec!["a"; 50].join(" ");
        let sentence = sentence.as_str();
        let inputs = [Some(T::strings(&[1], &[sentence]))];
        // Of the 2^50 combinations, one has 50 words.
        let want = [T::strings(&[1], &[sentence])];
        check(BuiltinOp::SKIP_GRAM, 1, params(50, 50, false), &inputs, &want);
        // Without skips, the first word that is too late ends the search.
        let want = [T::strings(&[2], &[&sentence[2..], &sentence[2..]])];
        check(BuiltinOp::SKIP_GRAM, 1, params(49, 0, false), &inputs, &want);
    }

    #[test]
    fn sentences_without_words() {
        let words = |sentence: &'static [u8]| words(sentence, Budget::unlimited()).unwrap();
        assert_eq!(*words(b""), [b""; 0]);
        assert_eq!(*words(b" a b"), [b"b"]);
        assert_eq!(*words(b"a"), [b"a"]);
    }

    #[test]
    fn words_are_charged() {
        assert!(words(b"a b c", &Budget::new(8)).is_err());
        let budget = Budget::new(1 << 20);
        assert_eq!(
            words(b"a b c", &budget).map(|words| (words.len(), budget.used())).unwrap(),
            (3, 16 * size_of::<&[u8]>())
        );
    }
}
