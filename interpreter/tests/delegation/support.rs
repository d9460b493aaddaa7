//! A scripted delegate: it runs elementwise float ops on the CPU, logs its calls, and fails at the hook that a test
//! selects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::{
    BuiltinOp, Error, Model, ModelBuilder, NodeId, Params, Result, SubgraphBuilder, TensorId, TensorType,
};
use delegraph_delegate_api::{
    BufferHandle, Buffers, Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams,
    DeviceBuffer, GraphView, NodeTime, VersionTable,
};
use delegraph_interpreter::{Interpreter, InterpreterBuilder};

pub(crate) const ABS: BuiltinOp = BuiltinOp::ABS;
pub(crate) const ADD: BuiltinOp = BuiltinOp::ADD;
pub(crate) const MUL: BuiltinOp = BuiltinOp::MUL;
pub(crate) const NEG: BuiltinOp = BuiltinOp::NEG;

/// Where a delegate fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    Prepare,
    CreateKernel,
    PrepareKernel,
    Invoke,
}

/// The record of a delegate's calls.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) log: Mutex<Vec<String>>,
    /// The number of copies from the delegate's buffers to the CPU.
    pub(crate) reads: AtomicUsize,
}

impl Seen {
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn say(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
    }
}

/// The scripted delegate that this module describes.
pub(crate) struct Scripted {
    pub(crate) name: &'static str,
    pub(crate) versions: VersionTable,
    pub(crate) capabilities: Capabilities,
    pub(crate) fails_at: Option<Hook>,
    pub(crate) panics: bool,
    /// Whether its tensors stay in its own buffers.
    pub(crate) buffers: bool,
    pub(crate) seen: Arc<Seen>,
}

impl Scripted {
    /// Claims these ops at version 1.
    pub(crate) fn new(name: &'static str, ops: &[BuiltinOp]) -> Self {
        let versions: Vec<_> = ops.iter().map(|&op| (op, 1)).collect();
        Scripted {
            name,
            versions: VersionTable::new(&versions),
            capabilities: Capabilities::default(),
            fails_at: None,
            panics: false,
            buffers: false,
            seen: Arc::default(),
        }
    }

    pub(crate) fn failing(mut self, hook: Hook, panics: bool) -> Self {
        (self.fails_at, self.panics) = (Some(hook), panics);
        self
    }

    fn fail(&self, hook: Hook) -> Result<()> {
        fail(self.fails_at, self.panics, hook)
    }
}

fn fail(fails_at: Option<Hook>, panics: bool, hook: Hook) -> Result<()> {
    match fails_at == Some(hook) {
        true if panics => panic!("scripted panic in {hook:?}"),
        true => Err(Error::Kernel(format!("scripted error in {hook:?}"))),
        false => Ok(()),
    }
}

impl Delegate for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        self.seen.say(format!("prepare {}", cx.graph().index()));
        // Claims everything: the context rejects nodes that it may not claim.
        let all: Vec<NodeId> = cx.graph().nodes().map(|n| n.id()).collect();
        let this = &*self;
        cx.claim(&all, move |params, graph| this.kernel(params, graph));
        self.fail(Hook::Prepare)
    }
}

impl Scripted {
    fn kernel(&self, params: &DelegateParams, graph: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        self.fail(Hook::CreateKernel)?;
        let nodes: Vec<usize> = params.nodes.iter().map(|n| n.0).collect();
        self.seen.say(format!("kernel {} {nodes:?}", graph.index()));
        let operand = |id: TensorId| match graph.tensor(id).constant_as::<f32>() {
            Some(values) => Operand::Constant(values.to_vec()),
            None => Operand::Tensor(id),
        };
        let node = |id: &NodeId| {
            let node = graph.node(*id);
            (
                node.op().builtin().unwrap(),
                node.inputs().map(|t| operand(t.id())).collect(),
                node.output(0).unwrap().id(),
            )
        };
        Ok(Box::new(Elementwise {
            nodes: params.nodes.iter().map(node).collect(),
            params: params.clone(),
            fails_at: self.fails_at,
            panics: self.panics,
            buffers: self.buffers,
            seen: Arc::clone(&self.seen),
            times: params
                .nodes
                .iter()
                .map(|&node| NodeTime::new(node, std::time::Duration::from_nanos(7)))
                .collect(),
        }))
    }
}

enum Operand {
    Constant(Vec<f32>),
    Tensor(TensorId),
}

struct Elementwise {
    nodes: Vec<(BuiltinOp, Vec<Operand>, TensorId)>,
    params: DelegateParams,
    fails_at: Option<Hook>,
    panics: bool,
    buffers: bool,
    seen: Arc<Seen>,
    times: Vec<NodeTime>,
}

impl Kernel for Elementwise {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let shapes: Vec<String> = (0..cx.output_count())
            .map(|i| cx.output(i).map(|t| t.shape().to_string()))
            .collect::<Result<_>>()?;
        self.seen.say(format!("prepare kernel, outputs {}", shapes.join(" ")));
        fail(self.fails_at, self.panics, Hook::PrepareKernel)?;
        // Unknown shapes are equal to the input's: every op is elementwise.
        for i in 0..cx.output_count() {
            if !cx.output(i)?.is_known() {
                let shape = cx.input(0)?.shape().clone();
                cx.set_output_shape(i, shape)?;
            }
        }
        Ok(())
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        unreachable!("invoke_with is called instead")
    }
}

impl DelegateKernel for Elementwise {
    fn accepts(&self, _: usize, buffer: &BufferHandle) -> bool {
        self.buffers && buffer.downcast_ref::<TestBuffer>().is_some()
    }

    fn keeps(&self, _: usize) -> bool {
        self.buffers
    }

    fn node_times(&self) -> &[NodeTime] {
        &self.times
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        self.seen.say("invoke");
        cx.host().progress(1, 2);
        if cx.host().is_cancelled() {
            return Err(Error::Cancelled);
        }
        let mut values: HashMap<TensorId, Vec<f32>> = HashMap::new();
        for (i, id) in self.params.inputs.iter().enumerate() {
            let value = match buffers.input(i).and_then(|b| b.downcast_ref::<TestBuffer>()) {
                Some(buffer) => buffer.data.clone(),
                None => cx.input::<f32>(i)?.to_vec(),
            };
            values.insert(*id, value);
        }
        for (op, inputs, output) in &self.nodes {
            let get = |i: usize| match &inputs[i] {
                Operand::Constant(values) => values,
                Operand::Tensor(id) => &values[id],
            };
            let pairs = |f: fn(f32, f32) -> f32| {
                let (a, b) = (get(0), get(1));
                a.iter().enumerate().map(|(i, a)| f(*a, b[i % b.len()])).collect()
            };
            let each = |f: fn(f32) -> f32| get(0).iter().map(|&x| f(x)).collect();
            let result: Vec<f32> = match *op {
                BuiltinOp::ADD => pairs(|a, b| a + b),
                BuiltinOp::MUL => pairs(|a, b| a * b),
                BuiltinOp::NEG => each(|x| -x),
                BuiltinOp::ABS => each(f32::abs),
                op => return Err(Error::Unsupported(format!("{op:?}"))),
            };
            values.insert(*output, result);
        }
        fail(self.fails_at, self.panics, Hook::Invoke)?;
        for (o, id) in self.params.outputs.iter().enumerate() {
            if buffers.may_keep(o) {
                let buffer = TestBuffer { data: values[id].clone(), seen: Arc::clone(&self.seen) };
                buffers.keep(o, BufferHandle::new(buffer));
            } else {
                cx.output::<f32>(o)?.copy_from_slice(&values[id]);
            }
        }
        Ok(())
    }
}

/// A buffer that counts how often it is copied to the CPU.
pub(crate) struct TestBuffer {
    pub(crate) data: Vec<f32>,
    pub(crate) seen: Arc<Seen>,
}

impl DeviceBuffer for TestBuffer {
    fn byte_size(&self) -> usize {
        4 * self.data.len()
    }

    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.seen.reads.fetch_add(1, Ordering::Relaxed);
        bytes.copy_from_slice(bytemuck::cast_slice(&self.data));
        Ok(())
    }
}

/// The default params of an op.
pub(crate) fn params(op: BuiltinOp) -> Params {
    match op {
        BuiltinOp::ADD => AddParams::default().into(),
        BuiltinOp::MUL => MulParams::default().into(),
        _ => Params::None,
    }
}

/// `x`, of 4 floats, through one op after the other; `ADD` adds 1 and `MUL` doubles.
pub(crate) fn chain(ops: &[BuiltinOp]) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [4]);
    graph.resizable(x, [None]);
    for (i, &op) in ops.iter().enumerate() {
        x = step(&mut graph, op, x, &format!("t{i}"));
    }
    graph.outputs([x]);
    build(graph)
}

/// One op on `x`.
pub(crate) fn step(graph: &mut SubgraphBuilder, op: BuiltinOp, x: TensorId, name: &str) -> TensorId {
    let mut inputs = vec![x];
    if op == BuiltinOp::ADD || op == BuiltinOp::MUL {
        let value = if op == BuiltinOp::ADD { 1f32 } else { 2.0 };
        inputs.push(graph.constant("", [1], &[value]));
    }
    graph.node(op, params(op)).inputs(inputs).output(name)
}

pub(crate) fn build(graph: SubgraphBuilder) -> Model {
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

pub(crate) fn with(model: &Model, delegates: impl IntoIterator<Item = Scripted>) -> InterpreterBuilder {
    let builder = Interpreter::builder(model.clone());
    delegates.into_iter().fold(builder, |builder, d| builder.delegate(d))
}

/// Returns the output for the input `x`.
pub(crate) fn run(interpreter: &mut Interpreter, x: &[f32]) -> Result<Vec<f32>> {
    interpreter.input_mut::<f32>(0)?.copy_from_slice(x);
    interpreter.invoke()?;
    Ok(interpreter.output::<f32>(0)?.to_vec())
}

pub(crate) const X: [f32; 4] = [-1.5, 0.0, 2.0, 5.0];

/// The output of the CPU for [`X`].
pub(crate) fn on_cpu(model: &Model) -> Vec<f32> {
    run(&mut Interpreter::builder(model.clone()).build().unwrap(), &X).unwrap()
}

/// The nodes of each partition.
pub(crate) fn partitions(interpreter: &Interpreter) -> Vec<Vec<usize>> {
    interpreter.report().partitions.iter().map(|p| p.nodes.iter().map(|n| n.0).collect()).collect()
}

/// Per node without a claim, the kind of the last reason.
pub(crate) fn reasons(interpreter: &Interpreter) -> Vec<(usize, &'static str)> {
    interpreter.report().rejected().map(|(n, reason)| (n.node.0, reason.kind())).collect()
}
