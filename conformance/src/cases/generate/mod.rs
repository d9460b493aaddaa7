//! Cases made from typed problems: lists of problems that real models and mistakes in delegates suggest, and random ones.
//!
//! LiteRT's results are not recorded for them; the reference kernels, which the listed cases hold to LiteRT, say what is
//! right.

use super::Case;

mod committed;
mod special;

/// All generated cases, not named yet.
pub(super) fn cases(seed: u64) -> Vec<Case> {
    let _ = seed;
    let mut out = Vec::new();
    special::cases(&mut out);
    committed::cases(&mut out);
    out
}
