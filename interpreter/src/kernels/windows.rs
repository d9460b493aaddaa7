//! Windows that slide over an image, as convolutions and poolings see it.

use delegraph_core::ops::{Padding, pad_amount};

/// The windows along one dimension.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Elements of the input.
    pub input: usize,
    /// Elements of the output: how many windows.
    pub output: usize,
    /// Elements of a window.
    pub window: usize,
    /// From one window to the next.
    pub stride: usize,
    /// From one element of a window to the next.
    pub dilation: usize,
    /// How far the first window begins in front of the input.
    pub pad: usize,
}

impl Axis {
    /// The windows of an op whose shapes inference accepted, with `stride` and `dilation` as the file has them.
    pub fn new([input, window, output]: [usize; 3], stride: i32, dilation: i32, padding: Padding) -> Self {
        let positive = |v: i32| usize::try_from(v).unwrap_or(1).max(1);
        let (stride, dilation) = (positive(stride), positive(dilation));
        let pad = match padding {
            Padding::Same => pad_amount(input, output, window, stride, dilation),
            Padding::Valid => 0,
        };
        Axis { input, output, window, stride, dilation, pad }
    }

    /// Where window `i` meets the input: pairs of an element of the window and an element of the input.
    pub fn taps(self, i: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        (0..self.window).filter_map(move |k| {
            let at = (i * self.stride + k * self.dilation).checked_sub(self.pad)?;
            (at < self.input).then_some((k, at))
        })
    }
}

/// The windows of a two-dimensional op over `[batch, height, width, channels]`.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// Images.
    pub batch: usize,
    /// Along the height.
    pub y: Axis,
    /// Along the width.
    pub x: Axis,
}

impl Windows {
    /// Every window in the order of the output: its batch, and its taps, each a position in the window and a
    /// position in the input, both counted row by row (the input's through all batches).
    pub fn iter(self) -> impl Iterator<Item = (usize, impl Iterator<Item = (usize, usize)> + Clone)> {
        let Windows { batch, y, x } = self;
        let outputs = (0..batch).flat_map(move |b| (0..y.output).map(move |oy| (b, oy)));
        let outputs = outputs.flat_map(move |(b, oy)| (0..x.output).map(move |ox| (b, oy, ox)));
        outputs.map(move |(b, oy, ox)| {
            let rows = y.taps(oy).map(move |(ky, iy)| (ky * x.window, (b * y.input + iy) * x.input));
            (b, rows.flat_map(move |(k, row)| x.taps(ox).map(move |(kx, ix)| (k + kx, row + ix))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
