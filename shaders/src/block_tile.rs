//! The division of convolutions into blocks that workgroups compute in workgroup memory, on devices that are not CPUs.

use crate::epilogue::Epilogue;
use crate::integers::Sums;
use crate::template::Template;
use crate::{Caps, Features, Variant};

/// The part of a convolution that a workgroup computes, and its division into invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockTile {
    /// Output pixels of a workgroup.
    pixels: u32,
    /// Output channels of a workgroup.
    channels: u32,
    /// Vectors of four terms of the sums that are in workgroup memory at a time.
    depth: u32,
    /// Output pixels of an invocation.
    own_pixels: u32,
    /// Vectors of four output channels of an invocation.
    own_fours: u32,
    /// Groups of invocations that compute the same outputs, each from a part of the terms.
    slices: u32,
    cost: Cost,
}

/// The time that a workgroup takes for a step: the products of the terms that are in workgroup memory at a time.
/// Measured on an NVIDIA H200 with the test `roofline::tiles` of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Nanoseconds of a step of a workgroup that is alone on its processor.
    pub(crate) latency: u32,
    /// Nanoseconds of a step, divided by the number of workgroups on a processor that has many.
    pub(crate) throughput: u32,
    /// The time for the beginning and the end of a workgroup, in steps.
    pub(crate) ends: u32,
}

/// Processors that workgroups are distributed over: fewer than a large GPU has, more than an integrated one.
const PROCESSORS: u64 = 64;

impl Cost {
    /// Returns the nanoseconds of `workgroups` workgroups of `steps` steps.
    pub(crate) fn of(&self, workgroups: u64, steps: u64) -> u64 {
        let steps = steps + u64::from(self.ends);
        let busy = workgroups.saturating_mul(self.throughput.into()) / PROCESSORS;
        steps.saturating_mul(busy.max(self.latency.into()))
    }
}

/// Padding between rows of channels in workgroup memory, in vectors of four words.
const FILTER_PADDING: u32 = 2;
/// Vectors of four words that all banks of workgroup memory transfer at once, on most devices.
const BANKS: u32 = 8;
/// Neighbouring invocations along the channels.
const LANES: u32 = 8;

const fn tile(block: [u32; 3], own: [u32; 2], slices: u32, cost: [u32; 3]) -> BlockTile {
    let ([pixels, channels, depth], [own_pixels, own_fours]) = (block, own);
    let [latency, throughput, ends] = cost;
    let cost = Cost { latency, throughput, ends };
    BlockTile { pixels, channels, depth, own_pixels, own_fours, slices, cost }
}

/// All tiles. The larger ones load less per product; the smaller ones occupy more of the device; slices shorten long sums
/// of few outputs.
pub(crate) const TILES: [BlockTile; 8] = [
    tile([64, 64, 4], [8, 1], 1, [1060, 610, 4]),
    tile([64, 64, 4], [4, 1], 1, [920, 690, 4]),
    tile([128, 32, 4], [8, 1], 1, [920, 540, 4]),
    tile([64, 16, 4], [4, 1], 1, [430, 190, 4]),
    tile([16, 32, 16], [2, 1], 4, [800, 420, 4]),
    tile([16, 16, 16], [2, 1], 8, [490, 280, 4]),
    tile([16, 16, 32], [2, 1], 8, [800, 610, 2]),
    tile([8, 16, 32], [1, 1], 8, [990, 610, 1]),
];

impl BlockTile {
    /// Invocations along the channels.
    fn columns(&self) -> u32 {
        self.channels / 4 / self.own_fours
    }

    /// Invocations along the pixels.
    fn rows(&self) -> u32 {
        self.pixels / self.own_pixels
    }

    fn slice(&self) -> u32 {
        self.columns() * self.rows()
    }

    fn invocations(&self) -> u32 {
        self.slice() * self.slices
    }

    /// Distance between the rows of inputs in workgroup memory.
    fn pixel_stride(&self) -> u32 {
        self.pixels + (BANKS / self.depth).max(1)
    }

    /// Distance between the rows of weights in workgroup memory; a row has every fourth channel.
    fn filter_stride(&self) -> u32 {
        self.channels / 4 + FILTER_PADDING
    }

    /// Vectors of four inputs and weights in workgroup memory.
    fn operands(&self) -> u32 {
        self.depth * (self.pixel_stride() + 4 * self.filter_stride())
    }

    /// Vectors of four sums of slices in workgroup memory.
    fn parts(&self) -> u32 {
        self.slices / 2 * self.slice() * self.own_pixels * self.own_fours
    }

    /// Vectors of four words in workgroup memory. Sums that are floats take the place of the operands.
    fn memory(&self, sums: Sums) -> u32 {
        match sums {
            Sums::Floats => self.operands().max(self.parts()),
            _ => self.operands() + self.parts(),
        }
    }

    /// Output channels of a workgroup.
    pub(crate) fn breadth(&self) -> u32 {
        self.channels
    }

    /// Output pixels of a workgroup.
    pub(crate) fn reach(&self) -> u32 {
        self.pixels
    }

    /// Returns whether the device can run the tile, and the tile can sum products in this way.
    pub(crate) fn fits(&self, caps: &Caps, sums: Sums) -> bool {
        let exact = match sums {
            Sums::Floats => true,
            Sums::Blocks(block) => self.depth / self.slices <= block,
            Sums::Words { .. } | Sums::Pairs { .. } => false,
        };
        exact
            && !caps.software
            && self.invocations() <= caps.max_invocations_per_workgroup
            && self.memory(sums) * 16 <= caps.max_workgroup_storage
    }

    /// Returns an estimate of the time for `pixels` pixels of `channels` channels, each a sum of `terms` vectors of four
    /// terms.
    pub(crate) fn time(&self, pixels: u32, channels: u32, terms: u32) -> u64 {
        let workgroups =
            u64::from(pixels.div_ceil(self.pixels)) * u64::from(channels.div_ceil(self.channels));
        self.cost.of(workgroups, terms.div_ceil(self.depth).into())
    }

    /// Returns the variant of a convolution without groups. See [`RegisterTile::variant`](crate::register_tile::RegisterTile::variant).
    pub(crate) fn variant(
        &self,
        name: &'static str,
        template: Template,
        vec4: [bool; 2],
        channels: u32,
        pointwise: bool,
        epilogue: &Epilogue,
    ) -> Variant {
        let floats = epilogue.sums() == Sums::Floats;
        let operands = if floats { self.memory(Sums::Floats) } else { self.operands() };
        let template = template
            .number("BLOCK_PIXELS", self.pixels)
            .number("BLOCK_CHANNELS", self.channels)
            .number("DEPTH", self.depth)
            .number("PIXELS", self.own_pixels)
            .number("FOURS", self.own_fours)
            .number("SLICES", self.slices)
            .number("SLICE", self.slice())
            .number("COLUMNS", self.columns())
            .number("ROWS", self.rows())
            .number("LANES", self.columns().min(LANES))
            .number("PIXEL_STRIDE", self.pixel_stride())
            .number("FILTER_STRIDE", self.filter_stride())
            .number("OPERANDS", operands)
            .number("PARTS", self.parts())
            .text(
                "PARTS_IN",
                if floats { "operands" } else { "parts" },
                if floats { "operands" } else { "parts" },
            )
            .number("PIXEL_LOADS", self.pixels * self.depth / self.invocations())
            .number("LOADED_PIXELS", self.invocations() / self.depth)
            .number("FILTER_LOADS", self.channels * self.depth / self.invocations())
            .number("LOADED_TERMS", self.invocations() / self.channels);
        let template = copies(template, vec4, channels, pointwise);
        epilogue.convolution(name, template, Features::default())
    }
}

/// Sets the values of kernels that copy inputs and weights to workgroup memory. `vec4`: whether the input and the output
/// channels come in fours; the others as in [`RegisterTile::variant`](crate::register_tile::RegisterTile::variant).
pub(crate) fn copies(template: Template, vec4: [bool; 2], channels: u32, pointwise: bool) -> Template {
    template
        .flag("SPLIT", false)
        .flag("IN_VEC4", vec4[0])
        .number("WIDTH", if vec4[1] { 4 } else { 1 })
        .number("CHANNELS", channels)
        .flag("POINTWISE", pointwise)
}

#[cfg(test)]
mod tests {
    use super::{Sums, TILES};
    use crate::Caps;

    #[test]
    fn invocations_divide_blocks_and_loads_evenly() {
        for tile in TILES {
            assert!(tile.slice().is_multiple_of(32), "{tile:?}");
            assert!(tile.rows().is_multiple_of(32 / tile.columns().min(super::LANES)), "{tile:?}");
            assert!((tile.pixels * tile.depth).is_multiple_of(tile.invocations()), "{tile:?}");
            assert!((tile.channels * tile.depth).is_multiple_of(tile.invocations()), "{tile:?}");
            assert!(tile.invocations().is_multiple_of(tile.depth), "{tile:?}");
            assert!(tile.invocations().is_multiple_of(tile.channels), "{tile:?}");
            assert!(tile.depth.is_multiple_of(tile.slices), "{tile:?}");
            let mut caps = Caps::WEBGPU;
            caps.max_workgroup_storage = 32 << 10;
            assert!(tile.fits(&caps, Sums::Floats), "{tile:?}");
        }
    }
}
