//! The custom ops TransformLandmarks and Landmarks2TransformMatrix.

use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

/// Moves the first two coordinates of landmarks by a 4x4 matrix; a third one stays as it is.
///
/// Bindings: `Input(0)` (the landmarks), `Input(1)` (the matrix, row-major), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// How many landmarks.
    pub count: u32,
    /// Coordinates of each: two or three.
    pub dimensions: u32,
    /// What the matrix's shift is multiplied by.
    pub scale: f32,
}

impl Transform {
    /// The kernel.
    ///
    /// # Errors
    /// For other dimensions, and when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "landmarks";
        if elements(NAME, &[self.count, self.dimensions])? == 0 || !matches!(self.dimensions, 2 | 3) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let walk = Walk::new(NAME, caps, &[self.count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/landmarks.wgsl")))
            .number("UNIFORM", 3)
            .number("DIMENSIONS", self.dimensions)
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).f32(self.scale).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}

/// The 4x4 matrix from positions in the crop around some landmarks to positions in what it is cut from: the crop is
/// the box around the landmarks after they were turned, so that a line through two of them gets a wanted direction.
///
/// Bindings: `Input(0)` (landmarks of three coordinates), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Crop {
    /// The landmarks in the crop; at least one.
    pub subset: Vec<u32>,
    /// The two landmarks.
    pub line: [u32; 2],
    /// The wanted direction: an angle in radians. None: horizontal, by the smaller of both turns.
    pub angle: Option<f32>,
    /// The crop's size over its box's, along x and y.
    pub scale: [f32; 2],
    /// From positions of landmarks to those that the matrix is for: what they are multiplied by, and what is added.
    pub unit: [f32; 2],
    /// Half of the crop along x and y, in those positions.
    pub half: [f32; 2],
    /// What the matrix's columns for x and y are multiplied by.
    pub columns: [f32; 2],
    /// What the rows for x and y are multiplied by, shifts included.
    pub rows: [f32; 2],
    /// What is added to the shifts in the end.
    pub ends: [f32; 2],
}

impl Crop {
    /// The kernel.
    ///
    /// # Errors
    /// For a crop around no landmarks, or more than 16,000.
    pub fn kernel(&self, _: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "landmarks_crop";
        let Some(first) = self.subset.first() else {
            return Err(ShaderError::invalid(NAME, "a crop around no landmarks"));
        };
        if self.subset.len() > 16_000 {
            let text = format!("a crop around {} landmarks", self.subset.len());
            return Err(ShaderError::unsupported(NAME, text));
        }
        let fours = self.subset.len().div_ceil(4);
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/landmarks_crop.wgsl"))
            .number("UNIFORM", 2)
            .number("FOURS", u32::try_from(fours).unwrap_or(u32::MAX))
            .flag("UPRIGHT", self.angle.is_none())
            .render()?;
        let (sin, cos) = self.angle.unwrap_or(0.0).sin_cos();
        // The first landmark once more does not change the box.
        let padded = self.subset.iter().chain(std::iter::repeat(first)).take(fours * 4);
        let uniform = Uniform::default()
            .f32s([cos, sin])
            .u32s(self.line)
            .f32s(
                [self.scale, self.unit, self.half, self.columns, self.rows, self.ends].into_iter().flatten(),
            )
            .u32s(padded.copied());
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: [1; 3],
            features: Features::default(),
        })
    }
}
