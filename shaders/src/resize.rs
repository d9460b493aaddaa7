//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "resize";

/// How an output pixel comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resize {
    /// From the four input pixels around it.
    Bilinear,
    /// From the nearest input pixel.
    Nearest,
}

/// Images resized.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// How.
    pub op: Resize,
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[height, width]` of the output.
    pub size: [u32; 2],
    /// The corner pixels of input and output lie on top of each other.
    pub align_corners: bool,
    /// Pixels are points in the middle of their square.
    pub half_pixel_centers: bool,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When an extent is zero or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [batch, in_h, in_w, channels] = self.input;
        let [out_h, out_w] = self.size;
        elements(NAME, &[batch, out_h, out_w, channels])?;
        elements(NAME, &self.input)?;
        if self.input.contains(&0) || self.size.contains(&0) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let vec4 = channels.is_multiple_of(4);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::columns(NAME, caps, &[out_w, channels / unit], batch * out_h)?;
        let scale = |from: u32, to: u32| {
            if self.align_corners && to > 1 {
                (from - 1) as f32 / (to - 1) as f32
            } else {
                from as f32 / to as f32
            }
        };
        let half = if self.half_pixel_centers { 0.5 } else { 0.0 };
        // The nearest pixel's index is rounded down, or with aligned corners to the nearest one.
        let after = match self.op {
            Resize::Bilinear => -half,
            Resize::Nearest if self.align_corners => 0.5,
            Resize::Nearest => 0.0,
        };
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/resize.wgsl")))
            .number("UNIFORM", 2)
            .flag("VEC4", vec4)
            .flag("BILINEAR", self.op == Resize::Bilinear)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32s([in_h, in_w, out_h]).f32s([
            scale(in_h, out_h),
            scale(in_w, out_w),
            half,
            after,
        ]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch_rows(caps, out_h, batch)?,
            features: Features::default(),
        })
    }
}
