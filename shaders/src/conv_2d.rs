//! Convolution with strides, dilation, padding, groups, bias and a fused epilogue.

use crate::block_tile::{self, BlockTile};
use crate::epilogue::Epilogue;
use crate::integers::Sums;
use crate::kernel::{check_dispatch, looped};
use crate::matrix_tile::{self, MatrixTile};
use crate::outer_tile::{self, OuterTile};
use crate::register_tile::{Pixels, RegisterTile, WIDTHS, width};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "conv_2d";

/// The filters that a variant supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    /// The spec's constant filter.
    Known,
    /// Filters of nearly all sizes, which the model computes. Some of them run slower than with a specialized variant.
    Any,
}

/// The division of the outputs into invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tile {
    /// Tiles of invocations, in registers.
    Registers(RegisterTile),
    /// Tiles of workgroups, in workgroup memory.
    Block(BlockTile),
    /// Tiles of workgroups, in workgroup memory, as sums of outer products.
    Outer(OuterTile),
    /// Tiles of workgroups, with matrix units.
    Matrices(MatrixTile),
}

impl Tile {
    /// Returns the output channels and the output pixels of a workgroup.
    fn size(&self) -> [u32; 2] {
        match self {
            Self::Registers(tile) => [tile.breadth(), tile.reach()],
            Self::Block(tile) => [tile.breadth(), tile.reach()],
            Self::Outer(tile) => [tile.breadth(), tile.reach()],
            Self::Matrices(tile) => [tile.breadth(), tile.reach()],
        }
    }

    /// Returns the distance between the steps in depth of an invocation.
    fn stride(&self) -> u32 {
        match self {
            Self::Registers(tile) => tile.stride(),
            Self::Block(_) | Self::Outer(_) | Self::Matrices(_) => 1,
        }
    }

    /// Returns the iterations of an invocation for windows of `[height, width]`, each of `vectors` vectors of channels.
    fn iterations(&self, window: [u32; 2], vectors: u32, sums: Sums) -> u64 {
        match self {
            Self::Registers(tile) => {
                let [height, width] = window;
                looped(height, looped(width, tile.iterations(vectors, sums))) + looped(tile.pixels, 0)
            }
            // An estimate for the steps in depth and the loops over their products.
            Self::Block(_) | Self::Outer(_) | Self::Matrices(_) => {
                window.iter().fold(4 * u64::from(vectors), |all, n| all.saturating_mul((*n).into()))
            }
        }
    }
}

/// `output = epilogue(convolution(input, filter) + bias)`.
///
/// Bindings: `Input(0)`, `Weights`, `Output`, `Uniform`, then those of the epilogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// `[output channels, height, width, input channels of one group]`
    pub filter: [u32; 4],
    /// `[height, width]`
    pub stride: [u32; 2],
    /// `[height, width]`
    pub dilation: [u32; 2],
    /// Zero rows above and zero columns left of the input. Those below and on the right follow from the shapes, so an
    /// explicit PAD before the convolution can be part of it.
    pub padding: [i32; 2],
    /// Applied to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    /// Number of groups of channels: input channels over the filter's.
    fn groups(&self) -> u32 {
        self.input[3].checked_div(self.filter[3]).unwrap_or(0)
    }

    fn check(&self) -> Result<(), ShaderError> {
        let Self { input, output, filter, .. } = self;
        let fits = ![*input, *output, *filter].as_flattened().contains(&0)
            && input[3].is_multiple_of(filter[3])
            && output[3].is_multiple_of(self.groups())
            && output[3] == filter[0]
            && input[0] == output[0]
            && !self.stride.contains(&0)
            && !self.dilation.contains(&0);
        if !fits {
            return Err(ShaderError::contradiction(NAME, self));
        }
        for shape in [input, output, filter] {
            elements(NAME, shape)?;
        }
        Ok(())
    }

    /// Whether every output pixel depends on the input pixel at the same position only.
    fn is_pointwise(&self) -> bool {
        self.filter[1..3] == [1, 1]
            && self.stride == [1, 1]
            && self.padding == [0, 0]
            && self.input[..3] == self.output[..3]
    }

    /// Returns the kernel of a filter that the model computes, with a variant that suits filters of nearly all sizes.
    ///
    /// # Errors
    /// See [`Shader::kernel`].
    pub fn any_filter(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.kernel_of(caps, Filter::Any)
    }

    /// Returns all variants of [`Spec::any_filter`].
    pub fn any_filter_variants(&self, caps: &Caps) -> Vec<Variant> {
        let of_width = |width: u32| {
            [true, false].into_iter().flat_map(move |shareable| {
                Pixels::ALL.map(|pixels| RegisterTile::choose(caps, width, pixels, shareable))
            })
        };
        let tiles = WIDTHS.into_iter().flat_map(of_width);
        tiles.flat_map(|tile| [true, false].map(|vec4| self.variant(tile, vec4, 0, false))).collect()
    }

    /// Returns the variants for other numbers of input channels and of pixels. The constant filter fixes the number of
    /// input channels of a group, so the number of input channels determines the number of groups.
    pub fn other_channels(&self, caps: &Caps) -> Vec<Variant> {
        let groups = (1..=self.output[3]).filter(|groups| self.output[3].is_multiple_of(*groups));
        groups.flat_map(|groups| self.known_variants(caps, groups)).collect()
    }

    /// Returns the tile for an output of `pixels` pixels.
    fn tile(&self, caps: &Caps, filter: Filter, groups: u32, pixels: u32) -> Tile {
        let channels = self.output[3];
        let several = Pixels::of(pixels);
        match filter {
            Filter::Any => {
                let width = width(channels, channels / groups.max(1));
                Tile::Registers(RegisterTile::choose(caps, width, several, groups == 1))
            }
            Filter::Known => {
                let registers =
                    || Tile::Registers(RegisterTile::convolution(caps, channels, groups, several));
                self.fastest_block(caps, groups, pixels).unwrap_or_else(registers)
            }
        }
    }

    /// Returns the fastest tile in workgroup memory, for outputs of several pixels; `None` if none fits.
    fn fastest_block(&self, caps: &Caps, groups: u32, pixels: u32) -> Option<Tile> {
        if Pixels::of(pixels) == Pixels::One {
            return None;
        }
        let [_, kernel_h, kernel_w, group_c] = self.filter;
        let terms = kernel_h.saturating_mul(kernel_w).saturating_mul(group_c.div_ceil(4));
        // Rounded up to a power of two, so that `known_variants` finds all tiles by trying the powers of two.
        let pixels = pixels.checked_next_power_of_two().unwrap_or(pixels);
        self.blocks(caps, groups).min_by_key(|tile| match tile {
            Tile::Block(tile) => tile.time(pixels, self.output[3], terms),
            Tile::Outer(tile) => tile.time(pixels, self.output[3], terms),
            Tile::Matrices(tile) => tile.time(pixels, self.output[3], terms),
            Tile::Registers(_) => u64::MAX,
        })
    }

    /// Returns the tiles in workgroup memory that compute the convolution on the device.
    fn blocks(&self, caps: &Caps, groups: u32) -> impl Iterator<Item = Tile> {
        let (caps, epilogue, whole) = (*caps, self.epilogue, groups == 1);
        let blocks = block_tile::TILES.into_iter().filter(move |t| whole && t.fits(&caps, epilogue.sums()));
        let outer = Some(outer_tile::TILE).filter(|t| whole && t.fits(&caps, epilogue.sums()));
        let matrices = matrix_tile::TILES.into_iter().filter(move |t| whole && t.fits(&caps, &epilogue));
        blocks.map(Tile::Block).chain(outer.map(Tile::Outer)).chain(matrices.map(Tile::Matrices))
    }

    /// Returns the variants of a constant filter for any number of output pixels.
    fn known_variants(&self, caps: &Caps, groups: u32) -> Vec<Variant> {
        let mut tiles: Vec<Tile> = Vec::new();
        for pixels in (0..u32::BITS).map(|bit| 1 << bit) {
            let tile = self.tile(caps, Filter::Known, groups, pixels);
            if !tiles.contains(&tile) {
                tiles.push(tile);
            }
        }
        tiles.into_iter().map(|tile| self.known_variant(tile)).collect()
    }

    fn known_variant(&self, tile: Tile) -> Variant {
        let depth = self.filter[3];
        let (vec4, few) = (Threshold::VECTORS.holds(depth), few_channels(depth));
        let vectors = [vec4, Threshold::VECTORS.holds(self.output[3])];
        let (pointwise, epilogue) = (self.is_pointwise(), &self.epilogue);
        match tile {
            Tile::Registers(tile) => self.variant(tile, vec4, few, pointwise),
            Tile::Block(tile) => {
                let template = Template::new("conv_2d_block", include_str!("wgsl/conv_2d_block.wgsl"));
                tile.variant(NAME, template, vectors, few, pointwise, epilogue)
            }
            Tile::Outer(tile) => {
                let template = Template::new("conv_2d_outer", include_str!("wgsl/conv_2d_outer.wgsl"));
                tile.variant(NAME, template, vectors, few, pointwise, epilogue)
            }
            Tile::Matrices(tile) => {
                let template = Template::new("conv_2d_matrices", include_str!("wgsl/conv_2d_matrices.wgsl"));
                tile.variant(NAME, template, vectors, few, pointwise, epilogue)
            }
        }
    }

    fn variant(&self, tile: RegisterTile, vec4: bool, channels: u32, pointwise: bool) -> Variant {
        let template = Template::new(NAME, include_str!("wgsl/conv_2d.wgsl"));
        tile.variant(NAME, template, vec4, channels, pointwise, &self.epilogue)
    }

    /// Returns the kernels of all tiles that compute the convolution on the device, for tests and measurements.
    ///
    /// # Errors
    /// See [`Shader::kernel`].
    pub fn candidates(&self, caps: &Caps) -> Result<Vec<Kernel>, ShaderError> {
        self.check()?;
        let (groups, pixels) = (self.groups(), self.pixels());
        let registers = RegisterTile::convolution(caps, self.output[3], groups, Pixels::of(pixels));
        let tiles = [Tile::Registers(registers)].into_iter().chain(self.blocks(caps, groups));
        tiles.map(|tile| self.kernel_with(caps, tile, self.known_variant(tile))).collect()
    }

    /// Returns the number of output pixels.
    fn pixels(&self) -> u32 {
        self.output[..3].iter().product()
    }

    fn kernel_of(&self, caps: &Caps, filter: Filter) -> Result<Kernel, ShaderError> {
        self.check()?;
        let tile = self.tile(caps, filter, self.groups(), self.pixels());
        let variant = match (filter, tile) {
            (Filter::Any, Tile::Registers(tile)) => {
                self.variant(tile, Threshold::VECTORS.holds(self.filter[3]), 0, false)
            }
            _ => self.known_variant(tile),
        };
        self.kernel_with(caps, tile, variant)
    }

    fn kernel_with(&self, caps: &Caps, tile: Tile, variant: Variant) -> Result<Kernel, ShaderError> {
        let [_, in_h, in_w, in_c] = self.input;
        let [_, out_h, out_w, out_c] = self.output;
        let [_, kernel_h, kernel_w, group_c] = self.filter;
        let (vec4, group_v) = (Threshold::VECTORS.holds(group_c), group_c.div_ceil(4));
        let (pixels, groups) = (self.pixels(), self.groups());
        // The workgroups along the pixels may exceed one dimension.
        let [breadth, reach] = tile.size();
        let tiles = pixels.div_ceil(reach);
        let rows = tiles.div_ceil(caps.max_workgroups_per_dimension.max(1));
        let row = tiles.div_ceil(rows);
        let groups_c = out_c.div_ceil(breadth);
        let taps = kernel_h * kernel_w * group_v * out_c;
        let uniform = Uniform::default()
            .u32s([in_h, in_w, if vec4 { in_c / 4 } else { in_c }, group_c, group_v])
            .u32s([pixels, out_h, out_w, out_c, out_c / groups])
            .u32s([kernel_h, kernel_w])
            .u32s(self.stride)
            .u32s(self.dilation)
            .i32s(self.padding)
            .u32s([self.epilogue.weight_words(taps, taps * 4), row]);
        Ok(Kernel {
            variant,
            uniform: self.epilogue.uniform(uniform, tile.stride()).finish(),
            dispatch: check_dispatch(NAME, caps, [groups_c, row, rows].map(u64::from))?,
            iterations: tile.iterations([kernel_h, kernel_w], group_v, self.epilogue.sums()),
        })
    }

    /// Returns `filter` (of the shape [`Spec::filter`]) and `bias` (one value per output channel; `None` for zeros) as
    /// the kernel reads them: `[height][width][input channels / 4][output channels][4]`, with zeros where channels do
    /// not come in fours, then the bias, padded to fours as well. Values missing from the slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        pack(self.filter, filter, bias)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.kernel_of(caps, Filter::Known)
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants(self.known_variants(caps, self.groups()))
    }
}

impl Spec {
    /// Returns integer weights (of the shape [`Spec::filter`]) in the order of [`Spec::pack_weights`], packed into
    /// words, and then `channels`, the words of the output channels (of [`FixedChannel`](crate::FixedChannel) or
    /// another type of channel). Empty without [`Epilogue::integers`].
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        pack_integers(self.filter, self.epilogue, filter, channels)
    }
}

/// Returns the number of input channels of a group if they are fewer than a vector of four, on which the variant
/// depends; 0 otherwise.
pub(crate) fn few_channels(group_c: u32) -> u32 {
    if group_c < 4 { group_c } else { 0 }
}

/// See [`Spec::pack_weights`]. `shape`: `[output channels, height, width, input channels]`.
pub(crate) fn pack(shape: [u32; 4], filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let [out_c, kernel_h, kernel_w, group_c] = shape.map(|n| n as usize);
    let (taps, group_v) = (kernel_h * kernel_w, group_c.div_ceil(4));
    let mut packed = vec![0.0; taps * group_v * out_c * 4 + out_c.next_multiple_of(4)];
    let (to, last) = packed.split_at_mut(taps * group_v * out_c * 4);
    for (to, from) in to.iter_mut().zip(in_order(shape)) {
        *to = from.and_then(|at| filter.get(at)).copied().unwrap_or(0.0);
    }
    for (to, from) in last.iter_mut().zip(bias.unwrap_or_default()) {
        *to = *from;
    }
    packed
}

/// See [`Spec::pack_integers`].
pub(crate) fn pack_integers(
    shape: [u32; 4],
    epilogue: Epilogue,
    filter: &[i8],
    channels: &[u32],
) -> Vec<u32> {
    let Some(integers) = epilogue.integers else { return Vec::new() };
    let weights = in_order(shape)
        .map(|at| at.and_then(|at| filter.get(at)).copied().unwrap_or(integers.weight_zero as i8));
    integers.pack(weights, channels)
}

/// Returns the index of each packed weight in the filter; `None` for padding.
fn in_order(shape: [u32; 4]) -> impl Iterator<Item = Option<usize>> {
    let [out_c, kernel_h, kernel_w, group_c] = shape.map(|n| n as usize);
    let (taps, group_v) = (kernel_h * kernel_w, group_c.div_ceil(4));
    (0..taps * group_v * out_c * 4).map(move |i| {
        let (part, o, vector) = (i % 4, i / 4 % out_c, i / 4 / out_c);
        let (c, tap) = (vector % group_v * 4 + part, vector / group_v);
        (c < group_c).then_some((o * taps + tap) * group_c + c)
    })
}
