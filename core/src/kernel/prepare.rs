//! The context of a kernel's `prepare`.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Budget, Host, RuntimeTensor};
use crate::error::{Error, Result, counted};
use crate::graph::TensorId;
use crate::ops::{InferContext, InferTensor, Params, WrongParams};
use crate::types::Quantization;
use crate::types::Shape;
use crate::types::{Element, TensorType, short_name};

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
    /// The role in the node: "input" or "output", and its number.
    role: (&'static str, usize),
}

impl<'a> TensorView<'a> {
    /// Returns the name, possibly empty.
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
    /// If the tensor is not quantized per tensor.
    pub fn scale_zero_point(&self) -> Result<(f32, i32)> {
        self.tensor.scale_zero_point().ok_or_else(|| {
            Error::InvalidNode(format!(
                "tensor \"{}\" must be quantized with one scale and zero point",
                self.name()
            ))
        })
    }

    /// Returns the role in the node, for messages: `input 0 ("image")`.
    pub fn describe(&self) -> String {
        let (role, number) = self.role;
        match self.name() {
            "" => format!("{role} {number}"),
            name => format!("{role} {number} (\"{}\")", short_name(name)),
        }
    }

    /// Checks that its type is one of these.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with operand, name and type, and the wanted types.
    pub fn ensure_type(self, wanted: &[TensorType]) -> Result<Self> {
        if wanted.contains(&self.ty()) {
            return Ok(self);
        }
        let wanted: Vec<&str> = wanted.iter().map(|ty| ty.name()).collect();
        let text = format!("{} is {}, this kernel takes {}", self.describe(), self.ty(), wanted.join(" or "));
        Err(Error::Unsupported(text))
    }

    /// Returns the dimensions; the rank must be `R`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with operand, name, shape, and the required rank.
    pub fn dims<const R: usize>(self) -> Result<[usize; R]> {
        self.shape().dims().try_into().map_err(|_| {
            let text = format!(
                "{} has the shape {}, wanted {}",
                self.describe(),
                self.shape(),
                counted(R, "dimension")
            );
            Error::InvalidNode(text)
        })
    }

    /// Checks its shape.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with operand, name and shape, and the wanted shape.
    pub fn ensure_shape(self, wanted: &[usize]) -> Result<Self> {
        if self.shape().dims() == wanted {
            return Ok(self);
        }
        let text =
            format!("{} has the shape {}, wanted {}", self.describe(), self.shape(), Shape::from(wanted));
        Err(Error::InvalidNode(text))
    }

    /// Returns the tensor itself: sparsity, raw bytes.
    pub fn tensor(&self) -> &'a RuntimeTensor {
        self.tensor
    }

    /// Returns true when its data is known before `invoke`.
    pub fn is_known(&self) -> bool {
        self.known || self.tensor.is_constant()
    }

    /// Returns the elements, if they are known before `invoke`. An operand that determines a shape (paddings, a
    /// permutation) is always known in `prepare`: nodes for which it is not known are prepared as soon as it is.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if its data is known and has another type.
    pub fn constant<T: Element>(&self) -> Result<Option<&'a [T]>> {
        if self.is_known() { self.tensor.elements().map(Some) } else { Ok(None) }
    }

    /// Returns the bytes, if they are known before `invoke`.
    pub fn constant_bytes(&self) -> Option<&'a [u8]> {
        self.is_known().then(|| self.tensor.bytes())
    }
}

/// Number of tensors above which [`Distinct`] has an index.
const FEW: usize = 16;

/// Different tensors, in the order in which they were inserted.
#[derive(Default)]
struct Distinct {
    /// `None` in the place of a tensor that was removed.
    ids: SmallVec<[Option<TensorId>; 2]>,
    /// The place of each tensor. A node may have millions of outputs. Empty for up to [`FEW`] places.
    places: HashMap<TensorId, usize>,
}

impl Distinct {
    fn place(&self, id: TensorId) -> Option<usize> {
        match self.ids.len() {
            0..=FEW => self.ids.iter().position(|other| *other == Some(id)),
            _ => self.places.get(&id).copied(),
        }
    }

    fn insert(&mut self, id: TensorId) {
        if self.place(id).is_some() {
            return;
        }
        self.ids.push(Some(id));
        if self.ids.len() == FEW + 1 {
            let places = self.ids.iter().enumerate();
            self.places = places.filter_map(|(place, id)| Some(((*id)?, place))).collect();
        } else if self.ids.len() > FEW {
            self.places.insert(id, self.ids.len() - 1);
        }
    }

    fn remove(&mut self, id: TensorId) {
        if let Some(place) = self.place(id) {
            self.ids[place] = None;
            self.places.remove(&id);
        }
    }

    fn into_ids(self) -> SmallVec<[TensorId; 2]> {
        self.ids.into_iter().flatten().collect()
    }
}

/// The context of a kernel's `prepare`.
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
    /// The persistent requests; `None` if persistent memory is not available.
    persistent: Option<SmallVec<[usize; 2]>>,
    data_dependent: Distinct,
    done_with_constants: bool,
    packed_bytes: Cell<usize>,
    overwritable: SmallVec<[usize; 2]>,
    view_of: Cell<Option<usize>>,
}

impl<'a> PrepareContext<'a> {
    /// Creates a context for a node, with one thread and without known inputs. Every id must be below `tensors.len()`.
    pub fn new(
        params: &'a Params,
        version: u32,
        inputs: &'a [Option<TensorId>],
        outputs: &'a [TensorId],
        tensors: &'a mut [RuntimeTensor],
        host: &'a mut dyn Host,
    ) -> Self {
        let (temporaries, data_dependent, overwritable) = Default::default();
        PrepareContext {
            params,
            version,
            inputs,
            outputs,
            tensors,
            known: false,
            threads: 1,
            host,
            temporaries,
            persistent: None,
            data_dependent,
            done_with_constants: false,
            packed_bytes: Cell::new(0),
            overwritable,
            view_of: Cell::new(None),
        }
    }

    /// Sets the number of threads that `invoke` will have.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets whether the data of all inputs is known, constant or not. If it is, `prepare` is called before every
    /// `invoke`.
    #[must_use]
    pub fn with_known_inputs(mut self, known: bool) -> Self {
        self.known = known;
        self
    }

    /// Lets the kernel request persistent memory. The caller keeps it, in place of the temporaries whose numbers
    /// [`PrepareContext::persistent_requests`] returns.
    #[must_use]
    pub fn with_persistent_memory(mut self) -> Self {
        self.persistent = Some(SmallVec::new());
        self
    }

    /// Returns the node's typed params.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node has params of another type.
    pub fn params<T>(&self) -> Result<&'a T>
    where
        &'a T: TryFrom<&'a Params, Error = WrongParams>,
    {
        Ok(self.params.try_into()?)
    }

    /// Returns the version of the op in the model.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of threads that `invoke` will have.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the number of inputs, those left out included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// Checks the number of inputs (omitted ones included) and outputs of the node.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] with the found and the wanted number.
    pub fn ensure_counts(&self, inputs: usize, outputs: usize) -> Result<()> {
        let (has_inputs, has_outputs) = (self.input_count(), self.output_count());
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
    /// If the node does not have it.
    pub fn input(&self, i: usize) -> Result<TensorView<'_>> {
        self.optional_input(i).ok_or_else(|| Error::InvalidNode(format!("input {i} is missing")))
    }

    /// Input `i`, if the node has it.
    pub fn optional_input(&self, i: usize) -> Option<TensorView<'_>> {
        let id = self.inputs.get(i).copied().flatten()?;
        self.tensors.get(id.0).map(|tensor| TensorView { tensor, known: self.known, role: ("input", i) })
    }

    /// Returns the tensor of the subgraph that a quantization names as its scales or zero points.
    ///
    /// # Errors
    /// If there is none, or its data is not constant.
    pub fn quantization_tensor(&self, id: TensorId) -> Result<&RuntimeTensor> {
        // Files do not store data without elements.
        let holds = |tensor: &&RuntimeTensor| tensor.is_constant() || tensor.shape.elements() == 0;
        let tensor = self.tensors.get(id.0).filter(holds);
        tensor.ok_or_else(|| Error::InvalidNode(format!("tensor {} holds no constant scales", id.0)))
    }

    /// Output `i`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have it.
    pub fn output(&self, i: usize) -> Result<TensorView<'_>> {
        let tensor = self.outputs.get(i).and_then(|id| self.tensors.get(id.0));
        tensor
            .map(|tensor| TensorView { tensor, known: false, role: ("output", i) })
            .ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))
    }

    /// Sets the shape of output `i`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the output.
    pub fn set_output_shape(&mut self, i: usize, shape: impl Into<Shape>) -> Result<()> {
        let id = *self.outputs.get(i).ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))?;
        self.tensors[id.0].shape = shape.into();
        self.data_dependent.remove(id);
        Ok(())
    }

    /// Declares that the shape of output `i` depends on data: `invoke` will resize it.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the output.
    pub fn set_output_data_dependent(&mut self, i: usize) -> Result<()> {
        let id = *self.outputs.get(i).ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))?;
        self.data_dependent.insert(id);
        Ok(())
    }

    /// Requests `bytes` bytes while the node runs.
    pub fn temporary(&mut self, bytes: usize) -> Temporary {
        self.temporaries.push(bytes);
        Temporary(self.temporaries.len() - 1)
    }

    /// Requests `elements` elements of `T` while the node runs.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the number of bytes overflows.
    pub fn temporary_of<T: Element>(&mut self, elements: usize) -> Result<Temporary> {
        let bytes = elements.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::OutOfMemory(format!("{elements} elements of {}", T::TYPE)))?;
        Ok(self.temporary(bytes))
    }

    /// Requests `bytes` bytes that keep their contents between invocations. They are zero at first. If a later
    /// `prepare` requests persistent memory of other sizes, all of the node's persistent memory is zeroed. State that
    /// `reset_variables` must reset belongs in a variable tensor instead.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the kernel of a delegate, which must keep its own memory.
    pub fn persistent(&mut self, bytes: usize) -> Result<Persistent> {
        let Some(persistent) = &mut self.persistent else {
            let text = "persistent memory for the kernel of a delegate, which must keep its own";
            return Err(Error::Unsupported(text.into()));
        };
        persistent.push(self.temporaries.len());
        self.temporaries.push(bytes);
        Ok(Persistent(self.temporaries.len() - 1))
    }

    /// Requests `elements` elements of `T` that keep their contents: see [`PrepareContext::persistent`].
    ///
    /// # Errors
    /// As [`PrepareContext::persistent`], and if the number of bytes overflows.
    pub fn persistent_of<T: Element>(&mut self, elements: usize) -> Result<Persistent> {
        let bytes = elements.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::OutOfMemory(format!("{elements} elements of {}", T::TYPE)))?;
        self.persistent(bytes)
    }

    /// Returns the indices of the persistent ones among the [`KernelRequests::temporaries`], ascending.
    pub fn persistent_requests(&self) -> &[usize] {
        self.persistent.as_deref().unwrap_or_default()
    }

    /// Declares that output 0 of this node is the bytes of input `i`: see
    /// [`Kernel::is_view`](super::Kernel::is_view).
    pub fn output_is_view_of(&self, i: usize) {
        self.view_of.set(Some(i));
    }

    /// Returns the input that output 0 is a view of.
    pub fn view_of(&self) -> Option<usize> {
        self.view_of.get()
    }

    /// Declares that output 0 may use the memory of input `i`: the kernel reads each element before it writes the
    /// element at the same place, and requests the input with [`InvokeContext::input_unless_overwritten`]. Memory is
    /// shared if the input has no later consumer and both have the same size; if several inputs may be overwritten, one
    /// is.
    ///
    /// [`InvokeContext::input_unless_overwritten`]: super::InvokeContext::input_unless_overwritten
    pub fn may_overwrite(&mut self, i: usize) {
        self.overwritable.push(i);
    }

    /// Returns the inputs that output 0 may be written over.
    pub fn overwritable(&self) -> &[usize] {
        &self.overwritable
    }

    /// Declares that `invoke` reads no constant input, because the kernel has packed all that it needs. Constants
    /// without other readers release their memory.
    pub fn done_with_constants(&mut self) {
        self.done_with_constants = true;
    }

    /// Returns whether the kernel declared output `i` data-dependent.
    pub fn is_data_dependent(&self, i: usize) -> bool {
        self.outputs.get(i).is_some_and(|id| self.data_dependent.place(*id).is_some())
    }

    /// Returns whether the kernel is done with constants.
    pub fn is_done_with_constants(&self) -> bool {
        self.done_with_constants
    }

    /// Declares that the kernel keeps `bytes` bytes of packed weights, in addition to memory that is charged already.
    pub fn add_packed_bytes(&self, bytes: usize) {
        self.packed_bytes.set(self.packed_bytes.get().saturating_add(bytes));
    }

    /// Returns the bytes of packed weights that the kernel declared.
    pub fn packed_bytes(&self) -> usize {
        self.packed_bytes.get()
    }

    /// Returns the result of `make`, shared with the same node in other interpreters on the same model, so that weights
    /// are packed once.
    ///
    /// The result may depend on constant inputs, on params and on quantization, and on further properties only if
    /// `variant` identifies them, such as the shape of another input.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        variant: &[usize],
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        match self.host.shared() {
            // The values of other inputs are also known, but differ in the next invocation.
            Some((shared, node)) if !self.known => shared.get(node, variant, make),
            _ => make().map(Arc::new),
        }
    }

    /// Returns the memory and time that the interpreter may use. Kernels allocate memory that they keep with
    /// [`Budget::filled`].
    pub fn budget(&self) -> &Arc<Budget> {
        self.host.budget()
    }

    /// Returns the services of the interpreter: variables, tables and other subgraphs.
    pub fn host(&mut self) -> &mut dyn Host {
        &mut *self.host
    }

    /// Returns the node in the form that shape inference reads.
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

    /// Returns what the kernel requested and declared.
    pub fn finish(self) -> KernelRequests {
        KernelRequests { temporaries: self.temporaries, data_dependent: self.data_dependent.into_ids() }
    }
}

/// The requests and declarations of a kernel's `prepare`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRequests {
    temporaries: SmallVec<[usize; 4]>,
    data_dependent: SmallVec<[TensorId; 2]>,
}

impl KernelRequests {
    /// Returns the bytes of each temporary.
    pub fn temporaries(&self) -> &[usize] {
        &self.temporaries
    }

    /// Returns the outputs whose shapes depend on data.
    pub fn data_dependent(&self) -> &[TensorId] {
        &self.data_dependent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_tensors_keep_their_order() {
        for count in [2, FEW, FEW + 1, 100] {
            let mut ids = Distinct::default();
            (0..count).chain(0..count).for_each(|i| ids.insert(TensorId(i)));
            ids.remove(TensorId(0));
            ids.remove(TensorId(count));
            assert_eq!((ids.place(TensorId(0)), ids.place(TensorId(1))), (None, Some(1)), "{count}");
            ids.insert(TensorId(0));
            ids.insert(TensorId(1));
            let expected: Vec<TensorId> = (1..count).chain([0]).map(TensorId).collect();
            assert_eq!(ids.into_ids().as_slice(), expected, "{count}");
        }
    }
}
