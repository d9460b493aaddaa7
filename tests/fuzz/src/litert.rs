//! A runtime with arbitrary numbers in its tables, and pointers that are null, misaligned or valid. The bridge assumes
//! nothing more.

use std::ffi::{c_char, c_int, c_void};

use delegraph_core::{BuiltinOp, InvokeContext, Kernel, PrepareContext, Result};
use delegraph_delegate_api::plugin::PluginOptions;
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, Simple, SimpleDelegate, VersionTable,
};
use delegraph_litert::abi::{self, Status};

use crate::script::{byte, number, size, start};

/// Words of memory behind each tensor.
const WORDS: usize = 512;

/// Applies a delegate that claims all nodes to a graph whose tables are made of `bytes`, and runs it.
pub fn run(bytes: &[u8]) {
    start(bytes);
    let option = (c"allow_unknown_host".as_ptr(), c"1".as_ptr());
    let make = |_: &PluginOptions| Ok::<_, String>(Simple(Greedy(everything())));
    // SAFETY: both lists have one null-terminated text, as their length states.
    let delegate =
        unsafe { delegraph_litert::create(&raw const option.0, &raw const option.1, 1, Some(report), make) };
    if delegate.is_null() {
        return;
    }
    {
        let mut host = Host::new();
        let context = host.context();
        // SAFETY: the context lives until the end of the block, and the delegate until `destroy` below.
        unsafe {
            let prepare = (*delegate).prepare;
            if prepare.is_some_and(|prepare| prepare(context, delegate) == abi::OK) {
                host.run(context);
            }
            host.free(context);
        }
    }
    // SAFETY: made by `create`, and not used afterwards.
    unsafe { delegraph_litert::destroy(delegate) };
}

unsafe extern "C" fn report(_: *const c_char) {}

/// Every op, in every version.
fn everything() -> VersionTable {
    let ops: Vec<_> = (0..256).map(|code| (BuiltinOp(code), u32::MAX)).collect();
    VersionTable::new(&ops).with_custom("custom\u{fffd}", u32::MAX)
}

/// Claims all nodes, and fills their outputs with zeros.
struct Greedy(VersionTable);

impl SimpleDelegate for Greedy {
    fn name(&self) -> &str {
        "greedy"
    }
    fn max_versions(&self) -> &VersionTable {
        &self.0
    }
    fn supports(&self, _: &NodeView<'_>) -> std::result::Result<(), Rejection> {
        Ok(())
    }
    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        _: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(Zeros(params.inputs.len(), params.outputs.len())))
    }
}

struct Zeros(usize, usize);

impl Kernel for Zeros {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        for i in 0..self.1 {
            let shape = cx.output(i)?.shape().clone();
            cx.set_output_shape(i, shape)?;
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        for i in 0..self.0 {
            let bytes = cx.input_bytes(i)?;
            std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        }
        Ok(())
    }
}

impl DelegateKernel for Zeros {}

/// Lists of the interface: a length, followed by that number of values.
#[derive(Default)]
struct Lists(Vec<Box<[c_int]>>);

impl Lists {
    fn add(&mut self, values: &[c_int]) -> *mut abi::IntArray {
        let mut list = vec![values.len() as c_int];
        list.extend_from_slice(values);
        match byte() {
            // Invalid lengths.
            250 => list[0] = -1,
            251 => list[0] = c_int::MAX,
            252 => return std::ptr::null_mut(),
            _ => {}
        }
        let mut list = list.into_boxed_slice();
        let pointer = list.as_mut_ptr();
        self.0.push(list);
        pointer.cast()
    }
}

struct Host {
    context: Box<abi::Context>,
    tensors: Vec<abi::Tensor>,
    nodes: Vec<(Box<abi::Node>, Box<abi::Registration>)>,
    plan: Vec<c_int>,
    previews: Vec<abi::DelegateParams>,
    lists: Lists,
    memory: Vec<Box<[u64]>>,
    /// Indices of the nodes whose kernels `init` made.
    kernels: Vec<usize>,
}

impl Host {
    fn new() -> Box<Self> {
        let context = abi::Context {
            tensors_size: 0,
            get_execution_plan: Some(get_execution_plan),
            tensors: std::ptr::null_mut(),
            impl_: std::ptr::null_mut(),
            resize_tensor: Some(resize_tensor),
            report_error: None,
            add_tensors: None,
            get_node_and_registration: Some(get_node_and_registration),
            replace_node_subsets_with_delegate_kernels: Some(replace),
            recommended_num_threads: 1,
            get_external_context: std::ptr::null(),
            set_external_context: std::ptr::null(),
            allow_fp32_relax_to_fp16: byte(),
            profiler: std::ptr::null_mut(),
            unused: [std::ptr::null(); 5],
            preview_delegate_partitioning: Some(preview),
        };
        let mut host = Box::new(Host {
            context: Box::new(context),
            tensors: Vec::new(),
            nodes: Vec::new(),
            plan: Vec::new(),
            previews: Vec::new(),
            lists: Lists::default(),
            memory: Vec::new(),
            kernels: Vec::new(),
        });
        for _ in 0..2 + byte() % 6 {
            host.tensor();
        }
        for n in 0..1 + byte() % 3 {
            host.node();
            host.plan.push(c_int::from(n));
        }
        host
    }

    fn context(&mut self) -> *mut abi::Context {
        let this: *mut Host = self;
        self.context.impl_ = this.cast();
        self.context.tensors_size = self.tensors.len();
        self.context.tensors = self.tensors.as_mut_ptr();
        &raw mut *self.context
    }

    /// Returns memory for a tensor; sometimes misaligned, sometimes null.
    fn room(&mut self) -> *mut c_void {
        let mut memory = vec![0_u64; WORDS].into_boxed_slice();
        memory.iter_mut().take(8).for_each(|word| *word = number() as u64);
        let pointer = memory.as_mut_ptr();
        self.memory.push(memory);
        match byte() {
            0..=199 => pointer.cast(),
            200..=229 => pointer.wrapping_byte_add(1).cast(),
            _ => std::ptr::null_mut(),
        }
    }

    fn tensor(&mut self) {
        let dims: Vec<c_int> = (0..byte() % 5)
            .map(|_| if byte() < 220 { 1 + c_int::from(byte() % 4) } else { number() as c_int })
            .collect();
        let data = self.room();
        // The memory has `WORDS` words; a runtime declares no more than it has.
        let elements = dims.iter().try_fold(1_usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?));
        let bytes = match byte() {
            0..=199 => elements.map_or(0, |n| n.saturating_mul(4)),
            _ => size(),
        };
        let bytes = bytes.min(WORDS * 8 - 8);
        let quantization = self.quantization();
        let sparsity = if byte() > 200 { self.sparsity() } else { std::ptr::null_mut() };
        let tensor = abi::Tensor {
            ty: if byte() < 150 { 1 } else { number() as c_int },
            data,
            dims: self.lists.add(&dims),
            params: abi::ScaleZeroPoint { scale: 0.5, zero_point: number() as i32 },
            allocation_type: c_int::from(byte() % 8),
            bytes,
            allocation: std::ptr::null(),
            name: if byte() < 200 { c"t\xff".as_ptr() } else { std::ptr::null() },
            delegate: std::ptr::null_mut(),
            buffer_handle: -1,
            data_is_stale: 0,
            is_variable: u8::from(byte() > 230),
            quantization,
            sparsity,
            dims_signature: self.lists.add(&dims),
        };
        self.tensors.push(tensor);
    }

    fn quantization(&mut self) -> abi::Quantization {
        let none = abi::Quantization { kind: 0, params: std::ptr::null_mut() };
        let words = match byte() {
            0..=150 => return none,
            // A kind without its struct.
            151..=160 => return abi::Quantization { kind: number() as c_int, ..none },
            _ => byte() % 4,
        };
        let numbers: Vec<c_int> = (0..words).map(|_| number() as c_int).collect();
        // Floats have the size of integers, and any bits are a float.
        let scale = self.lists.add(&numbers).cast::<abi::FloatArray>();
        let affine =
            abi::Affine { scale, zero_point: self.lists.add(&numbers), quantized_dimension: number() as i32 };
        let mut room = vec![0_u64; size_of::<abi::Affine>().div_ceil(8)].into_boxed_slice();
        let params = room.as_mut_ptr();
        // SAFETY: the words are enough for the struct, and aligned for it.
        unsafe { params.cast::<abi::Affine>().write(affine) };
        self.memory.push(room);
        abi::Quantization { kind: 1, params: params.cast() }
    }

    fn sparsity(&mut self) -> *mut abi::Sparsity {
        let count = usize::from(byte() % 4);
        let numbers = || (0..byte() % 4).map(|_| number() as c_int).collect::<Vec<_>>();
        let (order, map) = (numbers(), numbers());
        let levels: Vec<_> = (0..count).map(|_| (numbers(), numbers())).collect();
        let mut dimensions = Vec::new();
        for (segments, indices) in levels {
            dimensions.push(abi::Dimension {
                format: c_int::from(byte() % 3),
                dense_size: number() as c_int,
                segments: self.lists.add(&segments),
                indices: self.lists.add(&indices),
            });
        }
        let words = (count * size_of::<abi::Dimension>() + size_of::<abi::Sparsity>()).div_ceil(8);
        let mut room = vec![0_u64; words].into_boxed_slice();
        let pointer = room.as_mut_ptr();
        let sparsity = abi::Sparsity {
            traversal_order: self.lists.add(&order),
            block_map: self.lists.add(&map),
            // SAFETY: within the words, or at their end.
            dimensions: unsafe { pointer.byte_add(size_of::<abi::Sparsity>()).cast() },
            dimension_count: count as c_int,
        };
        // SAFETY: the words are enough for the struct and the dimensions after it, and aligned for both.
        unsafe {
            for (i, dimension) in dimensions.into_iter().enumerate() {
                sparsity.dimensions.add(i).write(dimension);
            }
            pointer.cast::<abi::Sparsity>().write(sparsity);
        }
        self.memory.push(room);
        pointer.cast()
    }

    fn node(&mut self) {
        let count = self.tensors.len();
        let ids = |most: u8| -> Vec<c_int> {
            let id = || if byte() < 235 { usize::from(byte()) % count } else { size() };
            (0..byte() % most).map(|_| id() as c_int).collect()
        };
        let (inputs, outputs) = (ids(4), ids(3));
        let params = self.room();
        let custom = byte() > 220;
        let node = abi::Node {
            inputs: self.lists.add(&inputs),
            outputs: self.lists.add(&outputs),
            intermediates: if byte() < 200 { std::ptr::null_mut() } else { self.lists.add(&inputs) },
            temporaries: std::ptr::null_mut(),
            user_data: std::ptr::null_mut(),
            builtin_data: if custom { std::ptr::null_mut() } else { params },
            custom_initial_data: if custom { params } else { std::ptr::null() },
            custom_initial_data_size: if custom { c_int::from(byte() % 64) } else { 0 },
            delegate: std::ptr::null_mut(),
            might_have_side_effect: u8::from(byte() > 240),
        };
        let registration = abi::Registration {
            init: None,
            free: None,
            prepare: None,
            invoke: None,
            profiling_string: std::ptr::null(),
            builtin_code: if custom { 32 } else { i32::from(byte()) },
            custom_name: if custom { c"custom\xff".as_ptr() } else { std::ptr::null() },
            version: if byte() < 220 { 1 + c_int::from(byte() % 4) } else { number() as c_int },
        };
        self.nodes.push((Box::new(node), Box::new(registration)));
    }

    /// Prepares and invokes the kernels in the plan.
    ///
    /// # Safety
    /// `context` is this host's.
    unsafe fn run(&mut self, context: *mut abi::Context) {
        for index in self.kernels.clone() {
            let Some((node, registration)) = self.nodes.get_mut(index) else { continue };
            let node = &raw mut **node;
            let (prepare, invoke) = (registration.prepare, registration.invoke);
            // SAFETY: the functions are the bridge's own; the context and the node outlive the calls.
            unsafe {
                if prepare.is_some_and(|prepare| prepare(context, node) == abi::OK)
                    && let Some(invoke) = invoke
                {
                    invoke(context, node);
                }
            }
        }
    }

    /// Frees the kernels.
    ///
    /// # Safety
    /// `context` is this host's; kernels are no longer used.
    unsafe fn free(&mut self, context: *mut abi::Context) {
        for index in std::mem::take(&mut self.kernels) {
            if let Some((node, registration)) = self.nodes.get(index)
                && let Some(free) = registration.free
            {
                // SAFETY: what the bridge's own `init` returned, freed once.
                unsafe { free(context, node.user_data) };
            }
        }
    }
}

/// # Safety
/// The context is a host's.
unsafe fn host<'a>(context: *mut abi::Context) -> &'a mut Host {
    // SAFETY: `Host::context` put it there, and one thread uses it.
    unsafe { &mut *(*context).impl_.cast::<Host>() }
}

unsafe extern "C" fn get_execution_plan(context: *mut abi::Context, plan: *mut *mut abi::IntArray) -> Status {
    // SAFETY: a host's context, and room for the result.
    unsafe {
        let host = host(context);
        let mut nodes = host.plan.clone();
        if byte() > 240 {
            nodes.push(number() as c_int);
        }
        *plan = host.lists.add(&nodes);
    }
    abi::OK
}

unsafe extern "C" fn get_node_and_registration(
    context: *mut abi::Context,
    index: c_int,
    node: *mut *mut abi::Node,
    registration: *mut *mut abi::Registration,
) -> Status {
    // SAFETY: a host's context, and room for the results.
    unsafe {
        let Some(found) = usize::try_from(index).ok().and_then(|i| host(context).nodes.get_mut(i)) else {
            return abi::ERROR;
        };
        (*node, *registration) = (&raw mut *found.0, &raw mut *found.1);
    }
    abi::OK
}

impl Host {
    /// Describes one partition of these nodes, with arbitrary tensors as its inputs and outputs.
    fn partition(&mut self, nodes: &[c_int], delegate: *mut abi::Delegate) -> abi::DelegateParams {
        let tensors = self.tensors.len() as c_int;
        let mut some: Vec<c_int> = (0..tensors).filter(|_| byte() < 128).collect();
        let inputs = self.lists.add(&some);
        some = (0..tensors).filter(|t| byte() < 200 && !some.contains(t)).collect();
        if byte() > 245 {
            some.push(number() as c_int);
        }
        abi::DelegateParams { delegate, nodes: self.lists.add(nodes), inputs, outputs: self.lists.add(&some) }
    }
}

unsafe extern "C" fn preview(
    context: *mut abi::Context,
    nodes: *const abi::IntArray,
    partitions: *mut *mut abi::DelegateParams,
    count: *mut c_int,
) -> Status {
    // SAFETY: a host's context, a list of the bridge's, and room for the results.
    unsafe {
        let host = host(context);
        let nodes = ints(nodes);
        let partition = host.partition(&nodes, std::ptr::null_mut());
        host.previews = vec![partition];
        *partitions = host.previews.as_mut_ptr();
        *count = match byte() {
            250 => -1,
            251 => 0,
            _ => 1,
        };
    }
    if byte() > 250 { abi::ERROR } else { abi::OK }
}

unsafe extern "C" fn replace(
    context: *mut abi::Context,
    registration: abi::OwnRegistration,
    nodes: *const abi::IntArray,
    delegate: *mut abi::Delegate,
) -> Status {
    // SAFETY: a host's context, a list of the bridge's, and the bridge's own `init`.
    unsafe {
        let host = host(context);
        let nodes = ints(nodes);
        let params = host.partition(&nodes, delegate);
        let Some(init) = registration.common.init else { return abi::ERROR };
        let user_data = init(context, (&raw const params).cast::<c_char>(), 0);
        let node = abi::Node {
            inputs: params.inputs,
            outputs: params.outputs,
            intermediates: std::ptr::null_mut(),
            temporaries: std::ptr::null_mut(),
            user_data,
            builtin_data: std::ptr::null_mut(),
            custom_initial_data: std::ptr::null(),
            custom_initial_data_size: 0,
            delegate,
            might_have_side_effect: 0,
        };
        host.kernels.push(host.nodes.len());
        host.plan = vec![host.nodes.len() as c_int];
        host.nodes.push((Box::new(node), Box::new(registration.common)));
        if user_data.addr() == abi::INIT_FAILED { abi::ERROR } else { abi::OK }
    }
}

/// # Safety
/// `list` is a list of the bridge.
unsafe fn ints(list: *const abi::IntArray) -> Vec<c_int> {
    // SAFETY: its values follow the length.
    unsafe {
        let len = usize::try_from((*list).size).unwrap_or(0);
        std::slice::from_raw_parts((&raw const (*list).data).cast(), len).to_vec()
    }
}

unsafe extern "C" fn resize_tensor(
    context: *mut abi::Context,
    tensor: *mut abi::Tensor,
    dims: *mut abi::IntArray,
) -> Status {
    // SAFETY: a host's context, one of its tensors, and a list from the C library's `malloc`.
    unsafe {
        let list = ints(dims);
        libc::free(dims.cast());
        (*tensor).dims = host(context).lists.add(&list);
    }
    abi::OK
}
