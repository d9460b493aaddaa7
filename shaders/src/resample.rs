//! The custom ops TransformTensorBilinear and Resampler.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "resample";

/// Where an output's pixels are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Positions {
    /// `Input(1)` is a 4x4 matrix from positions in the output to positions in the only map.
    Matrix {
        /// The matrix maps the centers of pixels, not their corners.
        centered: bool,
    },
    /// `Input(1)` has a position `[x, y]` for every pixel of every map.
    Each,
}

/// Reads maps at positions between their pixels, by bilinear interpolation; what lies outside is zero.
///
/// Bindings: `Input(0)` (the maps), `Input(1)` (the positions), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where pixels are read from.
    pub positions: Positions,
    /// `[maps, height, width, channels]`
    pub input: [u32; 4],
    /// Height and width of the output.
    pub size: [u32; 2],
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// For several maps with one matrix, and when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let ([maps, in_h, in_w, channels], [out_h, out_w]) = (self.input, self.size);
        let matrix = matches!(self.positions, Positions::Matrix { .. });
        let output = [maps, out_h, out_w, channels];
        if elements(NAME, &self.input)? == 0 || elements(NAME, &output)? == 0 || (matrix && maps != 1) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        elements(NAME, &[maps, out_h, out_w, 2])?;
        let walk = Walk::new(NAME, caps, &[maps * out_h, out_w, channels])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/resample.wgsl")))
            .number("UNIFORM", 3)
            .flag("MATRIX", matrix)
            .render()?;
        let center = if self.positions == (Positions::Matrix { centered: true }) { 0.5 } else { 0.0 };
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([out_h, in_h, in_w]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.f32(center).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
