//! Generated cases: lists of problems that are typical of real models and of errors in delegates, and random problems.
//!
//! LiteRT's results are not recorded for them. They are compared with the reference kernels, which the listed cases
//! compare with LiteRT.

pub(super) use self::draw::Draw;
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
mod rare_ops;
mod recurrent;
mod reduce;
mod special;
mod stablehlo;
mod types;
mod unary;
mod values;
mod weights;

/// Returns all generated cases, without names.
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
    for rows in [graphs::TABLE, islands::TABLE, control::TABLE] {
        graphs::cases(rows, seed, &mut out);
    }
    stablehlo::cases(seed, &mut out);
    rare_ops::cases(seed, &mut out);
    edges::cases(&mut out);
    large::cases(&mut out);
    special::cases(&mut out);
    values::cases(&mut out);
    committed::cases(&mut out);
    out
}

/// Completes random case `index` of its kind: own data, a name, and in some cases the newest version instead of the
/// lowest sufficient one.
fn finish(case: Case, draw: &mut Draw, detail: &str, index: usize) -> Case {
    let newest = super::versions(case.op).last().copied();
    let case = match newest.filter(|_| index % 12 == 7) {
        Some(version) => case.version(version),
        None => case,
    };
    let detail = if detail.is_empty() { String::new() } else { format!("{detail}_") };
    case.seeded(draw.seed()).detail(format!("{detail}random_{index}"))
}
