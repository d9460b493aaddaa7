//! How products of matrices, and convolutions like them, are cut into invocations.

use crate::Caps;
use crate::template::Template;

/// Invocations side by side along the output's channels or columns. The sources rely on it.
pub(crate) const LANES: u32 = 8;

/// What one invocation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterTile {
    /// Output channels or columns.
    pub(crate) width: u32,
    /// Output pixels or rows.
    pub(crate) pixels: u32,
    /// Invocations of a workgroup along the pixels.
    pub(crate) rows: u32,
    /// Subgroups of [`LANES`] share their loads.
    pub(crate) shared: bool,
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
        Self { width, pixels, rows: if shared { 1 } else { 8 }, shared }
    }

    pub(crate) fn apply(&self, template: Template) -> Template {
        template
            .number("WIDTH", self.width)
            .number("PIXELS", self.pixels)
            .number("ROWS", self.rows)
            // Loads per tile and step in depth.
            .number("VECTORS", if self.shared { self.pixels / LANES } else { self.pixels })
            .flag("SHARED", self.shared)
    }
}

/// Channels of an invocation: as many as leave no lane idle, where the channels that must stay together come
/// in multiples of them.
pub(crate) fn width(channels: u32, together: u32) -> u32 {
    match () {
        () if together.is_multiple_of(4) && channels > 2 * LANES => 4,
        () if together.is_multiple_of(2) && channels > LANES => 2,
        () => 1,
    }
}
