//! What a kernel sees while it prepares.

use std::cell::Cell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Host, RuntimeTensor};
use crate::error::{Error, Result, tensor_name};
use crate::graph::TensorId;
use crate::ops::{InferContext, InferTensor, Params, WrongParams};
use crate::quantization::Quantization;
use crate::shape::Shape;
use crate::types::{Element, TensorType};

/// Memory that a kernel needs while it runs; its contents do not outlive `invoke`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Temporary(pub(crate) usize);

/// Memory that a kernel keeps from one invocation to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persistent(pub(crate) usize);

/// A tensor as seen while preparing.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    tensor: &'a RuntimeTensor,
    known: bool,
    /// What it is to the node: "input" or "output", and its number.
    role: (&'static str, usize),
}

impl<'a> TensorView<'a> {
    /// Its name, possibly empty.
    pub fn name(&self) -> &'a str {
        &self.tensor.name
    }

    /// Element type.
    pub fn ty(&self) -> TensorType {
        self.tensor.ty
    }

    /// Shape.
    pub fn shape(&self) -> &'a Shape {
        &self.tensor.shape
    }

    /// Quantization, if any.
    pub fn quantization(&self) -> Option<&'a Quantization> {
        self.tensor.quantization.as_deref()
    }

    /// Scale and zero point.
    ///
    /// # Errors
    /// Where the tensor is not quantized per tensor.
    pub fn scale_zero_point(&self) -> Result<(f32, i32)> {
        self.tensor.scale_zero_point().ok_or_else(|| {
            Error::InvalidNode(format!(
                "tensor \"{}\" must be quantized with one scale and zero point",
                self.name()
            ))
        })
    }

    /// What it is to the node, for messages: `input 0 ("image")`.
    pub fn describe(&self) -> String {
        let (role, number) = self.role;
        format!("{role} {number} ({})", tensor_name(self.name(), number))
    }

    /// Checks that its type is one of these.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with operand, name and type, and what is wanted.
    pub fn ensure_type(self, wanted: &[TensorType]) -> Result<Self> {
        if wanted.contains(&self.ty()) {
            return Ok(self);
        }
        let wanted: Vec<&str> = wanted.iter().map(|ty| ty.name()).collect();
        let text = format!("{} is {}, this kernel takes {}", self.describe(), self.ty(), wanted.join(" or "));
        Err(Error::Unsupported(text))
    }

    /// Its dimensions, of which there must be `R`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with operand, name and shape, and what is wanted.
    pub fn dims<const R: usize>(self) -> Result<[usize; R]> {
        self.shape().dims().try_into().map_err(|_| {
            let text = format!("{} has the shape {}, wanted {R} dimensions", self.describe(), self.shape());
            Error::InvalidNode(text)
        })
    }

    /// Checks its shape.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with operand, name and shape, and what is wanted.
    pub fn ensure_shape(self, wanted: &[usize]) -> Result<Self> {
        if self.shape().dims() == wanted {
            return Ok(self);
        }
        let text =
            format!("{} has the shape {}, wanted {}", self.describe(), self.shape(), Shape::from(wanted));
        Err(Error::InvalidNode(text))
    }

    /// The tensor itself: sparsity, raw bytes.
    pub fn tensor(&self) -> &'a RuntimeTensor {
        self.tensor
    }

    /// True when its data is known before `invoke`.
    pub fn is_known(&self) -> bool {
        self.known || self.tensor.is_constant()
    }

    /// Its elements, where they are known before `invoke`. An operand that decides about a shape (paddings, a
    /// permutation) is always known in `prepare`: nodes for which it is not are prepared as soon as it is.
    pub fn constant<T: Element>(&self) -> Result<Option<&'a [T]>> {
        if self.is_known() { self.tensor.elements().map(Some) } else { Ok(None) }
    }

    /// Its bytes, where they are known before `invoke`.
    pub fn constant_bytes(&self) -> Option<&'a [u8]> {
        self.is_known().then(|| self.tensor.bytes())
    }
}

/// What a kernel sees while it prepares.
pub struct PrepareContext<'a> {
    params: &'a Params,
    version: u32,
    inputs: &'a [Option<TensorId>],
    outputs: &'a [TensorId],
    tensors: &'a mut [RuntimeTensor],
    known: bool,
    threads: usize,
    host: &'a mut dyn Host,
    temporaries: SmallVec<[usize; 4]>,
    /// Which of them are persistent; `None` where nothing can be.
    persistent: Option<SmallVec<[usize; 2]>>,
    data_dependent: SmallVec<[TensorId; 2]>,
    done_with_constants: bool,
    overwritable: SmallVec<[usize; 2]>,
    view_of: Cell<Option<usize>>,
}

impl<'a> PrepareContext<'a> {
    /// A context for a node. Every id must be below `tensors.len()`. `known` says that all inputs have their data
    /// already, constant or not: then `prepare` is called before every `invoke`.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        params: &'a Params,
        version: u32,
        inputs: &'a [Option<TensorId>],
        outputs: &'a [TensorId],
        tensors: &'a mut [RuntimeTensor],
        known: bool,
        threads: usize,
        host: &'a mut dyn Host,
    ) -> Self {
        let (temporaries, data_dependent, overwritable) = Default::default();
        PrepareContext {
            params,
            version,
            inputs,
            outputs,
            tensors,
            known,
            threads,
            host,
            temporaries,
            persistent: None,
            data_dependent,
            done_with_constants: false,
            overwritable,
            view_of: Cell::new(None),
        }
    }

    /// Lets the kernel ask for persistent memory. Whoever calls this keeps it, in place of the temporaries of the numbers
    /// that [`PrepareContext::persistent_requests`] gives.
    #[must_use]
    pub fn with_persistent_memory(mut self) -> Self {
        self.persistent = Some(SmallVec::new());
        self
    }

    /// The node's typed params.
    pub fn params<T>(&self) -> Result<&'a T>
    where
        &'a T: TryFrom<&'a Params, Error = WrongParams>,
    {
        Ok(self.params.try_into()?)
    }

    /// The version of the op that the model asks for.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// How many threads `invoke` will have.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// How many inputs, those left out included.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// How many outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Checks how many inputs, those left out included, and outputs the node has.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] with how many there are and how many are wanted.
    pub fn ensure_counts(&self, inputs: usize, outputs: usize) -> Result<()> {
        let (has_inputs, has_outputs) = (self.num_inputs(), self.num_outputs());
        if (has_inputs, has_outputs) == (inputs, outputs) {
            return Ok(());
        }
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        Err(Error::InvalidNode(format!(
            "expected {} and {}, the node has {has_inputs} and {has_outputs}",
            plural(inputs, "input"),
            plural(outputs, "output")
        )))
    }

    /// Input `i`.
    ///
    /// # Errors
    /// Where the node does not have it.
    pub fn input(&self, i: usize) -> Result<TensorView<'_>> {
        self.optional_input(i).ok_or_else(|| Error::InvalidNode(format!("input {i} is missing")))
    }

    /// Input `i`, if the node has it.
    pub fn optional_input(&self, i: usize) -> Option<TensorView<'_>> {
        let id = self.inputs.get(i).copied().flatten()?;
        self.tensors.get(id.0).map(|tensor| TensorView { tensor, known: self.known, role: ("input", i) })
    }

    /// The tensor of the subgraph that a quantization names as its scales or zero points.
    ///
    /// # Errors
    /// Where there is none, or its data is not constant.
    pub fn quantization_tensor(&self, index: usize) -> Result<&RuntimeTensor> {
        let tensor = self.tensors.get(index).filter(|tensor| tensor.is_constant());
        tensor.ok_or_else(|| Error::InvalidNode(format!("tensor {index} holds no constant scales")))
    }

    /// Output `i`.
    pub fn output(&self, i: usize) -> Result<TensorView<'_>> {
        let tensor = self.outputs.get(i).and_then(|id| self.tensors.get(id.0));
        tensor
            .map(|tensor| TensorView { tensor, known: false, role: ("output", i) })
            .ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))
    }

    /// Gives output `i` a shape.
    pub fn set_output_shape(&mut self, i: usize, shape: impl Into<Shape>) -> Result<()> {
        let id = *self.outputs.get(i).ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))?;
        self.tensors[id.0].shape = shape.into();
        self.data_dependent.retain(|d| *d != id);
        Ok(())
    }

    /// Says that the shape of output `i` depends on data: `invoke` will resize it.
    pub fn set_output_data_dependent(&mut self, i: usize) -> Result<()> {
        let id = *self.outputs.get(i).ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))?;
        if !self.data_dependent.contains(&id) {
            self.data_dependent.push(id);
        }
        Ok(())
    }

    /// Asks for `bytes` bytes while the node runs.
    pub fn temporary(&mut self, bytes: usize) -> Temporary {
        self.temporaries.push(bytes);
        Temporary(self.temporaries.len() - 1)
    }

    /// Asks for `elements` elements of `T` while the node runs.
    pub fn temporary_of<T: Element>(&mut self, elements: usize) -> Result<Temporary> {
        let bytes = elements.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::OutOfMemory(format!("{elements} elements of {}", T::TYPE)))?;
        Ok(self.temporary(bytes))
    }

    /// Asks for `bytes` bytes that keep what they hold from one invocation to the next. They are zero at first. Where a
    /// later `prepare` asks for persistent memory of other sizes, all of the node's is zero again. What `reset_variables` is to forget belongs in a variable tensor
    /// instead.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel is a delegate's, which keeps what it needs itself.
    pub fn persistent(&mut self, bytes: usize) -> Result<Persistent> {
        let Some(persistent) = &mut self.persistent else {
            let text = "persistent memory for the kernel of a delegate, which must keep its own";
            return Err(Error::Unsupported(text.into()));
        };
        persistent.push(self.temporaries.len());
        self.temporaries.push(bytes);
        Ok(Persistent(self.temporaries.len() - 1))
    }

    /// Asks for `elements` elements of `T` that keep what they hold: see [`PrepareContext::persistent`].
    ///
    /// # Errors
    /// As there, and where the number of bytes overflows.
    pub fn persistent_of<T: Element>(&mut self, elements: usize) -> Result<Persistent> {
        let bytes = elements.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::OutOfMemory(format!("{elements} elements of {}", T::TYPE)))?;
        self.persistent(bytes)
    }

    /// Which of the temporaries that [`PrepareContext::finish`] gives are to be kept, ascending.
    pub fn persistent_requests(&self) -> &[usize] {
        self.persistent.as_deref().unwrap_or_default()
    }

    /// Says that output 0 is the bytes of input `i`, as this node happens to be: see
    /// [`Kernel::is_view`](super::Kernel::is_view).
    pub fn output_is_view_of(&self, i: usize) {
        self.view_of.set(Some(i));
    }

    /// The input that output 0 is a view of.
    pub fn view_of(&self) -> Option<usize> {
        self.view_of.get()
    }

    /// Says that output 0 may be the very memory of input `i`: the kernel reads each element before it writes the one in
    /// its place, and asks for the input by [`InvokeContext::input_unless_overwritten`]. It happens where nobody needs
    /// the input later and both have the same size; of several inputs that may be overwritten one is.
    ///
    /// [`InvokeContext::input_unless_overwritten`]: super::InvokeContext::input_unless_overwritten
    pub fn may_overwrite(&mut self, i: usize) {
        self.overwritable.push(i);
    }

    /// The inputs that output 0 may be written over.
    pub fn overwritable(&self) -> &[usize] {
        &self.overwritable
    }

    /// Says that `invoke` reads no constant input: what the kernel took from them while preparing suffices. Constants
    /// that nobody reads any more give their memory back.
    pub fn done_with_constants(&mut self) {
        self.done_with_constants = true;
    }

    /// Whether the kernel is done with constants.
    pub fn is_done_with_constants(&self) -> bool {
        self.done_with_constants
    }

    /// What `make` gives, shared with the same node in other interpreters on the same model: weights are packed once.
    ///
    /// What it makes may depend on constant inputs, on params and on quantization, and on nothing else but what
    /// `variant` tells, such as the shape of another input.
    ///
    /// # Errors
    /// What `make` says.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        variant: &[usize],
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        match self.host.shared() {
            // The values of other inputs are known, too, but are others next time.
            Some((shared, node)) if !self.known => shared.get(node, variant, make),
            _ => make().map(Arc::new),
        }
    }

    /// Variables and other subgraphs.
    pub fn host(&mut self) -> &mut dyn Host {
        &mut *self.host
    }

    /// The node as shape inference sees it.
    pub fn infer_context(&self) -> InferContext<'_> {
        let view = |id: TensorId| self.tensors.get(id.0);
        InferContext {
            params: self.params,
            version: self.version,
            inputs: self
                .inputs
                .iter()
                .map(|id| {
                    id.and_then(view).map(|t| InferTensor {
                        ty: t.ty,
                        shape: &t.shape,
                        quantization: t.quantization.as_deref(),
                        constant: (self.known || t.is_constant()).then(|| t.bytes()),
                    })
                })
                .collect(),
            outputs: self
                .outputs
                .iter()
                .filter_map(|id| view(*id))
                .map(|t| crate::ops::Declared {
                    ty: t.ty,
                    shape: &t.shape,
                    quantization: t.quantization.as_deref(),
                })
                .collect(),
        }
    }

    /// What was asked for: bytes of each temporary, and outputs whose shape depends on data.
    pub fn finish(self) -> (SmallVec<[usize; 4]>, SmallVec<[TensorId; 2]>) {
        (self.temporaries, self.data_dependent)
    }
}
