//! LSH_PROJECTION: for each seed, the side of a random plane on which the items are located.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::lsh_projection::LshProjectionParams;
use delegraph_core::ops::{LshProjectionType, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::LSH_PROJECTION, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    for (i, what) in [(0, "seeds"), (2, "weights")] {
        match cx.optional_input(i) {
            Some(tensor) if tensor.ty() != TensorType::Float32 => return Err(unsupported_type(what, tensor)),
            _ => {}
        }
    }
    let items = cx.input(1)?;
    let count = items.shape().first().copied().unwrap_or(0);
    let bytes = items.ty().byte_size(items.shape().elements());
    let item =
        bytes.and_then(|bytes| bytes.checked_div(count)).ok_or_else(|| unsupported_type("items", items))?;
    let bits = cx.input(0)?.shape().last().copied().unwrap_or(0);
    let dense = cx.params::<LshProjectionParams>()?.type_ == LshProjectionType::Dense;
    let key = cx.temporary(item.saturating_add(4));
    Ok(Box::new(move |cx| {
        let (seeds, items) = (cx.input::<f32>(0)?, cx.input_bytes(1)?);
        let (weights, output) = (cx.optional_input::<f32>(2)?, cx.output::<i32>(0)?);
        let key = &mut cx.temporary::<u8>(key)?[..item + 4];
        let mut pace = Pace::new(cx);
        let mut bit = |seed: f32| -> Result<i32> {
            key[..4].copy_from_slice(&seed.to_le_bytes());
            let mut score = 0f64;
            for i in 0..count {
                pace.spend(16 + item)?;
                key[4..].copy_from_slice(&items[i * item..][..item]);
                let value = fingerprint(key).cast_signed() as f64;
                score += weights.map_or(1.0, |weights| f64::from(weights[i])) * value;
            }
            Ok(i32::from(score > 0.0))
        };
        if dense {
            return output.iter_mut().zip(seeds).try_for_each(|(o, &seed)| bit(seed).map(|bit| *o = bit));
        }
        for (i, o) in output.iter_mut().enumerate() {
            let seeds = seeds[i * bits..][..bits].iter();
            let hash = seeds.copied().try_fold(0i32, |hash, seed| bit(seed).map(|bit| hash << 1 | bit))?;
            // The hashes have disjoint ranges of `1 << bits` values each.
            *o = hash.wrapping_add((i as i32).wrapping_mul(1i32.wrapping_shl(bits as u32)));
        }
        Ok(())
    }))
}

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// An integer modulo 2⁶⁴.
type N = std::num::Wrapping<u64>;

fn n(value: u64) -> N {
    std::num::Wrapping(value)
}

fn rotate(x: N, by: u32) -> N {
    n(x.0.rotate_right(by))
}

fn mix(x: N) -> N {
    x ^ (x >> 47)
}

fn join(u: N, v: N, by: N) -> N {
    mix((v ^ mix((u ^ v) * by)) * by) * by
}

/// FarmHash's 64-bit fingerprint.
fn fingerprint(bytes: &[u8]) -> u64 {
    let (k0, k1, k2) = (n(K0), n(K1), n(K2));
    let len = bytes.len();
    let at = |i: usize| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes.iter().skip(i)).for_each(|(w, b)| *w = *b);
        n(u64::from_le_bytes(word))
    };
    let from_end = |i: usize| at(len - i);
    let low = |x: N| x & n(u32::MAX.into());
    let by = k2 + n(len as u64) * n(2);
    let result = match len {
        0 => k2,
        1..4 => {
            let [a, b, c] = [0, len >> 1, len - 1].map(|i| n(bytes[i].into()));
            mix(((a + (b << 8)) * k2) ^ ((n(len as u64) + (c << 2)) * k0)) * k2
        }
        4..8 => join(n(len as u64) + (low(at(0)) << 3), low(from_end(4)), by),
        8..17 => {
            let (a, b) = (at(0) + k2, from_end(8));
            join(rotate(b, 37) * by + a, (rotate(a, 25) + b) * by, by)
        }
        17..65 => {
            let (a, b) = (at(0) * if len < 33 { k1 } else { k2 }, at(8));
            let (c, d) = (from_end(8) * by, from_end(16) * k2);
            let y = rotate(a + b, 43) + rotate(c, 30) + d;
            let z = join(y, a + rotate(b + k2, 18) + c, by);
            if len < 33 {
                return z.0;
            }
            let (e, f) = (at(16) * by, at(24));
            let (g, h) = ((y + from_end(32)) * by, (z + from_end(24)) * by);
            join(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, by)
        }
        _ => long(&at, len),
    };
    result.0
}

/// More than 64 bytes: blocks of 64; the last block overlaps the one before.
fn long(at: &impl Fn(usize) -> N, len: usize) -> N {
    let (k0, k1, k2) = (n(K0), n(K1), n(K2));
    let weak = |i: usize, a: N, b: N| {
        let a = a + at(i);
        let b = rotate(b + a + at(i + 24), 21);
        let sum = a + at(i + 8) + at(i + 16);
        (sum + at(i + 24), b + rotate(sum, 44) + a)
    };
    let seed = n(81);
    let mut y = seed * k1 + n(113);
    let mut z = mix(y * k2 + n(113)) * k2;
    let mut x = seed * k2 + at(0);
    let (mut v, mut w) = ((n(0), n(0)), (n(0), n(0)));
    let mut block = |i: usize, by: N, nine: N, v: &mut (N, N), w: &mut (N, N)| {
        x = rotate(x + y + v.0 + at(i + 8), 37) * by;
        y = rotate(y + v.1 + at(i + 48), 42) * by;
        x ^= w.1 * nine;
        y += v.0 * nine + at(i + 40);
        z = rotate(z + w.0, 33) * by;
        *v = weak(i, v.1 * by, x + w.0);
        *w = weak(i + 32, z + w.1, y + at(i + 16));
        std::mem::swap(&mut z, &mut x);
        (x, y, z)
    };
    let mut by = k1;
    for i in 0..(len - 1) / 64 {
        let (_, _, z) = block(i * 64, k1, n(1), &mut v, &mut w);
        by = k1 + ((z & n(0xff)) << 1);
    }
    w.0 += n(((len - 1) % 64) as u64);
    v.0 += w.0;
    w.0 += v.0;
    let (x, y, z) = block(len - 64, by, n(9), &mut v, &mut w);
    join(join(v.0, w.0, by) + mix(y) * k0 + z, join(v.1, w.1, by) + x, by)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn planes() {
        let params = |type_| Params::from(LshProjectionParams::default().type_(type_));
        let seeds = || Some(T::new(&[3, 2], &[0.123f32, 0.456, -0.321, 1.234, 5.678, -4.321]));
        let items = || Some(T::new(&[5], &[12345i32, 54321, 67890, 9876, -12345678]));
        let weights = Some(T::new(&[5], &[0.12f32, 0.34, 0.56, 0.67, 0.78]));
        let op = BuiltinOp::LSH_PROJECTION;
        let dense = T::new(&[6], &[1i32, 0, 1, 0, 0, 1]);
        check(op, 1, params(LshProjectionType::Dense), &[seeds(), items(), weights.clone()], &[dense]);
        let sparse = || T::new(&[3], &[2i32, 6, 9]);
        check(op, 1, params(LshProjectionType::Sparse), &[seeds(), items(), weights], &[sparse()]);
        let wrong = [Some(T::new(&[3, 2], &[0i32; 6])), items()];
        let text = error(op, 1, params(LshProjectionType::Sparse), &wrong, &[sparse()]);
        assert!(text.contains("seeds \"t0\" of type INT32"), "{text}");
    }

    #[test]
    fn every_length_has_its_own_fingerprint() {
        let bytes: Vec<u8> = (0..200).map(|i| (i * 37 + 11) as u8).collect();
        let mut all: Vec<u64> = (0..bytes.len()).map(|len| fingerprint(&bytes[..len])).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|w| w[0] != w[1]));
    }
}
