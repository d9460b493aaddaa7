//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "resize";

/// The computation of an output pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resize {
    /// From the four input pixels around it, floats. Positions are computed from the sizes.
    Bilinear {
        /// Whether the corner pixels of input and output coincide.
        align_corners: bool,
        /// Whether the position of a pixel is the center of its square.
        half_pixel_centers: bool,
    },
    /// From the four input pixels around it, signed 8-bit integers. Fractions have a scale of 1/1024.
    Fixed,
    /// The same for 16-bit integers.
    FixedWide,
    /// From the four input pixels around it, unsigned 8-bit integers. Fractions are floats.
    Unsigned,
    /// From one input pixel, words of any kind.
    Nearest,
}

/// Resizes images.
///
/// Bindings: `Input(0)`, `Input(1)` except for [`Resize::Bilinear`] (three words for each output row, then for each output
/// column: the input row before it, the one after it, and the fraction between them), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The computation of output pixels.
    pub op: Resize,
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[height, width]` of the output.
    pub size: [u32; 2],
}

impl Shader for Spec {
    /// # Errors
    /// For an extent of zero, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [batch, in_h, in_w, channels] = self.input;
        let [out_h, out_w] = self.size;
        elements(NAME, &[batch, out_h, out_w, channels])?;
        elements(NAME, &self.input)?;
        if self.input.contains(&0) || self.size.contains(&0) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let vec4 = Threshold::VECTORS.holds(channels);
        let unit = if vec4 { 4 } else { 1 };
        let walk = Walk::columns(NAME, caps, &[out_w, channels / unit], batch * out_h)?;
        let (align_corners, half) = match self.op {
            Resize::Bilinear { align_corners, half_pixel_centers } => {
                (align_corners, if half_pixel_centers { 0.5 } else { 0.0 })
            }
            _ => (false, 0.0),
        };
        let computed = matches!(self.op, Resize::Bilinear { .. });
        let element = match self.op {
            Resize::Bilinear { .. } => "f32",
            Resize::Nearest => "u32",
            Resize::Fixed | Resize::FixedWide | Resize::Unsigned => "i32",
        };
        let scale = |from: u32, to: u32| {
            if align_corners && to > 1 {
                (from - 1) as f32 / (to - 1) as f32
            } else {
                from as f32 / to as f32
            }
        };
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/resize.wgsl")))
            .flag("VEC4", vec4)
            .flag("COMPUTED", computed)
            .flag("FIXED", matches!(self.op, Resize::Fixed | Resize::FixedWide))
            .flag("WIDE", self.op == Resize::FixedWide)
            .flag("NEAREST", self.op == Resize::Nearest)
            .text("ELEMENT", element, element);
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([in_h, in_w, out_h])
            .f32s([scale(in_h, out_h), scale(in_w, out_w), half])
            .u32(0);
        let taps = (!computed).then_some(Binding::Input(1));
        let bindings = [Binding::Input(0)].into_iter().chain(taps);
        Ok(Kernel {
            variant: template.variant(NAME, bindings.chain([Binding::Output, Binding::Uniform])),
            uniform: uniform.finish(),
            dispatch: walk.dispatch_rows(caps, out_h, batch)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::VECTORS])
    }
}
