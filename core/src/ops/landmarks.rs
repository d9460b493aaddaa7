//! Params of the custom ops `Landmarks2TransformMatrix`, which computes the affine crop around landmarks, and
//! `TransformLandmarks`, which maps landmarks out of a crop.

use super::custom_options::Options;
use crate::error::{Error, Result, counted};

/// Params of `Landmarks2TransformMatrix`: the position of a crop around landmarks of three coordinates.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CropParams {
    /// The landmarks that the crop contains; at least one.
    pub subset: Vec<usize>,
    /// The left and the right landmark, whose connecting line determines the rotation of the crop.
    pub line: [usize; 2],
    /// The size of the crop.
    pub size: CropSize,
}

/// The size of a crop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CropSize {
    /// Version 1: landmarks are numbers up to `range`, which are scaled to the size of the map; the line becomes
    /// horizontal.
    Relative {
        /// Landmarks are between 0 and this.
        range: f32,
        /// The crop's size over its box's.
        multiplier: f32,
        /// Height and width of the map that the crop is cut from.
        input: [f32; 2],
        /// Height and width of the crop.
        output: [f32; 2],
    },
    /// Version 2: landmarks are positions in the map; the line is rotated to `angle`.
    Absolute {
        /// In radians.
        angle: f32,
        /// The crop's size over its box's, along height and width.
        scale: [f32; 2],
        /// Height and width of the crop.
        output: [f32; 2],
    },
}

impl CropParams {
    /// Reads the node's options.
    ///
    /// # Errors
    /// The options are damaged, or describe an impossible crop.
    pub fn read(options: &[u8], version: u32) -> Result<Self> {
        let options = Options::parse(options)?;
        let positive = |what: &str, v: f32| {
            if v > 0.0 { Ok(v) } else { Err(invalid(format!("{what} is {v}, which is not positive"))) }
        };
        let size = |name: &str| positive(name, options.size(name)? as f32);
        let pair = |name: &str| match *options.sizes(name)? {
            [height, width] => Ok([positive(name, height as f32)?, positive(name, width as f32)?]),
            _ => Err(invalid(format!("the option {name} is not two numbers"))),
        };
        let (subset, size) = if version == 1 {
            let dimensions = options.size("dimensions")?;
            if dimensions != 3 {
                let found = counted(dimensions, "coordinate");
                return Err(invalid(format!("landmarks of {found}; only 3 are supported")));
            }
            let size = CropSize::Relative {
                range: size("landmarks_range")?,
                multiplier: options.float("bbox_size_multiplier")?,
                input: pair("input_hw")?,
                output: pair("output_hw")?,
            };
            (options.sizes("subset")?, size)
        } else {
            let factor = |name: &str| positive(name, options.float(name)?);
            let size = CropSize::Absolute {
                angle: options.float("target_rotation_radians")?,
                scale: [factor("scale_y")?, factor("scale_x")?],
                output: [size("output_height")?, size("output_width")?],
            };
            (options.sizes("subset_idxs")?, size)
        };
        if subset.is_empty() {
            return Err(invalid("a crop around no landmarks"));
        }
        let line = [options.size("left_rotation_idx")?, options.size("right_rotation_idx")?];
        Ok(CropParams { subset, line, size })
    }

    /// Checks that every landmark that the crop uses exists.
    ///
    /// # Errors
    /// If one is missing.
    pub fn check(&self, landmarks: usize) -> Result<()> {
        match self.subset.iter().chain(&self.line).find(|i| **i >= landmarks) {
            Some(i) => Err(invalid(format!(
                "the crop uses landmark {i}, but the input has only {landmarks}, numbered from 0"
            ))),
            None => Ok(()),
        }
    }
}

/// Params of `TransformLandmarks`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TransformParams {
    /// The number of coordinates of a landmark; the last dimension if the options have none.
    pub dimensions: Option<usize>,
    /// The factor of the matrix's shift.
    pub scale: f32,
}

impl TransformParams {
    /// Reads the node's options.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn read(options: &[u8], version: u32) -> Result<Self> {
        // Later versions have no options.
        if version > 1 {
            return Ok(TransformParams { dimensions: None, scale: 1.0 });
        }
        let options = Options::parse(options)?;
        let dimensions = Some(options.size("dimensions")?);
        Ok(TransformParams { dimensions, scale: options.float("scale")? })
    }

    /// Returns the number of coordinates of landmarks of this shape, transformed by a matrix of `matrix` elements.
    ///
    /// # Errors
    /// If they don't fit.
    pub fn coordinates(&self, landmarks: &[usize], matrix: usize) -> Result<usize> {
        let last = landmarks.last().copied().unwrap_or(0);
        let dimensions = self.dimensions.unwrap_or(last);
        if !matches!(dimensions, 2 | 3) || last % dimensions != 0 || matrix != 16 {
            return Err(invalid(format!(
                "landmarks of {} in {landmarks:?}, and a matrix of {}",
                counted(dimensions, "coordinate"),
                counted(matrix, "element")
            )));
        }
        Ok(dimensions)
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::InvalidNode(text.into())
}
