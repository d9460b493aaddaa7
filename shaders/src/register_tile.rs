//! How products of matrices, and convolutions like them, are cut into invocations.

use crate::Caps;
use crate::template::Template;

/// Invocations side by side along the output's channels or columns, where there are enough of these.
pub(crate) const LANES: u32 = 8;
/// Fewer channels than that leave most of them idle.
const FEW: [u32; 3] = [1, 2, 4];

/// What one invocation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterTile {
    /// Output channels or columns.
    pub(crate) width: u32,
    /// Output pixels or rows.
    pub(crate) pixels: u32,
    /// Invocations of a workgroup along the pixels.
    pub(crate) rows: u32,
    /// Invocations of a workgroup along the channels: [`LANES`], or one.
    pub(crate) lanes: u32,
    /// Subgroups of [`LANES`] share their loads.
    pub(crate) shared: bool,
    /// The workgroup's rows of invocations make the same tile, each from its part of the depth.
    pub(crate) split: bool,
}

impl RegisterTile {
    /// For an output of `pixels` by a number of channels that takes this [`width`]. `shareable`: whether
    /// the invocations side by side read the same input.
    pub(crate) fn choose(caps: &Caps, width: u32, pixels: u32, shareable: bool) -> Self {
        let single = pixels == 1;
        // A CPU's loads cost far more than its arithmetic, and subgroups are its vectors.
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
        Self { width, pixels, rows, lanes: LANES, shared, split }
    }

    /// For a convolution whose output has so many `channels`, in `groups`.
    pub(crate) fn convolution(caps: &Caps, channels: u32, groups: u32, pixels: u32) -> Self {
        let tile = Self::choose(caps, width(channels, channels / groups.max(1)), pixels, groups == 1);
        if groups != 1 || pixels == 1 || !FEW.contains(&channels) {
            return tile;
        }
        // Neighbours take pixels of their own, and the weights are the same for all.
        let (pixels, rows) = if caps.software { (8, LANES) } else { (4, 64) };
        Self { width: channels, pixels, rows, lanes: 1, shared: false, split: false }
    }

    /// Output channels or columns that a workgroup makes.
    pub(crate) fn breadth(&self) -> u32 {
        self.lanes * self.width
    }

    /// Output pixels or rows that a workgroup makes.
    pub(crate) fn reach(&self) -> u32 {
        if self.split { self.pixels } else { self.pixels * self.rows }
    }

    /// Between the steps in depth that an invocation takes.
    pub(crate) fn stride(&self) -> u32 {
        if self.split { self.rows } else { 1 }
    }

    pub(crate) fn apply(&self, template: Template) -> Template {
        template
            .number("WIDTH", self.width)
            .number("PIXELS", self.pixels)
            .number("ROWS", self.rows)
            .number("LANES", self.lanes)
            // Loads per tile and step in depth.
            .number("VECTORS", if self.shared { self.pixels / LANES } else { self.pixels })
            .flag("SHARED", self.shared)
            .flag("SPLIT", self.split)
    }
}

/// Channels of an invocation that make an output of so many `channels` cheapest, where those that must stay
/// `together` come in multiples of them. Wide tiles load less, narrow ones leave fewer lanes idle: the costs
/// are those of a step in depth, relative to each other, as measured on a software device.
pub(crate) fn width(channels: u32, together: u32) -> u32 {
    let cost = |width: u32| {
        let step = match width {
            4 => 24,
            2 => 15,
            _ => 10,
        };
        u64::from(channels.div_ceil(LANES * width)) * step
    };
    [4, 2, 1]
        .into_iter()
        .filter(|width| together.is_multiple_of(*width))
        .min_by_key(|width| cost(*width))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::{Caps, LANES, RegisterTile, width};

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
                let tile = RegisterTile::convolution(&caps, channels, groups, pixels);
                assert!(
                    tile.lanes * tile.rows <= caps.max_invocations_per_workgroup
                        && channels % tile.width == 0
                );
                (tile.lanes, tile.breadth())
            };
            assert_eq!([lanes(1, 1, 9), lanes(2, 1, 9), lanes(4, 1, 9)], [(1, 1), (1, 2), (1, 4)]);
            assert_eq!(
                [lanes(3, 1, 9), lanes(8, 1, 9), lanes(4, 4, 9), lanes(4, 1, 1)].map(|t| t.0),
                [LANES; 4]
            );
        }
    }
}
