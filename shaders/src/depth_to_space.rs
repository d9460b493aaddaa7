//! DEPTH_TO_SPACE and SPACE_TO_DEPTH.

use crate::copy::{self, Copy, signed};
use crate::shape::{Nest, dense_strides, elements};
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "depth_to_space";

/// The direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Channels become blocks of pixels.
    DepthToSpace,
    /// Blocks of pixels become channels.
    SpaceToDepth,
}

/// `[batch, height, width, block * block * channels]` to `[batch, height * block, width * block, channels]`
/// or back, for elements of 32 bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The direction.
    pub direction: Direction,
    /// `[batch, height, width, channels]` of the input.
    pub input: [u32; 4],
    /// Side of a block of pixels.
    pub block: u32,
}

impl Shader for Spec {
    /// # Errors
    /// For an input that is not divisible into blocks, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &self.input)?;
        let [n, h, w, c] = self.input;
        let block = self.block;
        let (small, fits) = match self.direction {
            Direction::DepthToSpace => {
                let area = block.saturating_mul(block).max(1);
                ([h, w, c / area], c.is_multiple_of(area))
            }
            Direction::SpaceToDepth => {
                let side = block.max(1);
                ([h / side, w / side, c], h.is_multiple_of(side) && w.is_multiple_of(side))
            }
        };
        if block == 0 || !fits {
            return Err(ShaderError::contradiction(NAME, self));
        }
        // The deep side is [n, h, w, y, x, c], the wide side [n, h, y, w, x, c]. The loop nest is in the output's order.
        let [h, w, c] = small;
        let deep = dense_strides(&[n, h, w, block, block, c]);
        let wide = dense_strides(&[n, h, block, w, block, c]);
        let like_wide =
            |s: &[u32]| [0, 1, 3, 2, 4, 5].iter().filter_map(|d| s.get(*d).copied()).collect::<Vec<_>>();
        let (extents, strides) = match self.direction {
            Direction::DepthToSpace => {
                (vec![n, h, block, w, block, c], [signed(&like_wide(&deep)), signed(&wide)])
            }
            Direction::SpaceToDepth => {
                (vec![n, h, w, block, block, c], [signed(&like_wide(&wide)), signed(&deep)])
            }
        };
        let nest = Nest { extents, strides };
        Copy { name: NAME, input: Binding::Input(0), nest, from: 0, to: 0 }.kernel(caps)
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        copy::other_sizes()
    }
}
