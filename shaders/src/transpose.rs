//! Transposition.

use crate::binding::bindings;
use crate::copy::{Copy, signed};
use crate::kernel::linear_dispatch;
use crate::shape::{MAX_RANK, NEST, Nest, dense_strides, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "transpose";
/// Rows and columns of a tile. A row is 128 bytes, a cache line of common devices. A tile is a quarter of WebGPU's
/// workgroup memory, so that several workgroups can run at once.
const SIDE: u32 = 32;
/// Invocations of a workgroup.
const WORKGROUP: u32 = 256;
/// Rows and columns from which tiles are used. Devices move memory in sectors of 32 bytes, which are 8 words or 16
/// halves. A copy loads or stores single words of a sector, a tile whole sectors if it has at least these rows and
/// columns. With fewer, more than half of the invocations would have no words, and strides are so short that caches
/// keep the sectors of a copy until all of their words are used.
const TILED: Threshold = Threshold::AtLeast(16);

/// Output dimension `d` is input dimension `permutation[d]`, for elements of 32 bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// The input dimension of each output dimension.
    pub permutation: Vec<usize>,
}

impl Shader for Spec {
    /// # Errors
    /// For an invalid `permutation`, more than six dimensions after merging neighbours that stay together, and a tensor
    /// larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let count = elements(NAME, &self.input)?;
        let strides = dense_strides(&self.input);
        let mut used = self.permutation.clone();
        used.sort_unstable();
        if !used.iter().copied().eq(0..self.input.len()) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let pick = |from: &[u32]| -> Vec<u32> {
            self.permutation.iter().filter_map(|d| from.get(*d).copied()).collect()
        };
        let extents = pick(&self.input);
        let nest = Nest { strides: [signed(&pick(&strides)), signed(&dense_strides(&extents))], extents };
        if count > 0
            && let Some(tiles) = Tiles::new(caps, &nest.collapse())
        {
            return tiles.kernel(caps);
        }
        Copy { name: NAME, input: Binding::Input(0), nest, from: 0, to: 0 }.kernel(caps)
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        // The thresholds of copies, and those of tiles.
        OtherSizes::thresholds(NEST.iter().chain(Tiles::threshold(caps)))
    }
}

/// A dimension with its strides in the input and in the output.
#[derive(Clone, Copy)]
struct Dimension {
    extent: u32,
    strides: [u32; 2],
}

impl Dimension {
    /// Returns the dimension with strides in vectors of `unit` words.
    fn in_units(self, unit: u32) -> Self {
        Self { strides: self.strides.map(|stride| stride / unit), ..self }
    }
}

/// A transposition of matrices in tiles.
struct Tiles {
    /// The innermost dimension of the output.
    rows: Dimension,
    /// The innermost dimension of the input.
    columns: Dimension,
    /// The dimensions that number the matrices, from the outermost in.
    batches: Vec<Dimension>,
}

impl Tiles {
    /// Returns the number of rows and of columns from which tiles are used; `None` on devices that do not use them.
    fn threshold(caps: &Caps) -> Option<&'static Threshold> {
        // On CPUs, workgroup memory and barriers are slow, and caches are large.
        (!caps.software).then_some(&TILED)
    }

    /// Divides a collapsed nest into matrices. `None` where a copy is faster or the rank is not supported.
    fn new(caps: &Caps, nest: &Nest<2>) -> Option<Self> {
        let threshold = Self::threshold(caps)?;
        let mut dimensions: Vec<Dimension> = nest
            .extents
            .iter()
            .enumerate()
            .map(|(d, extent)| Dimension { extent: *extent, strides: nest.unsigned_strides(d) })
            .collect();
        if dimensions.len() > MAX_RANK {
            return None;
        }
        let rows = dimensions.pop()?;
        let columns = dimensions.iter().position(|d| d.strides[0] == 1)?;
        let columns = dimensions.remove(columns);
        let large = [rows, columns].iter().all(|d| threshold.holds(d.extent));
        large.then_some(Self { rows, columns, batches: dimensions })
    }

    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let (rows, columns) = (self.rows, self.columns);
        // All strides but those of one are multiples of the extent of the innermost dimension.
        let unit = if [rows, columns].iter().all(|d| Threshold::VECTORS.holds(d.extent)) { 4 } else { 1 };
        let lanes = SIDE / unit;
        let template = Template::new(NAME, include_str!("wgsl/transpose.wgsl"))
            .number("SIDE", SIDE)
            .number("UNIT", unit)
            .number("LANES", lanes)
            .number("LINES", WORKGROUP / lanes)
            .number("BATCHES", u32::try_from(self.batches.len()).unwrap_or(u32::MAX));
        let [row_tiles, column_tiles] = [rows, columns].map(|d| d.extent.div_ceil(SIDE));
        let matrices: u32 = self.batches.iter().map(|d| d.extent).product();
        // Below 2^31, since a tile has at least one element.
        let count = matrices * row_tiles * column_tiles;
        let [src_stride, _] = rows.in_units(unit).strides;
        let [_, dst_stride] = columns.in_units(unit).strides;
        let uniform = Uniform::default().u32s([
            count,
            rows.extent,
            columns.extent,
            row_tiles,
            column_tiles,
            src_stride,
            dst_stride,
        ]);
        let uniform = self
            .batches
            .iter()
            .rev()
            .fold(uniform, |uniform, d| uniform.u32(d.extent).u32s(d.in_units(unit).strides));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(count), 1)?,
            iterations: 0,
        })
    }
}
