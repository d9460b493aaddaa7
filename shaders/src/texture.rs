//! Images in textures as tensors.

use crate::kernel::check_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "texture";
/// Invocations of a workgroup in each direction.
const SIDE: u32 = 8;

/// Reads an image, or a part of it, as a tensor of floats, by bilinear interpolation, with black outside of the image.
///
/// Bindings: `Texture` (of floats, with two dimensions), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// `[height, width, channels]`: four channels with alpha, three without, or one for the brightness.
    pub output: [u32; 3],
    /// Left edge, upper edge, width and height of the tensor's region of the image, whose sides are 1 long.
    pub region: [f32; 4],
    /// Factors of red, green, blue and alpha, which are from 0 to 1 in the usual formats.
    pub scale: [f32; 4],
    /// Added after scaling.
    pub offset: [f32; 4],
}

impl Spec {
    /// Returns the uniform block, the only part of the kernel that depends on the region.
    pub fn uniform(&self) -> Vec<u8> {
        let [height, width, _] = self.output;
        let floats = Uniform::default().f32s(self.scale).f32s(self.offset).f32s(self.region);
        floats.u32s([width, height]).finish()
    }
}

impl Shader for Spec {
    /// # Errors
    /// For an empty tensor, two channels or more than four, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [height, width, channels] = self.output;
        if elements(NAME, &self.output)? == 0 || !matches!(channels, 1 | 3 | 4) {
            return Err(ShaderError::invalid(
                NAME,
                format!("a tensor of shape {:?}; 1, 3 or 4 channels are supported", self.output),
            ));
        }
        let template = Template::new(NAME, include_str!("wgsl/texture.wgsl"))
            .number("SIDE", SIDE)
            .number("CHANNELS", channels);
        let groups = [width.div_ceil(SIDE).into(), height.div_ceil(SIDE).into(), 1];
        Ok(Kernel {
            variant: template.variant(NAME, [Binding::Texture, Binding::Output, Binding::Uniform]),
            uniform: self.uniform(),
            dispatch: check_dispatch(NAME, caps, groups)?,
            iterations: 0,
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
