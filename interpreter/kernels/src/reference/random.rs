//! RANDOM_STANDARD_NORMAL, RANDOM_UNIFORM, MULTINOMIAL with TFLite's generator: the same seeds give the same numbers.

use std::hash::{BuildHasher, Hasher, RandomState};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, Temporary};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::random::RandomParams;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Registration, Result};

use super::stablehlo_compute::{halves, philox};
use crate::common::pace::Pace;
use crate::common::prepared::unsupported_type;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let kernel = |fill: Fill| {
        // Every run returns different numbers, so the node must not be folded.
        Registration::new(move |cx| {
            let params: &RandomParams = (cx.node.params()).try_into()?;
            // TFLite truncates seeds to signed 32 bits.
            let seeds = [params.seed, params.seed2].map(|seed| i64::from(seed as i32).cast_unsigned());
            let seeds = if seeds == [0; 2] { [entropy(), entropy()] } else { seeds };
            Ok(Random { seeds, generator: Generator::new(seeds), fill, cumulative: None })
        })
        .with_side_effects()
    };
    resolver
        .add_builtin(BuiltinOp::RANDOM_UNIFORM, kernel(uniform), 1)
        .add_builtin(BuiltinOp::RANDOM_STANDARD_NORMAL, kernel(standard_normal), 1)
        .add_builtin(
            BuiltinOp::MULTINOMIAL,
            kernel(|generator, cx, sums| multinomial::<i64>(generator, cx, sums, |class| class as i64)),
            1,
        );
}

/// Unpredictable numbers, from the random seeds of the standard library's hashers.
fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

type Fill = fn(&mut Generator, &mut InvokeContext<'_>, Option<Temporary>) -> Result<()>;

struct Random {
    seeds: [u64; 2],
    generator: Generator,
    fill: Fill,
    /// Temporary for MULTINOMIAL's cumulative sums.
    cumulative: Option<Temporary>,
}

impl Kernel for Random {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let mut inputs = (0..cx.input_count()).filter_map(|i| cx.optional_input(i));
        // A node whose shape depends on data is prepared before every run, and continues its sequence.
        let deferred = inputs.any(|input| input.is_known() && !input.tensor().is_constant());
        if !deferred {
            self.generator = Generator::new(self.seeds);
        }
        if cx.input_count() == 2 {
            let odds = cx.input(0)?;
            if odds.ty() != TensorType::Float32 {
                return Err(unsupported_type("log-odds", odds));
            }
            let classes = odds.shape().last().copied().unwrap_or(0);
            self.cumulative = Some(cx.temporary_of::<f64>(classes)?);
            if cx.output(0)?.ty() == TensorType::Int32 {
                self.fill =
                    |generator, cx, sums| multinomial::<i32>(generator, cx, sums, |class| class as i32);
            }
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        (self.fill)(&mut self.generator, cx, self.cumulative)
    }
}

/// Philox: four 32-bit words at a time.
#[derive(Debug, Clone, Copy)]
struct Generator {
    key: u64,
    counter: u128,
}

impl Generator {
    fn new([key, counter]: [u64; 2]) -> Self {
        Generator { key, counter: u128::from(counter) << 64 }
    }

    fn next(&mut self) -> [u32; 4] {
        let ([a, b], [c, d]) = (halves(self.counter as u64), halves((self.counter >> 64) as u64));
        self.counter = self.counter.wrapping_add(1);
        philox(halves(self.key), [a, b, c, d])
    }
}

/// 23 random bits as a fraction of 1.
fn fraction(bits: u32) -> f32 {
    f32::from_bits(127 << 23 | bits & 0x7f_ffff) - 1.0
}

fn uniform(generator: &mut Generator, cx: &mut InvokeContext<'_>, _: Option<Temporary>) -> Result<()> {
    let mut pace = Pace::new(cx);
    for four in cx.output::<f32>(0)?.chunks_mut(4) {
        pace.spend(16)?;
        four.iter_mut().zip(generator.next()).for_each(|(o, bits)| *o = fraction(bits));
    }
    Ok(())
}

/// Two numbers at a time, by the Box-Muller transform.
fn standard_normal(
    generator: &mut Generator,
    cx: &mut InvokeContext<'_>,
    _: Option<Temporary>,
) -> Result<()> {
    let mut pace = Pace::new(cx);
    for four in cx.output::<f32>(0)?.chunks_mut(4) {
        pace.spend(128)?;
        let words = generator.next();
        for (two, words) in four.chunks_mut(2).zip(words.as_chunks::<2>().0) {
            let radius = (-2.0 * fraction(words[0]).max(1e-7).ln()).sqrt();
            let (sin, cos) = ((std::f64::consts::TAU * f64::from(fraction(words[1]))) as f32).sin_cos();
            two.iter_mut().zip([sin * radius, cos * radius]).for_each(|(o, value)| *o = value);
        }
    }
    Ok(())
}

/// Samples classes with probabilities proportional to the exponentials of their logits.
fn multinomial<T: Element>(
    generator: &mut Generator,
    cx: &mut InvokeContext<'_>,
    cumulative: Option<Temporary>,
    class: fn(usize) -> T,
) -> Result<()> {
    let shape = cx.output_shape(0)?;
    let samples = shape.last().copied().unwrap_or(0);
    let batch = shape.first().copied().unwrap_or(0);
    let mut own = *generator;
    // The next run starts far beyond the numbers of this run.
    let taken = (batch as u128).wrapping_mul(samples.next_multiple_of(4) as u128).wrapping_mul(512);
    generator.counter = generator.counter.wrapping_add(taken);
    let odds = cx.input::<f32>(0)?;
    let classes = odds.len().checked_div(batch).unwrap_or(0);
    let cumulative = cumulative.ok_or_else(|| Error::State("the kernel was not prepared".into()))?;
    let cumulative = &mut cx.temporary::<f64>(cumulative)?[..classes];
    draw(Pace::new(cx), &mut own, odds, (cumulative, samples), cx.output::<T>(0)?, class)
}

fn draw<T: Element>(
    mut pace: Pace,
    generator: &mut Generator,
    odds: &[f32],
    (cumulative, samples): (&mut [f64], usize),
    output: &mut [T],
    class: fn(usize) -> T,
) -> Result<()> {
    let mut words = [0; 4];
    for (i, output) in output.iter_mut().enumerate() {
        pace.spend(64)?;
        if i % samples == 0 {
            pace.spend(cumulative.len().saturating_mul(16))?;
            let row = &odds[i / samples * cumulative.len()..][..cumulative.len()];
            let finite = row.iter().filter(|x| x.is_finite());
            let highest = f64::from(finite.fold(f32::MIN, |a, &b| a.max(b)));
            let mut total = 0.0;
            for (sum, &x) in cumulative.iter_mut().zip(row) {
                if x.is_finite() {
                    total += (f64::from(x) - highest).exp();
                }
                *sum = total;
            }
        }
        // Each number takes two words, so four words are enough for two.
        if i % 2 == 0 {
            words = generator.next();
        }
        let pair = &words[i % 2 * 2..][..2];
        let bits = 1023 << 52 | u64::from(pair[0] & 0xf_ffff) << 32 | u64::from(pair[1]);
        let at = (f64::from_bits(bits) - 1.0) * cumulative.last().copied().unwrap_or(0.0);
        *output = class(cumulative.partition_point(|&sum| sum <= at));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, error};

    fn params(seed: i64, seed2: i64) -> delegraph_core::Params {
        RandomParams::default().seed(seed).seed2(seed2).into()
    }

    #[test]
    fn the_same_seeds_give_the_same_numbers() {
        let mut generator = Generator::new([7, 9]);
        let words = [generator.next(), generator.next()].concat();
        assert_eq!(words[..4], philox([7, 0], [0, 0, 9, 0]));
        let numbers: Vec<f32> = words.iter().map(|&w| fraction(w)).collect();
        let shape = || vec![Some(T::new(&[2], &[3i32, 2]).constant())];
        let output = T::new(&[3, 2], &numbers[..6]);
        check(BuiltinOp::RANDOM_UNIFORM, 1, params(7, 9), &shape(), &[output]);
        assert!(numbers.iter().all(|n| (0.0..1.0).contains(n)));
        // TFLite's results for these seeds.
        let mut generator = Generator::new([1, 2]);
        assert_eq!(
            generator.next()[..2].iter().map(|&w| fraction(w)).collect::<Vec<_>>(),
            [0.40639675, 0.8575996]
        );
    }

    #[test]
    fn classes_by_their_odds() {
        let odds = T::new(&[2, 3], &[f32::NEG_INFINITY, 5.0, f32::NEG_INFINITY, -90.0, -90.0, 10.0]);
        let samples = T::new(&[], &[3i32]).constant();
        let output = T::new(&[2, 3], &[1i64, 1, 1, 2, 2, 2]);
        let inputs = [Some(odds), Some(samples.clone())];
        check(BuiltinOp::MULTINOMIAL, 1, params(1, 2), &inputs, std::slice::from_ref(&output));
        let wrong = [Some(T::new(&[2, 3], &[0i32; 6])), Some(samples)];
        let text = error(BuiltinOp::MULTINOMIAL, 1, params(1, 2), &wrong, &[output]);
        assert!(text.contains("log-odds \"t0\" of type INT32"), "{text}");
    }
}
