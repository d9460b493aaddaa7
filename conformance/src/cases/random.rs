//! RANDOM_STANDARD_NORMAL, RANDOM_UNIFORM, MULTINOMIAL.

use delegraph_core::ops::random::RandomParams;

use super::prelude::*;

const WHY: Verdict = Verdict::NotCompared("by chance: the numbers' distribution is tested beside the kernel");

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::STATISTICAL, &[Op::RANDOM_STANDARD_NORMAL, Op::RANDOM_UNIFORM, Op::MULTINOMIAL])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (seed, seed2) in [(1, 2), (0, 7)] {
        for op in [Op::RANDOM_STANDARD_NORMAL, Op::RANDOM_UNIFORM] {
            let case = Case::new(op, RandomParams::default().seed(seed).seed2(seed2), [list(&[3, 5])])
                .outputs([Output::of(Float32)]);
            out.push(case.of(Float32).verdict(WHY));
        }
        for ty in [Int32, Int64] {
            let inputs = [x(Float32, &[2, 4]), list(&[9]).reshaped(&[])];
            let case = Case::new(Op::MULTINOMIAL, RandomParams::default().seed(seed).seed2(seed2), inputs)
                .outputs([Output::of(ty)]);
            out.push(case.detail(format!("to_{}", ty.name().to_lowercase())).verdict(WHY));
        }
    }
}
