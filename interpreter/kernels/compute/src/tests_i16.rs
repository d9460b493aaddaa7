//! Tests of products of 16-bit activations and 8-bit weights against their definition.

use delegraph_core::kernel::Parallel;

use crate::base::isa::Isa;
use crate::base::requant::Multiplier;
use crate::base::requant_i16::Scale;
use crate::matmul::int16::WideSums;
use crate::random::Rng;
use crate::testing::{pairs, random_geometry};
use crate::windows::depthwise_i16::DepthwiseI16;
use crate::{Serial, ThreadPool};

const ANY: [i32; 2] = [i16::MIN as i32, i16::MAX as i32];

fn words(rng: &mut Rng, len: usize) -> Vec<i16> {
    let extreme = |rng: &mut Rng| [i16::MIN, i16::MAX][rng.range(0, 1)];
    (0..len).map(|_| if rng.range(0, 7) == 0 { extreme(rng) } else { rng.next() as i16 }).collect()
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| if rng.range(0, 7) == 0 { 0x80 } else { rng.next() as u8 }).collect()
}

/// Factors whose shifts differ by up to `spread` bits, and some that are 0.
fn multipliers(rng: &mut Rng, columns: usize, spread: usize) -> Vec<Multiplier> {
    let first = rng.range(0, 24) as i32;
    let one = |rng: &mut Rng| Multiplier {
        multiplier: if rng.range(0, 9) == 0 { 0 } else { (rng.next() >> 33) as i32 | 1 << 30 },
        shift: (-first - rng.range(0, spread) as i32).max(-31),
    };
    (0..columns).map(|_| one(rng)).collect()
}

/// Constants of each column: of up to 20, 32 or 40 bits.
fn bias(rng: &mut Rng, columns: usize) -> Option<Vec<i64>> {
    let bits = [0, 20, 32, 40][rng.range(0, 3)];
    (bits > 0).then(|| (0..columns).map(|_| rng.next().cast_signed() >> (64 - bits)).collect())
}

fn scaled(sum: i64, m: Multiplier, [low, high]: [i32; 2]) -> i16 {
    let factor = if m.multiplier < 0x7fff_0000 { (m.multiplier + (1 << 15)) >> 16 } else { 0x7fff };
    let shift = 15 - m.shift;
    let scaled = (i128::from(sum) * i128::from(factor) + (1 << (shift - 1))) >> shift;
    (scaled as i32).clamp(low, high) as i16
}

#[test]
fn depthwise_products_of_words_are_exact() {
    let (mut rng, pool) = (Rng::new(16), ThreadPool::new(3));
    let mut kinds = [0; 2];
    let count = if cfg!(miri) { 12 } else { 400 };
    for case in 0..count {
        let most = [3, 8, 34, 70, 140][rng.range(0, 4)];
        let channels = rng.range(1, most);
        let window = [rng.range(1, 5), rng.range(1, 9)];
        let mut geo = random_geometry(&mut rng, channels, window);
        if rng.range(0, 3) == 0 {
            // Rows that are longer than a block, windows far apart, and taps that do not fit one copy.
            (geo.input[1], geo.stride[1]) = (rng.range(60, 300), rng.range(1, 40));
            geo.dilation[1] = rng.range(1, 20);
            let reach = (window[1] - 1) * geo.dilation[1] + 1;
            geo.output[1] = (geo.input[1] + geo.padding[1]).saturating_sub(reach) / geo.stride[1] + 1;
        }
        let input = words(&mut rng, geo.input_len().unwrap());
        let weights = bytes(&mut rng, window[0] * window[1] * channels);
        let bias = bias(&mut rng, channels);
        let spread = [0, 6, 20][rng.range(0, 2)];
        let factors = multipliers(&mut rng, channels, spread);
        let bounds = if rng.range(0, 3) == 0 { [-100, 3000] } else { ANY };
        let mut expected = Vec::new();
        for pixel in 0..geo.pixels().unwrap() {
            let (row, x) = (pixel / geo.output[1], pixel % geo.output[1]);
            let (image, y) = (row / geo.output[0], row % geo.output[0]);
            for c in 0..channels {
                let mut sum = bias.as_ref().map_or(0, |bias| bias[c]);
                for (ky, kx) in pairs(window[0], window[1]) {
                    let iy = (y * geo.stride[0] + ky * geo.dilation[0]).wrapping_sub(geo.padding[0]);
                    let ix = (x * geo.stride[1] + kx * geo.dilation[1]).wrapping_sub(geo.padding[1]);
                    if iy < geo.input[0] && ix < geo.input[1] {
                        let at = ((image * geo.input[0] + iy) * geo.input[1] + ix) * channels + c;
                        let w = weights[(ky * window[1] + kx) * channels + c].cast_signed();
                        sum += i64::from(input[at]) * i64::from(w);
                    }
                }
                expected.push(scaled(sum, factors[c], bounds));
            }
        }
        for &isa in Isa::available() {
            let scale = Scale::fixed(&factors).unwrap();
            let layer =
                DepthwiseI16::new(isa, channels, window, &weights, bias.as_deref(), scale, bounds).unwrap();
            kinds[usize::from(layer.to.short.is_some())] += 1;
            for par in [&pool as &dyn Parallel, &Serial] {
                let mut out = vec![0x5a5a; expected.len()];
                layer.run(&geo, &input, &mut out, par).unwrap();
                assert!(out == expected, "case {case}: {isa:?} {geo:?} {factors:?} {bias:?}");
            }
        }
    }
    assert!(cfg!(miri) || kinds.iter().all(|n| *n > 100), "{kinds:?}");
}

#[test]
fn sums_of_halves_are_scaled_exactly() {
    let mut rng = Rng::new(61);
    let mut kinds = [0; 2];
    let count = if cfg!(miri) { 5 } else { 200 };
    for _ in 0..count {
        let (rows, columns, depth) = (rng.range(1, 9), rng.range(1, 40), rng.range(1, 30));
        let (input, weights) = (words(&mut rng, rows * depth), bytes(&mut rng, columns * depth));
        let bias = bias(&mut rng, columns);
        let factors = multipliers(&mut rng, columns, 8);
        let scale = Scale::fixed(&factors).unwrap();
        let to = WideSums::of_bytes(&weights, bias.as_deref(), scale, ANY).unwrap();
        kinds[usize::from(to.short.is_some())] += 1;
        let (mut high, mut low, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (row, column) in pairs(rows, columns) {
            let mut sums = [0; 2];
            for (x, w) in input[row * depth..][..depth].iter().zip(&weights[column * depth..][..depth]) {
                let w = i32::from(w.cast_signed());
                sums[0] += i32::from(*x >> 8) * w;
                sums[1] += (i32::from(*x & 0xff) - 128) * w;
            }
            let total: i64 =
                weights[column * depth..][..depth].iter().map(|w| i64::from(w.cast_signed())).sum();
            let sum = 256 * i64::from(sums[0]) + i64::from(sums[1]) + 128 * total;
            let sum = sum + bias.as_ref().map_or(0, |bias| bias[column]);
            expected.push(scaled(sum, factors[column], ANY));
            high.push(sums[0]);
            low.push(sums[1]);
        }
        for &isa in Isa::available() {
            let mut out = vec![0; rows * columns];
            to.run(isa, [&high, &low], &mut out, &Serial).unwrap();
            assert_eq!(out, expected, "{isa:?}");
        }
    }
    assert!(cfg!(miri) || kinds.iter().all(|n| *n > 20), "{kinds:?}");
}
