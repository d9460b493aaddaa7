//! MAX_POOL_2D of bytes, separated into maxima of rows and of columns.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::matmul::geometry::ConvGeometry;
use crate::simd::{Simd, SimdTask};

/// Bytes of a block of a row.
const BLOCK: usize = 64;

/// Bytes of a part of a row. In memory there is a block before and after it.
const PART: usize = 8 * 1024 - 2 * BLOCK;

/// Maximum number of rows or columns whose maximum is computed at a time.
pub(super) const TAPS: usize = 8;

/// Columns whose maximum replaces each of them if windows are wider than [`TAPS`].
const WIDER: usize = 5;

/// Maximum number of channels that are always computed together.
const MANY: usize = 256;

/// Time of a pixel whose window is computed by itself, in addition to its blocks. All times are multiples of that of a
/// block.
const PER_PIXEL: usize = 40;

/// Time of a part of a row, in addition to its blocks.
const PER_PART: usize = 36;

/// Time of each of several pieces of a row in memory, in addition to its blocks.
const PER_RUN: usize = 16;

/// Time to begin rows in parts.
const START: usize = 100;

/// The maximum of a window as one of columns of maxima: for each part of an output row, first the maxima of the
/// windows' input rows, whose bytes are neighbours whatever the number of channels, and then those of neighbouring
/// columns.
pub(super) struct Parts<'a> {
    geo: &'a ConvGeometry,
    /// Channels that are computed together: all, or a multiple of [`BLOCK`].
    pub(super) width: usize,
    /// Maximum number of output pixels of a part.
    pub(super) pixels: usize,
}

/// What follows a maximum of unsigned values: their bounds, and a flip of the sign.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    pub(super) bounds: [u8; 2],
    pub(super) flip: u8,
}

pub(super) struct PartsTask<'a> {
    pub(super) parts: Parts<'a>,
    pub(super) input: &'a [u8],
    pub(super) finish: Finish,
    /// Output rows `rows`.
    pub(super) out: &'a mut [u8],
    /// Indices of output rows, through all images.
    pub(super) rows: Range<usize>,
}

impl SimdTask for PartsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.parts.run(self.input, self.finish, self.rows, self.out);
    }
}

/// Memory of a part of a row.
type Memory = [MaybeUninit<u8>; PART + 2 * BLOCK];

impl<'a> Parts<'a> {
    /// For `tasks_rows` output rows. `None` if windows are too long or have gaps, or are computed faster by themselves.
    pub(super) fn new(geo: &'a ConvGeometry, tasks_rows: usize) -> Option<Self> {
        let (channels, stride, reach) = (geo.in_channels, geo.stride[1], geo.window[1]);
        let is_tiny = tasks_rows.saturating_mul(geo.output[1]) <= 2;
        if is_tiny || (reach > 1 && geo.dilation[1] > 1) || reach > PART || stride > PART {
            return None;
        }
        let pixels = |width: usize| {
            let room = (PART / width).checked_sub(reach)?;
            Some(if stride == 1 { room + 1 } else { room / stride + 1 }.min(geo.output[1]))
        };
        let columns = |pixels: usize| (pixels - 1) * stride + reach;
        // Columns that two parts read are computed twice: these must be few.
        let is_long = |n: usize| n == geo.output[1] || 4 * columns(n) <= 5 * n * stride;
        let share = |most: usize| channels.div_ceil(channels.div_ceil(most)).next_multiple_of(BLOCK);
        let width = match channels {
            ..=BLOCK => channels,
            _ if pixels(channels).is_some_and(is_long) => channels,
            _ if channels > MANY && pixels(MANY).is_some_and(is_long) => share(MANY),
            _ => share(BLOCK),
        };
        let pixels = pixels(width)?;
        let together = stride == 1 && width == channels;
        let (mut taps, mut wider) = (reach, 0);
        while taps > TAPS {
            (taps, wider) = (taps.div_ceil(WIDER), wider + 1);
        }
        let rows = geo.window[0].min(geo.input[0]);
        let blocks = |bytes: usize| bytes.div_ceil(BLOCK);
        let across = if together { blocks(pixels * width) } else { pixels * blocks(width) };
        let all = blocks(columns(pixels) * width);
        let runs = if width == channels { 0 } else { columns(pixels) };
        let cost = START / tasks_rows
            + PER_PART
            + runs * PER_RUN
            + all * (rows + 1 + wider * (WIDER + 1))
            + across * (taps + 1);
        // The time of windows by themselves.
        let alone = if stride == 1 { geo.output[1] - geo.interior(1).len() + 1 } else { pixels };
        let each = rows * reach.min(geo.input[1]) + 1;
        let other =
            alone.min(pixels) * PER_PIXEL + if stride == 1 { blocks(pixels * width) } else { across } * each;
        (cost < other).then_some(Parts { geo, width, pixels })
    }

    /// Computes the output rows `rows`, through all images, of `out`.
    #[inline(always)]
    fn run(&self, input: &[u8], finish: Finish, rows: Range<usize>, out: &mut [u8]) {
        let geo = self.geo;
        let used = ((self.pixels - 1) * geo.stride[1] + geo.window[1]) * self.width + 2 * BLOCK;
        let mut memory: [Memory; 2] = [[MaybeUninit::uninit(); PART + 2 * BLOCK]; 2];
        let [first, second] = memory.each_mut().map(|memory| {
            memory[..used].fill(MaybeUninit::new(0));
            // SAFETY: these bytes were written.
            unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), used) }
        });
        let len = geo.output[1] * geo.in_channels;
        let (mut image, mut y) = (rows.start / geo.output[0], rows.start % geo.output[0]);
        for row in 0..rows.len() {
            let y0 = geo.origin(0, y);
            let ky = geo.taps(0, y0);
            // Ranges of taps are not empty, so the first one is inside of the input.
            let line = image * geo.input[0] + (y0 + (ky.start * geo.dilation[0]) as isize) as usize;
            self.row(input, finish, line, ky.len(), [&mut *first, &mut *second], &mut out[row * len..]);
            y += 1;
            if y == geo.output[0] {
                (image, y) = (image + 1, 0);
            }
        }
    }

    /// Computes the output row whose windows have `rows` rows, of which `line` is the first one. `out` begins with the
    /// row; bytes after it may be overwritten.
    #[inline(always)]
    fn row(
        &self,
        input: &[u8],
        finish: Finish,
        line: usize,
        rows: usize,
        memory: [&mut [u8]; 2],
        out: &mut [u8],
    ) {
        let (geo, width) = (self.geo, self.width);
        let (channels, stride, reach) = (geo.in_channels, geo.stride[1], geo.window[1]);
        let is_whole = width == channels;
        let [mut from, mut other] = memory;
        let (mut channel, mut x) = (0, 0);
        while channel < channels {
            let pixels = self.pixels.min(geo.output[1] - x);
            let columns = (pixels - 1) * stride + reach;
            // The columns that are in the input. Each window has one of them.
            let x0 = geo.origin(1, x);
            let left = x0.min(0).unsigned_abs();
            let right = (x0 + columns as isize).min(geo.input[1] as isize) as usize;
            let column = x0.max(0) as usize;
            let inside = right - column;
            let at = (line * geo.input[1] + column) * channels + channel;
            let (runs, run) = if is_whole { (1, inside * width) } else { (inside, width) };
            for i in 0..runs {
                self.down(
                    input,
                    at + i * channels,
                    rows,
                    finish.flip,
                    from,
                    BLOCK + left * width + i * run,
                    run,
                );
            }
            // Padding is less than or equal to all bytes. Its blocks may overlap those around the part.
            let mut end = BLOCK + left * width;
            while end > BLOCK {
                from[end - BLOCK..][..BLOCK].fill(0);
                end = end.saturating_sub(BLOCK);
            }
            let mut start = BLOCK + (left + inside) * width;
            while start < BLOCK + columns * width {
                from[start..][..BLOCK].fill(0);
                start += BLOCK;
            }
            // Wide windows are those of maxima of neighbouring columns.
            let mut step = 1;
            while reach.div_ceil(step) > TAPS {
                let len = (columns + 1 - WIDER * step) * width;
                let taps: [&[u8]; WIDER] = array(|k| &from[BLOCK + k * step * width..]);
                fold::<WIDER, false, false>(
                    taps,
                    &mut other[BLOCK..][..len.next_multiple_of(BLOCK)],
                    Finish::NONE,
                );
                std::mem::swap(&mut from, &mut other);
                step *= WIDER;
            }
            let count = reach.div_ceil(step);
            let mut taps = [0; TAPS];
            for (k, tap) in taps.iter_mut().enumerate() {
                *tap = BLOCK + (k * step).min(reach - step) * width;
            }
            let len = pixels * channels;
            let to = &mut out[x * channels + channel..];
            // Blocks overwrite bytes after the part, which are computed later. After the last part, blocks would end outside of `out`.
            let is_last = is_whole && to.len() < len + BLOCK;
            let target = if is_last { &mut *other } else { &mut *to };
            let across = Across { from, taps, count, finish };
            if is_whole && stride == 1 {
                across.together(&mut target[..len.next_multiple_of(BLOCK)]);
            } else {
                across.apart(target, pixels, width, stride * width, channels);
            }
            if is_last {
                to[..len].copy_from_slice(&other[..len]);
            }
            x += pixels;
            if x == geo.output[1] {
                let next = channel + width;
                (channel, x) = (if next < channels { next.min(channels - width) } else { channels }, 0);
            }
        }
    }

    /// Writes the maxima, as unsigned values, of `rows` rows of `len` bytes of the input, the first one at `at`, to
    /// `to[start..]`. May write up to a block before and after them.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "two places, and what is at them")]
    fn down(&self, input: &[u8], at: usize, rows: usize, flip: u8, to: &mut [u8], start: usize, len: usize) {
        let down = self.geo.dilation[0] * self.geo.input[1] * self.geo.in_channels;
        let whole = len / BLOCK * BLOCK;
        let is_room = at + (rows - 1) * down + whole + BLOCK <= input.len();
        if !is_room && at + len < BLOCK {
            for i in 0..len {
                let bytes = (0..rows).map(|row| input[at + row * down + i] ^ flip);
                to[start + i] = bytes.max().unwrap_or(0);
            }
            return;
        }
        // The last block has bytes after the rows, or else those before its own.
        let last = len as isize - BLOCK as isize;
        let (mut first, mut n) = match whole {
            _ if is_room || whole == len => (0, len.next_multiple_of(BLOCK)),
            0 => (last, BLOCK),
            _ => (0, whole),
        };
        loop {
            let input = &input[at.wrapping_add_signed(first)..];
            let to = &mut to[start.wrapping_add_signed(first)..][..n];
            fold_rows(input, down, rows, flip, to);
            if is_room || first == last || whole == len {
                return;
            }
            (first, n) = (last, BLOCK);
        }
    }
}

/// The values of a function. Not the function of the standard library, whose loop the compiler may leave a call.
#[inline(always)]
fn array<T: Copy, const K: usize>(value: impl Fn(usize) -> T) -> [T; K] {
    let mut all = [value(0); K];
    for (k, to) in all.iter_mut().enumerate().skip(1) {
        *to = value(k);
    }
    all
}

impl Finish {
    const NONE: Self = Finish { bounds: [0, u8::MAX], flip: 0 };
}

/// The maxima of `rows` rows, as unsigned values. They are `down` bytes apart.
#[inline(always)]
fn fold_rows(input: &[u8], down: usize, rows: usize, flip: u8, to: &mut [u8]) {
    let finish = |done: usize| Finish { flip: if done == rows { flip } else { 0 }, ..Finish::NONE };
    let mut done = rows.min(TAPS);
    macro_rules! set {
        ($count:literal, $more:literal, $first:expr) => {{
            let taps: [&[u8]; $count] = array(|k| &input[($first + k).min(rows - 1) * down..]);
            match flip {
                0 => fold::<$count, false, $more>(taps, to, finish(done)),
                _ => fold::<$count, true, $more>(taps, to, finish(done)),
            }
        }};
    }
    match done {
        0..=2 => set!(2, false, 0),
        3 => set!(3, false, 0),
        4..=5 => set!(5, false, 0),
        _ => set!(8, false, 0),
    }
    while done < rows {
        let first = done;
        done = rows.min(done + TAPS);
        set!(8, true, first);
    }
}

/// Writes the maxima of `K` rows, and of the bytes of `to` if there are `MORE` rows than these, to `to`: a multiple of
/// a block.
#[inline(always)]
fn fold<const K: usize, const SIGNED: bool, const MORE: bool>(
    from: [&[u8]; K],
    to: &mut [u8],
    finish: Finish,
) {
    let len = to.len();
    let from: [_; K] = array(|k| from[k][..len].as_chunks::<BLOCK>().0);
    for (block, to) in to.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        most::<BLOCK, K, SIGNED, MORE>(array(|k| &from[k][block]), to, finish);
    }
}

/// The maxima of `K` rows, and of the bytes of `to` if there are `MORE` rows than these.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
fn most<const N: usize, const K: usize, const SIGNED: bool, const MORE: bool>(
    taps: [&[u8; N]; K],
    to: &mut [u8; N],
    Finish { bounds: [low, high], flip }: Finish,
) {
    let greater = |a: u8, b: u8| match SIGNED {
        true => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
        false => a.max(b),
    };
    for i in 0..N {
        let mut most = if MORE { greater(to[i], taps[0][i]) } else { taps[0][i] };
        for tap in &taps[1..] {
            most = greater(most, tap[i]);
        }
        to[i] = if SIGNED { most ^ flip } else { most.max(low).min(high) ^ flip };
    }
}

/// Maxima of columns.
struct Across<'a> {
    from: &'a [u8],
    /// Positions of the columns of the first window; missing ones are the last one.
    taps: [usize; TAPS],
    count: usize,
    finish: Finish,
}

impl Across<'_> {
    /// Bytes whose columns are at the same distance from each of them.
    #[inline(always)]
    fn together(&self, to: &mut [u8]) {
        macro_rules! fold {
            ($count:literal) => {{
                let taps: [&[u8]; $count] = array(|k| &self.from[self.taps[k]..]);
                fold::<$count, false, false>(taps, to, self.finish);
            }};
        }
        match self.count {
            0..=2 => fold!(2),
            3 => fold!(3),
            4..=5 => fold!(5),
            _ => fold!(8),
        }
    }

    /// Pixels of `width` bytes, which are `step` bytes apart in the columns and `pitch` bytes in the output.
    #[inline(always)]
    fn apart(&self, to: &mut [u8], pixels: usize, width: usize, step: usize, pitch: usize) {
        macro_rules! each {
            ($n:literal) => {
                match self.count {
                    0..=2 => self.each::<$n, 2>(to, pixels, width, step, pitch),
                    3 => self.each::<$n, 3>(to, pixels, width, step, pitch),
                    4..=5 => self.each::<$n, 5>(to, pixels, width, step, pitch),
                    _ => self.each::<$n, 8>(to, pixels, width, step, pitch),
                }
            };
        }
        match width {
            0..=16 => each!(16),
            17..=32 => each!(32),
            _ => each!(64),
        }
    }

    /// See [`Across::apart`]. A pixel is at least `N` bytes, of which the last `N` may overlap those before them, or
    /// the bytes after it are overwritten.
    #[inline(always)]
    fn each<const N: usize, const K: usize>(
        &self,
        to: &mut [u8],
        pixels: usize,
        width: usize,
        step: usize,
        pitch: usize,
    ) {
        let last = width.saturating_sub(N);
        let end = last + N;
        let from: [&[u8]; K] = array(|k| &self.from[self.taps[k]..][..(pixels - 1) * step + end]);
        let to = &mut to[..(pixels - 1) * pitch + end];
        for x in 0..pixels {
            let mut first = 0;
            loop {
                // A check of each block takes as long as its maximum.
                // SAFETY: `x < pixels` and `first <= last`, so that the blocks end inside of the slices above.
                let (taps, to) = unsafe {
                    let taps: [_; K] = array(|k| &*from[k].as_ptr().add(x * step + first).cast::<[u8; N]>());
                    (taps, &mut *to.as_mut_ptr().add(x * pitch + first).cast::<[u8; N]>())
                };
                most::<N, K, false, false>(taps, to, self.finish);
                if first >= last {
                    break;
                }
                first = (first + N).min(last);
            }
        }
    }
}
