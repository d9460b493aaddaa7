//! Geometry of convolutions and of the windows that they read.

use std::ops::Range;

use crate::base::error::{ComputeError, Result, product};

/// Shape of a filter, `[out_channels, height, width, in_channels / groups]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Output channels, of all groups.
    pub out_channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Input channels of each output channel.
    pub in_channels: usize,
    /// Number of groups; divides the output channels.
    pub groups: usize,
}

impl Filter {
    /// Checks that the filter is well formed, and that the geometry is in range and matches it.
    pub(crate) fn check(&self, geo: &ConvGeometry) -> Result<()> {
        if self.groups == 0 || !self.out_channels.is_multiple_of(self.groups) {
            return Err(ComputeError::Range { what: "groups" });
        }
        geo.check()?;
        if geo.window != [self.height, self.width] {
            return Err(ComputeError::Range { what: "window" });
        }
        if Some(geo.in_channels) != self.in_channels.checked_mul(self.groups) {
            return Err(ComputeError::Range { what: "input channels" });
        }
        Ok(())
    }
}

/// Shape of a depthwise filter, `[1, height, width, channels]`. Output channel `c` reads input channel `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthwiseFilter {
    /// Channels of input and output.
    pub channels: usize,
    /// Height and width.
    pub window: [usize; 2],
}

/// Position of a filter's window for each output pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Images.
    pub batch: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Channels of the input.
    pub in_channels: usize,
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width of the window.
    pub window: [usize; 2],
    /// Distance of neighbouring output pixels in the input, `[down, across]`.
    pub stride: [usize; 2],
    /// Distance of neighbouring taps in the input, `[down, across]`; at least 1.
    pub dilation: [usize; 2],
    /// Padding above and to the left. Padding below and to the right follows from the output size.
    pub padding: [usize; 2],
}

/// A geometry that is in range, with its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    geo: ConvGeometry,
    /// Elements of the input.
    pub(crate) input_len: usize,
    /// Output pixels of all images.
    pub(crate) pixels: usize,
    /// Whether a window is entirely padding.
    pub has_empty_window: bool,
}

impl std::ops::Deref for Checked {
    type Target = ConvGeometry;

    fn deref(&self) -> &ConvGeometry {
        &self.geo
    }
}

/// Whether tap `tap` of one of `N` neighbouring pixels reads column `column` of those that these pixels read: that of pixel
/// `(column - tap) / STRIDE`.
///
/// In unrolled loops the condition is a constant (`if const { … }`), so that the compiler generates no code for the other
/// taps. It would take minutes to remove this code.
pub(crate) const fn covers<const WIDTH: usize, const STRIDE: usize, const N: usize>(
    column: usize,
    tap: usize,
) -> bool {
    tap < WIDTH && tap <= column && (column - tap).is_multiple_of(STRIDE) && (column - tap) / STRIDE < N
}

/// Maximum of a dimension: sums and products of two dimensions fit an `isize` of 64 bits.
const MAX_DIM: usize = 1 << 30;

impl ConvGeometry {
    /// Checks that all dimensions are in range, and computes the sizes.
    ///
    /// # Errors
    /// As [`ConvGeometry::check`].
    pub fn checked(self) -> Result<Checked> {
        self.check()?;
        let (input_len, pixels) = (self.input_len()?, self.pixels()?);
        Ok(Checked { geo: self, input_len, pixels, has_empty_window: self.has_empty_window() })
    }

    /// Elements of the input.
    ///
    /// # Errors
    /// Fails if their number overflows.
    pub fn input_len(&self) -> Result<usize> {
        product("input", &[self.batch, self.input[0], self.input[1], self.in_channels])
    }

    /// Output pixels of all images.
    ///
    /// # Errors
    /// Fails if their number overflows.
    pub fn pixels(&self) -> Result<usize> {
        product("output", &[self.batch, self.output[0], self.output[1]])
    }

    /// Checks that all dimensions are in range.
    ///
    /// # Errors
    /// Fails if a dimension is too large, a window, stride or dilation is 0, or a size overflows.
    pub fn check(&self) -> Result<()> {
        let fields = [
            ("batch", [self.batch, 1]),
            ("input size", self.input),
            ("input channels", [self.in_channels, 1]),
            ("output size", self.output),
            ("window", self.window),
            ("stride", self.stride),
            ("dilation", self.dilation),
            ("padding", self.padding),
        ];
        for (what, values) in fields {
            let zero_is_wrong = matches!(what, "window" | "stride" | "dilation");
            if values.iter().any(|&v| v > MAX_DIM || (v == 0 && zero_is_wrong)) {
                return Err(ComputeError::Range { what });
            }
        }
        // Offset of the last tap of the last output pixel.
        for axis in 0..2 {
            let reach = |a: usize, b: usize| a.checked_mul(b).filter(|&r| r <= isize::MAX as usize / 4);
            reach(self.output[axis], self.stride[axis])
                .and_then(|_| reach(self.window[axis], self.dilation[axis]))
                .ok_or(ComputeError::Range { what: "window" })?;
        }
        self.input_len()?;
        self.pixels()?;
        Ok(())
    }

    /// First input row or column (by `axis`) of an output pixel's window; negative in the padding.
    #[inline]
    pub(crate) fn origin(&self, axis: usize, out: usize) -> isize {
        (out * self.stride[axis]) as isize - self.padding[axis] as isize
    }

    /// Returns whether each output pixel is a product of the one input pixel at the same position.
    pub fn is_dense(&self) -> bool {
        self.window == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0] && self.input == self.output
    }

    /// Output rows or columns (by `axis`) whose windows are inside the input along that axis.
    #[inline]
    pub(crate) fn interior(&self, axis: usize) -> Range<usize> {
        let (stride, padding, most) = (self.stride[axis], self.padding[axis], self.output[axis]);
        let start = padding.div_ceil(stride).min(most);
        let reach = (self.window[axis] - 1) * self.dilation[axis] + 1;
        let room = (self.input[axis] + padding).checked_sub(reach);
        let end = room.map_or(0, |r| r / stride + 1).min(most);
        start..end.max(start)
    }

    /// Returns whether a window is entirely padding.
    pub(crate) fn has_empty_window(&self) -> bool {
        let empty = |axis: usize| {
            let is_empty = |o: usize| self.taps(axis, self.origin(axis, o)).is_empty();
            if self.input[axis] < self.dilation[axis] {
                return (0..self.output[axis]).any(is_empty);
            }
            // The distance of neighbouring taps is at most the length of the input, so that a window is empty only if it
            // ends before the input or begins after it: if any, the first or the last one is.
            is_empty(0) || is_empty(self.output[axis] - 1)
        };
        self.output.iter().all(|&o| o > 0) && (empty(0) || empty(1))
    }

    /// Taps along an axis that are inside the input, for a window that begins at `origin`.
    #[inline]
    pub(crate) fn taps(&self, axis: usize, origin: isize) -> Range<usize> {
        let step = self.dilation[axis];
        // Most steps are 1, and a division takes longer than the rest.
        let count = |room: usize| if step == 1 { room } else { room.div_ceil(step) };
        let from = if origin < 0 { count(origin.unsigned_abs()) } else { 0 };
        let room = (self.input[axis] as isize - origin).max(0) as usize;
        let to = count(room).min(self.window[axis]);
        from.min(to)..to
    }
}

/// The conversion of a convolution's windows to rows of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One segment per row of the window, whose taps are contiguous in memory except at the left and right edge.
    Rows,
    /// One segment per tap.
    Taps,
    /// One segment, a copy of the window, followed by any values up to this number of elements.
    Copies(usize),
    /// As `Rows`, in a copy of the input with its padding. Each segment is followed by any values up to this number of elements.
    Padded(usize),
}

impl Reading {
    /// Returns the reading without copies of whole windows.
    pub(crate) fn in_place(geo: &ConvGeometry, groups: usize) -> Self {
        let merged = groups == 1 && (geo.dilation[1] == 1 || geo.window[1] == 1);
        if merged { Reading::Rows } else { Reading::Taps }
    }

    /// Returns the number of segments of a window, and elements per segment.
    pub(crate) fn segments(self, geo: &ConvGeometry, groups: usize) -> (usize, usize) {
        let channels = geo.in_channels.checked_div(groups).unwrap_or(0);
        let [height, width] = geo.window;
        match self {
            Reading::Rows | Reading::Padded(_) => (height, width * channels),
            Reading::Taps => (height * width, channels),
            Reading::Copies(_) => (1, height * width * channels),
        }
    }

    /// Returns the elements of a window's patch.
    pub(crate) fn patch_len(self, geo: &ConvGeometry) -> usize {
        let [height, width] = geo.window;
        match self {
            Reading::Rows => {
                let last = geo.output[1].saturating_sub(1) * geo.stride[1];
                let edges = geo.padding[1] > 0 || last + width > geo.input[1] + geo.padding[1];
                if edges && width > 1 { height * width * geo.in_channels } else { 0 }
            }
            Reading::Taps | Reading::Padded(_) => 0,
            Reading::Copies(read) => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_windows_are_found_at_the_borders() {
        let mut found = [0; 2];
        for (input, output) in (0..7).flat_map(|input| (0..7).map(move |output| (input, output))) {
            for (stride, dilation) in (1..4).flat_map(|stride| (1..9).map(move |dilation| (stride, dilation)))
            {
                for (window, padding) in (1..4).flat_map(|w| (0..9).map(move |padding| (w, padding))) {
                    let geo = ConvGeometry {
                        batch: 1,
                        input: [1, input],
                        in_channels: 1,
                        output: [1, output],
                        window: [1, window],
                        stride: [1, stride],
                        dilation: [1, dilation],
                        padding: [0, padding],
                    };
                    let want = (0..output).any(|o| geo.taps(1, geo.origin(1, o)).is_empty());
                    assert_eq!(geo.has_empty_window(), want, "{geo:?}");
                    found[usize::from(want)] += 1;
                }
            }
        }
        assert!(found.iter().all(|&n| n > 1000), "{found:?}");
    }

    #[test]
    fn empty_windows_of_long_rows_are_found_at_once() {
        let long = MAX_DIM / 2;
        let geo = ConvGeometry {
            batch: 1,
            input: [1, long],
            in_channels: 1,
            output: [1, long],
            window: [1, 3],
            stride: [1, 1],
            dilation: [1, 7],
            padding: [0, 7],
        };
        // A walk of all windows takes seconds.
        assert!((0..1000).all(|_| !geo.has_empty_window()));
    }
}
