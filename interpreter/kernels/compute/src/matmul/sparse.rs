//! Products with constant weights that are mostly zero, as in pruned networks.
//!
//! A block of rows is transposed, so that the rows are the lanes of vectors, and each weight that is not zero is multiplied
//! with the block's values of one input. The results are transposed back.

use std::sync::atomic::AtomicU64;

use bytemuck::{Pod, Zeroable};
use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut, carve, scratch_bytes};
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::matmul::tiles::MAX_SLOTS;
use crate::simd::{Simd, SimdTask, dispatch, lanes};
use crate::threads::share::{Shares, threads_for};

/// Vectors per block of rows.
const VECTORS: usize = 4;

/// `out[row][o] = clamp(bias[o] + sum over i of input[row][i] * weights[o][i])`, without the weights that are zero. An
/// infinite or NaN input does not affect outputs whose weight for it is zero.
pub struct SparseF32 {
    isa: Isa,
    inputs: usize,
    bias: AlignedVec<f32>,
    /// Number of the entry that follows the last one of each output.
    ends: AlignedVec<u32>,
    entries: AlignedVec<Entry>,
}

/// A weight that is not zero.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    input: u32,
    weight: f32,
}

impl SparseF32 {
    /// Returns whether `weights`, `[outputs, inputs]`, have enough zeros for a product of `rows` rows that is faster
    /// than the dense product.
    pub fn pays(isa: Isa, rows: usize, [outputs, inputs]: [usize; 2], weights: &[f32]) -> bool {
        let lanes = lanes(isa);
        if rows < lanes || weights.len() < MIN_WEIGHTS {
            return false;
        }
        let entries = weights.iter().filter(|weight| **weight != 0.0).count();
        // Measured times per entry, and per transposed input and output, in tenths of the time per weight of a dense
        // product. Wide vectors are loaded and transposed more slowly than they are multiplied.
        let (per_entry, per_row) = match lanes {
            ..=4 => (15, 60),
            5..=8 => (15, 40),
            _ => (25, 70),
        };
        let moves = outputs.saturating_add(inputs).saturating_mul(per_row);
        entries.saturating_mul(per_entry).saturating_add(moves) < weights.len().saturating_mul(9)
    }

    /// Packs `weights`, `[outputs, inputs]`; `bias` is `[outputs]`.
    ///
    /// # Errors
    /// Fails if lengths do not match, there are 2^32 weights or more, or memory cannot be allocated.
    pub fn pack(
        isa: Isa,
        [outputs, inputs]: [usize; 2],
        weights: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        check_len("weights", weights.len(), product("weights", &[outputs, inputs])?)?;
        if u32::try_from(weights.len()).is_err() {
            return Err(ComputeError::TooLarge { what: "weights" });
        }
        let mut all = AlignedVec::zeroed(outputs)?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), outputs)?;
            all.as_mut_slice().copy_from_slice(bias);
        }
        let count = weights.iter().filter(|weight| **weight != 0.0).count();
        let (mut ends, mut entries) = (AlignedVec::zeroed(outputs)?, AlignedVec::zeroed(count)?);
        let places = entries.as_mut_slice();
        let mut end = 0u32;
        for (row, to) in weights.chunks_exact(inputs.max(1)).zip(ends.as_mut_slice()) {
            for (input, &weight) in (0u32..).zip(row) {
                // Without a branch, which would be mispredicted: the next entry overwrites a zero.
                if let Some(place) = places.get_mut(end as usize) {
                    *place = Entry { input, weight };
                }
                end += u32::from(weight != 0.0);
            }
            *to = end;
        }
        Ok(Self { isa, inputs, bias: all, ends, entries })
    }

    /// Returns the bytes of scratch that a run on this number of threads needs.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn scratch_len(&self, threads: usize) -> Result<usize> {
        product("scratch of a product", &[self.slot_len()?, threads.clamp(1, MAX_SLOTS)])
    }

    /// Bytes of a transposed block and of the results that are not transposed yet.
    fn slot_len(&self) -> Result<usize> {
        let lanes = lanes(self.isa);
        let too_large = ComputeError::TooLarge { what: "scratch of a product" };
        let rows = self.inputs.checked_add(lanes).ok_or(too_large)?;
        scratch_bytes::<f32>(product("scratch of a product", &[rows, VECTORS, lanes])?)
            .ok_or(ComputeError::TooLarge { what: "scratch of a product" })
    }

    /// Multiplies the rows of `input`, `[rows, inputs]`, into `out`, `[rows, outputs]`.
    ///
    /// # Errors
    /// Fails if an operand or the scratch has the wrong length, or the number of inputs or of outputs is 0.
    pub fn run(
        &self,
        input: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let outputs = self.bias.as_slice().len();
        if self.inputs == 0 || outputs == 0 {
            return Err(ComputeError::Range { what: "weights" });
        }
        let rows = input.len() / self.inputs;
        check_len("input", input.len(), rows * self.inputs)?;
        check_len("output", out.len(), product("output", &[rows, outputs])?)?;
        let par = threads_for(par, rows.saturating_mul(self.entries.as_slice().len()) / 4);
        let block = VECTORS * lanes(self.isa);
        // A unit of work is small, since it cannot be interrupted.
        let (units, slots) = (rows.div_ceil(block), par.threads().clamp(1, MAX_SLOTS));
        let per_slot = self.slot_len()?;
        if scratch.len() < per_slot * slots {
            return Err(ComputeError::Length {
                what: "scratch",
                needed: per_slot * slots,
                got: scratch.len(),
            });
        }
        let (out, scratch) = (SharedMut::new(out), SharedMut::new(scratch));
        let shares = [const { AtomicU64::new(0) }; MAX_SLOTS];
        let shares = Shares(&shares[..slots]);
        shares.deal(units);
        par.run(slots, &|slot| {
            // SAFETY: slots have disjoint parts, and `Parallel::run` calls each slot's task at most once.
            let mut mine = unsafe { scratch.slice(slot * per_slot, per_slot) };
            let Some(panel) = carve::<f32>(&mut mine, (self.inputs + lanes(self.isa)) * block) else {
                return;
            };
            while let Some(unit) = shares.take(slot).filter(|_| !par.is_interrupted()) {
                let first = unit * block;
                let count = block.min(rows - first);
                let input = &input[first * self.inputs..][..count * self.inputs];
                // SAFETY: `Shares` returns each unit once. Units have disjoint rows of the output, whose length was
                // checked.
                let out = unsafe { out.slice(first * outputs, count * outputs) };
                dispatch(self.isa, BlockTask { layer: self, input, out, panel, clamp });
            }
        });
        Ok(())
    }
}

/// Below this number of weights, the product is too short for the transpositions around it.
const MIN_WEIGHTS: usize = 256;

/// The product of a block of rows.
struct BlockTask<'a> {
    layer: &'a SparseF32,
    input: &'a [f32],
    out: &'a mut [f32],
    /// Memory for the transposed block, and for a vector of results of each row.
    panel: &'a mut [f32],
    clamp: Clamp,
}

impl SimdTask for BlockTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let count = self.input.len() / self.layer.inputs;
        // SAFETY: the instructions exist by the caller's contract.
        unsafe {
            match count.div_ceil(S::LANES) {
                4 => compute::<S, 4>(&mut self, count),
                3 => compute::<S, 3>(&mut self, count),
                2 => compute::<S, 2>(&mut self, count),
                _ => compute::<S, 1>(&mut self, count),
            }
        }
    }
}

/// Computes `count` rows, which are the lanes of `V` vectors.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
unsafe fn compute<S: Simd, const V: usize>(task: &mut BlockTask<'_>, count: usize) {
    let layer = task.layer;
    let (inputs, outputs, width) = (layer.inputs, layer.bias.as_slice().len(), V * S::LANES);
    let (panel, results) = task.panel.split_at_mut(inputs * width);
    let results = &mut results[..S::LANES * width];
    // SAFETY: the instructions exist by the caller's contract.
    unsafe { transpose::<S>(task.input, inputs, count, panel, width) };
    let (low, high) = (task.clamp.low, task.clamp.high);
    let mut start = 0;
    for first in (0..outputs).step_by(S::LANES) {
        let some = S::LANES.min(outputs - first);
        let of = first..first + some;
        let rows = results.chunks_exact_mut(width);
        for ((&end, &bias), to) in
            layer.ends.as_slice()[of.clone()].iter().zip(&layer.bias.as_slice()[of]).zip(rows)
        {
            let entries = &layer.entries.as_slice()[start..end as usize];
            start = end as usize;
            // SAFETY: inputs of entries are below `inputs`, the panel has `inputs` rows of `V` vectors, and `to` has
            // `V` vectors. The instructions exist by the caller's contract.
            unsafe {
                // Two sums, since a sum waits for the one before.
                let (mut even, mut odd) = ([S::splat(bias); V], [S::splat(0.0); V]);
                let (pairs, last) = entries.as_chunks::<2>();
                for [a, b] in pairs {
                    add_entry::<S, V>(&mut even, a, panel);
                    add_entry::<S, V>(&mut odd, b, panel);
                }
                for a in last {
                    add_entry::<S, V>(&mut even, a, panel);
                }
                for v in 0..V {
                    let sum = S::clamp(S::add(even[v], odd[v]), S::splat(low), S::splat(high));
                    S::store(to.as_mut_ptr().add(v * S::LANES), sum);
                }
            }
        }
        // SAFETY: as above.
        unsafe { transpose_back::<S>(results, width, [count, some], &mut task.out[first..], outputs) };
    }
}

/// Adds the products of a weight with its row of the panel.
///
/// # Safety
/// The processor must have the instructions of `S`, and the panel the row of the entry, of `V` vectors.
#[inline(always)]
unsafe fn add_entry<S: Simd, const V: usize>(sums: &mut [S::F; V], entry: &Entry, panel: &[f32]) {
    // SAFETY: the caller ensures that the panel has the row, of `V` vectors.
    unsafe {
        let row = panel.as_ptr().add(entry.input as usize * V * S::LANES);
        let weight = S::splat(entry.weight);
        for (v, sum) in sums.iter_mut().enumerate() {
            *sum = S::fma(S::load(row.add(v * S::LANES)), weight, *sum);
        }
    }
}

/// Transposes `count` rows of `columns` floats into rows of `width` floats; elements beyond `count` stay unchanged.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
unsafe fn transpose<S: Simd>(from: &[f32], columns: usize, count: usize, to: &mut [f32], width: usize) {
    assert!(from.len() >= count * columns && to.len() >= columns * width && count <= width);
    let (whole_rows, whole) = (count / S::LANES * S::LANES, columns / S::LANES * S::LANES);
    for row in (0..whole_rows).step_by(S::LANES) {
        for column in (0..whole).step_by(S::LANES) {
            let from = from.as_ptr().wrapping_add(row * columns + column);
            // SAFETY: the tile is inside both, by the assertion; the instructions exist by the caller's contract.
            unsafe { S::transpose(from, columns, to.as_mut_ptr().add(column * width + row), width) };
        }
    }
    for row in 0..count {
        let first = if row < whole_rows { whole } else { 0 };
        for column in first..columns {
            to[column * width + row] = from[row * columns + column];
        }
    }
}

/// Transposes the first `some` rows of `width` floats of `from` into the first `some` columns of `count` rows, which are
/// `step` floats apart.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
unsafe fn transpose_back<S: Simd>(
    from: &[f32],
    width: usize,
    [count, some]: [usize; 2],
    to: &mut [f32],
    step: usize,
) {
    assert!(from.len() >= S::LANES * width && count <= width && some <= step.min(S::LANES));
    assert!(to.len() >= (count - 1) * step + some);
    let whole = if some == S::LANES { count / S::LANES * S::LANES } else { 0 };
    for row in (0..whole).step_by(S::LANES) {
        // SAFETY: the tile is inside both, by the assertions; the instructions exist by the caller's contract.
        unsafe { S::transpose(from.as_ptr().add(row), width, to.as_mut_ptr().add(row * step), step) };
    }
    for row in whole..count {
        for column in 0..some {
            to[row * step + column] = from[column * width + row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::close;
    use crate::{Serial, ThreadPool};

    #[test]
    fn products_of_every_tail() {
        let mut rng = Rng::new(9);
        let pool = ThreadPool::new(3);
        let sizes = (1..=70).map(|rows| (rows, 24, 40)).chain((1..=35).map(|n| (70, n, 36 - n)));
        for (rows, inputs, outputs) in sizes.chain([(1000, 240, 40), (3, 1, 1), (0, 8, 8)]) {
            let share = rng.range(0, 4);
            let weights: Vec<f32> = (0..inputs * outputs)
                .map(|_| if rng.range(0, 3) < share { 0.0 } else { rng.float() })
                .collect();
            let (input, bias) = (rng.floats(rows * inputs), rng.floats(outputs));
            let clamp = [Clamp::NONE, Clamp::RELU][rng.range(0, 1)];
            let mut expected = Vec::new();
            for row in input.chunks_exact(inputs) {
                for (weights, bias) in weights.chunks_exact(inputs).zip(&bias) {
                    let products = row.iter().zip(weights).map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let sum = products.sum::<f64>() + f64::from(*bias);
                    expected.push((sum as f32).max(clamp.low).min(clamp.high));
                }
            }
            for &isa in Isa::available() {
                let product = SparseF32::pack(isa, [outputs, inputs], &weights, Some(&bias)).unwrap();
                for par in [&Serial as &dyn Parallel, &pool] {
                    let mut scratch = vec![0; product.scratch_len(par.threads()).unwrap()];
                    let mut out = vec![f32::NAN; rows * outputs];
                    product.run(&input, &mut out, clamp, &mut scratch, par).unwrap();
                    let what = || format!("{rows}x{inputs}x{outputs} on {}", isa.name());
                    close(&out, &expected, inputs, what);
                }
            }
        }
    }

    #[test]
    fn dense_and_small_weights_do_not_pay() {
        for &isa in Isa::available() {
            let weights = |every: usize| -> Vec<f32> {
                (0..144 * 144).map(|i| if i % every == 0 { 1.0 } else { 0.0 }).collect()
            };
            assert!(SparseF32::pays(isa, 100, [144, 144], &weights(10)));
            assert!(!SparseF32::pays(isa, 100, [144, 144], &weights(1)));
            assert!(!SparseF32::pays(isa, 1, [144, 144], &weights(10)));
            assert!(!SparseF32::pays(isa, 100, [15, 15], &weights(10)[..225]));
        }
    }

    #[test]
    fn operands_are_checked() {
        let weights = [1.0, 0.0, 0.0, 2.0];
        assert!(SparseF32::pack(Isa::best(), [2, 3], &weights, None).is_err());
        assert!(SparseF32::pack(Isa::best(), [2, 2], &weights, Some(&[1.0])).is_err());
        let product = SparseF32::pack(Isa::best(), [2, 2], &weights, None).unwrap();
        let mut scratch = vec![0; product.scratch_len(1).unwrap()];
        let mut run = |input: usize, out: usize, bytes: usize| {
            let scratch = &mut scratch[..bytes];
            product.run(&vec![1.0; input], &mut vec![0.0; out], Clamp::NONE, scratch, &Serial).is_ok()
        };
        let bytes = product.scratch_len(1).unwrap();
        assert!(run(8, 8, bytes));
        assert!(!run(7, 8, bytes) && !run(8, 7, bytes) && !run(8, 8, bytes - 1));
    }
}
