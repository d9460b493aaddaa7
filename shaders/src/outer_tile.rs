//! The division of products of matrices into blocks that workgroups compute as sums of outer products, on devices that are
//! not CPUs: workgroup memory has vectors of four pixels and of four channels, each of one term.

use crate::block_tile::{Cost, copies};
use crate::epilogue::Epilogue;
use crate::integers::Sums;
use crate::template::Template;
use crate::{Caps, Features, Variant};

/// The part of an output that a workgroup computes, and its division into invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OuterTile {
    /// Output pixels (or rows) and channels (or columns) of a workgroup.
    block: [u32; 2],
    /// Vectors of four pixels and of four channels of an invocation.
    own: [u32; 2],
    /// Vectors of four terms that are in workgroup memory at a time.
    depth: u32,
    cost: Cost,
}

/// Neighbouring invocations along the channels.
const LANES: u32 = 8;
/// Invocations of a subgroup, on most devices.
const SUBGROUP: u32 = 32;
/// Terms in a pass of the loop over terms, which is unrolled by this number. With more or fewer, a kernel takes longer
/// on an NVIDIA H100.
const UNROLLED: u32 = 4;

/// The only tile. Smaller ones were not faster anywhere: with few workgroups, [`BlockTile`](crate::block_tile::BlockTile)
/// is. A step of a workgroup that is alone takes 2060 ns; the cost is higher, since the costs of other tiles assume
/// fewer processors than the measured device had. `ends` is higher as well, so that sums of few terms keep the other
/// tiles.
pub(crate) const TILE: OuterTile = OuterTile {
    block: [128, 128],
    own: [4, 2],
    depth: 4,
    cost: Cost { latency: 3300, throughput: 1650, ends: 10 },
};

impl OuterTile {
    /// Invocations along the pixels and the channels.
    fn lanes(&self) -> [u32; 2] {
        [self.block[0] / 4 / self.own[0], self.block[1] / 4 / self.own[1]]
    }

    fn invocations(&self) -> u32 {
        self.lanes().iter().product()
    }

    /// Vectors of four in workgroup memory.
    fn memory(&self) -> u32 {
        let [rows, columns] = self.lanes();
        4 * self.depth * (self.own[0] * rows + self.own[1] * columns)
    }

    /// Output channels of a workgroup.
    pub(crate) fn breadth(&self) -> u32 {
        self.block[1]
    }

    /// Output pixels of a workgroup.
    pub(crate) fn reach(&self) -> u32 {
        self.block[0]
    }

    /// Returns whether the device can run the tile, and the tile can sum products in this way.
    pub(crate) fn fits(&self, caps: &Caps, sums: Sums) -> bool {
        sums == Sums::Floats
            && !caps.software
            && self.invocations() <= caps.max_invocations_per_workgroup
            && self.memory() * 16 <= caps.max_workgroup_storage
    }

    /// See [`BlockTile::time`](crate::block_tile::BlockTile::time).
    pub(crate) fn time(&self, pixels: u32, channels: u32, terms: u32) -> u64 {
        let [block_pixels, block_channels] = self.block;
        let workgroups =
            u64::from(pixels.div_ceil(block_pixels)) * u64::from(channels.div_ceil(block_channels));
        self.cost.of(workgroups, terms.div_ceil(self.depth).into())
    }

    /// Sets the values of the snippets `outer_*`. `along`: whether loads of pixels and of channels have four of them,
    /// instead of four terms.
    pub(crate) fn apply(&self, template: Template, along: [bool; 2]) -> Template {
        let ([rows, columns], invocations) = (self.lanes(), self.invocations());
        template
            .flag("PIXELS_ALONG", along[0])
            .flag("CHANNELS_ALONG", along[1])
            .number("BLOCK_PIXELS", self.block[0])
            .number("BLOCK_CHANNELS", self.block[1])
            .number("DEPTH", self.depth)
            .number("OWN_PIXELS", self.own[0])
            .number("OWN_CHANNELS", self.own[1])
            .number("ROWS", rows)
            .number("COLUMNS", columns)
            .number("LANES", columns.min(LANES))
            .number("SUBGROUP", SUBGROUP)
            .number("UNROLLED", UNROLLED)
            .number("INVOCATIONS", invocations)
            .number("PIXEL_LOADS", self.block[0] / 4 * self.depth / invocations)
            .number("FILTER_LOADS", self.block[1] / 4 * self.depth / invocations)
    }

    /// Returns the variant of a convolution without groups. See [`BlockTile::variant`](crate::block_tile::BlockTile::variant).
    pub(crate) fn variant(
        &self,
        name: &'static str,
        template: Template,
        vec4: [bool; 2],
        channels: u32,
        pointwise: bool,
        epilogue: &Epilogue,
    ) -> Variant {
        let template = copies(self.apply(template, [false; 2]), vec4, channels, pointwise);
        epilogue.convolution(name, template, Features::default())
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, SUBGROUP, Sums, TILE, UNROLLED};
    use crate::Caps;

    #[test]
    fn invocations_divide_blocks_and_loads_evenly() {
        let ([rows, columns], invocations) = (TILE.lanes(), TILE.invocations());
        assert!(invocations.is_multiple_of(SUBGROUP));
        assert!(columns.is_multiple_of(LANES) && rows.is_multiple_of(SUBGROUP / LANES));
        assert!(TILE.block.iter().all(|extent| (extent / 4 * TILE.depth).is_multiple_of(invocations)));
        assert!((4 * TILE.depth).is_multiple_of(UNROLLED));
        assert!(TILE.fits(&Caps::WEBGPU, Sums::Floats));
    }
}
