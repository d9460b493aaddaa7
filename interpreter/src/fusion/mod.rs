//! Rewriting a model so that it does the same with fewer, larger ops.

pub(crate) mod inline;
