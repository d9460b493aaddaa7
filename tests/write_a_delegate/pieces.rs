//! The second half of the page: a piece of a delegate for each thing that the first half did not need.

use std::sync::{Arc, Mutex, PoisonError};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, NodeId, Params, Result, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Buffers, Capabilities, CostModel, DelegateKernel, DelegateParams, DeviceBuffer, GraphView,
    NodeView, PartitionOptions, Rates, Rejection, SimpleDelegate, TensorInfo, VersionTable,
};

/// Makes the kernel of a partition.
pub type Create = fn(&DelegateParams, &GraphView<'_>) -> Result<Box<dyn DelegateKernel>>;

/// A delegate for the one thing that a test is about.
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

    fn options(&self) -> PartitionOptions {
        self.options.clone()
    }
}

/// One RNN node without activation: `h = W·x + R·h + b`, where `h` is a variable and, copied, the output.
pub struct Recurrent {
    weights: Vec<f32>,
    recurrent: Vec<f32>,
    bias: Vec<f32>,
    /// Which inputs of the partition are `x` and `h`.
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

/// RELU of whatever shape comes.
pub struct AnyShape;

impl AnyShape {
    pub fn delegate() -> Small {
        Small {
            capabilities: Capabilities { dynamic_shapes: true, propagated_shapes: false },
            ..Small::new(BuiltinOp::RELU, 1, |_, _| Ok(Box::new(AnyShape)))
        }
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

/// The bytes of weights as they are to be uploaded, and their type: float16 where the file has that.
pub fn weights_to_upload<'a>(
    graph: &GraphView<'a>,
    weights: TensorInfo<'a>,
    producers: &[Option<NodeId>],
) -> Option<(TensorType, &'a [u8])> {
    let stored = graph.float16_source(weights.id(), producers).unwrap_or(weights);
    Some((stored.ty(), stored.constant()?))
}

/// Ok where every node of both branches of an IF is one of the builtin ops `known`.
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

/// Few partitions, large ones, and only those that gain more than their copies cost.
pub fn worthwhile() -> PartitionOptions {
    let cost = CostModel {
        cpu: Rates { multiply_adds: 20e9, bytes: 10e9 },
        delegate: Rates { multiply_adds: 500e9, bytes: 100e9 },
        copies: 20e9,
        overhead: 50e-6,
    };
    PartitionOptions { max_partitions: Some(4), min_nodes: 2, cost: Some(cost), ..Default::default() }
}

/// Memory of a device. This one is the CPU's; a real one holds a handle of a driver.
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

/// NEG, one node a partition, on the device.
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
        buffer.downcast::<OnDevice>().is_some()
    }

    fn keeps(&self, _output: usize) -> bool {
        true
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let negate = |from: &[f32], to: &mut [f32]| from.iter().zip(to).for_each(|(x, y)| *y = -x);
        match buffers.input(0).and_then(|buffer| buffer.downcast::<OnDevice>()) {
            Some(input) => self.result.with(|to| input.with(|from| negate(from, to))),
            None => {
                let from = cx.input(0)?;
                self.result.with(|to| negate(from, to));
            }
        }
        if buffers.may_stay(0) {
            buffers.leave(0, BufferHandle::new(self.result.clone()));
        } else {
            self.result.with(|result| cx.output(0).map(|output| output.copy_from_slice(result)))?;
        }
        Ok(())
    }
}
