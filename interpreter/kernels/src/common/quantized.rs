//! Fixed-point arithmetic of the quantized kernels. Results are bit-exact with TFLite: same multipliers, same rounding.

pub(crate) use delegraph_core::fixed_point::{Multiplier, doubling_high_mul, rounding_shift_right};
use delegraph_core::kernel::TensorView;
use delegraph_core::ops::Activation;
pub(crate) use delegraph_core::quantized::{Steps, inverse_root, reciprocal};
use delegraph_core::{Element, Error, Result, TensorType};

/// An integer type of quantized tensors.
pub(crate) trait QuantizedElement: Element + Into<i32> {
    /// The lowest value of the type.
    const MIN: i32;
    /// The highest value of the type.
    const MAX: i32;

    /// Clamps `value` to `low..=high`. `high` must be in the range of the type, and applies if it is below `low`.
    fn clamped(value: i32, low: i32, high: i32) -> Self;
}

macro_rules! quantized_elements {
    ($($ty:ty),*) => { $(impl QuantizedElement for $ty {
        const MIN: i32 = <$ty>::MIN as i32;
        const MAX: i32 = <$ty>::MAX as i32;

        fn clamped(value: i32, low: i32, high: i32) -> Self {
            value.max(low).min(high) as $ty
        }
    })* };
}
quantized_elements!(i8, u8, i16, i32);

/// Scale and zero point of an 8-bit or 16-bit tensor.
///
/// # Errors
/// Fails if the tensor is not quantized per tensor or the zero point is outside of its type's range.
pub(crate) fn scale_zero_point_in_range(tensor: TensorView<'_>) -> Result<(f32, i32)> {
    let (scale, zero_point) = tensor.scale_zero_point()?;
    let range = match tensor.ty() {
        TensorType::UInt8 => 0..=u8::MAX.into(),
        TensorType::Int8 => i8::MIN.into()..=i8::MAX.into(),
        _ => i16::MIN.into()..=i16::MAX.into(),
    };
    if range.contains(&zero_point) {
        return Ok((scale, zero_point));
    }
    Err(Error::InvalidNode(format!(
        "zero point {zero_point} of \"{}\" is out of range; {} has {} to {}",
        tensor.name(),
        tensor.ty(),
        range.start(),
        range.end()
    )))
}

/// Returns the quantization of an 8-bit or 16-bit tensor: scale, zero point, and the range of its type.
///
/// # Errors
/// Fails if the tensor has another type or is not quantized per tensor.
pub(crate) fn steps_of(tensor: TensorView<'_>) -> Result<Steps> {
    let (scale, zero_point) = tensor.scale_zero_point()?;
    let unsupported = || {
        Error::Unsupported(format!(
            "\"{}\" is a quantized tensor of type {}; only INT8, UINT8 and INT16 are supported",
            tensor.name(),
            tensor.ty()
        ))
    };
    Steps::new(tensor.ty(), scale, zero_point).ok_or_else(unsupported)
}

/// Range of an 8-bit or 16-bit output: that of its type, narrowed by the fused activation. Without one, the tensor need
/// not be quantized.
///
/// # Errors
/// Fails if the activation is not a clamp, if there is one and the tensor is not quantized per tensor, or if the tensor
/// has another type.
pub(crate) fn activation_range(activation: Activation, output: TensorView<'_>) -> Result<(i32, i32)> {
    match (activation, output.quantization(), output.ty()) {
        (Activation::None, None, TensorType::Int8) => Ok((i8::MIN.into(), i8::MAX.into())),
        (Activation::None, None, TensorType::UInt8) => Ok((0, u8::MAX.into())),
        (Activation::None, None, TensorType::Int16) => Ok((i16::MIN.into(), i16::MAX.into())),
        _ => steps_of(output)?.range(activation),
    }
}
