//! Scaled dot-product attention in single precision.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{SharedMut, carve, scratch_bytes};
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, check_multiple, product};
use crate::base::isa::Isa;
use crate::matmul::gemm::{BatchMatMulF32, MatrixLayout};
use crate::rows::softmax::{Softmax, softmax_in_place};
use crate::threads::share::OneThread;

/// Sizes of queries `[batch, queries, heads, width]`, and of keys and values `[batch, keys, groups, width]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Batch size of all operands.
    pub batch: usize,
    /// Queries per head.
    pub queries: usize,
    /// Heads of the queries, a multiple of the groups: neighbouring heads share the keys and values of one group.
    pub heads: usize,
    /// Elements of a query, a key or a value.
    pub width: usize,
    /// Keys per group.
    pub keys: usize,
    /// Groups of keys and values.
    pub groups: usize,
}

/// The addend to the scores, and its strides per batch, head and query; 0 if it is broadcast.
type Added<'a> = (&'a [f32], [usize; 3]);

/// `softmax(scale · q · kᵀ + added) · v`, group by group, so that the scores of a group stay in a core's cache.
#[derive(Clone, Copy)]
pub struct AttentionF32 {
    isa: Isa,
    sizes: AttentionSizes,
    scale: f32,
    scores: BatchMatMulF32,
    mixed: BatchMatMulF32,
    /// Number of parts that groups are divided into: with enough groups one per thread, otherwise a single one, whose
    /// products the threads share.
    parts: usize,
    threads: usize,
}

impl AttentionF32 {
    /// Attention for operands of these sizes, all of which must be positive.
    ///
    /// # Errors
    /// Fails if `groups` does not divide `heads`, or the size of an operand overflows.
    pub fn new(isa: Isa, sizes: AttentionSizes, scale: f32, threads: usize) -> Result<Self> {
        let AttentionSizes { batch, queries, heads, width, keys, groups } = sizes;
        check_multiple("heads", heads, groups)?;
        // `run` computes offsets without overflow checks.
        let rows = product("queries", &[heads / groups.max(1), queries])?;
        product("queries", &[batch, queries, heads, width])?;
        product("keys", &[batch, keys, groups, width])?;
        let scores = BatchMatMulF32::new(isa, (rows, width, keys), false, MatrixLayout::ColumnsContiguous)?;
        let mixed = BatchMatMulF32::new(isa, (rows, keys, width), false, MatrixLayout::RowsContiguous)?;
        let (threads, jobs) = (threads.max(1), batch.saturating_mul(groups));
        let parts = if jobs >= threads { threads } else { 1 };
        Ok(Self { isa, sizes, scale, scores, mixed, parts, threads })
    }

    fn rows(&self) -> usize {
        self.sizes.heads / self.sizes.groups.max(1) * self.sizes.queries
    }

    /// Elements of a part's scratch: queries and results each, keys and values each, scores.
    fn kept(&self) -> Option<[usize; 3]> {
        let AttentionSizes { width, keys, groups, .. } = self.sizes;
        let own = if groups == 1 { 0 } else { keys.checked_mul(width)? };
        Some([self.rows().checked_mul(width)?, own, self.rows().checked_mul(keys)?])
    }

    fn part_len(&self) -> Result<usize> {
        let threads = if self.parts > 1 { 1 } else { self.threads };
        let products = self.scores.scratch_len(threads)?.max(self.mixed.scratch_len(threads)?);
        let kept = || {
            let [queries, own, scores] = self.kept()?.map(scratch_bytes::<f32>);
            let twice = queries?.checked_add(own?)?.checked_mul(2)?;
            twice.checked_add(scores?)?.checked_add(products)
        };
        kept().ok_or(ComputeError::TooLarge { what: "scratch of attention" })
    }

    /// Returns the bytes of scratch that [`AttentionF32::run`] needs.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn scratch_len(&self) -> Result<usize> {
        self.part_len()?
            .checked_mul(self.parts)
            .ok_or(ComputeError::TooLarge { what: "scratch of attention" })
    }

    /// Computes the attention of queries, keys and values into `out`, which has the shape of the queries. `added` is an
    /// addend to the scores and its strides per batch, head and query, 0 where it is broadcast; its elements for the
    /// keys are contiguous.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length, or the scratch is too short.
    pub fn run(
        &self,
        [q, k, v]: [&[f32]; 3],
        added: Option<Added<'_>>,
        out: &mut [f32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let AttentionSizes { batch, queries, heads, width, keys, groups } = self.sizes;
        check_len("queries", q.len(), batch * queries * heads * width)?;
        check_len("keys", k.len(), batch * keys * groups * width)?;
        check_len("values", v.len(), k.len())?;
        check_len("output", out.len(), q.len())?;
        if let Some((added, [per_batch, per_head, per_query])) = added {
            let last = |count: usize, step: usize| count.saturating_sub(1) * step;
            let needed = last(batch, per_batch) + last(heads, per_head) + last(queries, per_query) + keys;
            if added.len() < needed {
                return Err(ComputeError::Length { what: "addend", needed, got: added.len() });
            }
        }
        let (part, needed) = (self.part_len()?, self.scratch_len()?);
        let jobs = product("groups", &[batch, groups])?;
        if scratch.len() < needed {
            return Err(ComputeError::Length { what: "scratch", needed, got: scratch.len() });
        }
        let out = SharedMut::new(out);
        let scratch = SharedMut::new(scratch);
        let group = |job: usize, scratch: &mut [u8], par: &dyn Parallel| {
            // SAFETY: jobs write disjoint heads, and each job runs once: `Parallel::run` calls each task at most once,
            // and tasks have disjoint jobs.
            unsafe { self.group(job, [q, k, v], added, out, scratch, par) }
        };
        if self.parts == 1 {
            // SAFETY: the only part, taken once.
            let scratch = unsafe { scratch.slice(0, part) };
            let mut jobs = (0..jobs).take_while(|_| !par.is_interrupted());
            return jobs.try_for_each(|job| group(job, scratch, par));
        }
        let per_part = jobs.div_ceil(self.parts);
        par.run(jobs.div_ceil(per_part), &|index| {
            // SAFETY: parts are disjoint, and `Parallel::run` calls each task at most once.
            let scratch = unsafe { scratch.slice(index * part, part) };
            for job in index * per_part..((index + 1) * per_part).min(jobs) {
                if par.is_interrupted() {
                    return;
                }
                // Cannot fail: all lengths are those of the products.
                let _ = group(job, scratch, &OneThread(par));
            }
        });
        Ok(())
    }

    /// Computes the heads of one group in one batch.
    ///
    /// # Safety
    /// No other thread may access these heads of the output.
    unsafe fn group(
        &self,
        job: usize,
        [q, k, v]: [&[f32]; 3],
        added: Option<Added<'_>>,
        out: SharedMut<'_, f32>,
        mut scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let AttentionSizes { queries, heads, width, keys, groups, .. } = self.sizes;
        let short = || ComputeError::Length { what: "scratch", needed: 1, got: 0 };
        let [own_queries, own_keys, own_scores] = self.kept().ok_or_else(short)?;
        let mut take = |count: usize| carve::<f32>(&mut scratch, count).ok_or_else(short);
        let (rows, results) = (take(own_queries)?, take(own_queries)?);
        let (own_k, own_v, scores) = (take(own_keys)?, take(own_keys)?, take(own_scores)?);
        let (batch, group, share) = (job / groups, job % groups, heads / groups);
        // Rows of a group: its heads one after another, each with all its queries.
        let place = |row: usize| {
            let (head, query) = (group * share + row / queries, row % queries);
            ((batch * queries + query) * heads + head) * width
        };
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            row.iter_mut().zip(&q[place(i)..][..width]).for_each(|(to, from)| *to = from * self.scale);
        }
        let whole = batch * keys * groups * width..(batch + 1) * keys * groups * width;
        let (mut k, mut v) = (&k[whole.clone()], &v[whole]);
        if groups > 1 {
            for (all, own) in [(k, &mut *own_k), (v, &mut *own_v)] {
                let rows = all.chunks_exact(groups * width);
                for (row, own) in rows.zip(own.chunks_exact_mut(width)) {
                    own.copy_from_slice(&row[group * width..][..width]);
                }
            }
            (k, v) = (own_k, own_v);
        }
        self.scores.run(rows, k, scores, Clamp::NONE, scratch, par)?;
        if let Some((added, [per_batch, per_head, per_query])) = added {
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                let (head, query) = (group * share + i / queries, i % queries);
                let own = &added[batch * per_batch + head * per_head + query * per_query..][..keys];
                row.iter_mut().zip(own).for_each(|(score, added)| *score += added);
            }
        }
        softmax_in_place(self.isa, Softmax::Probabilities { beta: 1.0 }, keys, scores, par)?;
        self.mixed.run(scores, v, results, Clamp::NONE, scratch, par)?;
        for (i, row) in results.chunks_exact(width).enumerate() {
            // SAFETY: rows of a group are disjoint, and the caller has exclusive access to the group's heads.
            unsafe { out.slice(place(i), width) }.copy_from_slice(row);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::random::Rng;
    use crate::testing::close;
    use crate::threads::pool::ThreadPool;

    /// The defining formula, in double precision.
    fn plain(s: AttentionSizes, scale: f32, [q, k, v]: [&[f32]; 3], added: Option<Added<'_>>) -> Vec<f32> {
        let mut out = Vec::new();
        for row in 0..s.batch * s.queries * s.heads {
            let (head, query, batch) = (row % s.heads, row / s.heads % s.queries, row / s.heads / s.queries);
            let group = head / (s.heads / s.groups);
            let at = |t: &[f32], key: usize, i: usize| {
                f64::from(t[((batch * s.keys + key) * s.groups + group) * s.width + i])
            };
            let scores: Vec<f64> = (0..s.keys)
                .map(|key| {
                    let product: f64 =
                        (0..s.width).map(|i| f64::from(q[row * s.width + i]) * at(k, key, i)).sum();
                    let added = added.map_or(0.0, |(added, [b, h, q])| {
                        f64::from(added[batch * b + head * h + query * q + key])
                    });
                    (product * f64::from(scale) + added).exp()
                })
                .collect();
            let sum: f64 = scores.iter().sum();
            out.extend((0..s.width).map(|i| {
                scores.iter().enumerate().map(|(key, score)| score / sum * at(v, key, i)).sum::<f64>() as f32
            }));
        }
        out
    }

    #[test]
    fn heads_that_share_or_do_not_give_what_the_formula_says() {
        let mut rng = Rng::new(11);
        let pool = ThreadPool::new(3);
        for (batch, queries, heads, width, keys, groups) in [
            (1, 1, 1, 1, 1, 1),
            (2, 3, 4, 5, 7, 4),
            (1, 9, 6, 16, 33, 2),
            (2, 17, 8, 3, 20, 1),
            (1, 4, 2, 64, 65, 2),
        ] {
            let sizes = AttentionSizes { batch, queries, heads, width, keys, groups };
            let q = rng.floats(batch * queries * heads * width);
            let [k, v] = [0; 2].map(|_| rng.floats(batch * keys * groups * width));
            let mask = rng.floats(batch * heads * queries * keys);
            let whole = [heads * queries * keys, queries * keys, keys];
            for added in [
                None,
                Some((&mask[..], whole)),
                Some((&mask[..keys], [0; 3])),
                Some((&mask[..queries * keys], [0, 0, keys])),
            ] {
                let expected = plain(sizes, 0.5, [&q, &k, &v], added);
                for &isa in Isa::available() {
                    for par in [&Serial as &dyn Parallel, &pool] {
                        let attention = AttentionF32::new(isa, sizes, 0.5, par.threads()).unwrap();
                        let mut scratch = vec![0xffu8; attention.scratch_len().unwrap()];
                        let mut out = vec![f32::NAN; q.len()];
                        attention.run([&q, &k, &v], added, &mut out, &mut scratch, par).unwrap();
                        close(&out, &expected, 64, || format!("{sizes:?} {}", isa.name()));
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_that_do_not_agree_are_refused() {
        let sizes = AttentionSizes { batch: 1, queries: 2, heads: 4, width: 3, keys: 5, groups: 2 };
        let attention = AttentionF32::new(Isa::best(), sizes, 1.0, 1).unwrap();
        let enough = attention.scratch_len().unwrap();
        let run = |q: usize, k: usize, v: usize, added: Option<usize>, out: usize, scratch: usize| {
            let [q, k, v] = [q, k, v].map(|len| vec![0.0; len]);
            let added = vec![0.0; added.unwrap_or(10)];
            let (added, mut out) = (Some((&added[..], [10, 0, 5])), vec![0.0; out]);
            attention.run([&q, &k, &v], added, &mut out, &mut vec![0; scratch], &Serial).is_ok()
        };
        assert!(run(24, 30, 30, None, 24, enough));
        assert!(!run(23, 30, 30, None, 24, enough) && !run(24, 29, 30, None, 24, enough));
        assert!(!run(24, 30, 15, None, 24, enough) && !run(24, 30, 30, Some(9), 24, enough));
        assert!(!run(24, 30, 30, None, 12, enough) && !run(24, 30, 30, None, 24, enough - 1));
        assert!(AttentionF32::new(Isa::best(), AttentionSizes { groups: 3, ..sizes }, 1.0, 1).is_err());
        let huge = AttentionSizes { queries: usize::MAX / 2, ..sizes };
        assert!(AttentionF32::new(Isa::best(), huge, 1.0, 1).is_err());
        // Without the checks, the first and the last batch would have the same offset.
        let wrapping =
            AttentionSizes { batch: usize::MAX / 4 + 2, queries: 4, heads: 1, width: 1, keys: 1, groups: 1 };
        assert!(AttentionF32::new(Isa::best(), wrapping, 1.0, 1).is_err());
    }
}
