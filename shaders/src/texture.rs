//! Pictures in textures as tensors.

use crate::kernel::check_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "texture";
/// Invocations of a workgroup in each direction.
const SIDE: u32 = 8;

/// Reads a picture, or a part of it, as a tensor of floats, by bilinear interpolation; what lies outside is black.
///
/// Bindings: `Texture` (of floats, with two dimensions), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// `[height, width, channels]`: four channels with what the picture has as alpha, three, or how bright it is.
    pub output: [u32; 3],
    /// Left edge, upper edge, width and height of what the tensor shows; the picture's sides are 1 long.
    pub region: [f32; 4],
    /// What red, green, blue and alpha (from 0 to 1 in the usual formats) are multiplied by.
    pub scale: [f32; 4],
    /// What is added to them then.
    pub offset: [f32; 4],
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// For two channels or more than four, and when the tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [height, width, channels] = self.output;
        if elements(NAME, &self.output)? == 0 || !matches!(channels, 1 | 3 | 4) {
            return Err(ShaderError::invalid(NAME, format!("a tensor of {:?} from a picture", self.output)));
        }
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/texture.wgsl"))
            .number("UNIFORM", 2)
            .number("SIDE", SIDE)
            .number("CHANNELS", channels)
            .render()?;
        let groups = [width.div_ceil(SIDE).into(), height.div_ceil(SIDE).into(), 1];
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Texture, Binding::Output, Binding::Uniform],
            uniform: self.uniform(),
            dispatch: check_dispatch(NAME, caps, groups)?,
            features: Features::default(),
        })
    }

    /// The kernel's uniform block alone: all that another region changes.
    pub fn uniform(&self) -> Vec<u8> {
        let [height, width, _] = self.output;
        let floats = Uniform::default().f32s(self.scale).f32s(self.offset).f32s(self.region);
        floats.u32s([width, height]).finish()
    }
}
