//! The custom ops TransformLandmarks and Landmarks2TransformMatrix.

use crate::binding::bindings;
use crate::kernel::looped;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

/// Transforms the first two coordinates of landmarks by a 4x4 matrix; a third one is unchanged.
///
/// Bindings: `Input(0)` (the landmarks), `Input(1)` (the matrix, row-major), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Number of landmarks.
    pub count: u32,
    /// Number of coordinates of each: two or three.
    pub dimensions: u32,
    /// Factor of the matrix's translation.
    pub scale: f32,
}

impl Shader for Transform {
    /// # Errors
    /// For no landmarks, other numbers of coordinates, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "landmarks";
        if elements(NAME, &[self.count, self.dimensions])? == 0 || !matches!(self.dimensions, 2 | 3) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let walk = Walk::new(NAME, caps, &[self.count])?;
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/landmarks.wgsl")))
            .number("DIMENSIONS", self.dimensions);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).f32(self.scale).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}

/// The 4x4 matrix from positions in the crop around some landmarks to positions in the image that it is cut from. The crop
/// is the bounding box of the landmarks after a rotation by which a line through two of them gets a given direction.
///
/// Bindings: `Input(0)` (landmarks of three coordinates), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Crop {
    /// Indices of the landmarks in the crop; at least one.
    pub subset: Vec<u32>,
    /// Indices of the line's two landmarks.
    pub line: [u32; 2],
    /// The line's direction, in radians. `None`: horizontal, by the smaller of both rotations.
    pub angle: Option<f32>,
    /// Size of the crop over that of its bounding box, along x and y.
    pub scale: [f32; 2],
    /// Factor and offset from positions of landmarks to those of the matrix.
    pub unit: [f32; 2],
    /// Half of the crop along x and y, in positions of the matrix.
    pub half: [f32; 2],
    /// Factors of the matrix's columns for x and y.
    pub columns: [f32; 2],
    /// Factors of the rows for x and y, translation included.
    pub rows: [f32; 2],
    /// Finally added to the translation.
    pub ends: [f32; 2],
}

impl Shader for Crop {
    /// # Errors
    /// For a crop around no landmarks, or more than 16,000.
    fn kernel(&self, _: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "landmarks_crop";
        let Some(first) = self.subset.first() else {
            return Err(ShaderError::invalid(NAME, "a crop around no landmarks"));
        };
        if self.subset.len() > 16_000 {
            let text = format!("a crop around {} landmarks; at most 16000 are supported", self.subset.len());
            return Err(ShaderError::unsupported(NAME, text));
        }
        let fours = self.subset.len().div_ceil(4);
        let template = Template::new(NAME, include_str!("wgsl/landmarks_crop.wgsl"))
            .number("FOURS", u32::try_from(fours).unwrap_or(u32::MAX))
            .flag("UPRIGHT", self.angle.is_none());
        let (sin, cos) = self.angle.unwrap_or(0.0).sin_cos();
        // Repeating the first landmark does not change the bounding box.
        let padded = self.subset.iter().chain(std::iter::repeat(first)).take(fours * 4);
        let uniform = Uniform::default()
            .f32s([cos, sin])
            .u32s(self.line)
            .f32s(
                [self.scale, self.unit, self.half, self.columns, self.rows, self.ends].into_iter().flatten(),
            )
            .u32s(padded.copied());
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: [1; 3],
            iterations: looped(fours as u64, 0),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
