//! Shape and type inference: arguments and results of every op's `infer`.

use smallvec::SmallVec;

use super::{Padding, Params, TensorType};
use crate::error::counted;
use crate::types::Element;
use crate::types::Quantization;
use crate::types::Shape;

/// The largest number of elements of an operand that lists dimensions or sizes.
pub const MAX_INTEGERS: usize = 1 << 16;

/// One input of a node.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct InferTensor<'a> {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: &'a Shape,
    /// Quantization, if any.
    pub quantization: Option<&'a Quantization>,
    /// The data, where it is known before `invoke`.
    pub constant: Option<&'a [u8]>,
}

impl<'a> InferTensor<'a> {
    /// Creates an input without quantization and constant data.
    pub fn new(ty: TensorType, shape: &'a Shape) -> Self {
        InferTensor { ty, shape, quantization: None, constant: None }
    }

    /// Sets [`InferTensor::quantization`].
    #[must_use]
    pub fn with_quantization(mut self, quantization: Option<&'a Quantization>) -> Self {
        self.quantization = quantization;
        self
    }

    /// Sets [`InferTensor::constant`].
    #[must_use]
    pub fn with_constant(mut self, constant: Option<&'a [u8]>) -> Self {
        self.constant = constant;
        self
    }

    /// Returns the constant data, a list of dimensions or of sizes, as integers: the type must be INT32 or INT64.
    /// `None` if the data is not constant.
    ///
    /// # Errors
    /// For other types, and for more than [`MAX_INTEGERS`] elements.
    pub fn integers(&self) -> Result<Option<SmallVec<[i64; 8]>>, InferError> {
        let Some(elements) = self.integer_elements()? else { return Ok(None) };
        match elements.len() {
            ..=MAX_INTEGERS => Ok(Some(elements.collect())),
            count => {
                let ty = self.ty;
                Err(InferError::new(format!(
                    "{count} elements of {ty}; at most {MAX_INTEGERS} are supported"
                )))
            }
        }
    }

    /// As [`InferTensor::integers`], for any number of elements.
    ///
    /// # Errors
    /// For types other than INT32 and INT64.
    pub fn integer_elements(&self) -> Result<Option<impl ExactSizeIterator<Item = i64>>, InferError> {
        let Some(bytes) = self.constant else { return Ok(None) };
        let size = match self.ty {
            TensorType::Int32 => 4,
            TensorType::Int64 => 8,
            ty => return Err(InferError::new(format!("expected INT32 or INT64, got {ty}"))),
        };
        Ok(Some(bytes.chunks_exact(size).map(|element| match *element {
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
            _ => element.try_into().map_or(0, i64::from_le_bytes),
        })))
    }

    /// Returns the one integer that the constant data holds. `None` if the data is not constant.
    ///
    /// # Errors
    /// For types other than INT32 and INT64, and for another number of elements; the error begins with `what`.
    pub fn integer(&self, what: &str) -> Result<Option<i64>, InferError> {
        let Some(mut elements) = self.integer_elements()? else { return Ok(None) };
        match (elements.len(), elements.next()) {
            (1, Some(value)) => Ok(Some(value)),
            (count, _) => Err(InferError::new(format!("{what} must be one number, got {count}"))),
        }
    }

    /// Returns the one element of type `T` that the constant data holds. `None` if the data is not constant, or of
    /// another type.
    ///
    /// # Errors
    /// For another number of elements; the error begins with `what`.
    pub fn scalar<T: Element>(&self, what: &str) -> Result<Option<T>, InferError> {
        let Some(bytes) = self.constant.filter(|_| self.ty == T::TYPE) else { return Ok(None) };
        match bytemuck::try_pod_read_unaligned(bytes) {
            Ok(value) => Ok(Some(value)),
            Err(_) => {
                let count = bytes.len() / size_of::<T>();
                Err(InferError::new(format!("{what} must be one number, got {count}")))
            }
        }
    }
}

/// An output as the file declares it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Declared<'a> {
    /// Declared element type.
    pub ty: TensorType,
    /// Declared shape: a hint that inference does not trust.
    pub shape: &'a Shape,
    /// Declared quantization.
    pub quantization: Option<&'a Quantization>,
}

impl<'a> Declared<'a> {
    /// Creates an output without quantization.
    pub fn new(ty: TensorType, shape: &'a Shape) -> Self {
        Declared { ty, shape, quantization: None }
    }

    /// Sets [`Declared::quantization`].
    #[must_use]
    pub fn with_quantization(mut self, quantization: Option<&'a Quantization>) -> Self {
        self.quantization = quantization;
        self
    }
}

/// A node in the form that inference reads.
#[derive(Debug)]
#[non_exhaustive]
pub struct InferContext<'a> {
    /// Typed params.
    pub params: &'a Params,
    /// The version of the op in the model.
    pub version: u32,
    /// Inputs, `None` if an optional one is left out.
    pub inputs: SmallVec<[Option<InferTensor<'a>>; 6]>,
    /// Outputs as declared in the file.
    pub outputs: SmallVec<[Declared<'a>; 4]>,
}

/// The inferred shape of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InferredShape {
    /// The shape.
    Known(Shape),
    /// The shape depends on data that is not known yet. If an operand determines it (the shape of a RESHAPE), inference
    /// is repeated as soon as the operand has a value. If the op itself does (WHERE), the kernel resizes the output.
    DataDependent,
    /// Only the kernel's `prepare` knows the shape: the op calls another subgraph.
    FromKernel,
}

/// Type and shape of one output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inferred {
    /// Element type.
    pub ty: TensorType,
    /// The shape, if it is known.
    pub shape: InferredShape,
}

impl Inferred {
    /// Creates an output of known shape.
    pub fn known(ty: TensorType, shape: impl Into<Shape>) -> Self {
        Inferred { ty, shape: InferredShape::Known(shape.into()) }
    }

    /// Creates an output whose shape depends on data.
    pub fn data_dependent(ty: TensorType) -> Self {
        Inferred { ty, shape: InferredShape::DataDependent }
    }

    /// Creates an output whose shape the kernel's `prepare` sets.
    pub fn from_kernel(ty: TensorType) -> Self {
        Inferred { ty, shape: InferredShape::FromKernel }
    }
}

/// Why inference failed. The caller adds model, subgraph, node and op.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InferError(String);

impl InferError {
    /// Creates an error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        InferError(message.into())
    }
}

/// The outputs of a node, in order.
pub type InferResult = Result<SmallVec<[Inferred; 2]>, InferError>;

impl<'a> InferContext<'a> {
    /// Creates a node of this version of its op, without inputs and outputs.
    pub fn new(params: &'a Params, version: u32) -> Self {
        InferContext { params, version, inputs: SmallVec::new(), outputs: SmallVec::new() }
    }

    /// Sets [`InferContext::inputs`].
    #[must_use]
    pub fn with_inputs(mut self, inputs: impl IntoIterator<Item = Option<InferTensor<'a>>>) -> Self {
        self.inputs = inputs.into_iter().collect();
        self
    }

    /// Sets [`InferContext::outputs`].
    #[must_use]
    pub fn with_outputs(mut self, outputs: impl IntoIterator<Item = Declared<'a>>) -> Self {
        self.outputs = outputs.into_iter().collect();
        self
    }

    /// Input `i`, which the op requires.
    pub fn input(&self, i: usize) -> Result<&InferTensor<'a>, InferError> {
        self.inputs.get(i).and_then(Option::as_ref).ok_or_else(|| {
            InferError::new(format!(
                "input {i} is missing; the node has {}",
                counted(self.inputs.len(), "input")
            ))
        })
    }

    /// Input `i` if it is present.
    pub fn optional(&self, i: usize) -> Option<&InferTensor<'a>> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// Returns the shape of input `i`, which must have this rank.
    pub fn shape_of_rank<const R: usize>(&self, i: usize, what: &str) -> Result<[usize; R], InferError> {
        let shape = self.input(i)?.shape;
        shape
            .dims()
            .try_into()
            .map_err(|_| InferError::new(format!("{what} must have rank {R}, got {shape}")))
    }

    /// Checks the numbers of inputs and outputs.
    pub fn arity(&self, inputs: std::ops::RangeInclusive<usize>, outputs: usize) -> Result<(), InferError> {
        if !inputs.contains(&self.inputs.len()) {
            let (low, high) = inputs.into_inner();
            let want = if low == high { counted(low, "input") } else { format!("{low} to {high} inputs") };
            return Err(InferError::new(format!("expected {want}, the node has {}", self.inputs.len())));
        }
        if self.outputs.len() != outputs {
            return Err(InferError::new(format!(
                "expected {}, the node has {}",
                counted(outputs, "output"),
                self.outputs.len()
            )));
        }
        Ok(())
    }

    /// Returns the result of inference while the operand that determines the shapes of the outputs is unknown: all
    /// outputs have this type.
    pub(crate) fn data_dependent(&self, ty: TensorType) -> InferResult {
        Ok(self.outputs.iter().map(|_| Inferred::data_dependent(ty)).collect())
    }

    /// Returns the typed params of the node.
    pub fn params<T>(&self) -> Result<&'a T, InferError>
    where
        &'a T: TryFrom<&'a Params, Error = super::WrongParams>,
    {
        self.params.try_into().map_err(|e: super::WrongParams| InferError::new(e.to_string()))
    }
}

/// Returns `axis` counted from the front; a negative `axis` counts from the back. An axis out of range for `rank` is an
/// error.
pub fn axis_in(axis: i64, rank: usize) -> Result<usize, InferError> {
    let error = || InferError::new(format!("axis {axis} is out of range for rank {rank}"));
    let signed = i64::try_from(rank).map_err(|_| error())?;
    let from_front = if axis < 0 { axis.checked_add(signed).ok_or_else(error)? } else { axis };
    usize::try_from(from_front).ok().filter(|&a| a < rank).ok_or_else(error)
}

/// `list` as distinct dimensions of a tensor of `rank`, counted from the front.
pub(super) fn dimensions(list: &[i64], rank: usize, what: &str) -> Result<SmallVec<[usize; 8]>, InferError> {
    let mut dimensions = SmallVec::new();
    for &d in list {
        match usize::try_from(d).ok().filter(|&d| d < rank) {
            Some(d) if !dimensions.contains(&d) => dimensions.push(d),
            Some(d) => return Err(InferError::new(format!("{what} name dimension {d} twice"))),
            None => return Err(InferError::new(format!("{what} name dimension {d} of rank {rank}"))),
        }
    }
    Ok(dimensions)
}

/// Checks that `list` has one entry per dimension of a tensor of `rank`.
pub(super) fn per_dimension(list: &[i64], rank: usize, what: &str) -> Result<(), InferError> {
    if list.len() == rank {
        return Ok(());
    }
    Err(InferError::new(format!("{what} have {} for rank {rank}", counted(list.len(), "entry"))))
}

/// `value` as a size: an error if it is negative.
pub fn size_from(value: i64, what: &str) -> Result<usize, InferError> {
    usize::try_from(value).map_err(|_| InferError::new(format!("{what} {value} is negative")))
}

/// Checks that input `i` is given and has this shape.
pub fn expect_shape(cx: &InferContext<'_>, i: usize, shape: &[usize]) -> Result<(), InferError> {
    let got = cx.input(i)?.shape;
    if got.dims() == shape {
        return Ok(());
    }
    Err(InferError::new(format!("input {i} has the shape {got}, expected {shape:?}")))
}

/// A sliding window along one dimension. `S` is the type of stride and dilation: `i32` as they are in a file, `usize`
/// once they are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window<S = usize> {
    /// The number of elements of the window.
    pub size: usize,
    /// The distance from one position of the window to the next.
    pub stride: S,
    /// The distance from one element of the window to the next.
    pub dilation: S,
}

/// Returns the output size of a sliding window along one dimension, for conv and pool ops. A stride or dilation below 1
/// and an empty window are errors.
pub fn windowed_output(input: usize, window: Window<i32>, padding: Padding) -> Result<usize, InferError> {
    let positive = |v: i32, what: &str| {
        usize::try_from(v)
            .ok()
            .filter(|&v| v > 0)
            .ok_or_else(|| InferError::new(format!("{what} {v} is not positive")))
    };
    let (stride, dilation) = (positive(window.stride, "stride")?, positive(window.dilation, "dilation")?);
    if window.size == 0 {
        return Err(InferError::new("the filter is empty"));
    }
    let extent = dilated(window.size, dilation)?;
    match padding {
        Padding::Same => Ok(input.div_ceil(stride)),
        // A window that does not fit gives no outputs at all.
        Padding::Valid => Ok((input + stride).saturating_sub(extent) / stride),
    }
}

/// Padding in front of a dimension: half of the elements by which `output` windows exceed the input. An odd element is
/// at the back.
pub fn pad_amount(input: usize, output: usize, window: Window) -> usize {
    let extent = window.size.saturating_sub(1).saturating_mul(window.dilation).saturating_add(1);
    output.saturating_sub(1).saturating_mul(window.stride).saturating_add(extent).saturating_sub(input) / 2
}

fn dilated(window: usize, dilation: usize) -> Result<usize, InferError> {
    (window - 1)
        .checked_mul(dilation)
        .and_then(|n| n.checked_add(1))
        .ok_or_else(|| InferError::new("the dilated filter's size overflows"))
}

impl From<InferError> for crate::error::Error {
    fn from(error: InferError) -> Self {
        crate::error::Error::InvalidNode(error.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        let window = Window { size: 3, stride: 1, dilation: 1 };
        let strided = Window { stride: 2, ..window };
        assert_eq!(windowed_output(257, strided, Padding::Same), Ok(129));
        assert_eq!(windowed_output(5, Window { dilation: 2, ..window }, Padding::Valid), Ok(1));
        assert_eq!(windowed_output(2, window, Padding::Valid), Ok(0));
        assert!(windowed_output(5, Window { stride: 0, ..window }, Padding::Same).is_err());
        assert!(windowed_output(5, Window { size: 0, ..window }, Padding::Same).is_err());
        let strided = Window { size: 3, stride: 2, dilation: 1 };
        assert_eq!(pad_amount(257, 129, strided), 1);
        assert_eq!(pad_amount(4, 2, strided), 0, "the odd one goes to the back");
    }

    #[test]
    fn lists_of_integers_are_bounded() {
        let bytes: Vec<u8> = (0..=MAX_INTEGERS as i32).rev().flat_map(i32::to_le_bytes).collect();
        let shape = Shape::from([MAX_INTEGERS + 1]);
        let list = |bytes| InferTensor::new(TensorType::Int32, &shape).with_constant(Some(bytes));
        let error = list(&bytes).integers().unwrap_err().to_string();
        assert!(error.contains("65537 elements of INT32; at most 65536 are supported"), "{error}");
        assert_eq!(list(&bytes).integer_elements().unwrap().unwrap().last(), Some(0));
        assert_eq!(list(&bytes[4..]).integers().unwrap().unwrap().len(), MAX_INTEGERS);
        assert_eq!(list(&bytes[bytes.len() - 4..]).integer("the axis"), Ok(Some(0)));
        assert!(list(&bytes).integer("the axis").is_err());
        let wide = InferTensor { ty: TensorType::Int64, ..list(&bytes[bytes.len() - 8..]) };
        assert_eq!(wide.integers().unwrap().unwrap().as_slice(), [1]);
    }

    #[test]
    fn axes() {
        assert_eq!(axis_in(-1, 4), Ok(3));
        assert!(axis_in(4, 4).is_err());
        assert!(axis_in(-5, 4).is_err());
        assert!(axis_in(0, 0).is_err());
    }
}
