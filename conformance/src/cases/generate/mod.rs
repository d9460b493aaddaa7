//! Cases made from typed problems: lists of problems that real models and mistakes in delegates suggest, and random ones.
//!
//! LiteRT's results are not recorded for them; the reference kernels, which the listed cases hold to LiteRT, say what is
//! right.

use self::draw::Draw;
use super::Case;

mod committed;
mod control;
mod conv;
mod draw;
mod edges;
mod elementwise;
mod graphs;
mod islands;
mod large;
mod matrix;
mod movement;
mod net;
mod pool;
mod recurrent;
mod reduce;
mod seldom;
mod special;
mod stablehlo;
mod types;
mod unary;
mod values;
mod weights;

/// All generated cases, not named yet.
pub(super) fn cases(listed: &[Case], seed: u64) -> Vec<Case> {
    let mut out = Vec::new();
    types::cases(listed, &mut out);
    conv::cases(seed, &mut out);
    matrix::cases(seed, &mut out);
    pool::cases(seed, &mut out);
    elementwise::cases(seed, &mut out);
    unary::cases(seed, &mut out);
    reduce::cases(seed, &mut out);
    movement::cases(seed, &mut out);
    recurrent::cases(seed, &mut out);
    graphs::cases(seed, &mut out);
    stablehlo::cases(seed, &mut out);
    seldom::cases(seed, &mut out);
    edges::cases(&mut out);
    large::cases(&mut out);
    special::cases(&mut out);
    values::cases(&mut out);
    committed::cases(&mut out);
    out
}

/// Random case `index` of its kind: data of its own, a name, and at times the newest version instead of the lowest one
/// that is enough.
fn finish(case: Case, draw: &mut Draw, detail: &str, index: usize) -> Case {
    let newest = super::versions(case.op).last().copied();
    let case = match newest.filter(|_| index % 12 == 7) {
        Some(version) => case.version(version),
        None => case,
    };
    let detail = if detail.is_empty() { String::new() } else { format!("{detail}_") };
    case.seeded(draw.seed()).detail(format!("{detail}random_{index}"))
}
