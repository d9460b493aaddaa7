//! Params of the custom op `TransformTensorBilinear`: an affine crop of a feature map.

use super::custom_options::Options;
use crate::error::{Error, Result};
use crate::types::short_name;

/// Params of `TransformTensorBilinear`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TransformTensorParams {
    /// Height and width of the output.
    pub size: [usize; 2],
    /// Whether the matrix maps the centers of pixels, not their corners.
    pub centered: bool,
}

impl TransformTensorParams {
    /// Reads the node's options.
    ///
    /// # Errors
    /// If they are damaged, or name an interpolation other than bilinear.
    pub fn read(options: &[u8], version: u32) -> Result<Self> {
        let options = Options::parse(options)?;
        let centered = version >= 2;
        let size = if centered {
            [options.size("output_height")?, options.size("output_width")?]
        } else {
            if let Some(mode) = options.text("mode").filter(|mode| *mode != "bilinear") {
                return Err(Error::Unsupported(format!(
                    "interpolation \"{}\"; only \"bilinear\" is supported",
                    short_name(mode)
                )));
            }
            let size = options.sizes("output_size")?;
            let pair = || Error::InvalidNode("the option output_size is not two numbers".into());
            size.try_into().map_err(|_| pair())?
        };
        Ok(TransformTensorParams { size, centered })
    }
}
