//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "resize";

/// How an output pixel comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resize {
    /// From the four input pixels around it, floats. Positions are computed from the sizes.
    Bilinear {
        /// The corner pixels of input and output lie on top of each other.
        align_corners: bool,
        /// Pixels are points in the middle of their square.
        half_pixel_centers: bool,
    },
    /// From the four input pixels around it, signed integers of 8 bits. Fractions count 1/1024.
    Fixed,
    /// The same of 16 bits.
    FixedWide,
    /// From the four input pixels around it, unsigned integers of 8 bits. Fractions are floats.
    Unsigned,
    /// From one input pixel, words of any kind.
    Nearest,
}

/// Images resized.
///
/// Bindings: `Input(0)`, `Input(1)` but for [`Resize::Bilinear`] (three words for each output row, then for each output
/// column: the input row in front of it, the one behind, and how far beyond the former), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// How.
    pub op: Resize,
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[height, width]` of the output.
    pub size: [u32; 2],
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
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/resize.wgsl")))
            .number("UNIFORM", if computed { 2 } else { 3 })
            .flag("VEC4", vec4)
            .flag("COMPUTED", computed)
            .flag("FIXED", matches!(self.op, Resize::Fixed | Resize::FixedWide))
            .flag("WIDE", self.op == Resize::FixedWide)
            .flag("NEAREST", self.op == Resize::Nearest)
            .text("ELEMENT", element, element)
            .render()?;
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([in_h, in_w, out_h])
            .f32s([scale(in_h, out_h), scale(in_w, out_w), half])
            .u32(0);
        let taps = (!computed).then_some(Binding::Input(1));
        let bindings = [Binding::Input(0)].into_iter().chain(taps);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: bindings.chain([Binding::Output, Binding::Uniform]).collect(),
            uniform: uniform.finish(),
            dispatch: walk.dispatch_rows(caps, out_h, batch)?,
            features: Features::default(),
        })
    }
}
