//! Evaluation of a single node, outside of any plan: for constant folding, and tests of kernels.

use std::collections::HashSet;
use std::fmt;

use delegraph_core::error::{Error, Result, counted};
use delegraph_core::graph::{Node, TensorId};
use delegraph_core::kernel::{
    AlignedBuffer, Host, InvokeContext, Kernel, Parallel, Placement, PrepareContext, RuntimeTensor,
};
use delegraph_core::ops::LstmKernelType;
use delegraph_core::ops::{self, Declared, InferContext, InferTensor, InferredShape};
use delegraph_core::{BuiltinOp, Params};
use smallvec::SmallVec;

/// The inputs whose values inference and [`Kernel::prepare`] may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownInputs {
    /// Constant inputs only; other inputs may have no data yet.
    Constants,
    /// All inputs. Every input holds the data that the kernel is about to run on.
    All,
}

/// The shapes of a node's outputs, as far as the definition of its op determines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputShapes {
    /// Every output tensor has its shape.
    Known,
    /// At least one shape depends on unknown values, or is known only after the kernel has run.
    DataDependent,
    /// [`Kernel::prepare`] sets them: for a custom op, or if the op's definition leaves a shape to the kernel.
    FromKernel,
}

/// Result of [`evaluate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// The outputs hold their values.
    Computed,
    /// The node did not run: the shape of an output depends on values of inputs that are not known.
    DataDependent,
}

/// The runtime in which a node is evaluated.
pub struct Environment<'a> {
    /// Variables, other subgraphs, and the budget of memory and time.
    pub host: &'a mut dyn Host,
    /// Threads for the kernel.
    pub parallel: &'a dyn Parallel,
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("threads", &self.parallel.threads()).finish_non_exhaustive()
    }
}

/// Infers types and shapes of a node's outputs by the definition of its op, and writes them to the output tensors.
///
/// A file may declare an output type that differs from the op's. The op's type is used, with a warning in the log,
/// unless the output is a variable, which already has its memory.
///
/// # Errors
/// [`Error::InvalidNode`] if a tensor does not exist, an output is also an input, the op's definition rejects the
/// inputs, the number of outputs is not the op's, or a variable's type or size is not that of the output;
/// [`Error::Unsupported`] for a sparse input that the op's kernels do not read.
pub fn infer_outputs(node: &Node, tensors: &mut [RuntimeTensor], known: KnownInputs) -> Result<OutputShapes> {
    check_operands(node, tensors.len())?;
    check_sparse(node, tensors)?;
    let Some(definition) = node.op().builtin().and_then(ops::definition) else {
        return Ok(OutputShapes::FromKernel);
    };
    let inferred = (definition.infer)(&infer_context(node, tensors, known))?;
    if inferred.len() != node.outputs().len() {
        let text =
            format!("the node has {}, the op {}", counted(node.outputs().len(), "output"), inferred.len());
        return Err(Error::InvalidNode(text));
    }
    let mut shapes = OutputShapes::Known;
    for (i, (output, id)) in inferred.into_iter().zip(node.outputs()).enumerate() {
        let tensor = &mut tensors[id.0];
        if tensor.ty != output.ty {
            let (name, declared, given) = (&tensor.name, tensor.ty, output.ty);
            if tensor.placement() == Placement::Variable {
                let text = format!("output {i} is a variable of {declared}, the op gives {given}");
                return Err(Error::InvalidNode(text));
            }
            log::warn!("tensor \"{name}\" is declared {declared}, but its op returns {given}, which is used");
            tensor.ty = output.ty;
        }
        match output.shape {
            InferredShape::Known(shape) => {
                let before = std::mem::replace(&mut tensor.shape, shape);
                if tensor.placement() == Placement::Variable && tensor.byte_size()? != tensor.bytes().len() {
                    let given = std::mem::replace(&mut tensor.shape, before);
                    let text =
                        format!("output {i} is a variable of shape {}, the op gives {given}", tensor.shape);
                    return Err(Error::InvalidNode(text));
                }
            }
            InferredShape::DataDependent => shapes = OutputShapes::DataDependent,
            InferredShape::FromKernel if shapes == OutputShapes::Known => shapes = OutputShapes::FromKernel,
            InferredShape::FromKernel => {}
        }
    }
    Ok(shapes)
}

/// Computes one node now: infers its outputs, prepares `kernel`, allocates outputs and temporaries, and invokes it.
///
/// Outputs get memory of their own and are constant afterwards; variables among them keep their memory and stay
/// variables. `kernel` must be the kernel of the node. With [`KnownInputs::Constants`] the inputs that are not constant
/// may still hold data that the kernel reads in `invoke`: they are then treated like inputs that change between
/// invocations.
///
/// # Errors
/// The errors of [`infer_outputs`] and of the kernel; [`Error::LimitExceeded`] for a size or a time above the budget;
/// [`Error::Cancelled`]. The outputs are unspecified then.
pub fn evaluate(
    node: &Node,
    kernel: &mut dyn Kernel,
    tensors: &mut [RuntimeTensor],
    known: KnownInputs,
    environment: &mut Environment<'_>,
) -> Result<Evaluation> {
    let shapes = infer_outputs(node, tensors, known)?;
    let (all, data_dependent) = (known == KnownInputs::All, shapes == OutputShapes::DataDependent);
    if data_dependent && !all {
        return Ok(Evaluation::DataDependent);
    }
    let (inputs, outputs, parallel) = (node.inputs(), node.outputs(), environment.parallel);
    let (params, version, threads) = (node.params(), node.version(), parallel.threads());
    let host = &mut *environment.host;
    let mut cx = PrepareContext::new(params, version, inputs, outputs, tensors, host)
        .with_threads(threads)
        .with_known_inputs(all)
        .with_persistent_memory();
    kernel.prepare(&mut cx)?;
    let prepared = cx.finish();
    let resized = prepared.data_dependent();
    if !resized.is_empty() && !all {
        return Ok(Evaluation::DataDependent);
    }
    for id in outputs {
        let tensor = &mut tensors[id.0];
        if tensor.placement() == Placement::Variable {
            continue;
        }
        if data_dependent || resized.contains(id) {
            tensor.allocate_bytes(Placement::Dynamic, 0)?;
        } else {
            environment.host.budget().check_size(tensor.byte_size()?)?;
            tensor.allocate_short_lived()?;
        }
    }
    let mut buffers: SmallVec<[AlignedBuffer; 4]> = SmallVec::new();
    for &bytes in prepared.temporaries() {
        let mut buffer = AlignedBuffer::charged(environment.host.budget())?;
        buffer.resize(bytes)?;
        buffers.push(buffer);
    }
    let pointers: SmallVec<[(*mut u8, usize); 4]> =
        buffers.iter_mut().map(|buffer| (buffer.bytes_mut().as_mut_ptr(), buffer.len())).collect();
    let host = &mut *environment.host;
    // SAFETY: ids are in range and no output is an input (`check_operands`, above). Each output owns its memory: it was
    // allocated above, or is a variable. Each temporary is one of `buffers`, which outlive the context, start at
    // multiples of `ALIGNMENT` and are not touched while it exists.
    let mut cx = unsafe { InvokeContext::new(inputs, outputs, tensors, &pointers, parallel, host) };
    kernel.invoke(&mut cx)?;
    // The kernel may have skipped the rest of its work.
    environment.host.budget().check()?;
    for id in outputs {
        let tensor = &mut tensors[id.0];
        if tensor.placement() != Placement::Variable {
            tensor.freeze();
        }
    }
    Ok(Evaluation::Computed)
}

/// The node in the form that its op's definition reads.
fn infer_context<'a>(node: &'a Node, tensors: &'a [RuntimeTensor], known: KnownInputs) -> InferContext<'a> {
    let input = |t: &'a RuntimeTensor| {
        InferTensor::new(t.ty, &t.shape)
            .with_quantization(t.quantization.as_deref())
            .with_constant((known == KnownInputs::All || t.is_constant()).then(|| t.bytes()))
    };
    let output =
        |t: &'a RuntimeTensor| Declared::new(t.ty, &t.shape).with_quantization(t.quantization.as_deref());
    InferContext::new(node.params(), node.version())
        .with_inputs(node.inputs().iter().map(|id| id.map(|id| input(&tensors[id.0]))))
        .with_outputs(node.outputs().iter().map(|id| output(&tensors[id.0])))
}

/// Returns whether the kernels of `op` read a sparse input `i`, or name it in an error.
fn reads_sparse(op: BuiltinOp, params: &Params, i: usize) -> bool {
    let weights_or_projection = matches!(i, 1..=8 | 16);
    match op {
        BuiltinOp::DENSIFY => i == 0,
        BuiltinOp::FULLY_CONNECTED => i == 1,
        // The basic cell has one dense matrix.
        BuiltinOp::LSTM => {
            weights_or_projection
                && !matches!(params, Params::Lstm(p) if p.kernel_type == LstmKernelType::Basic)
        }
        BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM => weights_or_projection,
        _ => false,
    }
}

/// Rejects sparse inputs of builtin ops whose kernels read dense data: a sparse tensor stores fewer elements than its
/// shape has.
fn check_sparse(node: &Node, tensors: &[RuntimeTensor]) -> Result<()> {
    let Some(op) = node.op().builtin() else { return Ok(()) };
    for (i, id) in node.inputs().iter().enumerate() {
        let tensor = id.and_then(|id| tensors.get(id.0)).filter(|tensor| tensor.sparsity.is_some());
        if let Some(tensor) = tensor.filter(|_| !reads_sparse(op, node.params(), i)) {
            return Err(Error::Unsupported(format!(
                "sparse tensor \"{}\" as input {i}; only DENSIFY and weights of FULLY_CONNECTED and LSTM may be sparse",
                tensor.name
            )));
        }
    }
    Ok(())
}

/// Checks that all operands are among `tensors` tensors, and that no output is an input.
fn check_operands(node: &Node, tensors: usize) -> Result<()> {
    let inputs = node.inputs().iter().flatten();
    if let Some(id) = inputs.chain(node.outputs()).find(|id| id.0 >= tensors) {
        return Err(Error::InvalidNode(format!("tensor {} does not exist", id.0)));
    }
    let inputs: HashSet<TensorId> = node.inputs().iter().flatten().copied().collect();
    if let Some(id) = node.outputs().iter().find(|id| inputs.contains(id)) {
        return Err(Error::InvalidNode(format!("tensor {} is both input and output", id.0)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use delegraph_core::graph::{Subgraph, Tensor, TensorId};
    use delegraph_core::kernel::{InitContext, Serial};
    use delegraph_core::ops::binary::AddParams;
    use delegraph_core::{BuiltinOp, OpResolver, Params, Shape, TensorType};

    use super::*;
    use crate::BuiltinOpResolver;
    use crate::testing::NoSubgraphs;

    /// Evaluates `node` on `tensors`, with a budget of `memory_limit` bytes.
    fn run(node: &Node, tensors: &mut [RuntimeTensor], memory_limit: usize) -> Result<Evaluation> {
        let resolver = BuiltinOpResolver::new();
        let subgraph = Subgraph::default();
        let cx = InitContext::new(node, &subgraph);
        let mut kernel = resolver.find(node.op(), node.version()).unwrap().init(&cx).unwrap();
        let mut environment = Environment { host: &mut NoSubgraphs::within(memory_limit), parallel: &Serial };
        evaluate(node, &mut *kernel, tensors, KnownInputs::Constants, &mut environment)
    }

    fn tensors(output: TensorType) -> Vec<RuntimeTensor> {
        let new = |ty| RuntimeTensor::new(&Tensor::new("t", ty, [2]));
        let mut tensors = vec![new(TensorType::Int32), new(TensorType::Int32), new(output)];
        for (tensor, values) in tensors.iter_mut().zip([[1i32, 2], [3, 4]]) {
            tensor.set_constant_copy(bytemuck::cast_slice(&values)).unwrap();
        }
        tensors
    }

    fn add(inputs: [usize; 2], output: usize) -> Node {
        let params = Params::Add(AddParams::default());
        Node::new(BuiltinOp::ADD, 1, params, inputs.map(|i| Some(TensorId(i))), [TensorId(output)])
    }

    #[test]
    fn outputs_become_constants_of_the_inferred_type_and_shape() {
        // The file declares a type and a shape that differ from the op's.
        let mut t = tensors(TensorType::Float32);
        t[2].shape = Shape::new(&[7]);
        assert_eq!(run(&add([0, 1], 2), &mut t, 64).unwrap(), Evaluation::Computed);
        assert!(t[2].is_constant());
        assert_eq!((t[2].elements::<i32>().unwrap(), t[2].shape.dims()), (&[4, 6][..], &[2][..]));
    }

    #[test]
    fn variables_keep_their_memory_and_stay_variables() {
        let mut t = tensors(TensorType::Int32);
        t[2].allocate(Placement::Variable).unwrap();
        let memory = t[2].bytes().as_ptr();
        assert_eq!(run(&add([1, 1], 2), &mut t, 64).unwrap(), Evaluation::Computed);
        assert_eq!((t[2].placement(), t[2].bytes().as_ptr()), (Placement::Variable, memory));
        assert_eq!(t[2].elements::<i32>().unwrap(), [6, 8]);
        let mut t = tensors(TensorType::Float32);
        t[2].allocate(Placement::Variable).unwrap();
        let e = run(&add([0, 1], 2), &mut t, 64).unwrap_err().to_string();
        assert!(e.contains("output 0 is a variable of FLOAT32, the op gives INT32"), "{e}");
    }

    #[test]
    fn operands_and_sizes_are_checked() {
        let error =
            |node: &Node, limit| run(node, &mut tensors(TensorType::Int32), limit).unwrap_err().to_string();
        assert!(error(&add([0, 3], 2), 64).contains("tensor 3 does not exist"));
        assert!(error(&add([0, 1], 3), 64).contains("tensor 3 does not exist"));
        assert!(error(&add([0, 1], 0), 64).contains("tensor 0 is both input and output"));
        assert!(error(&add([0, 1], 2), 7).contains("8 bytes are needed, above the limit of 7"));
    }

    #[test]
    fn shapes_that_depend_on_unknown_values_are_reported() {
        let node =
            Node::new(BuiltinOp::FILL, 1, Params::None, [0, 1].map(|i| Some(TensorId(i))), [TensorId(2)]);
        let mut t = tensors(TensorType::Int32);
        t[1] = RuntimeTensor::new(&Tensor::new("value", TensorType::Int32, Shape::new(&[])));
        t[1].set_constant_copy(&[9, 0, 0, 0]).unwrap();
        assert_eq!(run(&node, &mut t, 64).unwrap(), Evaluation::Computed);
        assert_eq!(t[2].elements::<i32>().unwrap(), [9, 9]);
        t[0].allocate_bytes(Placement::Dynamic, 8).unwrap();
        assert_eq!(run(&node, &mut t, 64).unwrap(), Evaluation::DataDependent);
    }
}
