//! Windows of convolutions and poolings over an image.

use delegraph_core::kernel::Parallel;
use delegraph_core::ops::{Padding, Window, pad_amount};

use super::pace::Polls;

/// Maximum number of windows between two polls.
const POLL_WINDOWS: usize = 64;
/// Products between two polls, unless a window has more; a product is about a nanosecond.
const POLL_PRODUCTS: usize = 1 << 22;

/// Windows along one dimension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    /// Elements of the input.
    pub(crate) input: usize,
    /// Elements of the output, which is the number of windows.
    pub(crate) output: usize,
    /// Elements of a window.
    pub(crate) window: usize,
    /// Distance from one window to the next.
    pub(crate) stride: usize,
    /// Distance from one element of a window to the next.
    pub(crate) dilation: usize,
    /// Padding before the first element of the input.
    pub(crate) pad: usize,
}

impl Axis {
    /// Windows of an op whose shapes inference accepted, with `stride` and `dilation` as in the file.
    pub(crate) fn new(
        [input, window, output]: [usize; 3],
        stride: i32,
        dilation: i32,
        padding: Padding,
    ) -> Self {
        let positive = |v: i32| usize::try_from(v).unwrap_or(1).max(1);
        let (stride, dilation) = (positive(stride), positive(dilation));
        let pad = match padding {
            Padding::Same => pad_amount(input, output, Window { size: window, stride, dilation }),
            Padding::Valid => 0,
        };
        Axis { input, output, window, stride, dilation, pad }
    }

    /// Returns the taps of window `i` inside the input: pairs of a window element and an input element.
    pub(crate) fn taps(self, i: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        let Axis { input, window, dilation, pad, .. } = self;
        let first = i * self.stride;
        // Most dilations are 1, and a division takes longer than a short window.
        let taps = |distance: usize| if dilation == 1 { distance } else { distance.div_ceil(dilation) };
        // Taps before the input, and before its end.
        let start = taps(pad.saturating_sub(first));
        let end = taps(pad.saturating_add(input).saturating_sub(first)).min(window);
        (start..end).map(move |k| (k, first + k * dilation - pad))
    }
}

/// Maximum number of products of a window that is not polled; a product is about a nanosecond.
const UNPOLLED: usize = 1 << 21;

/// Folds the taps of a window, as [`Iterator::fold`]. Large windows, of `products` products and `each` products per tap,
/// end early if the work is interrupted.
pub(crate) fn fold_taps<A>(
    polls: &mut Polls<'_>,
    (products, each): (usize, usize),
    taps: impl Iterator<Item = (usize, usize)>,
    init: A,
    f: impl FnMut(A, (usize, usize)) -> A,
) -> A {
    if products <= UNPOLLED {
        return taps.fold(init, f);
    }
    taps.take_while(|_| !polls.interrupted_after(each)).fold(init, f)
}

/// Windows of a two-dimensional op over `[batch, height, width, channels]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    /// Number of images.
    pub(crate) batch: usize,
    /// Windows along the height.
    pub(crate) y: Axis,
    /// Windows along the width.
    pub(crate) x: Axis,
}

impl Windows {
    /// Returns every window in the order of the output: its batch, and its taps, which are pairs of a position in the
    /// window and a position in the input. Both positions are row-major; positions in the input count through all
    /// batches. Each window takes `products` products. Ends early if the work is interrupted.
    pub(crate) fn iter(
        self,
        parallel: &dyn Parallel,
        products: usize,
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = (usize, usize)> + Clone)> {
        let Windows { batch, y, x } = self;
        let every = (POLL_PRODUCTS / products.max(1)).clamp(1, POLL_WINDOWS);
        let interrupted = move |ox: usize| ox.is_multiple_of(every) && parallel.is_interrupted();
        let outputs = (0..batch).flat_map(move |b| (0..y.output).map(move |oy| (b, oy)));
        let outputs = outputs.flat_map(move |(b, oy)| (0..x.output).map(move |ox| (b, oy, ox)));
        let outputs = outputs.take_while(move |(.., ox)| !interrupted(*ox));
        outputs.map(move |(b, oy, ox)| {
            let rows = y.taps(oy).map(move |(ky, iy)| (ky * x.window, (b * y.input + iy) * x.input));
            (b, rows.flat_map(move |(k, row)| x.taps(ox).map(move |(kx, ix)| (k + kx, row + ix))))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// One thread, whose polls are counted.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    // SAFETY: `run` calls `f` once per number, on the calling thread.
    unsafe impl Parallel for Counted {
        fn threads(&self) -> usize {
            1
        }

        fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
            (0..tasks).for_each(f);
        }

        fn is_interrupted(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    #[test]
    fn large_windows_are_polled_each() {
        let axis = |output| Axis { input: output, output, window: 1, stride: 1, dilation: 1, pad: 0 };
        let windows = Windows { batch: 1, y: axis(1), x: axis(200) };
        for (products, polls) in [(0, 4), (1, 4), (POLL_PRODUCTS / 4, 50), (usize::MAX, 200)] {
            let parallel = Counted::default();
            assert_eq!(windows.iter(&parallel, products).count(), 200);
            assert_eq!(parallel.0.into_inner(), polls, "windows of {products} products");
        }
    }

    #[test]
    fn huge_windows_are_polled() {
        let parallel = Counted::default();
        let sum = |products| {
            let taps = (0..100).map(|k| (k, 2 * k));
            let polls = &mut Polls::new(&parallel);
            fold_taps(polls, (products, products / 100), taps, 0, |sum, (k, i)| sum + k + i)
        };
        assert_eq!((sum(UNPOLLED), parallel.0.load(Ordering::Relaxed)), (14_850, 0));
        assert_eq!((sum(usize::MAX), parallel.0.load(Ordering::Relaxed)), (14_850, 100));
    }

    #[test]
    fn taps_are_those_inside_the_input() {
        for (input, window) in (0..6).flat_map(|input| (0..5).map(move |window| (input, window))) {
            for (stride, dilation) in (1..4).flat_map(|stride| (1..6).map(move |dilation| (stride, dilation)))
            {
                for (pad, i) in (0..9).flat_map(|pad| (0..6).map(move |i| (pad, i))) {
                    let axis = Axis { input, output: 6, window, stride, dilation, pad };
                    let at = |k: usize| (i * stride + k * dilation).checked_sub(pad);
                    let inside = |k| Some((k, at(k).filter(|at| *at < input)?));
                    assert!(axis.taps(i).eq((0..window).filter_map(inside)), "window {i} of {axis:?}");
                }
            }
        }
    }

    #[test]
    fn taps_lie_inside_the_input() {
        let axis = Axis::new([5, 3, 3], 2, 1, Padding::Same);
        assert_eq!(axis.pad, 1);
        assert_eq!(axis.taps(0).collect::<Vec<_>>(), [(1, 0), (2, 1)]);
        assert_eq!(axis.taps(2).collect::<Vec<_>>(), [(0, 3), (1, 4)]);
        let dilated = Axis::new([5, 2, 2], 1, 3, Padding::Valid);
        assert_eq!(dilated.taps(1).collect::<Vec<_>>(), [(0, 1), (1, 4)]);
    }
}
