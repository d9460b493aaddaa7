//! The custom ops TransformTensorBilinear and Resampler.

use crate::binding::bindings;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "resample";

/// The positions at which maps are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Positions {
    /// `Input(1)` is a 4x4 matrix from positions in the output to positions in the only map.
    Matrix {
        /// Whether the matrix maps the centers of pixels, instead of their corners.
        centered: bool,
    },
    /// `Input(1)` has a position `[x, y]` for every pixel of every map.
    Each,
}

/// Reads maps at positions between their pixels, by bilinear interpolation, with zeros outside.
///
/// Bindings: `Input(0)` (the maps), `Input(1)` (the positions), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The positions.
    pub positions: Positions,
    /// `[maps, height, width, channels]`
    pub input: [u32; 4],
    /// Height and width of the output.
    pub size: [u32; 2],
}

impl Shader for Spec {
    /// # Errors
    /// For an empty input or output, several maps with one matrix, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let ([maps, in_h, in_w, channels], [out_h, out_w]) = (self.input, self.size);
        let matrix = matches!(self.positions, Positions::Matrix { .. });
        let output = [maps, out_h, out_w, channels];
        if elements(NAME, &self.input)? == 0 || elements(NAME, &output)? == 0 || (matrix && maps != 1) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        elements(NAME, &[maps, out_h, out_w, 2])?;
        let walk = Walk::new(NAME, caps, &[maps * out_h, out_w, channels])?;
        let template =
            walk.apply(Template::new(NAME, include_str!("wgsl/resample.wgsl"))).flag("MATRIX", matrix);
        let center = if self.positions == (Positions::Matrix { centered: true }) { 0.5 } else { 0.0 };
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([out_h, in_h, in_w]);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.f32(center).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
