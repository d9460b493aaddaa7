//! Sample sizes for the dimensions of a few nodes. The samples cover both sides of every threshold of the nodes'
//! shaders.

use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, Params};
use delegraph_delegate_api::{NodeView, TensorInfo};
use delegraph_shaders::Threshold;

/// Maximum size that is taken from a node's constants and options.
const MAX_STATED: usize = 1 << 12;
/// Maximum number of dimensions for which every subset is tried with extent 1.
const MAX_REPEATED: usize = 12;
/// Maximum number of dimensions for which every pair is tried. The model determines the number of dimensions; beyond
/// this limit, only random combinations are tried.
const MAX_PAIRED: usize = 24;
/// Maximum number of sizes tried for one dimension.
const MAX_SINGLE: usize = 64;
/// Maximum number of sizes in all random combinations together.
const MAX_PICKED: usize = 1 << 20;
/// Maximum number of combinations that are tried exhaustively, and the number of random ones if there are more.
const MAX_TRIES: usize = 1 << 15;

/// The dimensions of a few nodes that can change.
pub(crate) struct FreeDims {
    /// The sizes of these dimensions for which the model is prepared.
    pub(crate) present: Vec<usize>,
    /// The sizes of dimensions that cannot change.
    pub(crate) fixed: Vec<usize>,
    /// Sizes named by the nodes' constants and options.
    pub(crate) stated: Vec<usize>,
    /// Heights and widths of pooling windows. An image of exactly that size has one window.
    pub(crate) windows: Vec<[usize; 2]>,
    /// Sizes on either side of each threshold, ascending.
    samples: Vec<usize>,
}

impl FreeDims {
    /// Creates dimensions of these prepared sizes, without thresholds.
    pub(crate) fn new(present: Vec<usize>) -> Self {
        let samples = samples(&[]);
        FreeDims { present, fixed: Vec::new(), stated: Vec::new(), windows: Vec::new(), samples }
    }

    /// Sets the thresholds of the nodes' shaders.
    pub(crate) fn set_samples(&mut self, thresholds: &[Threshold]) {
        self.samples = samples(thresholds);
    }

    /// Returns the combinations to try, each with one size per dimension.
    pub(crate) fn sizes(&self) -> Box<dyn ExactSizeIterator<Item = Vec<usize>>> {
        let count = self.present.len();
        let mut every = distinct([&self.present, &self.single(), self.windows.as_flattened()]);
        every.truncate(MAX_SINGLE);
        every = distinct([&self.samples, &every]);
        let all = u32::try_from(count).ok().and_then(|count| every.len().checked_pow(count));
        if let Some(all) =
            all.filter(|all| *all <= MAX_TRIES).and_then(|_| product(vec![every.clone(); count]))
        {
            return Box::new(all);
        }
        // Base combinations, in which one or two dimensions are changed below.
        let mut bases = vec![self.present.clone()];
        bases.extend(self.samples.iter().map(|size| vec![*size; count]));
        let mut all = bases.clone();
        if count <= MAX_PAIRED {
            self.add_paired(&bases, &mut all);
            self.add_repeated(&mut all);
        }
        let mut state = 1_u64;
        let mut one_of = |sizes: &[usize]| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sizes[(state >> 33) as usize % sizes.len()]
        };
        for _ in 0..MAX_TRIES.min(MAX_PICKED / count.max(1)) {
            // A few distinct sizes per combination, since many nodes require equal dimensions.
            let few = [one_of(&every), one_of(&every), one_of(&self.samples)];
            all.push((0..count).map(|_| one_of(&few)).collect());
        }
        Box::new(all.into_iter())
    }

    /// Returns further sizes, which are tried for one dimension at a time.
    fn single(&self) -> Vec<usize> {
        let mut single = distinct([&self.stated, &self.fixed]);
        single.truncate(MAX_SINGLE);
        single
    }

    /// Adds all combinations of samples, or those that differ from a base in two dimensions if there are too many. Also
    /// adds those that differ from a base in one dimension, by a size of [`Self::single`], or in two, by a window.
    fn add_paired(&self, bases: &[Vec<usize>], all: &mut Vec<Vec<usize>>) {
        let count = self.present.len();
        let change = |base: &Vec<usize>, to: &[(usize, usize)]| {
            let mut list = base.clone();
            to.iter().for_each(|(i, size)| list[*i] = *size);
            list
        };
        let own: Vec<_> = self.present.iter().map(|size| distinct([&self.samples[..], &[*size]])).collect();
        let pairs = || (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b]));
        match product(own.clone()) {
            Some(product) => all.extend(product),
            None => {
                for (base, [a, b]) in bases.iter().flat_map(|base| pairs().map(move |pair| (base, pair))) {
                    let each = own[a].iter().flat_map(|x| own[b].iter().map(|y| [(a, *x), (b, *y)]));
                    all.extend(each.map(|to| change(base, &to)));
                }
            }
        }
        let single = self.single();
        for base in bases {
            for i in 0..count {
                all.extend(single.iter().map(|size| change(base, &[(i, *size)])));
            }
            for ([a, b], [h, w]) in
                pairs().flat_map(|pair| self.windows.iter().map(move |size| (pair, *size)))
            {
                all.extend([[(a, h), (b, w)], [(a, w), (b, h)]].map(|to| change(base, &to)));
            }
        }
    }

    /// Adds combinations in which a subset of the dimensions is 1, so that tensors broadcast along them: equal sizes
    /// stay equal or become 1.
    fn add_repeated(&self, all: &mut Vec<Vec<usize>>) {
        let odd = |size: usize| match size {
            _ if size == 1 || self.fixed.contains(&size) => size,
            _ => size + 1 - size % 2,
        };
        // Small sizes, so that a tensor of six dimensions is not too large.
        for small in samples(&[]).into_iter().filter(|size| *size > 1) {
            let several = |size: usize| if size == 1 { small } else { size };
            let as_present: Vec<usize> = self.present.iter().map(|size| several(*size)).collect();
            let as_odd = self.present.iter().map(|size| several(odd(*size))).collect();
            for base in [as_present, as_odd, vec![small; self.present.len()]] {
                for ones in 0..1_usize << base.len().min(MAX_REPEATED) {
                    let repeats = |i: usize| ones >> i.min(MAX_REPEATED - 1) & 1 == 1;
                    let sizes = base.iter().enumerate();
                    all.push(sizes.map(|(i, size)| if repeats(i) { 1 } else { *size }).collect());
                }
            }
        }
    }

    /// Returns combinations with the samples in all dimensions, or in one of them. Used for nodes that take long to
    /// lower, and to find thresholds.
    pub(crate) fn few_sizes(&self) -> Vec<Vec<usize>> {
        let mut all: Vec<Vec<usize>> =
            self.samples.iter().map(|size| vec![*size; self.present.len()]).collect();
        for i in 0..self.present.len().min(MAX_PAIRED) {
            all.extend(self.samples.iter().map(|size| {
                let mut list = self.present.clone();
                list[i] = *size;
                list
            }));
        }
        all.push(self.present.clone());
        all
    }
}

/// See [`Threshold::samples`].
fn samples(thresholds: &[Threshold]) -> Vec<usize> {
    Threshold::samples(thresholds).into_iter().filter_map(|size| usize::try_from(size).ok()).collect()
}

fn distinct<const N: usize>(lists: [&[usize]; N]) -> Vec<usize> {
    let mut all = lists.concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns every combination of one size from each list; `None` for more than [`MAX_TRIES`] combinations.
fn product(lists: Vec<Vec<usize>>) -> Option<impl ExactSizeIterator<Item = Vec<usize>>> {
    let count = lists.iter().try_fold(1_usize, |count, list| count.checked_mul(list.len()))?;
    let nth = move |mut rest: usize| {
        let take = |list: &Vec<usize>| {
            let size = list[rest % list.len()];
            rest /= list.len();
            size
        };
        lists.iter().map(take).collect()
    };
    (count <= MAX_TRIES).then(|| (0..count).map(nth))
}

/// Returns the sizes that a node's constants and options suggest: each number in a constant, and the next larger one,
/// and multiples of block sizes and of numbers of splits. Constants of more than `MAX_NUMBERS` numbers are skipped.
pub(crate) fn stated(node: NodeView<'_>) -> Vec<usize> {
    /// Maximum length of a constant that names sizes.
    const MAX_NUMBERS: usize = 8;
    let numbers = |tensor: TensorInfo<'_>| tensor.constant_as::<i32>().map(<[i32]>::to_vec);
    let numbers: Vec<usize> = (node.inputs().filter_map(numbers).filter(|list| list.len() <= MAX_NUMBERS))
        .flatten()
        .filter_map(|n| usize::try_from(n.unsigned_abs()).ok())
        .filter(|n| (1..=MAX_STATED).contains(n))
        .collect();
    let block = |size: i32| usize::try_from(size).ok().filter(|size| *size <= MAX_STATED);
    let blocks = match (node.op().builtin(), node.params()) {
        (Some(BuiltinOp::SPACE_TO_BATCH_ND | BuiltinOp::BATCH_TO_SPACE_ND), _) => {
            let mut blocks = numbers.clone();
            blocks.push(numbers.iter().try_fold(1_usize, |all, n| all.checked_mul(*n)).unwrap_or(1));
            blocks
        }
        (_, Params::SpaceToDepth(p)) => block(p.block_size).into_iter().collect(),
        (_, Params::DepthToSpace(p)) => block(p.block_size).map(|size| size * size).into_iter().collect(),
        (_, Params::Split(p)) => block(p.num_splits).into_iter().collect(),
        _ => Vec::new(),
    };
    // A dimension that is divided by a block size may have any number of blocks.
    let counts = samples(&[]);
    let multiples = blocks.iter().flat_map(|size| counts.iter().map(|count| size.saturating_mul(*count)));
    let mut all: Vec<usize> = numbers.iter().flat_map(|size| [*size, size + 1]).chain(multiples).collect();
    all.retain(|size| *size > 0);
    all
}

/// Returns the height and width of a pooling op's window; `None` for other ops.
pub(crate) fn window(node: NodeView<'_>) -> Option<[usize; 2]> {
    let pool = <&Pool2DParams>::try_from(node.params()).ok()?;
    Some([pool.filter_height, pool.filter_width].map(|n| usize::try_from(n).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(present: &[usize]) -> FreeDims {
        let mut free = FreeDims::new(present.to_vec());
        (free.fixed, free.stated, free.windows) = (vec![5], vec![8], vec![[2, 7]]);
        free.set_samples(&[Threshold::SEVERAL, Threshold::AtLeast(64)]);
        free
    }

    #[test]
    fn all_combinations_of_few_dimensions_are_tried() {
        let all: Vec<_> = free(&[9, 1, 12]).sizes().collect();
        for [a, b, c] in [[9, 1, 12], [1, 1, 1], [260, 65, 3], [5, 8, 5], [2, 7, 12], [12, 9, 1]] {
            assert!(all.contains(&vec![a, b, c]), "{a} {b} {c}");
        }
        assert_eq!(all.len(), 11 * 11 * 11);
    }

    #[test]
    fn combinations_of_many_dimensions_are_bounded() {
        for count in [25, 1000, 100_000] {
            let picked: usize = free(&vec![7; count]).sizes().map(|sizes| sizes.len()).sum();
            assert!(picked <= MAX_PICKED + 7 * count, "{picked}");
        }
    }

    #[test]
    fn all_pairs_and_repetitions_of_several_dimensions_are_tried() {
        let present = [2, 3, 1, 6, 6, 3, 2, 1];
        let all: Vec<_> = free(&present).sizes().collect();
        assert!(all.iter().all(|sizes| sizes.len() == present.len()));
        for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            for (x, y) in [(1, 65), (260, 3), (2, 7)] {
                let mut wanted = present.to_vec();
                (wanted[a], wanted[b]) = (x, y);
                assert!(all.contains(&wanted), "{wanted:?}");
            }
        }
        for ones in 0..256_usize {
            let repeated = |size: usize| (0..8).map(|i| if ones >> i & 1 == 1 { 1 } else { size }).collect();
            assert!(all.contains(&repeated(3)) && all.contains(&repeated(4)), "{ones:b}");
        }
    }
}
