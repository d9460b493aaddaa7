//! STABLEHLO_RNG_BIT_GENERATOR, STABLEHLO_REDUCE, STABLEHLO_DOT_GENERAL.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::RngAlgorithm;
use delegraph_core::ops::stablehlo_compute::StablehloRngBitGeneratorParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};

use crate::kernels::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::STABLEHLO_RNG_BIT_GENERATOR, prepared(rng_bit_generator), 1);
}

/// The state is a key and a counter, 64 bits each, and for Philox the upper half of the counter or nothing.
fn rng_bit_generator(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let output = cx.output(1)?;
    match output.ty() {
        TensorType::Int32 | TensorType::UInt32 | TensorType::Int64 | TensorType::UInt64 => {}
        _ => return Err(unsupported_type("output 1", output)),
    }
    let algorithm = cx.params::<StablehloRngBitGeneratorParams>()?.algorithm;
    Ok(Box::new(move |cx| {
        let (state, after) = (cx.input::<u64>(0)?, cx.output::<u64>(0)?);
        let words = cx.output_bytes(1)?.as_chunks_mut::<4>().0;
        let (key, mut counter) = (state[0], state[1]);
        match algorithm {
            RngAlgorithm::ThreeFry => {
                for block in words.chunks_mut(2) {
                    store(block, &threefry(halves(key), halves(counter)));
                    counter = counter.wrapping_add(1);
                }
            }
            RngAlgorithm::Philox | RngAlgorithm::Default => {
                // As the field has it, without an upper half of the counter the key is in its place.
                let upper = halves(state.get(2).copied().unwrap_or(key));
                for block in words.chunks_mut(4) {
                    let [low, high] = halves(counter);
                    store(block, &philox(halves(key), [low, high, upper[0], upper[1]]));
                    counter = counter.wrapping_add(1);
                }
            }
        }
        after.copy_from_slice(state);
        after[1] = counter;
        Ok(())
    }))
}

/// The lower and the upper 32 bits.
pub(super) fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

fn store(block: &mut [[u8; 4]], words: &[u32]) {
    block.iter_mut().zip(words).for_each(|(b, w)| *b = w.to_le_bytes());
}

/// Threefry with two 32-bit words and 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
fn threefry(key: [u32; 2], [mut a, mut b]: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    a = a.wrapping_add(keys[0]);
    b = b.wrapping_add(keys[1]);
    for round in 0..5 {
        for rotation in ROTATIONS[round % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(rotation) ^ a;
        }
        a = a.wrapping_add(keys[(round + 1) % 3]);
        b = b.wrapping_add(keys[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    [a, b]
}

/// Philox with four 32-bit words and 10 rounds, of the same paper.
pub(super) fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..10 {
        let [low_0, high_0] = halves(0xD251_1F53 * u64::from(counter[0]));
        let [low_1, high_1] = halves(0xCD9E_8D57 * u64::from(counter[2]));
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{T, check, error};

    /// The vectors that the authors of both publish for their algorithms.
    #[test]
    fn known_answers() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), [0xc492_3a9c, 0x483d_f7a0]);
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn the_counter_goes_on() {
        let params = |algorithm| StablehloRngBitGeneratorParams { algorithm }.into();
        let op = BuiltinOp::STABLEHLO_RNG_BIT_GENERATOR;
        let state = |v: &[u64]| T::new(&[v.len()], v);
        let first = threefry([7, 0], [u32::MAX, 0]);
        let words = T::new(&[3], &[first[0], first[1], threefry([7, 0], [0, 1])[0]]);
        let input = || [Some(state(&[7, 0xFFFF_FFFF]))];
        check(op, 1, params(RngAlgorithm::ThreeFry), &input(), &[state(&[7, 0x1_0000_0001]), words]);
        let [a, b, c, d] = philox([7, 0], [5, 0, 9, 0]).map(i64::from);
        let words = T::new(&[2], &[a | b << 32, c | d << 32]);
        let want = [state(&[7, 6, 9]), words];
        check(op, 1, params(RngAlgorithm::Philox), &[Some(state(&[7, 5, 9]))], &want);
        let bad = [state(&[7, 0]), T::new(&[1], &[0f32])];
        let e = error(op, 1, params(RngAlgorithm::Philox), &input(), &bad);
        assert!(e.contains("output 1 \"t2\" of type FLOAT32"), "{e}");
    }
}
