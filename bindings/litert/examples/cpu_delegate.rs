//! A delegate for LiteRT that runs every node that it may claim on this project's CPU kernels, one after the other.
//!
//! The delegate gains no speed. It shows the parts of a delegate, needs no device, and claims all ops, so that the
//! runtime's descriptions of all nodes are tested by their results:
//!
//! ```sh
//! cargo build -p delegraph-litert --example cpu_delegate
//! python scripts/check_litert_delegate.py target/debug/examples/libcpu_delegate.so model.tflite
//! ```

use delegraph_core::kernel::{
    AlignedBuffer, Host, InitContext, InvokeContext, Kernel, Placement, PrepareContext, Resources,
    RuntimeTensor, Serial,
};
use delegraph_core::ops::DEFS;
use delegraph_core::{Error, Op, OpResolver, Params, Result, Shape, Subgraph, TensorId};
use delegraph_delegate_api::plugin::{CreateError, PluginOptions};
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, Simple, SimpleDelegate, VersionTable,
};
use delegraph_kernels::BuiltinOpResolver;
use delegraph_litert::export_litert_delegate;

export_litert_delegate!(create);

fn create(options: &PluginOptions) -> Result<Simple<CpuDelegate>, CreateError> {
    // An op that is left to the runtime.
    let without = options.get("without").unwrap_or_default();
    let resolver = BuiltinOpResolver::new();
    let newest = |op: Op| Some((op.builtin()?, *resolver.versions(&op).last()?.end()));
    let table: Vec<_> = DEFS
        .iter()
        .filter(|def| def.op.variant_name() != Some(without))
        .filter_map(|def| newest(Op::Builtin(def.op)))
        .collect();
    Ok(Simple(CpuDelegate { versions: VersionTable::new(&table), resolver }))
}

struct CpuDelegate {
    versions: VersionTable,
    resolver: BuiltinOpResolver,
}

impl SimpleDelegate for CpuDelegate {
    fn name(&self) -> &str {
        "cpu"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        match self.resolver.find(node.op(), node.version()) {
            Some(registration) if !registration.has_side_effects() => Ok(()),
            Some(_) => Err(Rejection::UnsupportedParam("it has side effects".into())),
            None => Err(Rejection::UnsupportedOp { op: node.op().clone() }),
        }
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let mut tensors = Vec::new();
        for i in 0..graph.tensor_count() {
            let seen = graph.tensor(TensorId(i));
            let mut tensor = RuntimeTensor::new(graph.subgraph().tensor(TensorId(i)));
            tensor.shape.clone_from(&seen.tensor().shape);
            if let Some(bytes) = seen.constant() {
                tensor.set_constant_copy(bytes)?;
            }
            tensors.push(tensor);
        }
        for &input in &params.inputs {
            let variable = graph.tensor(input).is_variable();
            let placement = if variable { Placement::Variable } else { Placement::Dynamic };
            tensors[input.0].allocate(placement)?;
        }
        let mut steps = Vec::new();
        for &id in &params.nodes {
            let view = graph.node(id);
            if view.state().folded {
                continue;
            }
            let (node, subgraph) = (view.node(), graph.subgraph());
            let registration = self.resolver.find(view.op(), view.version());
            let registration = registration.ok_or_else(|| Error::Unsupported("no kernel".into()))?;
            let init = InitContext::new(node, subgraph).with_custom_options(view.custom_options());
            let mut step = Step {
                kernel: registration.init(&init)?,
                params: node.params().clone(),
                inputs: node.inputs().to_vec(),
                outputs: node.outputs().to_vec(),
                temporaries: Vec::new(),
            };
            step.prepare(view.version(), &mut tensors)?;
            steps.push(step);
        }
        Ok(Box::new(CpuKernel { tensors, steps, params: params.clone() }))
    }
}

/// A node with its kernel and temporaries.
struct Step {
    kernel: Box<dyn Kernel>,
    params: Params,
    inputs: Vec<Option<TensorId>>,
    outputs: Vec<TensorId>,
    temporaries: Vec<AlignedBuffer>,
}

impl Step {
    fn prepare(&mut self, version: u32, tensors: &mut [RuntimeTensor]) -> Result<()> {
        let (params, inputs, outputs) = (&self.params, &self.inputs, &self.outputs);
        let mut host = Alone::default();
        let mut cx = PrepareContext::new(params, version, inputs, outputs, tensors, &mut host);
        self.kernel.prepare(&mut cx)?;
        for &bytes in cx.finish().temporaries() {
            self.temporaries.push(AlignedBuffer::zeroed(bytes)?);
        }
        outputs.iter().try_for_each(|output| tensors[output.0].allocate(Placement::Dynamic))
    }
}

struct CpuKernel {
    tensors: Vec<RuntimeTensor>,
    steps: Vec<Step>,
    params: DelegateParams,
}

impl Kernel for CpuKernel {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let mut states = Vec::new();
        for (i, id) in self.params.inputs.iter().enumerate() {
            let tensor = &mut self.tensors[id.0];
            if tensor.placement() == Placement::Variable {
                let state = cx.variable_bytes(i)?;
                tensor.bytes_mut()?.copy_from_slice(state);
                states.push((*id, state));
            } else {
                tensor.bytes_mut()?.copy_from_slice(cx.input_bytes(i)?);
            }
        }
        for step in &mut self.steps {
            let buffers = step.temporaries.iter_mut();
            let pointers: Vec<_> = buffers.map(|b| (b.bytes_mut().as_mut_ptr(), b.len())).collect();
            let (inputs, outputs, tensors) = (&step.inputs, &step.outputs, &mut self.tensors);
            let mut host = Alone::default();
            // SAFETY: the ids are the graph's, whose nodes do not write what they read; every tensor and temporary has
            // memory of its own.
            let mut cx =
                unsafe { InvokeContext::new(inputs, outputs, tensors, &pointers, &Serial, &mut host) };
            step.kernel.invoke(&mut cx)?;
        }
        for (id, state) in states {
            state.copy_from_slice(self.tensors[id.0].bytes());
        }
        for (i, id) in self.params.outputs.iter().enumerate() {
            cx.output_bytes(i)?.copy_from_slice(self.tensors[id.0].bytes());
        }
        Ok(())
    }
}

impl DelegateKernel for CpuKernel {}

/// A host without other subgraphs.
#[derive(Default)]
struct Alone(Resources);

fn none<T>() -> Result<T> {
    Err(Error::Unsupported("other subgraphs".into()))
}

impl Host for Alone {
    fn resources(&mut self) -> &mut Resources {
        &mut self.0
    }

    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }

    fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> Result<Vec<Option<Shape>>> {
        none()
    }

    fn reset_callee(&mut self, _: usize) -> Result<()> {
        none()
    }

    fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
        none()
    }
}
