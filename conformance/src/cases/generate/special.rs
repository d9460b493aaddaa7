//! Special values: NaN, infinities, denormals, zeros of either sign, the ends of what a type holds.
//!
//! What is demanded of whom is in [`Value::demanded`](crate::compare::Value::demanded); a case holds one class, so that a
//! class that is not demanded takes no other with it.

use super::super::prelude::*;

/// Classes of special floats.
const FLOATS: [(&str, &[f64]); 4] = [
    ("nan", &[f64::NAN, 0.0]),
    ("inf", &[f64::INFINITY, f64::NEG_INFINITY]),
    ("denormal", &[1e-40, -3e-41, 1e-45]),
    ("zeros", &[-0.0, 0.0]),
];
/// The largest finite numbers, for copying.
const LARGE: &[f64] = &[3.402_823_466_385_288_6e38, -3.402_823_466_385_288_6e38, 1.175_494_4e-38];
/// Integers are clamped to their type.
const ENDS: &[f64] = &[-1e300, 1e300];

/// Each op that copies, with its second operand.
fn movers() -> Vec<(Op, Params, Vec<Operand>)> {
    vec![
        (Op::TRANSPOSE, Params::None, vec![list(&[1, 2, 0])]),
        (Op::REVERSE_V2, Params::None, vec![list(&[1])]),
        (Op::TILE, Params::None, vec![list(&[1, 2, 2])]),
        (Op::SLICE, Params::None, vec![list(&[0, 1, 1]), list(&[2, 2, 3])]),
        (Op::PAD, Params::None, vec![known(&[3, 2], &[0i32, 1, 1, 0, 2, 1])]),
        (Op::EXPAND_DIMS, Params::None, vec![list(&[1])]),
    ]
}

pub(super) fn cases(out: &mut Vec<Case>) {
    for (name, values) in FLOATS.into_iter().chain([("large", LARGE)]) {
        for (op, params, rest) in movers() {
            let data = x(Float32, &[2, 3, 5]).mixed(values);
            let inputs: Vec<Operand> = [data].into_iter().chain(rest).collect();
            out.push(Case::new(op, params, inputs).detail(format!("special_{name}")).seeded(11));
        }
    }
    for ty in [Int8, UInt8, Int16, Int32, Int64] {
        for (op, params, rest) in movers() {
            let data = x(ty, &[2, 3, 5]).auto().mixed(ENDS);
            let inputs: Vec<Operand> = [data].into_iter().chain(rest).collect();
            out.push(Case::new(op, params, inputs).auto(ty).detail("special_ends").seeded(12));
        }
    }
}
