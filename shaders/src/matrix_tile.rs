//! The division of convolutions into blocks that workgroups compute with matrix units.

use crate::block_tile::{Cost, copies};
use crate::epilogue::Epilogue;
use crate::template::Template;
use crate::{Caps, Features, Variant};

/// Invocations of a subgroup.
const SUBGROUP: u32 = 32;
/// Rows, columns and terms of a matrix.
const SIDE: u32 = 16;
/// Padding between rows of terms in workgroup memory, in vectors of four.
const PADDING: u32 = 2;

/// The part of a convolution that a workgroup computes, and its division into subgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixTile {
    /// Output pixels and channels of a workgroup.
    block: [u32; 2],
    /// Matrices of results of a subgroup along the pixels and the channels.
    own: [u32; 2],
    /// Vectors of four terms that are in workgroup memory at a time.
    depth: u32,
    cost: Cost,
}

const fn tile(block: [u32; 2], own: [u32; 2], depth: u32, cost: [u32; 3]) -> MatrixTile {
    let [latency, throughput, ends] = cost;
    MatrixTile { block, own, depth, cost: Cost { latency, throughput, ends } }
}

/// All tiles. The larger ones load less per product; the smaller ones occupy more of the device.
pub(crate) const TILES: [MatrixTile; 4] = [
    tile([128, 128], [4, 4], 8, [1220, 610, 4]),
    tile([64, 64], [2, 2], 16, [920, 420, 4]),
    tile([128, 32], [2, 2], 8, [650, 370, 4]),
    tile([32, 32], [1, 1], 32, [750, 690, 2]),
];

impl MatrixTile {
    /// Subgroups along the pixels and the channels.
    fn subgroups(&self) -> [u32; 2] {
        [self.block[0] / (SIDE * self.own[0]), self.block[1] / (SIDE * self.own[1])]
    }

    fn invocations(&self) -> u32 {
        self.subgroups().iter().product::<u32>() * SUBGROUP
    }

    /// Bytes of workgroup memory.
    fn memory(&self) -> u32 {
        let results = self.subgroups().iter().product::<u32>() * SIDE * SIDE * 4;
        (self.block[0] + self.block[1]) * (self.depth + PADDING) * 8 + results
    }

    /// Output channels of a workgroup.
    pub(crate) fn breadth(&self) -> u32 {
        self.block[1]
    }

    /// Output pixels of a workgroup.
    pub(crate) fn reach(&self) -> u32 {
        self.block[0]
    }

    /// Returns whether the device can run the tile.
    pub(crate) fn fits(&self, caps: &Caps, epilogue: &Epilogue) -> bool {
        caps.matrices
            && caps.subgroups
            && caps.subgroup_size == SUBGROUP
            && epilogue.integers.is_none()
            && self.invocations() <= caps.max_invocations_per_workgroup
            && self.memory() <= caps.max_workgroup_storage
    }

    /// See [`BlockTile::time`](crate::block_tile::BlockTile::time).
    pub(crate) fn time(&self, pixels: u32, channels: u32, terms: u32) -> u64 {
        let [block_pixels, block_channels] = self.block;
        let workgroups =
            u64::from(pixels.div_ceil(block_pixels)) * u64::from(channels.div_ceil(block_channels));
        self.cost.of(workgroups, terms.div_ceil(self.depth).into())
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
        let template = template
            .number("BLOCK_PIXELS", self.block[0])
            .number("BLOCK_CHANNELS", self.block[1])
            .number("DEPTH", self.depth)
            .number("STRIDE", self.depth + PADDING)
            .number("TILES_DOWN", self.own[0])
            .number("TILES_ACROSS", self.own[1])
            .number("SUBGROUPS", self.subgroups().iter().product())
            .number("SUBGROUPS_ACROSS", self.subgroups()[1])
            .number("INVOCATIONS", self.invocations())
            .number("PIXEL_LOADS", self.block[0] * self.depth / self.invocations())
            .number("LOADED_PIXELS", self.invocations() / self.depth)
            .number("FILTER_LOADS", self.block[1] * self.depth / self.invocations())
            .number("LOADED_TERMS", self.invocations() / self.block[1]);
        let template = copies(template, vec4, channels, pointwise);
        let features = Features { f16: true, subgroups: true, matrices: true, ..Features::default() };
        epilogue.convolution(name, template, features)
    }
}

#[cfg(test)]
mod tests {
    use super::TILES;

    #[test]
    fn invocations_divide_loads_evenly() {
        for tile in TILES {
            let invocations = tile.invocations();
            assert!((tile.block[0] * tile.depth).is_multiple_of(invocations), "{tile:?}");
            assert!((tile.block[1] * tile.depth).is_multiple_of(invocations), "{tile:?}");
            assert!(
                invocations.is_multiple_of(tile.depth) && invocations.is_multiple_of(tile.block[1]),
                "{tile:?}"
            );
        }
    }
}
