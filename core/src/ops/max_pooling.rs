//! Params of the custom ops `MaxPoolingWithArgmax2D` and `MaxUnpooling2D`.

use super::{Activation, Padding};
use crate::error::{Error, Result, counted};

/// Size and position of the windows.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct MaxPoolingParams {
    /// The padding of the borders.
    pub padding: Padding,
    /// Along height and width.
    pub strides: [i32; 2],
    /// Height and width of a window.
    pub window: [usize; 2],
    /// Applied to the greatest elements.
    pub activation: Activation,
}

impl MaxPoolingParams {
    /// Reads the node's options, 32-bit integers: padding, horizontal and vertical stride, width and height of the
    /// window, and the activation.
    ///
    /// # Errors
    /// If they are too short, a window is empty, or the activation is not NONE, RELU, RELU_N1_TO_1 or RELU6.
    pub fn read(options: &[u8]) -> Result<Self> {
        let fields = options.as_chunks().0;
        let invalid = |text: String| Error::InvalidNode(text);
        let &[padding, stride_w, stride_h, window_w, window_h, activation, ..] = fields else {
            return Err(invalid(format!("{} of options, expected 24", counted(options.len(), "byte"))));
        };
        let positive = |bytes| {
            let value = i32::from_le_bytes(bytes);
            usize::try_from(value)
                .ok()
                .filter(|&v| v > 0)
                .ok_or_else(|| invalid(format!("a window of {value}; it must be at least 1")))
        };
        let activation = match i32::from_le_bytes(activation) {
            0 => Activation::None,
            1 => Activation::Relu,
            2 => Activation::ReluN1To1,
            3 => Activation::Relu6,
            other => {
                return Err(Error::Unsupported(format!(
                    "activation {other}; only 0 (NONE), 1 (RELU), 2 (RELU_N1_TO_1) and 3 (RELU6) are supported"
                )));
            }
        };
        Ok(MaxPoolingParams {
            padding: if i32::from_le_bytes(padding) == 1 { Padding::Same } else { Padding::Valid },
            strides: [i32::from_le_bytes(stride_h), i32::from_le_bytes(stride_w)],
            window: [positive(window_h)?, positive(window_w)?],
            activation,
        })
    }
}
