//! STABLEHLO_RNG_BIT_GENERATOR.

use delegraph_core::ops::RngAlgorithm;
use delegraph_core::ops::stablehlo_compute::StablehloRngBitGeneratorParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::EXACT, &[Op::STABLEHLO_SORT, Op::STABLEHLO_RNG_BIT_GENERATOR])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (algorithm, state) in [
        (RngAlgorithm::ThreeFry, 2),
        (RngAlgorithm::Philox, 2),
        (RngAlgorithm::Philox, 3),
        (RngAlgorithm::Default, 3),
    ] {
        for ty in [Int32, UInt32, Int64, UInt64] {
            for shape in [&[3][..], &[4, 3]] {
                let state = given(&[state], &[7u64, 11, 13][..state]);
                let outputs = [Output::of(UInt64), Output::new(ty, shape)];
                let params = StablehloRngBitGeneratorParams::default().algorithm(algorithm);
                let case = Case::new(Op::STABLEHLO_RNG_BIT_GENERATOR, params, [state]).outputs(outputs);
                out.push(case.of(ty).detail(format!("{algorithm:?}").to_lowercase()));
            }
        }
    }
}
