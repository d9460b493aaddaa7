//! Helpers for table tests of lowerings: a model of one node, built in memory, runs on the machine's adapter, and its
//! results are compared with numbers from plain Rust. On a machine without an adapter, such a test prints a note and
//! passes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;

use delegraph_core::graph::{Model, Node, Subgraph, Tensor};
use delegraph_core::kernel::{
    Host, InvokeContext, Placement, PrepareContext, Resources, RuntimeTensor, Serial,
};
use delegraph_core::quantization::Affine;
use delegraph_core::{
    BuiltinOp, Element, Kernel, NodeId, Op, Params, Quantization, Shape, TensorId, TensorType,
};
use delegraph_delegate_api::{DelegateParams, GraphView, NodeState, Rejection};

use crate::WgpuDelegate;
use crate::device::options::WgpuOptions;
use crate::kernel::WgpuKernel;

/// A tensor with data: an input, or an expected output.
#[derive(Debug, Clone)]
pub(crate) struct T {
    ty: TensorType,
    shape: Shape,
    bytes: Vec<u8>,
    constant: bool,
    quantization: Option<Quantization>,
}

impl T {
    pub(crate) fn new<E: Element>(shape: &[usize], elements: &[E]) -> Self {
        let (shape, bytes) = (Shape::new(shape), bytemuck::cast_slice(elements).to_vec());
        assert_eq!(shape.elements(), elements.len(), "a test's tensor has the wrong number of elements");
        T { ty: E::TYPE, shape, bytes, constant: false, quantization: None }
    }

    /// A tensor whose elements share bytes.
    pub(crate) fn packed(ty: TensorType, shape: &[usize], bytes: &[u8]) -> Self {
        let (shape, bytes) = (Shape::new(shape), bytes.to_vec());
        T { ty, shape, bytes, constant: false, quantization: None }
    }

    /// Floats computed from their index.
    pub(crate) fn from_fn(shape: &[usize], f: impl Fn(usize) -> f32) -> Self {
        let elements: Vec<f32> = (0..Shape::new(shape).elements()).map(f).collect();
        T::new(shape, &elements)
    }

    /// Floats in [-1, 1), the same on every machine.
    pub(crate) fn noise(shape: &[usize], seed: u32) -> Self {
        let mix = |i: usize| (i as u32 ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        let mix = move |i| (mix(i) ^ (mix(i) >> 15)).wrapping_mul(0xc2b2_ae35) >> 8;
        T::from_fn(shape, move |i| mix(i) as f32 / 8_388_608.0 - 1.0)
    }

    /// Makes the tensor a constant of the model.
    pub(crate) fn constant(mut self) -> Self {
        self.constant = true;
        self
    }

    /// Adds a quantization: real = `scale * (integer - zero)`.
    pub(crate) fn quantized(mut self, scale: f32, zero: i64) -> Self {
        self.quantization = Some(Quantization::per_tensor(scale, zero));
        self
    }

    /// Adds a quantization with one scale per index of `dimension`.
    pub(crate) fn quantized_along(mut self, scales: &[f32], dimension: usize) -> Self {
        let (scales, zero_points) = (scales.to_vec(), vec![0; scales.len()].into());
        self.quantization = Some(Quantization::Affine(Affine { scales, zero_points, dimension }));
        self
    }

    pub(crate) fn floats(&self) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes)
    }
}

/// A delegate on the machine's adapter; `None`, with the reason printed, where the machine has no adapter.
pub(crate) fn delegate() -> Option<&'static WgpuDelegate> {
    static DELEGATE: OnceLock<Option<WgpuDelegate>> = OnceLock::new();
    let open = || {
        let opened = WgpuDelegate::new(WgpuOptions::default());
        opened.inspect_err(|e| eprintln!("skipped: {e}")).ok()
    };
    DELEGATE.get_or_init(open).as_ref()
}

/// Number of runs of a test's kernel.
pub(crate) const RUNS: usize = 8;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts allocations per thread, so that tests on other threads do not interfere.
struct Counting;

// SAFETY: every call is forwarded to the system's allocator with the caller's arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The count of an exiting thread may be destroyed already.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations by this thread so far.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

struct NoHost(Resources);

impl Host for NoHost {
    fn resources(&mut self) -> &mut Resources {
        &mut self.0
    }

    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }

    fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> delegraph_core::Result<Vec<Option<Shape>>> {
        Ok(Vec::new())
    }

    fn reset_callee(&mut self, _: usize) -> delegraph_core::Result<()> {
        Ok(())
    }

    fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> delegraph_core::Result<Vec<&RuntimeTensor>> {
        Ok(Vec::new())
    }
}

/// A model of one node with its tensors.
struct OneNode {
    model: Model,
    tensors: Vec<RuntimeTensor>,
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
}

impl OneNode {
    fn new(
        op: impl Into<Op>,
        version: u32,
        params: Params,
        options: &[u8],
        inputs: &[Option<T>],
        outputs: &[T],
    ) -> Self {
        let all: Vec<&T> = inputs.iter().flatten().chain(outputs).collect();
        let tensor =
            |t: &&T| Tensor::new("t", t.ty, t.shape.clone()).with_quantization(t.quantization.clone());
        let mut ids = (0..).map(TensorId);
        let node_inputs: Vec<_> = inputs.iter().map(|t| t.as_ref().map(|_| ids.next().unwrap())).collect();
        let node_outputs: Vec<_> = outputs.iter().map(|_| ids.next().unwrap()).collect();
        let fed = inputs.iter().zip(&node_inputs);
        let fed = fed.filter(|(t, _)| t.as_ref().is_some_and(|t| !t.constant)).filter_map(|(_, id)| *id);
        let node = Node::new(op, version, params, node_inputs.clone(), node_outputs.clone())
            .with_custom_options(0..options.len());
        // The runtime tensors below hold the data of constants; in the graph, constants are inputs.
        let graph_inputs: Vec<_> = node_inputs.iter().flatten().copied().collect();
        let all_tensors = all.iter().map(tensor).collect();
        let subgraph = Subgraph::new("", all_tensors, vec![node], graph_inputs, node_outputs.clone());
        let inputs = fed.collect();
        let model = Model::from_subgraphs(options.to_vec(), vec![subgraph]).unwrap();
        let tensors = all.iter().zip(model.subgraphs()[0].tensors()).map(|(t, described)| {
            let mut tensor = RuntimeTensor::new(described);
            if t.constant {
                tensor.set_constant_copy(&t.bytes).unwrap();
            } else {
                tensor.allocate(Placement::Dynamic).unwrap();
                tensor.bytes_mut().unwrap().copy_from_slice(&t.bytes);
            }
            tensor
        });
        OneNode { tensors: tensors.collect(), model, inputs, outputs: node_outputs }
    }

    fn view<'a>(&'a self, known: &'a [bool], states: &'a [NodeState]) -> GraphView<'a> {
        GraphView::new(&self.model, 0, &self.tensors, known, states)
    }

    fn supported(&self, delegate: &WgpuDelegate) -> Result<(), Rejection> {
        let (known, states) = (vec![true; self.tensors.len()], [NodeState::default()]);
        delegate.supports(&self.view(&known, &states).node(NodeId(0)))
    }

    fn run(&mut self, delegate: &WgpuDelegate) {
        self.run_altered(delegate, |_| {}).unwrap();
    }

    /// Runs the node several times after `alter` changed its kernel. Returns the smallest number of allocations in a
    /// run.
    fn run_altered(
        &mut self,
        delegate: &WgpuDelegate,
        alter: impl FnOnce(&mut WgpuKernel),
    ) -> delegraph_core::Result<usize> {
        let (known, states) = (vec![true; self.tensors.len()], [NodeState::default()]);
        let (inputs, outputs) = (self.inputs.clone(), self.outputs.clone());
        let params =
            DelegateParams::new(vec![NodeId(0)]).with_inputs(inputs.clone()).with_outputs(outputs.clone());
        let mut kernel = delegate.kernel(&params, &self.view(&known, &states))?;
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        let mut host = NoHost(Resources::default());
        let none = Params::None;
        let tensors = &mut self.tensors;
        let mut prepare = PrepareContext::new(&none, 1, &inputs, &outputs, tensors, &mut host);
        kernel.prepare(&mut prepare)?;
        alter(&mut kernel);
        let mut least = usize::MAX;
        for _ in 0..RUNS {
            // SAFETY: the ids are those of `tensors`, no output is an input, and every tensor owns its memory.
            let mut invoke =
                unsafe { InvokeContext::new(&inputs, &outputs, tensors, &[], &Serial, &mut host) };
            let before = allocations();
            kernel.invoke(&mut invoke)?;
            least = least.min(allocations() - before);
        }
        Ok(least)
    }
}

/// The delegate's answer for a node. `None` without an adapter.
pub(crate) fn support(
    op: impl Into<Op>,
    version: u32,
    params: Params,
    inputs: &[Option<T>],
    outputs: &[T],
) -> Option<Result<(), Rejection>> {
    Some(OneNode::new(op, version, params, &[], inputs, outputs).supported(delegate()?))
}

/// The smallest number of allocations in a run of ABS after `alter` changed its kernel.
pub(crate) fn run_altered(
    delegate: &WgpuDelegate,
    alter: impl FnOnce(&mut WgpuKernel),
) -> delegraph_core::Result<usize> {
    let tensor = || T::noise(&[8], 1);
    let mut case = OneNode::new(BuiltinOp::ABS, 1, Params::None, &[], &[Some(tensor())], &[tensor()]);
    case.run_altered(delegate, alter)
}

/// Runs one node and compares: floats within 1e-5 + 1e-4 of the largest magnitude, all other types exactly.
#[track_caller]
pub(crate) fn check(op: impl Into<Op>, version: u32, params: Params, inputs: &[Option<T>], expected: &[T]) {
    check_custom(op, version, params, &[], inputs, expected);
}

/// As [`check`], with the options of a custom op.
#[track_caller]
pub(crate) fn check_custom(
    op: impl Into<Op>,
    version: u32,
    params: Params,
    options: &[u8],
    inputs: &[Option<T>],
    expected: &[T],
) {
    if let Some(delegate) = delegate() {
        check_on(delegate, op, version, params, options, inputs, expected);
    }
}

/// Runs one node of a custom op on a delegate with these options, and compares as [`check`] does.
#[track_caller]
pub(crate) fn check_custom_with(
    delegate_options: WgpuOptions,
    op: impl Into<Op>,
    options: &[u8],
    inputs: &[Option<T>],
    expected: &[T],
) {
    if let Some(delegate) = delegate_with(delegate_options) {
        check_on(&delegate, op, 1, Params::Custom, options, inputs, expected);
    }
}

/// The answer of a delegate with these options for a node of a custom op.
pub(crate) fn support_with(
    delegate_options: WgpuOptions,
    op: impl Into<Op>,
    version: u32,
    inputs: &[Option<T>],
    outputs: &[T],
) -> Option<Result<(), Rejection>> {
    let delegate = delegate_with(delegate_options)?;
    Some(OneNode::new(op, version, Params::Custom, &[], inputs, outputs).supported(&delegate))
}

/// A delegate on the device that the tests share.
fn delegate_with(options: WgpuOptions) -> Option<WgpuDelegate> {
    let delegate = delegate()?;
    let (device, queue) = delegate.device_and_queue();
    Some(WgpuDelegate::with_device(device.clone(), queue.clone(), delegate.adapter_info().clone(), options))
}

#[track_caller]
fn check_on(
    delegate: &WgpuDelegate,
    op: impl Into<Op>,
    version: u32,
    params: Params,
    options: &[u8],
    inputs: &[Option<T>],
    expected: &[T],
) {
    let blank: Vec<T> =
        expected.iter().map(|t| T { bytes: vec![0x55; t.bytes.len()], ..t.clone() }).collect();
    let mut case = OneNode::new(op, version, params, options, inputs, &blank);
    case.supported(delegate).unwrap();
    case.run(delegate);
    for (i, (id, want)) in case.outputs.iter().zip(expected).enumerate() {
        let got = case.tensors[id.0].bytes();
        if !matches!(want.ty, TensorType::Float32 | TensorType::Complex64) {
            assert_eq!(got, want.bytes, "output {i}");
            continue;
        }
        let (got, want): (Vec<f32>, _) = (bytemuck::pod_collect_to_vec(got), want.floats());
        let largest = want.iter().filter(|v| v.is_finite()).fold(0.0_f32, |m, v| m.max(v.abs()));
        for (at, (g, w)) in got.iter().zip(&want).enumerate() {
            let near = approx::abs_diff_eq!(*g, *w, epsilon = 1e-5 + 1e-4 * largest);
            let close = near || g == w || (g.is_nan() && w.is_nan());
            assert!(close, "output {i}, element {at} is {g}, expected {w}");
        }
    }
}
