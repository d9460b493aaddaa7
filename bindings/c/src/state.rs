//! What calls on an interpreter change: the runtime, the tensors that the application holds, and whether they have memory.

use std::sync::Arc;

use delegraph::core::TensorId;
use delegraph::core::error::{Error, Result};
use delegraph::core::graph::Subgraph;
use delegraph::core::kernel::Placement;
use delegraph::{Interpreter, Model};

use crate::tensor::{Mirror, Place, Tensor, allocation, allocation_of};

/// An interpreter and its tensors.
pub(crate) struct State {
    /// The model as its file has it. The runtime may replace composites by their bodies, which adds tensors at the end.
    pub(crate) model: Arc<Model>,
    interpreter: Interpreter,
    graphs: Vec<Graph>,
    /// Whether a delegate that fails is left out.
    fallback: bool,
}

/// The tensors of a subgraph.
#[derive(Default)]
struct Graph {
    /// Those that the application asked for.
    mirrors: Vec<(usize, Mirror)>,
    /// Per tensor, its place in `mirrors`; empty before the first is asked for.
    places: Vec<Option<usize>>,
    /// Memory of the application.
    custom: Vec<Custom>,
    /// Tensors have memory for the current shapes.
    allocated: bool,
}

/// Memory of the application for a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Custom {
    pub(crate) tensor: usize,
    pub(crate) data: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: the memory belongs to the application, which uses it and the interpreter on one thread at a time.
unsafe impl Send for Custom {}

impl State {
    /// Creates the state of an interpreter that is not prepared.
    pub(crate) fn new(model: Arc<Model>, interpreter: Interpreter, fallback: bool) -> Self {
        let graphs = model.subgraphs().iter().map(|_| Graph::default()).collect();
        State { model, interpreter, graphs, fallback }
    }

    fn graph(&self, subgraph: usize) -> Result<&Subgraph> {
        let missing = || Error::InvalidInput(format!("there is no subgraph {subgraph}"));
        self.model.subgraph(subgraph).ok_or_else(missing)
    }

    /// Returns a tensor for the application.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it does not exist.
    pub(crate) fn tensor(&mut self, handle: usize, subgraph: usize, index: usize) -> Result<*mut Tensor> {
        let tensors = self.graph(subgraph)?.tensors();
        let count = tensors.len();
        let file = tensors.get(index).ok_or_else(|| {
            Error::InvalidInput(format!("there is no tensor {index}; the subgraph has {count}"))
        })?;
        if let Some(place) = self.graphs[subgraph].places.get(index).copied().flatten() {
            return Ok(self.graphs[subgraph].mirrors[place].1.pointer());
        }
        let mirror = Mirror::new(Tensor::new(file, Place { interpreter: handle, subgraph, index }));
        let pointer = mirror.pointer();
        self.interpreter.select_subgraph(subgraph)?;
        let graph = &mut self.graphs[subgraph];
        let place = graph.mirrors.len();
        graph.mirrors.push((index, mirror));
        graph.places.resize(count, None);
        graph.places[index] = Some(place);
        self.refresh(subgraph, place)?;
        Ok(pointer)
    }

    /// Brings the tensor at a place of `mirrors` up to date. The subgraph is selected.
    fn refresh(&mut self, subgraph: usize, place: usize) -> Result<()> {
        let graph = &mut self.graphs[subgraph];
        let Some((index, mirror)) = graph.mirrors.get_mut(place) else { return Ok(()) };
        let id = TensorId(*index);
        let Some(current) = self.interpreter.subgraph_tensor(subgraph, id) else { return Ok(()) };
        let tensor = mirror.tensor();
        tensor.set_shape(&current.shape);
        if let Some(custom) = graph.custom.iter().find(|custom| custom.tensor == id.0) {
            tensor.set_data(allocation::CUSTOM, custom.data, current.byte_size().unwrap_or(0));
            return Ok(());
        }
        let file = self.model.subgraph(subgraph).map(|graph| (graph, graph.tensor(id)));
        if let Some(bytes) = file.and_then(|(_, file)| self.model.constant(file)) {
            tensor.set_data(allocation::MMAP_RO, bytes.as_ptr().cast_mut(), bytes.len());
            return Ok(());
        }
        let kept =
            file.is_some_and(|(graph, _)| graph.inputs().contains(&id) || graph.outputs().contains(&id));
        let (placement, needed) = (current.placement(), current.byte_size().unwrap_or(0));
        let kind = allocation_of(placement);
        match placement {
            Placement::Constant => {
                let bytes = current.bytes();
                tensor.set_data(kind, bytes.as_ptr().cast_mut(), bytes.len());
            }
            Placement::Variable | Placement::Bound | Placement::Arena | Placement::Dynamic
                if graph.allocated && (kept || placement == Placement::Variable) =>
            {
                let bytes = self.interpreter.tensor_bytes_mut(id)?;
                let data = if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr() };
                tensor.set_data(kind, data, bytes.len());
            }
            _ => tensor.set_data(tensor.common.allocation_type, std::ptr::null_mut(), needed),
        }
        Ok(())
    }

    /// Brings all tensors of a subgraph up to date. The subgraph is selected.
    fn refresh_all(&mut self, subgraph: usize) -> Result<()> {
        (0..self.graphs[subgraph].mirrors.len()).try_for_each(|place| self.refresh(subgraph, place))
    }

    /// Plans memory for a subgraph, and resets its variables.
    ///
    /// # Errors
    /// Those of [`Interpreter::prepare`]; [`Error::InvalidInput`] if memory of the application is too small.
    pub(crate) fn allocate(&mut self, subgraph: usize) -> Result<()> {
        self.graph(subgraph)?;
        self.interpreter.select_subgraph(subgraph)?;
        self.graphs[subgraph].allocated = false;
        let result = self.prepare(subgraph);
        self.graphs[subgraph].allocated = result.is_ok();
        self.refresh_all(subgraph)?;
        result
    }

    fn prepare(&mut self, subgraph: usize) -> Result<()> {
        self.interpreter.prepare()?;
        self.interpreter.reset_variable_tensors(subgraph)?;
        for custom in &self.graphs[subgraph].custom {
            let tensor = self.interpreter.tensor(TensorId(custom.tensor))?;
            let (needed, has) = (tensor.byte_size()?, custom.bytes);
            if has < needed {
                return Err(Error::InvalidInput(format!(
                    "the custom allocation of tensor {} has {has} bytes, {needed} are needed",
                    custom.tensor
                )));
            }
        }
        Ok(())
    }

    /// Gives input `input` of a subgraph another shape; `strict` keeps the dimensions that the model fixes.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, or it cannot take the shape.
    pub(crate) fn resize(
        &mut self,
        subgraph: usize,
        input: i32,
        shape: &[usize],
        strict: bool,
    ) -> Result<()> {
        let graph = self.graph(subgraph)?;
        let id = usize::try_from(input).ok().and_then(|input| graph.inputs().get(input)).copied();
        let id = id.ok_or_else(|| Error::InvalidInput(format!("there is no input {input}")))?;
        if strict {
            check_strict(graph.tensor(id), shape)?;
        }
        self.interpreter.select_subgraph(subgraph)?;
        let input = usize::try_from(input).unwrap_or(0);
        if self.interpreter.input_tensor(input)?.shape.dims() == shape {
            return Ok(());
        }
        self.graphs[subgraph].allocated = false;
        let result = self.interpreter.resize_input_to_any(input, shape);
        self.refresh_all(subgraph)?;
        result
    }

    /// Runs a subgraph.
    ///
    /// # Errors
    /// [`Error::State`] before [`State::allocate`]; those of [`Interpreter::invoke`].
    pub(crate) fn invoke(&mut self, subgraph: usize) -> Result<()> {
        if !self.graphs.get(subgraph).is_some_and(|graph| graph.allocated) {
            return Err(Error::State("Invoke called on model that is not ready (AllocateTensors)".into()));
        }
        self.interpreter.select_subgraph(subgraph)?;
        for custom in &self.graphs[subgraph].custom {
            let to = self.interpreter.tensor_bytes_mut(TensorId(custom.tensor))?;
            let count = to.len().min(custom.bytes);
            // SAFETY: the application keeps memory of this size until it gives another, and `allocate` compared the sizes.
            unsafe { std::ptr::copy(custom.data, to.as_mut_ptr(), count) };
        }
        if self.fallback {
            self.interpreter.invoke_with_fallback()?;
            self.refresh_all(subgraph)?;
        } else {
            self.interpreter.invoke()?;
        }
        for custom in &self.graphs[subgraph].custom {
            let from = self.interpreter.tensor(TensorId(custom.tensor))?.bytes();
            // SAFETY: as above.
            unsafe { std::ptr::copy(from.as_ptr(), custom.data, from.len().min(custom.bytes)) };
        }
        self.refresh_dynamic(subgraph)
    }

    /// Brings tensors up to date whose memory or shape an invocation may change.
    fn refresh_dynamic(&mut self, subgraph: usize) -> Result<()> {
        for place in 0..self.graphs[subgraph].mirrors.len() {
            let id = TensorId(self.graphs[subgraph].mirrors[place].0);
            let tensor = self.interpreter.subgraph_tensor(subgraph, id);
            if tensor.is_some_and(|tensor| tensor.placement() == Placement::Dynamic) {
                self.refresh(subgraph, place)?;
            }
        }
        Ok(())
    }

    /// Sets the variables of all subgraphs to their initial values.
    ///
    /// # Errors
    /// If a variable cannot be written.
    pub(crate) fn reset_variables(&mut self) -> Result<()> {
        (0..self.graphs.len()).try_for_each(|subgraph| self.interpreter.reset_variable_tensors(subgraph))
    }

    /// Lets an input, output or variable of the first subgraph be in memory of the application.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for other tensors.
    pub(crate) fn set_custom(&mut self, custom: Custom) -> Result<()> {
        let graph = self.graph(0)?;
        let id = TensorId(custom.tensor);
        let file = graph.tensors().get(id.0);
        let border = graph.inputs().contains(&id) || graph.outputs().contains(&id);
        let fits = file.is_some_and(|file| !file.is_constant() && (border || file.is_variable()));
        if !fits || file.is_some_and(|file| file.ty().bits().is_none()) {
            return Err(Error::InvalidInput(format!(
                "tensor {} cannot have a custom allocation: inputs, outputs and variables can, except strings and constants",
                custom.tensor
            )));
        }
        self.interpreter.select_subgraph(0)?;
        let own = &mut self.graphs[0];
        own.custom.retain(|other| other.tensor != custom.tensor);
        own.custom.push(custom);
        self.refresh_all(0)
    }

    /// Copies a tensor to the memory of the CPU if a delegate has it.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the tensor does not exist; those of the delegate.
    pub(crate) fn fetch(&mut self, index: i32) -> Result<()> {
        let graph = self.graph(0)?;
        let id = usize::try_from(index).ok().filter(|index| *index < graph.tensors().len()).map(TensorId);
        let id = id.ok_or_else(|| Error::InvalidInput(format!("there is no tensor {index}")))?;
        let output = graph.outputs().iter().position(|output| *output == id);
        self.interpreter.select_subgraph(0)?;
        output.map_or(Ok(()), |output| self.interpreter.fetch_output(output))
    }
}

/// Compares a shape with the dimensions that the model fixes.
fn check_strict(file: &delegraph::core::graph::Tensor, shape: &[usize]) -> Result<()> {
    let fixed: Vec<Option<usize>> = match file.shape_signature() {
        Some(signature) if !signature.is_empty() => signature.to_vec(),
        _ => file.shape().dims().iter().copied().map(Some).collect(),
    };
    let fits = fixed.len() == shape.len() && fixed.iter().zip(shape).all(|(s, d)| s.is_none_or(|s| s == *d));
    if fits {
        return Ok(());
    }
    let dims: Vec<String> = fixed.iter().map(|dim| dim.map_or("-1".into(), |d| d.to_string())).collect();
    Err(Error::InvalidInput(format!("input \"{}\" takes [{}], not {shape:?}", file.name(), dims.join(", "))))
}
