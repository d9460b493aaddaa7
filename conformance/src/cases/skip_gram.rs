//! SKIP_GRAM.

use delegraph_core::ops::skip_gram::SkipGramParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::SKIP_GRAM])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (ngram_size, max_skip_size, include_all_ngrams) in
        [(2, 0, false), (2, 2, false), (3, 1, true), (1, 0, true)]
    {
        let params = SkipGramParams::default()
            .ngram_size(ngram_size)
            .max_skip_size(max_skip_size)
            .include_all_ngrams(include_all_ngrams);
        let words = strings(&[1], &["the quick brown fox jumps"]);
        let case = Case::new(Op::SKIP_GRAM, params, [words]).outputs([Output::new(String, &[1])]);
        out.push(case.detail(format!("{ngram_size}_{max_skip_size}")));
    }
}
