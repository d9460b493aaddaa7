//! The division of matrix products, and of convolutions computed like them, into invocations.

use crate::epilogue::Epilogue;
use crate::integers::Sums;
use crate::kernel::{looped, nested};
use crate::template::Template;
use crate::{Caps, Features, Threshold, Variant};

/// Number of neighbouring invocations along the output's channels or columns, if there are at least as many of these.
pub(crate) const LANES: u32 = 8;
/// Numbers of channels with which most [`LANES`] would be idle.
const FEW_CHANNELS: [u32; 3] = [1, 2, 4];
/// Output channels or columns of an invocation.
pub(crate) const WIDTHS: [u32; 3] = [4, 2, 1];

/// Whether an output has one pixel (or row), or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pixels {
    One,
    Several,
}

impl Pixels {
    /// All cases.
    pub(crate) const ALL: [Self; 2] = [Self::One, Self::Several];

    /// Returns the case of `count` pixels.
    pub(crate) fn of(count: u32) -> Self {
        if Threshold::SEVERAL.holds(count) { Self::Several } else { Self::One }
    }
}

/// Steps in depth of an invocation of a split tile that are loaded together: an NVIDIA H100 reads weights of 16 bits 1.2 times
/// as fast with four as with one, and weights of 8 bits as well.
const UNROLLED: u32 = 4;

/// Number of channels up to which workgroups of a split tile have [`NARROW_LANES`], so that more of them run at a time:
/// with them, an NVIDIA H100 multiplies by 4096 and 2048 channels 1.07 and 1.13 times as fast, by 8192 channels 1.03
/// times as slowly, and by 4096 channels of 16 bits 1.13 times as slowly.
const MAX_NARROW: u32 = 4096;
const NARROW_LANES: u32 = LANES / 2;

/// The outputs of one invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterTile {
    /// Output channels or columns.
    pub(crate) width: u32,
    /// Output pixels or rows.
    pub(crate) pixels: u32,
    /// Invocations of a workgroup along the pixels.
    pub(crate) rows: u32,
    /// Invocations of a workgroup along the channels: [`LANES`], [`NARROW_LANES`] or one.
    pub(crate) lanes: u32,
    /// Whether the invocations of a subgroup of [`LANES`] share their loads.
    pub(crate) shared: bool,
    /// Whether the rows of invocations of a workgroup compute the same tile, each from a part of the depth.
    pub(crate) split: bool,
    /// Whether results of integers are computed in a loop over the pixels. Software devices would take most of a first
    /// run to compile them unrolled: 1.1 of 1.3 s in Chromium.
    pub(crate) rolled: bool,
}

impl RegisterTile {
    /// Chooses a tile for an output of `pixels` by a number of channels with this [`width`]. With `shareable`,
    /// neighbouring invocations read the same input.
    pub(crate) fn choose(caps: &Caps, width: u32, pixels: Pixels, shareable: bool) -> Self {
        let single = pixels == Pixels::One;
        // On CPUs, loads cost far more than arithmetic, and subgroups are vectors.
        let shared = shareable && !single && caps.software && caps.subgroups && caps.subgroup_size == LANES;
        let pixels = match () {
            () if single => 1,
            () if shared => 16,
            () if caps.software => 8,
            () => 4,
        };
        let split = single && !caps.software;
        let rows = match () {
            () if shared || (single && caps.software) => 1,
            () if split => 32,
            () => 8,
        };
        Self { width, pixels, rows, lanes: LANES, shared, split, rolled: caps.software && !single }
    }

    /// Chooses a tile for a convolution with `channels` output channels in `groups` groups.
    pub(crate) fn convolution(caps: &Caps, channels: u32, groups: u32, pixels: Pixels) -> Self {
        let width = width(channels, channels / groups.max(1));
        // Where memory is the limit, more workgroups with fewer channels each keep more loads in flight.
        let narrow = pixels == Pixels::One && !caps.software;
        let mut tile = Self::choose(caps, if narrow { width.min(2) } else { width }, pixels, groups == 1);
        // With `matrices`, weights have 16 bits, and a workgroup with fewer lanes would read them in pieces of 64
        // bytes.
        if tile.split && channels <= MAX_NARROW && !caps.matrices {
            (tile.lanes, tile.rows) = (NARROW_LANES, tile.rows * LANES / NARROW_LANES);
        }
        if groups != 1 || pixels == Pixels::One || !FEW_CHANNELS.contains(&channels) {
            return tile;
        }
        // Neighbouring invocations compute different pixels with the same weights.
        let (pixels, rows) = if caps.software { (8, LANES) } else { (4, 64) };
        Self { width: channels, pixels, rows, lanes: 1, shared: false, split: false, rolled: caps.software }
    }

    /// Returns the output channels or columns of a workgroup.
    pub(crate) fn breadth(&self) -> u32 {
        self.lanes * self.width
    }

    /// Returns the output pixels or rows of a workgroup.
    pub(crate) fn reach(&self) -> u32 {
        if self.split { self.pixels } else { self.pixels * self.rows }
    }

    /// Returns the distance between the steps in depth of an invocation.
    pub(crate) fn stride(&self) -> u32 {
        if self.split { self.rows } else { 1 }
    }

    /// Returns the iterations of an invocation that adds products of `vectors` vectors of four.
    pub(crate) fn iterations(&self, vectors: u32, sums: Sums) -> u64 {
        match sums {
            Sums::Blocks(block) => {
                let block = block.clamp(1, vectors.max(1));
                nested([vectors.div_ceil(block), block.div_ceil(self.stride())])
            }
            _ => looped(vectors.div_ceil(self.stride()), 0),
        }
    }

    /// Returns the variant of a convolution. With `vec4`, the number of input channels of a group is a multiple of
    /// four; `channels` is their number if it is below four, otherwise 0.
    pub(crate) fn variant(
        &self,
        name: &'static str,
        template: Template,
        vec4: bool,
        channels: u32,
        pointwise: bool,
        epilogue: &Epilogue,
    ) -> Variant {
        let template = self
            .apply(template)
            .flag("IN_VEC4", vec4)
            .number("CHANNELS", channels)
            .flag("POINTWISE", pointwise);
        epilogue.convolution(name, template, Features { subgroups: self.shared, ..Features::default() })
    }

    pub(crate) fn apply(&self, template: Template) -> Template {
        template
            .number("WIDTH", self.width)
            .number("PIXELS", self.pixels)
            .number("ROWS", self.rows)
            .number("LANES", self.lanes)
            // Loads per tile and step in depth:
            .number("VECTORS", if self.shared { self.pixels / LANES } else { self.pixels })
            .flag("SHARED", self.shared)
            .flag("SPLIT", self.split)
            .flag("ROLLED", self.rolled)
            .number("UNROLLED", if self.split { UNROLLED } else { 1 })
    }
}

/// Returns the number of channels per invocation with the lowest cost for an output of `channels` channels, among the
/// divisors of `together`, the number of channels in a group. Wide tiles load less, narrow ones leave fewer lanes idle.
/// The costs are relative costs of a step in depth, measured on a software device.
pub(crate) fn width(channels: u32, together: u32) -> u32 {
    let cost = |width: u32| {
        let step = match width {
            4 => 24,
            2 => 15,
            _ => 10,
        };
        u64::from(channels.div_ceil(LANES * width)) * step
    };
    WIDTHS
        .into_iter()
        .filter(|width| together.is_multiple_of(*width))
        .min_by_key(|width| cost(*width))
        .unwrap_or(1)
}

/// Returns numbers of columns for each [`width`], both multiples of four and others.
pub(crate) fn column_thresholds() -> Vec<Threshold> {
    let kind = |columns: u32| (width(columns, columns), Threshold::VECTORS.holds(columns));
    let is_first = |columns: &u32| (1..*columns).all(|fewer| kind(fewer) != kind(*columns));
    (1..=MAX_WIDE_COLUMNS).filter(is_first).map(Threshold::Exactly).collect()
}

/// Number of columns from which widths repeat.
const MAX_WIDE_COLUMNS: u32 = 2 * LANES * WIDTHS[0];

#[cfg(test)]
mod tests {
    use super::{
        Caps, LANES, NARROW_LANES, Pixels, RegisterTile, Threshold, WIDTHS, column_thresholds, width,
    };

    #[test]
    fn every_width_has_its_columns() {
        let columns: Vec<u32> = (column_thresholds().into_iter())
            .map(|threshold| if let Threshold::Exactly(columns) = threshold { columns } else { 0 })
            .collect();
        for columns_of_kind in 1..10_000 {
            let kind = |columns: u32| (width(columns, columns), columns.is_multiple_of(4));
            assert!(columns.iter().any(|c| kind(*c) == kind(columns_of_kind)), "{columns_of_kind} columns");
        }
        assert!(WIDTHS.iter().all(|w| columns.iter().any(|c| width(*c, *c) == *w)));
    }

    #[test]
    fn widths_waste_few_lanes() {
        for (channels, expected) in
            [(8, 1), (16, 2), (24, 4), (32, 4), (40, 2), (72, 4), (96, 4), (21, 1), (42, 2)]
        {
            assert_eq!(width(channels, channels), expected, "{channels} channels");
        }
        assert_eq!(width(96, 6), 2);
        assert_eq!(width(96, 3), 1);
    }

    #[test]
    fn few_channels_leave_no_lanes_idle() {
        for caps in
            [Caps::WEBGPU, Caps { software: true, subgroups: true, subgroup_size: LANES, ..Caps::WEBGPU }]
        {
            let lanes = |channels, groups, pixels| {
                let tile = RegisterTile::convolution(&caps, channels, groups, Pixels::of(pixels));
                assert!(
                    tile.lanes * tile.rows <= caps.max_invocations_per_workgroup
                        && channels % tile.width == 0
                );
                (tile.lanes, tile.breadth())
            };
            assert_eq!([lanes(1, 1, 9), lanes(2, 1, 9), lanes(4, 1, 9)], [(1, 1), (1, 2), (1, 4)]);
            assert_eq!(
                [lanes(3, 1, 9), lanes(8, 1, 9), lanes(4, 4, 9), lanes(8192, 1, 1)].map(|t| t.0),
                [LANES; 4]
            );
            let narrow = if caps.software { LANES } else { NARROW_LANES };
            assert_eq!([lanes(4, 1, 1), lanes(4096, 1, 1)].map(|t| t.0), [narrow; 2]);
        }
    }
}
