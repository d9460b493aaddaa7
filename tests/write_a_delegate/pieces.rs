//! The second half of the page: what the first delegate did not need.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, NodeId, Params, Result, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Buffers, Capabilities, CostModel, DelegateKernel, DelegateParams, DeviceBuffer, GraphView,
    NodeView, PartitionOptions, Rates, Rejection, Simple, SimpleDelegate, TensorInfo, VersionTable,
};

/// Makes the kernel of a partition.
pub type Create = fn(&DelegateParams, &GraphView<'_>) -> Result<Box<dyn DelegateKernel>>;

/// A delegate for the topic of one test.
pub struct Small {
    pub versions: VersionTable,
    pub capabilities: Capabilities,
    pub options: PartitionOptions,
    pub supports: fn(&NodeView<'_>) -> Result<(), Rejection>,
    pub create: Create,
}

impl Small {
    pub fn new(op: BuiltinOp, version: u32, create: Create) -> Self {
        Small {
            versions: VersionTable::new(&[(op, version)]),
            capabilities: Capabilities::default(),
            options: PartitionOptions::default(),
            supports: |_| Ok(()),
            create,
        }
    }
}

impl SimpleDelegate for Small {
    fn name(&self) -> &str {
        "small"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        (self.supports)(node)
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        (self.create)(params, graph)
    }

    fn partition_options(&self) -> PartitionOptions {
        self.options.clone()
    }
}

/// One RNN node without activation: `h = W·x + R·h + b`, where `h` is a variable and, copied, the output.
pub struct Recurrent {
    weights: Vec<f32>,
    recurrent: Vec<f32>,
    bias: Vec<f32>,
    /// The partition's inputs that are `x` and `h`.
    inputs: [usize; 2],
}

impl Recurrent {
    pub fn create(params: &DelegateParams, graph: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        let node = graph.node(params.nodes[0]);
        let constant = |i| node.input(i).and_then(|t| t.constant_as::<f32>()).unwrap_or_default().to_vec();
        let position = |i| {
            let id = node.input(i).map(|t| t.id());
            params.inputs.iter().position(|input| Some(*input) == id).unwrap_or_default()
        };
        Ok(Box::new(Recurrent {
            weights: constant(1),
            recurrent: constant(2),
            bias: constant(3),
            inputs: [position(0), position(4)],
        }))
    }
}

impl Kernel for Recurrent {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let [x, h] = self.inputs;
        let (x, state, output) = (cx.input::<f32>(x)?, cx.variable::<f32>(h)?, cx.output::<f32>(0)?);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        for (unit, y) in output.iter_mut().enumerate() {
            let weights = &self.weights[unit * x.len()..][..x.len()];
            let recurrent = &self.recurrent[unit * state.len()..][..state.len()];
            *y = self.bias[unit] + dot(weights, x) + dot(recurrent, state);
        }
        state.copy_from_slice(output);
        Ok(())
    }
}

impl DelegateKernel for Recurrent {}

/// RELU of any shape.
pub struct AnyShape;

impl AnyShape {
    pub fn delegate() -> Simple<Small> {
        Simple(Small {
            capabilities: Capabilities::default().with_dynamic_shapes(true),
            ..Small::new(BuiltinOp::RELU, 1, |_, _| Ok(Box::new(AnyShape)))
        })
    }
}

impl Kernel for AnyShape {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        input.iter().zip(output).for_each(|(x, y)| *y = x.clamp(0.0, f32::INFINITY));
        Ok(())
    }
}

impl DelegateKernel for AnyShape {}

/// Returns the weights to upload and their type: float16 if the file has that.
pub fn weights_to_upload<'a>(
    graph: &GraphView<'a>,
    weights: TensorInfo<'a>,
    producers: &[Option<NodeId>],
) -> Option<(TensorType, &'a [u8])> {
    let stored = graph.float16_source(weights.id(), producers).unwrap_or(weights);
    Some((stored.ty(), stored.constant()?))
}

/// Ok if all nodes in both branches of an IF are builtin ops in `known`.
pub fn supports_if(node: &NodeView<'_>, known: &[BuiltinOp]) -> Result<(), Rejection> {
    let Params::If(params) = node.params() else {
        return Err(Rejection::UnsupportedOp { op: node.op().clone() });
    };
    for index in [params.then_subgraph_index, params.else_subgraph_index] {
        let branch = usize::try_from(index).ok().and_then(|index| node.graph().callee(index));
        let branch = branch.ok_or_else(|| Rejection::Other(format!("subgraph {index} is not prepared")))?;
        for inner in branch.nodes() {
            inner.check_static()?;
            if !inner.op().builtin().is_some_and(|op| known.contains(&op)) {
                return Err(Rejection::UnsupportedOp { op: inner.op().clone() });
            }
        }
    }
    Ok(())
}

/// Few, large partitions that gain more than their copies cost.
pub fn worthwhile() -> PartitionOptions {
    let cpu = Rates { multiply_adds: 20e9, bytes: 10e9 };
    let delegate = Rates { multiply_adds: 500e9, bytes: 100e9 };
    let cost = CostModel { cpu, delegate, copies: 20e9, overhead: Duration::from_micros(50) };
    PartitionOptions::default().with_max_partitions(4).with_min_nodes(2).with_cost(cost)
}

/// Memory of a device. This one uses the CPU's; a real one holds a driver's handle.
#[derive(Clone, Default)]
pub struct OnDevice(Arc<Mutex<Vec<f32>>>);

impl OnDevice {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<f32>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DeviceBuffer for OnDevice {
    fn byte_size(&self) -> usize {
        self.with(|values| values.len() * size_of::<f32>())
    }

    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let mut elements = bytes.as_chunks_mut::<4>().0.iter_mut();
        self.with(|values| values.iter().zip(&mut elements).for_each(|(v, b)| *b = v.to_ne_bytes()));
        Ok(())
    }
}

/// NEG on the device, one node per partition.
#[derive(Default)]
pub struct Negate {
    result: OnDevice,
}

impl Kernel for Negate {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let elements = cx.output(0)?.shape().elements();
        self.result.with(|values| values.resize(elements, 0.0));
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        input.iter().zip(output).for_each(|(x, y)| *y = -x);
        Ok(())
    }
}

impl DelegateKernel for Negate {
    fn accepts(&self, _input: usize, buffer: &BufferHandle) -> bool {
        buffer.downcast_ref::<OnDevice>().is_some()
    }

    fn keeps(&self, _output: usize) -> bool {
        true
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let negate = |from: &[f32], to: &mut [f32]| from.iter().zip(to).for_each(|(x, y)| *y = -x);
        match buffers.input(0).and_then(|buffer| buffer.downcast_ref::<OnDevice>()) {
            Some(input) => self.result.with(|to| input.with(|from| negate(from, to))),
            None => {
                let from = cx.input(0)?;
                self.result.with(|to| negate(from, to));
            }
        }
        if buffers.may_keep(0) {
            buffers.keep(0, BufferHandle::new(self.result.clone()));
        } else {
            self.result.with(|result| cx.output(0).map(|output| output.copy_from_slice(result)))?;
        }
        Ok(())
    }
}
