//! The model's declaration of a tensor.

use std::ops::Range;
use std::sync::Arc;

use crate::error::tensor_name;
use crate::types::Shape;
use crate::types::TensorType;
use crate::types::quantization::{MinMax, Quantization};
use crate::types::sparsity::Sparsity;

/// The declaration of a tensor in a model.
///
/// ```
/// use delegraph_core::{Quantization, Tensor, TensorType};
///
/// let image = Tensor::new("image", TensorType::Int8, [1, 28, 28, 1])
///     .with_quantization(Quantization::per_tensor(1.0 / 255.0, -128));
/// assert_eq!(image.quantization().and_then(Quantization::scale_zero_point), Some((1.0 / 255.0, -128)));
/// ```
#[derive(Debug, Clone)]
pub struct Tensor {
    pub(super) name: Arc<str>,
    pub(super) ty: TensorType,
    pub(super) shape: Shape,
    pub(super) shape_signature: Option<Vec<Option<usize>>>,
    pub(super) quantization: Option<Arc<Quantization>>,
    pub(super) min_max: Option<Arc<MinMax>>,
    pub(super) sparsity: Option<Arc<Sparsity>>,
    pub(super) is_variable: bool,
    pub(super) data: Option<Range<usize>>,
    pub(super) external_data: bool,
    pub(super) has_rank: bool,
    pub(super) variants: Vec<VariantType>,
}

/// The type and shape of the contents of a `VARIANT` tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VariantType {
    /// Element type.
    pub ty: TensorType,
    /// Shape; `None` represents an unknown dimension.
    pub shape: Vec<Option<usize>>,
    /// Whether the rank is known; if not, the shape is empty.
    pub has_rank: bool,
}

impl Tensor {
    /// Creates a tensor without data and quantization.
    pub fn new(name: impl Into<Arc<str>>, ty: TensorType, shape: impl Into<Shape>) -> Self {
        Tensor {
            name: name.into(),
            ty,
            shape: shape.into(),
            shape_signature: None,
            quantization: None,
            min_max: None,
            sparsity: None,
            is_variable: false,
            data: None,
            external_data: false,
            has_rank: false,
            variants: Vec::new(),
        }
    }

    /// Returns the name, possibly empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a handle to its name.
    pub fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// Element type.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Shape; the initial shape if the signature has unknown dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the dimensions, with `None` for those that may be resized, if the file declares them.
    pub fn shape_signature(&self) -> Option<&[Option<usize>]> {
        self.shape_signature.as_deref()
    }

    /// Quantization, if any.
    pub fn quantization(&self) -> Option<&Quantization> {
        self.quantization.as_deref()
    }

    /// Returns a handle to its quantization, if any.
    pub fn shared_quantization(&self) -> Option<Arc<Quantization>> {
        self.quantization.clone()
    }

    /// Returns the range of values that was seen in training or calibration, if any. Nothing computes with it.
    pub fn min_max(&self) -> Option<&MinMax> {
        self.min_max.as_deref()
    }

    /// Storage of a sparse constant.
    pub fn sparsity(&self) -> Option<&Sparsity> {
        self.sparsity.as_deref()
    }

    /// Returns a handle to the storage of a sparse constant.
    pub fn shared_sparsity(&self) -> Option<Arc<Sparsity>> {
        self.sparsity.clone()
    }

    /// Returns true for state that keeps its value between invocations.
    pub fn is_variable(&self) -> bool {
        self.is_variable
    }

    /// Returns the range of its constant data in the model's bytes.
    pub fn data(&self) -> Option<Range<usize>> {
        self.data.clone()
    }

    /// Returns true for a constant whose data the application holds outside of the model's bytes. A model with such a
    /// tensor cannot be written.
    pub fn has_external_data(&self) -> bool {
        self.external_data
    }

    /// Returns true when the model holds its data.
    pub fn is_constant(&self) -> bool {
        self.data.is_some()
    }

    /// Returns true if the file declares the rank as known even though the shape is empty. Nothing computes with it.
    pub fn has_rank(&self) -> bool {
        self.has_rank
    }

    /// Returns the contents of a `VARIANT` tensor, where the file declares them.
    pub fn variants(&self) -> &[VariantType] {
        &self.variants
    }

    /// Returns whether a caller may resize this input to `shape`. Without a shape signature, any shape is accepted.
    pub fn accepts(&self, shape: &[usize]) -> bool {
        match &self.shape_signature {
            Some(signature) => {
                signature.len() == shape.len()
                    && signature.iter().zip(shape).all(|(s, d)| s.is_none_or(|s| s == *d))
            }
            None => true,
        }
    }
}

/// Edits. A tensor of a model cannot be edited: see [`ModelDraft`](super::ModelDraft).
impl Tensor {
    /// Sets the name.
    pub fn set_name(&mut self, name: impl Into<Arc<str>>) {
        self.name = name.into();
    }

    /// Returns the tensor with this name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.set_name(name);
        self
    }

    /// Sets the element type.
    pub fn set_type(&mut self, ty: TensorType) {
        self.ty = ty;
    }

    /// Returns the tensor with this element type.
    #[must_use]
    pub fn with_type(mut self, ty: TensorType) -> Self {
        self.set_type(ty);
        self
    }

    /// Sets the shape.
    pub fn set_shape(&mut self, shape: impl Into<Shape>) {
        self.shape = shape.into();
    }

    /// Returns the tensor with this shape.
    #[must_use]
    pub fn with_shape(mut self, shape: impl Into<Shape>) -> Self {
        self.set_shape(shape);
        self
    }

    /// Sets which dimensions may be resized.
    pub fn set_shape_signature(&mut self, signature: impl Into<Option<Vec<Option<usize>>>>) {
        self.shape_signature = signature.into();
    }

    /// Returns the tensor with dimensions that may be resized: `None` in `signature`.
    #[must_use]
    pub fn with_shape_signature(mut self, signature: impl Into<Option<Vec<Option<usize>>>>) -> Self {
        self.set_shape_signature(signature);
        self
    }

    /// Sets the quantization.
    pub fn set_quantization(&mut self, quantization: impl IntoQuantization) {
        self.quantization = quantization.into_quantization();
    }

    /// Returns the tensor with this quantization.
    #[must_use]
    pub fn with_quantization(mut self, quantization: impl IntoQuantization) -> Self {
        self.set_quantization(quantization);
        self
    }

    /// Sets the range of values that was seen in training or calibration.
    pub fn set_min_max(&mut self, min_max: Option<MinMax>) {
        self.min_max = min_max.map(Arc::new);
    }

    /// Returns the tensor with this range of values.
    #[must_use]
    pub fn with_min_max(mut self, min_max: Option<MinMax>) -> Self {
        self.set_min_max(min_max);
        self
    }

    /// Sets the storage of a sparse constant.
    pub fn set_sparsity(&mut self, sparsity: Option<Arc<Sparsity>>) {
        self.sparsity = sparsity;
    }

    /// Returns the tensor with this sparse storage.
    #[must_use]
    pub fn with_sparsity(mut self, sparsity: Sparsity) -> Self {
        self.set_sparsity(Some(Arc::new(sparsity)));
        self
    }

    /// Sets whether it keeps its value from one invocation to the next.
    pub fn set_variable(&mut self, variable: bool) {
        self.is_variable = variable;
    }

    /// Returns the tensor as state that keeps its value from one invocation to the next.
    #[must_use]
    pub fn into_variable(mut self) -> Self {
        self.set_variable(true);
        self
    }

    /// Sets the range of its constant data in the model's bytes.
    pub fn set_data(&mut self, data: impl Into<Option<Range<usize>>>) {
        self.data = data.into();
    }

    /// Returns the tensor as a constant, with the range of its data in the model's bytes; `None` for a tensor without
    /// data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Option<Range<usize>>>) -> Self {
        self.set_data(data);
        self
    }

    /// Sets whether it is a constant whose data the application holds outside of the model's bytes.
    pub fn set_external_data(&mut self, external: bool) {
        self.external_data = external;
    }

    /// Sets whether the rank is declared as known.
    pub fn set_has_rank(&mut self, has_rank: bool) {
        self.has_rank = has_rank;
    }

    /// Sets the contents of a `VARIANT` tensor.
    pub fn set_variants(&mut self, variants: Vec<VariantType>) {
        self.variants = variants;
    }
}

mod sealed {
    use std::sync::Arc;

    use crate::types::Quantization;

    pub trait Sealed {}
    impl Sealed for Quantization {}
    impl Sealed for Arc<Quantization> {}
    impl Sealed for Option<Quantization> {}
    impl Sealed for Option<Arc<Quantization>> {}
}

/// Conversion to a tensor's quantization: from a quantization, a handle to one, or an `Option` of either. Other crates
/// cannot implement it.
pub trait IntoQuantization: sealed::Sealed {
    /// Returns the quantization, or `None` for a tensor that is not quantized.
    fn into_quantization(self) -> Option<Arc<Quantization>>;
}

impl IntoQuantization for Quantization {
    fn into_quantization(self) -> Option<Arc<Quantization>> {
        Some(Arc::new(self))
    }
}

impl IntoQuantization for Arc<Quantization> {
    fn into_quantization(self) -> Option<Arc<Quantization>> {
        Some(self)
    }
}

impl IntoQuantization for Option<Arc<Quantization>> {
    fn into_quantization(self) -> Option<Arc<Quantization>> {
        self
    }
}

impl IntoQuantization for Option<Quantization> {
    fn into_quantization(self) -> Option<Arc<Quantization>> {
        self.map(Arc::new)
    }
}

/// Returns the names of the tensors that a node writes, in the form that follows the op in an error message.
pub(crate) fn writes(tensors: &[Tensor], outputs: impl IntoIterator<Item = usize>) -> String {
    let names: Vec<String> =
        outputs.into_iter().filter_map(|i| Some(tensor_name(&tensors.get(i)?.name, i))).collect();
    if names.is_empty() { String::new() } else { format!(", writes {}", names.join(", ")) }
}
