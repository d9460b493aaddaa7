//! Pooling of bytes.

use std::mem::MaybeUninit;
use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::error::Result;
use crate::base::isa::Isa;
use crate::matmul::geometry::{Checked, ConvGeometry};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::windows::pooling::{Pool, each_rows};

/// Maximum number of taps of a window: sums and counts are exact in single precision.
const MAX_TAPS: usize = 1 << 15;

/// Maximum number of taps whose mean is exact as a product with the reciprocal.
const MAX_RECIPROCAL: usize = 1 << 12;

/// Bytes of a short vector.
const SHORT: usize = 16;

/// Maximum number of bytes whose sum fits 16 bits.
const MAX_NARROW: usize = 257;

/// Maximum number of taps whose maximum is computed without a loop: those of a window of 3 × 3.
const FEW: usize = 9;

/// Bytes of a block of a row.
const BLOCK: usize = 64;

/// Bytes of a part of a row. In memory there is a block before and after it.
const PART: usize = 8 * 1024 - 2 * BLOCK;

/// Maximum number of rows or columns whose maximum is computed at a time.
const TAPS: usize = 8;

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

/// Pools `input` `[batch, height, width, channels]` of bytes into `out`, which has the input's channels and
/// quantization. Means round ties away from zero; results are clamped to `bounds`.
///
/// # Errors
/// Fails if a window is entirely padding or too large, or an operand has the wrong length.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn pool_2d_bytes(
    isa: Isa,
    kind: Pool,
    geo: &Checked,
    signed: bool,
    input: &[u8],
    out: &mut [u8],
    bounds: [i32; 2],
    par: &dyn Parallel,
) -> Result<()> {
    each_rows(geo, MAX_TAPS, input.len(), out, par, |rows, out| {
        if kind == Pool::Max
            && let Limits { flip, unsigned: Some(bounds), .. } = Limits::new(bounds, signed)
            && let Some(parts) = Parts::new(geo, rows.len())
        {
            return dispatch(isa, PartsTask { parts, input, finish: Finish { bounds, flip }, out, rows });
        }
        dispatch(isa, RowsTask { kind, geo, signed, input, out, bounds, rows });
    })
}

struct RowsTask<'a> {
    kind: Pool,
    geo: &'a ConvGeometry,
    signed: bool,
    input: &'a [u8],
    /// Output rows `rows`.
    out: &'a mut [u8],
    bounds: [i32; 2],
    /// Indices of output rows, through all images.
    rows: Range<usize>,
}

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let geo = self.geo;
        let channels = geo.in_channels;
        let (down, across) = (geo.dilation[0] * geo.input[1] * channels, geo.dilation[1] * channels);
        let (columns, rows) = (geo.interior(1), geo.interior(0));
        // Windows one pixel apart have their taps at the same distance from each byte of the output.
        let together = if geo.stride[1] == 1 { columns.clone() } else { 0..0 };
        let limits = Limits::new(self.bounds, self.signed);
        let (mut image, mut y) = (self.rows.start / geo.output[0], self.rows.start % geo.output[0]);
        for out in self.out.chunks_exact_mut(geo.output[1] * channels) {
            let y0 = geo.origin(0, y);
            let ky = if rows.contains(&y) { 0..geo.window[0] } else { geo.taps(0, y0) };
            // Ranges of taps are not empty, so the first one is inside of the input.
            let line = image * geo.input[0] + (y0 + (ky.start * geo.dilation[0]) as isize) as usize;
            let mut rest = out;
            let mut x = 0;
            while !rest.is_empty() {
                let pixels = if x == together.start { together.len().max(1) } else { 1 };
                let (out, after) = std::mem::take(&mut rest).split_at_mut(pixels * channels);
                let x0 = geo.origin(1, x);
                let kx = if columns.contains(&x) { 0..geo.window[1] } else { geo.taps(1, x0) };
                let column = (x0 + (kx.start * geo.dilation[1]) as isize) as usize;
                let input = &self.input[(line * geo.input[1] + column) * channels..];
                Windows { input, down, across, taps: [ky.len(), kx.len()], limits }.run(self.kind, out);
                (rest, x) = (after, x + pixels);
            }
            y += 1;
            if y == geo.output[0] {
                (image, y) = (image + 1, 0);
            }
        }
    }
}

/// The maximum of a window as one of columns of maxima: for each part of an output row, first the maxima of the
/// windows' input rows, whose bytes are neighbours whatever the number of channels, and then those of neighbouring
/// columns.
struct Parts<'a> {
    geo: &'a ConvGeometry,
    /// Channels that are computed together: all, or a multiple of [`BLOCK`].
    width: usize,
    /// Maximum number of output pixels of a part.
    pixels: usize,
}

/// What follows a maximum of unsigned values: their bounds, and a flip of the sign.
#[derive(Clone, Copy)]
struct Finish {
    bounds: [u8; 2],
    flip: u8,
}

struct PartsTask<'a> {
    parts: Parts<'a>,
    input: &'a [u8],
    finish: Finish,
    /// Output rows `rows`.
    out: &'a mut [u8],
    /// Indices of output rows, through all images.
    rows: Range<usize>,
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
    fn new(geo: &'a ConvGeometry, tasks_rows: usize) -> Option<Self> {
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

/// The conversion of bytes to unsigned values, and the range of results.
#[derive(Clone, Copy)]
struct Limits {
    flip: u8,
    bounds: [i32; 2],
    /// Bounds as unsigned bytes; `None` if one is outside of the range of a byte.
    unsigned: Option<[u8; 2]>,
}

impl Limits {
    fn new(bounds: [i32; 2], signed: bool) -> Self {
        let offset = if signed { 128 } else { 0 };
        let [low, high] = bounds.map(|bound| u8::try_from(bound + offset).ok());
        Limits { flip: if signed { 0x80 } else { 0 }, bounds, unsigned: low.zip(high).map(<[u8; 2]>::from) }
    }
}

/// Windows of neighbouring bytes of an output row, whose taps are at the same distance from each of them.
struct Windows<'a> {
    /// The input, beginning at the first tap of the first window.
    input: &'a [u8],
    /// Elements from one row of taps to the next.
    down: usize,
    /// Elements from tap to tap in a row.
    across: usize,
    taps: [usize; 2],
    limits: Limits,
}

impl Windows<'_> {
    #[inline(always)]
    fn run(&self, kind: Pool, out: &mut [u8]) {
        // Few channels are computed together with the bytes after them, if the input has enough.
        let mut block = [0; SHORT];
        let short = out.len() < SHORT && self.has(SHORT);
        let to = if short { &mut block } else { &mut *out };
        match to.len() {
            64.. => self.pool::<64>(kind, to),
            32.. => self.pool::<32>(kind, to),
            16.. => self.pool::<16>(kind, to),
            4.. => self.pool::<4>(kind, to),
            _ => self.pool::<1>(kind, to),
        }
        if short {
            out.iter_mut().zip(block).for_each(|(to, byte)| *to = byte);
        }
    }

    /// Computes at least `N` bytes, `N` at a time. The last `N` may overlap the bytes before them.
    #[inline(always)]
    fn pool<const N: usize>(&self, kind: Pool, out: &mut [u8]) {
        let mut first = 0;
        let few = if kind == Pool::Max { self.few() } else { [0; FEW] };
        loop {
            first = first.min(out.len() - N);
            let Some(block) = out[first..].first_chunk_mut::<N>() else { return };
            match kind {
                Pool::Max if self.limits.flip != 0 => self.max::<N, true>(first, &few, block),
                Pool::Max => self.max::<N, false>(first, &few, block),
                Pool::Average => self.average(first, block),
            }
            first += N;
            if first >= out.len() {
                return;
            }
        }
    }

    /// Returns whether the input has all taps of `n` bytes of the output.
    #[inline(always)]
    fn has(&self, n: usize) -> bool {
        let last = (self.taps[0] - 1) * self.down + (self.taps[1] - 1) * self.across;
        last + n <= self.input.len()
    }

    /// Returns the offsets of the taps of a window of few taps. Missing taps are the first one.
    #[inline(always)]
    fn few(&self) -> [usize; FEW] {
        let [rows, columns] = self.taps;
        let mut offsets = [0; FEW];
        let mut rest = offsets.iter_mut();
        for ky in 0..rows {
            for kx in 0..columns {
                let Some(offset) = rest.next() else { return offsets };
                *offset = ky * self.down + kx * self.across;
            }
        }
        offsets
    }

    /// The bytes of a tap for the windows from `first` on. Not a copy, which the compiler would keep in memory.
    #[inline(always)]
    fn tap<const N: usize>(&self, first: usize, ky: usize, kx: usize) -> &[u8; N] {
        self.bytes(ky * self.down + kx * self.across + first)
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> &[u8; N] {
        self.input[at..].first_chunk().unwrap_or(&[0; N])
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
    fn max<const N: usize, const SIGNED: bool>(&self, first: usize, few: &[usize; FEW], out: &mut [u8; N]) {
        let greater = |a: u8, b: u8| match SIGNED {
            true => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
            false => a.max(b),
        };
        let mut most = *self.tap::<N>(first, 0, 0);
        let tap = |ky: usize, kx: usize| self.tap::<N>(first, ky, kx);
        let near = |i: usize| self.bytes::<N>(few[i] + first);
        let rows = match self.taps[0] * self.taps[1] {
            0..=4 => {
                let [a, b, c, d] = [near(0), near(1), near(2), near(3)];
                for i in 0..N {
                    most[i] = greater(greater(a[i], b[i]), greater(c[i], d[i]));
                }
                0
            }
            5..=FEW => {
                let [a, b, c, d] = [near(0), near(1), near(2), near(3)];
                let [e, f, g, h, last] = [near(4), near(5), near(6), near(7), near(8)];
                for i in 0..N {
                    let first = greater(greater(a[i], b[i]), greater(c[i], d[i]));
                    let second = greater(greater(e[i], f[i]), greater(g[i], h[i]));
                    most[i] = greater(greater(first, second), last[i]);
                }
                0
            }
            _ => self.taps[0],
        };
        for ky in 0..rows {
            let mut kx = 0;
            // Several taps at a time, as the maxima are in memory in between.
            while kx < self.taps[1] {
                let left = self.taps[1] - kx;
                let (a, b) = (tap(ky, kx), tap(ky, kx + usize::from(left > 1)));
                if left == 3 {
                    let c = tap(ky, kx + 2);
                    for i in 0..N {
                        most[i] = greater(most[i], greater(greater(a[i], b[i]), c[i]));
                    }
                } else if left > 3 {
                    let (c, d) = (tap(ky, kx + 2), tap(ky, kx + 3));
                    for i in 0..N {
                        most[i] = greater(most[i], greater(greater(a[i], b[i]), greater(c[i], d[i])));
                    }
                } else {
                    for i in 0..N {
                        most[i] = greater(most[i], greater(a[i], b[i]));
                    }
                }
                kx += 4;
            }
        }
        let Limits { flip, bounds, unsigned } = self.limits;
        if let Some([low, high]) = unsigned {
            for i in 0..N {
                out[i] = (most[i] ^ flip).max(low).min(high) ^ flip;
            }
        } else {
            let offset = i32::from(flip);
            for i in 0..N {
                out[i] = (i32::from(most[i] ^ flip) - offset).max(bounds[0]).min(bounds[1]) as u8;
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
    fn average<const N: usize>(&self, first: usize, out: &mut [u8; N]) {
        let (mut sums, mut narrow, mut summed) = ([0i32; N], [0u16; N], 0);
        for ky in 0..self.taps[0] {
            let mut kx = 0;
            while kx < self.taps[1] {
                let count = (self.taps[1] - kx).min(4);
                if summed + count > MAX_NARROW {
                    for i in 0..N {
                        sums[i] += i32::from(std::mem::take(&mut narrow[i]));
                    }
                    summed = 0;
                }
                let tap = |k: usize| self.tap::<N>(first, ky, kx + k);
                let byte = |x: u8| u16::from(x ^ self.limits.flip);
                match count {
                    4 => {
                        let (a, b, c, d) = (tap(0), tap(1), tap(2), tap(3));
                        for i in 0..N {
                            narrow[i] += (byte(a[i]) + byte(b[i])) + (byte(c[i]) + byte(d[i]));
                        }
                    }
                    3 => {
                        let (a, b, c) = (tap(0), tap(1), tap(2));
                        for i in 0..N {
                            narrow[i] += (byte(a[i]) + byte(b[i])) + byte(c[i]);
                        }
                    }
                    2 => {
                        let (a, b) = (tap(0), tap(1));
                        for i in 0..N {
                            narrow[i] += byte(a[i]) + byte(b[i]);
                        }
                    }
                    _ => {
                        let a = tap(0);
                        for i in 0..N {
                            narrow[i] += byte(a[i]);
                        }
                    }
                }
                (kx, summed) = (kx + count, summed + count);
            }
        }
        let (taps, offset) = (self.taps[0] * self.taps[1], i32::from(self.limits.flip));
        let (count, [low, high]) = (taps as i32, self.limits.bounds);
        let real = |i: usize| (sums[i] + i32::from(narrow[i]) - offset * count) as f32;
        // SAFETY: quotients within the range of a byte, as `count` is positive.
        let whole = |x: f32| -> i32 { unsafe { x.to_int_unchecked() } };
        if taps <= MAX_RECIPROCAL {
            // Adding 0.5 more than rounding requires keeps whole quotients above the rounding error of the product, and
            // all others below the next whole number.
            let (half, reciprocal) = ((count / 2) as f32 + 0.5, 1.0 / count as f32);
            for i in 0..N {
                let sum = real(i);
                let mean = whole((sum + if sum > 0.0 { half } else { -half }) * reciprocal);
                out[i] = mean.max(low).min(high) as u8;
            }
        } else {
            let half = (count / 2) as f32;
            for i in 0..N {
                let sum = real(i);
                // Truncation is exact: for numbers below 2^24, a quotient that is not whole differs from the next whole
                // number by more than the rounding error.
                let mean = whole((sum + if sum > 0.0 { half } else { -half }) / count as f32);
                out[i] = mean.max(low).min(high) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::{pairs, random_geometry};
    use crate::{Serial, ThreadPool};

    /// The result by its definition.
    fn expected(
        kind: Pool,
        geo: &ConvGeometry,
        signed: bool,
        input: &[u8],
        [low, high]: [i32; 2],
    ) -> Vec<u8> {
        let mut all = Vec::new();
        let outputs = (0..geo.batch).flat_map(|b| pairs(geo.output[0], geo.output[1]).map(move |p| (b, p)));
        for (b, (y, x)) in outputs {
            for c in 0..geo.in_channels {
                let taps: Vec<i32> = pairs(geo.window[0], geo.window[1])
                    .map(|(ky, kx)| (geo.origin(0, y) + ky as isize, geo.origin(1, x) + kx as isize))
                    .filter(|&(y, x)| {
                        (0..geo.input[0] as isize).contains(&y) && (0..geo.input[1] as isize).contains(&x)
                    })
                    .map(|(y, x)| {
                        let pixel = (b * geo.input[0] + y as usize) * geo.input[1] + x as usize;
                        let byte = input[pixel * geo.in_channels + c];
                        if signed { i32::from(byte as i8) } else { i32::from(byte) }
                    })
                    .collect();
                let (sum, count) = (taps.iter().sum::<i32>(), taps.len() as i32);
                let value = match kind {
                    Pool::Max => taps.into_iter().max().unwrap(),
                    Pool::Average => (sum + if sum > 0 { count / 2 } else { -(count / 2) }) / count,
                };
                all.push(value.max(low).min(high) as u8);
            }
        }
        all
    }

    #[test]
    fn windows_of_bytes() {
        let mut rng = Rng::new(37);
        let threads = ThreadPool::new(2);
        let mut done = 0;
        while done < 200 {
            let most = if done % 10 == 0 { 20 } else { 6 };
            let (channels, window) = (rng.range(1, 90), [rng.range(1, most), rng.range(1, most)]);
            let geo = ConvGeometry { dilation: [1, 1], ..random_geometry(&mut rng, channels, window) };
            if geo.has_empty_window() {
                continue;
            }
            done += 1;
            let (signed, kind) = (rng.range(0, 1) == 0, [Pool::Average, Pool::Max][rng.range(0, 1)]);
            let input: Vec<u8> = (0..geo.input_len().unwrap()).map(|_| rng.next() as u8).collect();
            let bounds = if signed { [-100, 90] } else { [5, 250] };
            let expected = expected(kind, &geo, signed, &input, bounds);
            for &isa in Isa::available() {
                let mut out = vec![0; expected.len()];
                let par: &dyn Parallel = if done % 2 == 0 { &threads } else { &Serial };
                pool_2d_bytes(isa, kind, &geo.checked().unwrap(), signed, &input, &mut out, bounds, par)
                    .unwrap();
                assert_eq!(out, expected, "{} {kind:?} {signed} {geo:?}", isa.name());
            }
        }
    }

    #[test]
    fn maxima_of_rows_in_parts() {
        let mut rng = Rng::new(41);
        let threads = ThreadPool::new(2);
        let mut done = [0; 4];
        for round in 0.. {
            if round >= 100 && done.iter().all(|&n| n >= 10) {
                break;
            }
            // Few channels; and rows of several parts, because of their channels or wide windows.
            let channels = [rng.range(1, 20), rng.range(1, 100), rng.range(500, 1200)][round % 3];
            let most = if round % 5 == 0 { 60 } else { 9 };
            let window = [rng.range(1, 20), rng.range(1, most)];
            let padding = [rng.range(0, window[0] - 1), rng.range(0, window[1] - 1)];
            let (stride, width) = ([rng.range(1, 3), rng.range(1, 4)], [400, 100, 12][round % 3]);
            let input = [rng.range(1, 9), rng.range(1, width)];
            let output = std::array::from_fn(|a| {
                (input[a] + padding[a] + rng.range(0, 3)).saturating_sub(window[a]) / stride[a] + 1
            });
            let batch = rng.range(1, 2);
            let dilation = [1, 1];
            let geo = ConvGeometry {
                batch,
                input,
                in_channels: channels,
                output,
                window,
                stride,
                dilation,
                padding,
            };
            let taps = geo.batch * output[0] * output[1] * window[0] * window[1] * channels;
            let Some(parts) = Parts::new(&geo, batch * output[0]) else { continue };
            if geo.has_empty_window() || taps > 1_000_000 {
                continue;
            }
            done[0] += usize::from(parts.pixels < output[1]);
            done[1] += usize::from(parts.width < channels);
            done[2] += usize::from(window[1] > TAPS && stride[1] > 1);
            done[3] += usize::from(window[1] > TAPS && stride[1] == 1);
            let signed = rng.range(0, 1) == 0;
            // Also small ranges of values from the least one on, which any other value in the padding exceeds.
            let shift = rng.range(0, 7);
            let least = if signed { 0x80 } else { 0 };
            let input: Vec<u8> =
                (0..geo.input_len().unwrap()).map(|_| (rng.next() as u8 >> shift) ^ least).collect();
            let bounds = match (round % 2, signed) {
                (0, true) => [-128, 127],
                (0, false) => [0, 255],
                (_, true) => [-100, 90],
                (_, false) => [5, 250],
            };
            let expected = expected(Pool::Max, &geo, signed, &input, bounds);
            for &isa in Isa::available() {
                let mut out = vec![0; expected.len()];
                let par: &dyn Parallel = if round % 2 == 0 { &threads } else { &Serial };
                pool_2d_bytes(isa, Pool::Max, &geo.checked().unwrap(), signed, &input, &mut out, bounds, par)
                    .unwrap();
                assert!(out == expected, "{} {signed} {geo:?}", isa.name());
            }
        }
    }

    #[test]
    fn means_are_exact_for_every_count() {
        // One channel whose sum takes values around each multiple of the count, with both ways of dividing.
        for (count, step) in [(1usize, 1usize), (2, 1), (3, 1), (257, 7), (258, 5), (4096, 501), (4097, 501)]
        {
            let geo = ConvGeometry {
                batch: 1,
                input: [1, count],
                in_channels: 1,
                output: [1, 1],
                window: [1, count],
                stride: [1, 1],
                dilation: [1, 1],
                padding: [0, 0],
            };
            for total in (0..=255 * count).step_by(step) {
                let input: Vec<u8> =
                    (0..count).map(|i| ((total / count) + usize::from(i < total % count)) as u8).collect();
                let mut out = [0];
                for signed in [false, true] {
                    let bounds = if signed { [-128, 127] } else { [0, 255] };
                    let (kind, checked) = (Pool::Average, geo.checked().unwrap());
                    pool_2d_bytes(Isa::best(), kind, &checked, signed, &input, &mut out, bounds, &Serial)
                        .unwrap();
                    let expected = expected(kind, &geo, signed, &input, bounds);
                    assert_eq!(out[..], expected, "{count} {total} {signed}");
                }
            }
        }
    }
}
