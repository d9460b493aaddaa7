//! Which sizes of the dimensions that can change lead to every text that nodes are lowered to.

use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, Params};
use delegraph_delegate_api::{NodeView, TensorInfo};

/// Sizes of each kind: one, an odd number, and two that are long enough to be shared, one of which comes in fours.
const KINDS: [usize; 4] = [1, 3, 67, 68];
/// An odd number and one that comes in fours, of which even six dimensions are not too many elements.
const SMALL: [usize; 2] = [3, 4];
/// Columns of a product that tiles of each width suit, and a depth beyond which sums of integers take more.
const COLUMNS: [usize; 5] = [6, 8, 10, 16, 8196];
/// Few rows in fours, rows too many to be shared, in fours and not.
const ROWS: [usize; 3] = [4, 8195, 8196];
/// Pieces of each kind that something can be cut into.
const PIECES: [usize; 3] = [1, 3, 4];
/// Dimensions that an index may have.
const DEPTHS: [usize; 5] = [2, 3, 4, 5, 6];
/// Sizes beyond which a dimension is like others of its kind.
const LONGEST: usize = 1 << 12;
/// Of so many dimensions each is tried as one and as several, beside all others.
const MOST_REPEATED: usize = 12;
/// Of so many dimensions each pair is tried, of more only what is picked at random: a model decides how many there are.
const MOST_PAIRED: usize = 24;
/// So many sizes of a dimension are tried at most.
const MOST_SINGLE: usize = 64;
/// So many sizes are picked at most, over all tries.
const MOST_PICKED: usize = 1 << 20;
/// So many tries are made for a reason. Where all combinations are more, so many of them are picked at random.
const TRIES: usize = 1 << 15;

/// Dimensions that can change.
pub(crate) struct Free {
    /// Their sizes as the model is prepared.
    pub(crate) today: Vec<usize>,
    /// What others always are.
    pub(crate) fixed: Vec<usize>,
    /// Sizes that matter to the nodes beyond their kind.
    pub(crate) special: Vec<usize>,
    /// Heights and widths that are an image to the nodes.
    pub(crate) windows: Vec<[usize; 2]>,
}

impl Free {
    /// A size for each dimension, one list for each try.
    pub(crate) fn sizes(&self) -> Box<dyn ExactSizeIterator<Item = Vec<usize>>> {
        let count = self.today.len();
        let mut every = distinct([&self.today, &self.single(), self.windows.as_flattened()]);
        every.truncate(MOST_SINGLE);
        every = distinct([&KINDS, &every]);
        let all = u32::try_from(count).ok().and_then(|count| every.len().checked_pow(count));
        if let Some(all) = all.filter(|all| *all <= TRIES).and_then(|_| product(vec![every.clone(); count])) {
            return Box::new(all);
        }
        // A few that all have the same kind of size, to change one or two of them.
        let mut bases = vec![self.today.clone()];
        bases.extend(KINDS.into_iter().chain(SMALL).map(|size| vec![size; count]));
        let mut all = bases.clone();
        if count <= MOST_PAIRED {
            self.paired(&bases, &mut all);
            self.repeated(&mut all);
        }
        let mut state = 1_u64;
        let mut one_of = |sizes: &[usize]| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sizes[(state >> 33) as usize % sizes.len()]
        };
        for _ in 0..TRIES.min(MOST_PICKED / count.max(1)) {
            // Few sizes, as many dimensions must be equal.
            let few = [one_of(&every), one_of(&every), one_of(&KINDS)];
            all.push((0..count).map(|_| one_of(&few)).collect());
        }
        Box::new(all.into_iter())
    }

    /// What any of them may be for reasons of the nodes.
    fn single(&self) -> Vec<usize> {
        let mut single = distinct([&self.special, &self.fixed]);
        single.truncate(MOST_SINGLE);
        single
    }

    /// Adds those where one or two differ from a base, to all sizes that they may have.
    fn paired(&self, bases: &[Vec<usize>], all: &mut Vec<Vec<usize>>) {
        let count = self.today.len();
        let change = |base: &Vec<usize>, to: &[(usize, usize)]| {
            let mut list = base.clone();
            to.iter().for_each(|(i, size)| list[*i] = *size);
            list
        };
        let own: Vec<_> = self.today.iter().map(|size| distinct([&KINDS[..], &[*size]])).collect();
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

    /// Adds those where any of them is repeated along the others' dimensions: what is equal now stays equal, or becomes one.
    fn repeated(&self, all: &mut Vec<Vec<usize>>) {
        let odd = |size: usize| match size {
            _ if size == 1 || self.fixed.contains(&size) => size,
            _ => size + 1 - size % 2,
        };
        for small in SMALL {
            let several = |size: usize| if size == 1 { small } else { size };
            let as_today: Vec<usize> = self.today.iter().map(|size| several(*size)).collect();
            let as_odd = self.today.iter().map(|size| several(odd(*size))).collect();
            for base in [as_today, as_odd, vec![small; self.today.len()]] {
                for ones in 0..1_usize << base.len().min(MOST_REPEATED) {
                    let repeats = |i: usize| ones >> i.min(MOST_REPEATED - 1) & 1 == 1;
                    let sizes = base.iter().enumerate();
                    all.push(sizes.map(|(i, size)| if repeats(i) { 1 } else { *size }).collect());
                }
            }
        }
    }

    /// Sizes of each kind, of all or of one, for what takes long to look at.
    pub(crate) fn few_sizes(&self) -> Vec<Vec<usize>> {
        let mut all: Vec<Vec<usize>> = KINDS.map(|size| vec![size; self.today.len()]).to_vec();
        for i in 0..self.today.len().min(MOST_PAIRED) {
            all.extend(KINDS.map(|size| {
                let mut list = self.today.clone();
                list[i] = size;
                list
            }));
        }
        all.push(self.today.clone());
        all
    }
}

fn distinct<const N: usize>(lists: [&[usize]; N]) -> Vec<usize> {
    let mut all = lists.concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// Every combination of a size from each list, if they are few.
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
    (count <= TRIES).then(|| (0..count).map(nth))
}

/// Sizes that matter to an op beyond their kind.
pub(crate) fn special(node: NodeView<'_>) -> &'static [usize] {
    use BuiltinOp as B;
    match node.op().builtin() {
        Some(B::BATCH_MATMUL | B::FULLY_CONNECTED) => &COLUMNS,
        Some(
            B::MEAN
            | B::SUM
            | B::REDUCE_MAX
            | B::REDUCE_MIN
            | B::REDUCE_PROD
            | B::REDUCE_ANY
            | B::REDUCE_ALL
            | B::SOFTMAX
            | B::LOG_SOFTMAX
            | B::L2_NORMALIZATION
            | B::ARG_MAX
            | B::ARG_MIN
            | B::TOPK_V2
            | B::AVERAGE_POOL_2D
            | B::MAX_POOL_2D,
        ) => &ROWS,
        Some(B::GATHER_ND | B::SCATTER_ND) => &DEPTHS,
        _ => &[],
    }
}

/// Sizes that a node's constants and options speak of: dimensions that begin or end there, or are cut into pieces.
pub(crate) fn stated(node: NodeView<'_>) -> Vec<usize> {
    /// More numbers than dimensions are data.
    const MOST_NUMBERS: usize = 8;
    let numbers = |tensor: TensorInfo<'_>| tensor.constant_as::<i32>().map(<[i32]>::to_vec);
    let numbers: Vec<usize> = (node.inputs().filter_map(numbers).filter(|list| list.len() <= MOST_NUMBERS))
        .flatten()
        .filter_map(|n| usize::try_from(n.unsigned_abs()).ok())
        .filter(|n| (1..=LONGEST).contains(n))
        .collect();
    let block = |size: i32| usize::try_from(size).ok().filter(|size| *size <= LONGEST);
    let pieces = match (node.op().builtin(), node.params()) {
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
    let pieces = pieces.iter().flat_map(|size| PIECES.map(|count| size.saturating_mul(count)));
    let mut all: Vec<usize> = numbers.iter().flat_map(|size| [*size, size + 1]).chain(pieces).collect();
    all.retain(|size| *size > 0);
    all
}

/// The height and width over which an op's window is all of an image.
pub(crate) fn window(node: NodeView<'_>) -> Option<[usize; 2]> {
    let pool = <&Pool2DParams>::try_from(node.params()).ok()?;
    Some([pool.filter_height, pool.filter_width].map(|n| usize::try_from(n).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(today: &[usize]) -> Free {
        Free { today: today.to_vec(), fixed: vec![5], special: vec![8], windows: vec![[2, 7]] }
    }

    #[test]
    fn of_few_dimensions_every_combination_is_tried() {
        let all: Vec<_> = free(&[9, 1, 12]).sizes().collect();
        for [a, b, c] in [[9, 1, 12], [1, 1, 1], [68, 67, 3], [5, 8, 5], [2, 7, 12], [12, 9, 1]] {
            assert!(all.contains(&vec![a, b, c]), "{a} {b} {c}");
        }
        assert_eq!(all.len(), 10 * 10 * 10);
    }

    #[test]
    fn of_very_many_dimensions_few_are_tried() {
        for count in [25, 1000, 100_000] {
            let picked: usize = free(&vec![7; count]).sizes().map(|sizes| sizes.len()).sum();
            assert!(picked <= MOST_PICKED + 7 * count, "{picked}");
        }
    }

    #[test]
    fn of_many_dimensions_every_pair_and_every_repetition_is_tried() {
        let today = [2, 3, 1, 6, 6, 3, 2, 1];
        let all: Vec<_> = free(&today).sizes().collect();
        assert!(all.iter().all(|sizes| sizes.len() == today.len()));
        for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            for (x, y) in [(1, 67), (68, 3), (2, 7)] {
                let mut wanted = today.to_vec();
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
