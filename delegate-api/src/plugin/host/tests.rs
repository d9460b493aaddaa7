//! Plugins that violate the interface: errors instead of undefined behaviour, as far as violations can be checked.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::time::Duration;

use delegraph_core::kernel::{Host, Placement, Resources, RuntimeTensor, Serial};
use delegraph_core::ops::binary::AddParams;
use delegraph_core::{
    BuiltinOp, Error, InvokeContext, Model, ModelBuilder, Params, PrepareContext, Result, Shape, Subgraph,
    SubgraphBuilder, TensorId, TensorType,
};

use super::super::PluginOptions;
use super::super::abi::*;
use super::{PluginDelegate, PluginError, PluginFault, PluginLibrary};
use crate::{Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, NodeState, Rejection};

/// The calls of a plugin in one of its functions.
type Script = fn(&DelegraphHost, DelegraphContext) -> i32;
/// The versions that a plugin declares.
type Versions = fn() -> (*const DelegraphOpVersion, usize);

/// The plugin of a test, which runs only on the test's thread.
#[derive(Clone, Copy)]
struct Plugin {
    prepare: Script,
    create_kernel: Script,
    prepare_kernel: Script,
    invoke: Script,
    name: Option<&'static std::ffi::CStr>,
    versions: Versions,
    /// The message that it writes, and the length that it declares.
    message: (&'static [u8], usize),
    /// The address of the created object.
    made: usize,
}

const FINE: Script = |_, _| DELEGRAPH_OK;
/// Claims both nodes.
const CLAIM: Script = |host, context| {
    CONTEXT.set(context);
    let nodes = [0, 1];
    // SAFETY: as the interface requires.
    unsafe { host.claim.unwrap()(context, nodes.as_ptr(), nodes.len(), 7) }
};
const ADD: Versions = || {
    const ADD: &DelegraphOpVersion =
        &DelegraphOpVersion { op: 0, max_version: 2, custom_name: std::ptr::null() };
    (ADD, 1)
};
const GOOD: Plugin = Plugin {
    prepare: CLAIM,
    create_kernel: FINE,
    prepare_kernel: FINE,
    invoke: FINE,
    name: Some(c"odd"),
    versions: ADD,
    message: (b"", 0),
    made: 64,
};

thread_local! {
    static PLUGIN: Cell<Plugin> = const { Cell::new(GOOD) };
    static HOST: Cell<*const DelegraphHost> = const { Cell::new(std::ptr::null()) };
    /// The context of the last `prepare`.
    static CONTEXT: Cell<DelegraphContext> = const { Cell::new(0) };
    /// The called functions.
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn called(name: &'static str) {
    CALLS.with_borrow_mut(|calls| calls.push(name));
}

/// Runs a script of the test's plugin, and writes its message.
///
/// # Safety
/// `error` is valid for a message.
unsafe fn act(script: Script, context: DelegraphContext, error: *mut DelegraphError) -> i32 {
    // SAFETY: the table passed to `create` is still valid; the message fits into the buffer.
    unsafe {
        let status = script(&*HOST.get(), context);
        let (message, len) = PLUGIN.get().message;
        std::ptr::copy_nonoverlapping(message.as_ptr(), (*error).message.cast(), message.len());
        (*error).len = len;
        status
    }
}

unsafe extern "C" fn create(
    host: *const DelegraphHost,
    _: *const DelegraphOption,
    _: usize,
    delegate: *mut *mut c_void,
    _: *mut DelegraphError,
) -> i32 {
    HOST.set(host);
    called("create");
    // SAFETY: valid for a write.
    unsafe { delegate.write(std::ptr::without_provenance_mut(PLUGIN.get().made)) };
    DELEGRAPH_OK
}
unsafe extern "C" fn destroy(_: *mut c_void) {
    called("destroy");
}
unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    PLUGIN.get().name.map_or(std::ptr::null(), std::ffi::CStr::as_ptr)
}
unsafe extern "C" fn versions(_: *mut c_void, count: *mut usize) -> *const DelegraphOpVersion {
    let (list, len) = (PLUGIN.get().versions)();
    // SAFETY: valid for a write.
    unsafe { count.write(len) };
    list
}
unsafe extern "C" fn prepare(_: *mut c_void, context: DelegraphContext, error: *mut DelegraphError) -> i32 {
    called("prepare");
    // SAFETY: valid for a message.
    unsafe { act(PLUGIN.get().prepare, context, error) }
}
unsafe extern "C" fn end_prepare(_: *mut c_void) {
    called("end_prepare");
}
unsafe extern "C" fn create_kernel(
    _: *mut c_void,
    context: DelegraphContext,
    claim: u64,
    partition: *const DelegraphPartition,
    kernel: *mut *mut c_void,
    error: *mut DelegraphError,
) -> i32 {
    called("create_kernel");
    // SAFETY: the application's arguments are as the interface requires.
    unsafe {
        assert_eq!((claim, (*partition).node_count, (*partition).input_count), (7, 2, 1));
        kernel.write(std::ptr::without_provenance_mut(PLUGIN.get().made));
        act(PLUGIN.get().create_kernel, context, error)
    }
}
unsafe extern "C" fn destroy_kernel(_: *mut c_void) {
    called("destroy_kernel");
}
unsafe extern "C" fn prepare_kernel(
    _: *mut c_void,
    context: DelegraphContext,
    _: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: valid for a message.
    unsafe { act(PLUGIN.get().prepare_kernel, context, error) }
}
unsafe extern "C" fn invoke_kernel(
    _: *mut c_void,
    context: DelegraphContext,
    _: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: valid for a message.
    unsafe { act(PLUGIN.get().invoke, context, error) }
}
unsafe extern "C" fn kernel_stats(_: *mut c_void, stats: *mut DelegraphStats) {
    // SAFETY: a struct of the application.
    unsafe {
        ((*stats).upload_nanoseconds, (*stats).device_nanoseconds) = (DELEGRAPH_TIME_UNKNOWN, 2_500_000)
    };
}
unsafe extern "C" fn node_times(_: *mut c_void, count: *mut usize) -> *const DelegraphNodeTime {
    static TIMES: [DelegraphNodeTime; 2] =
        [DelegraphNodeTime { node: 99, nanoseconds: 1 }, DelegraphNodeTime { node: 1, nanoseconds: 2 }];
    // SAFETY: valid for a write.
    unsafe { count.write(usize::MAX) };
    TIMES.as_ptr()
}

static TABLE: DelegraphPlugin = DelegraphPlugin {
    abi_version: DELEGRAPH_ABI_VERSION,
    size: size_of::<DelegraphPlugin>(),
    create: Some(create),
    destroy: Some(destroy),
    name: Some(name),
    versions: Some(versions),
    capabilities: None,
    prepare: Some(prepare),
    end_prepare: Some(end_prepare),
    create_kernel: Some(create_kernel),
    destroy_kernel: Some(destroy_kernel),
    prepare_kernel: Some(prepare_kernel),
    invoke_kernel: Some(invoke_kernel),
    kernel_stats: Some(kernel_stats),
    node_times: Some(node_times),
};

fn load(plugin: Plugin) -> Result<PluginDelegate, PluginError> {
    PLUGIN.set(plugin);
    CALLS.take();
    // SAFETY: all called functions of the table follow the interface.
    let library = unsafe { PluginLibrary::from_table("odd", &raw const TABLE) }?;
    library.delegate(&PluginOptions::default())
}

/// `(x + x) + x`, of four numbers.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
    let last = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, x]).output("last");
    graph.outputs([last]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// A host without services; these kernels use none.
struct Nothing(Resources);

impl Host for Nothing {
    fn resources(&mut self) -> &mut Resources {
        &mut self.0
    }
    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }
    fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> Result<Vec<Option<Shape>>> {
        Err(Error::State("none".into()))
    }
    fn reset_callee(&mut self, _: usize) -> Result<()> {
        Err(Error::State("none".into()))
    }
    fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
        Err(Error::State("none".into()))
    }
}

/// The first kernel that a delegate creates, and the reasons for the rejected nodes.
type Claimed = (Option<Box<dyn DelegateKernel>>, Vec<Option<Rejection>>);

/// Prepares a delegate over the model.
fn claim(delegate: &mut PluginDelegate) -> Result<Claimed> {
    let model = model();
    let tensors: Vec<RuntimeTensor> = model.subgraphs()[0].tensors().iter().map(RuntimeTensor::new).collect();
    let (known, states) = (vec![true; tensors.len()], vec![NodeState::default(); 2]);
    let graph = GraphView::new(&model, 0, &tensors, &known, &states);
    let mut cx = DelegateContext::new(graph, delegate.max_versions().clone());
    delegate.prepare(&mut cx)?;
    let (mut claims, reasons) = cx.finish();
    let nodes = model.subgraphs()[0].node_ids().collect();
    let params = DelegateParams { nodes, inputs: vec![TensorId(0)], outputs: vec![TensorId(2)] };
    let kernel = claims.first_mut().map(|claim| (claim.factory)(&params, &graph)).transpose()?;
    Ok((kernel, reasons))
}

/// Runs a plugin through its whole lifecycle.
fn live(plugin: Plugin) -> Result<()> {
    let mut delegate = load(plugin).map_err(Error::external)?;
    let (kernel, _) = claim(&mut delegate)?;
    let Some(mut kernel) = kernel else { return Ok(()) };
    let model = model();
    let mut tensors: Vec<RuntimeTensor> =
        model.subgraphs()[0].tensors().iter().map(RuntimeTensor::new).collect();
    let (inputs, outputs, mut host) = ([Some(TensorId(0))], [TensorId(2)], Nothing(Resources::default()));
    let mut cx = PrepareContext::new(&Params::None, 1, &inputs, &outputs, &mut tensors, &mut host);
    kernel.prepare(&mut cx)?;
    tensors.iter_mut().try_for_each(|t| t.allocate(Placement::Arena))?;
    // SAFETY: each tensor has memory of its own, and there are no temporaries.
    let mut cx = unsafe { InvokeContext::new(&inputs, &outputs, &mut tensors, &[], &Serial, &mut host) };
    kernel.invoke(&mut cx)?;
    let stats = kernel.stats();
    assert_eq!(
        (stats.upload_time, stats.device_time, stats.dispatches),
        (None, Some(Duration::from_micros(2500)), 0)
    );
    // Only nodes of the partition, and at most their number.
    let times: Vec<_> = kernel.node_times().iter().map(|t| (t.node.0, t.time.as_nanos())).collect();
    assert_eq!(times, [(1, 2)]);
    Ok(())
}

#[test]
fn a_life_goes_in_order() {
    live(GOOD).unwrap();
    let calls = CALLS.take();
    assert_eq!(calls, ["create", "prepare", "create_kernel", "end_prepare", "destroy_kernel", "destroy"]);
    // A kernel that is created by a failed call is destroyed.
    live(Plugin { create_kernel: |_, _| DELEGRAPH_FAILED, ..GOOD }).unwrap_err();
    let calls = CALLS.take();
    assert_eq!(calls, ["create", "prepare", "create_kernel", "destroy_kernel", "end_prepare", "destroy"]);
}

#[test]
fn wrong_tables_are_refused() {
    let check = |change: fn(&mut DelegraphPlugin), want: &str| {
        let mut table = TABLE;
        change(&mut table);
        // SAFETY: none of its functions is called.
        let error = unsafe { PluginLibrary::from_table("odd", &raw const table) }.expect_err("an error");
        assert!(error.to_string().contains(want), "{error}");
    };
    check(
        |t| t.abi_version = 3,
        "interface has version 3, this application's has version 2: update the application",
    );
    check(|t| t.abi_version = 0, "build the plugin again");
    check(|t| t.size -= 1, "its table of functions has ");
    check(|t| t.size = 0, "has 0 bytes, at least ");
    check(|t| t.create = None, "its table has no function `create`");
    check(|t| t.invoke_kernel = None, "its table has no function `invoke_kernel`");
    // SAFETY: null is allowed.
    let error = unsafe { PluginLibrary::from_table("odd", std::ptr::null()) }.expect_err("an error");
    assert_eq!(error.to_string(), "odd: its entry function returned null or a misaligned pointer");
}

#[test]
fn declarations_of_plugins_are_checked() {
    let check = |plugin: Plugin, want: &str| {
        let error = Error::external(load(plugin).expect_err("an error")).chain();
        assert!(error.contains(want), "{error}");
    };
    check(Plugin { made: 0, ..GOOD }, "`create` returned DELEGRAPH_OK, but no delegate");
    check(Plugin { name: None, ..GOOD }, "it has no name");
    check(Plugin { name: Some(c""), ..GOOD }, "its name is empty");
    check(Plugin { versions: || (std::ptr::null(), 3), ..GOOD }, "its op versions are null");
    check(Plugin { versions: || (ADD().0, usize::MAX), ..GOOD }, "18446744073709551615 op versions");
    const NAMELESS: &DelegraphOpVersion =
        &DelegraphOpVersion { op: DELEGRAPH_CUSTOM_OP, max_version: 1, custom_name: std::ptr::null() };
    check(Plugin { versions: || (NAMELESS, 1), ..GOOD }, "a custom op without a name");
    const ODD: &DelegraphOpVersion =
        &DelegraphOpVersion { op: DELEGRAPH_CUSTOM_OP, max_version: 1, custom_name: c"\xff".as_ptr() };
    check(Plugin { versions: || (ODD, 1), ..GOOD }, "the name of a custom op: invalid utf-8");
}

#[test]
fn invalid_calls_are_errors_regardless_of_the_status() {
    let check = |plugin: Plugin, want: &str| {
        let error = live(plugin).unwrap_err();
        let text = error.chain();
        assert!(text.contains(want) && !text.contains("invalid node"), "{text}");
        assert!(matches!(&error, Error::External(fault) if fault.is::<PluginFault>()), "{error:?}");
    };
    macro_rules! in_prepare {
        ($function:ident($($argument:expr),*), $want:expr) => {
            // SAFETY: violates the interface in a way that the application must detect.
            check(Plugin { prepare: |host, cx| unsafe { host.$function.unwrap()(cx, $($argument),*); 0 }, ..GOOD }, $want)
        };
    }
    let nothing = std::ptr::null::<c_char>();
    assert!(nothing.is_null());
    in_prepare!(claim([1usize, 99].as_ptr(), 2, 0), "claim: node 99 does not exist; the graph has 2 nodes");
    in_prepare!(claim([0usize; 3].as_ptr(), 3, 0), "claim: 3 nodes, but the graph has 2");
    in_prepare!(claim(std::ptr::null(), 1, 0), "claim: the list of nodes is null");
    in_prepare!(claim(std::ptr::without_provenance(1), 1, 0), "claim: the list of nodes is null");
    in_prepare!(may_claim(usize::MAX), "may_claim: node 18446744073709551615 does not exist");
    in_prepare!(reject(0, std::ptr::null()), "reject: the reason is null");
    in_prepare!(node(5, std::ptr::null_mut()), "node: node 5 does not exist");
    in_prepare!(node(0, std::ptr::null_mut()), "node: the struct for the answer is null or has no size");
    in_prepare!(node_input(2, 0), "node_input: node 2 does not exist");
    in_prepare!(tensor(3, std::ptr::null_mut()), "tensor: tensor 3 does not exist; the graph has 3 tensors");
    in_prepare!(model(std::ptr::null_mut()), "model: the struct for the answer is null");
    in_prepare!(param_i64(0, std::ptr::null(), std::ptr::null_mut()), "param_i64: the name is null");
    in_prepare!(param_i64(0, c"\xfe".as_ptr(), std::ptr::null_mut()), "param_i64: the name: invalid utf-8");
    in_prepare!(
        param_i64(0, c"fused_activation_function".as_ptr(), std::ptr::null_mut()),
        "param_i64: there is no room for the answer"
    );
    in_prepare!(
        preview_partitions(std::ptr::null(), 0, None, std::ptr::null_mut()),
        "there is no function to call"
    );
    in_prepare!(temporary(8), "temporary: it may be called in `prepare_kernel` only");
    in_prepare!(
        parallel(1, None, std::ptr::null_mut()),
        "parallel: it may be called in `invoke_kernel` only"
    );
    let create: Script = |host, cx| {
        // SAFETY: as above.
        unsafe { host.claim.unwrap()(cx, [0usize].as_ptr(), 1, 0) };
        DELEGRAPH_OK
    };
    check(Plugin { create_kernel: create, ..GOOD }, "claim: it may be called in `prepare` only");
    let shape: Script = |host, cx| {
        // SAFETY: as above.
        unsafe { host.set_output_shape.unwrap()(cx, 9, [1usize].as_ptr(), 1) }
    };
    check(Plugin { prepare_kernel: shape, ..GOOD }, "set_output_shape: output 9 is missing");
    let rank: Script = |host, cx| {
        // SAFETY: as above.
        unsafe { host.set_output_shape.unwrap()(cx, 0, std::ptr::null(), usize::MAX) }
    };
    check(
        Plugin { prepare_kernel: rank, ..GOOD },
        "the shape has 18446744073709551615 dimensions, more than 64",
    );
    let graph: Script = |host, cx| {
        // SAFETY: as above.
        unsafe { host.graph.unwrap()(cx, std::ptr::null_mut()) }
    };
    check(
        Plugin { invoke: graph, ..GOOD },
        "graph: it may be called only in `prepare` and `create_kernel` of a delegate",
    );
    let resize: Script = |host, cx| {
        let mut data = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { host.resize_output.unwrap()(cx, 0, [1usize].as_ptr(), 1, 4, &raw mut data) }
    };
    check(Plugin { invoke: resize, ..GOOD }, "resize_output: output \"last\" cannot be resized");
}

#[test]
fn a_context_is_invalid_after_its_call_and_on_other_threads() {
    // The call of `CONTEXT` has returned, so the function returns DELEGRAPH_INVALID.
    let stale: Script = |host, _| {
        // SAFETY: as the interface requires, except the context.
        let status = unsafe { host.may_claim.unwrap()(CONTEXT.get(), 0) };
        if status == DELEGRAPH_INVALID { DELEGRAPH_OK } else { DELEGRAPH_FAILED }
    };
    live(Plugin { create_kernel: stale, invoke: stale, ..GOOD }).unwrap();
    let elsewhere: Script = |host, context| {
        let host = *host;
        // SAFETY: as the interface requires, except the thread.
        let status = std::thread::spawn(move || unsafe { host.may_claim.unwrap()(context, 0) });
        assert_eq!(status.join().unwrap(), DELEGRAPH_INVALID);
        CLAIM(&host, context)
    };
    live(Plugin { prepare: elsewhere, ..GOOD }).unwrap();
}

#[test]
fn messages_and_statuses_of_any_kind() {
    let check = |status: Script, message: (&'static [u8], usize), want: &str| {
        let error = live(Plugin { invoke: status, message, ..GOOD }).unwrap_err();
        assert_eq!(error.to_string(), want);
    };
    check(|_, _| DELEGRAPH_FAILED, (b"no luck", 7), "no luck");
    check(|_, _| DELEGRAPH_FAILED, (b"no luck\0", usize::MAX), "no luck");
    check(|_, _| DELEGRAPH_FAILED, (b"\xff\xfe", 2), "\u{fffd}\u{fffd}");
    check(|_, _| DELEGRAPH_FAILED, (b"", 0), "it gave no reason");
    check(|_, _| DELEGRAPH_UNSUPPORTED, (b"this", 4), "not supported: this");
    check(|_, _| DELEGRAPH_CANCELLED, (b"", 0), "the invocation was cancelled");
    check(|_, _| -12, (b"x", 1), "it returned the unknown status -12: x");
}

#[test]
fn answers_are_those_of_the_graph() {
    let ask: Script = |host, cx| {
        // SAFETY: as the interface requires.
        unsafe {
            let mut number = -1;
            let activation = c"fused_activation_function".as_ptr();
            assert_eq!(host.param_i64.unwrap()(cx, 0, activation, &raw mut number), DELEGRAPH_OK);
            assert_eq!(number, 0);
            let mut text = DelegraphText { data: std::ptr::null(), len: 0 };
            assert_eq!(host.param_text.unwrap()(cx, 0, activation, &raw mut text), DELEGRAPH_OK);
            assert_eq!(super::super::raw::text_of(text), "NONE");
            // Missing, or of another kind.
            assert_eq!(
                host.param_i64.unwrap()(cx, 0, c"beta".as_ptr(), &raw mut number),
                DELEGRAPH_NOT_FOUND
            );
            let mut real = 0.0;
            assert_eq!(host.param_f64.unwrap()(cx, 0, activation, &raw mut real), DELEGRAPH_NOT_FOUND);
            assert_eq!(host.node_input.unwrap()(cx, 1, 0), 1);
            assert_eq!(host.node_input.unwrap()(cx, 1, 2), -2);
            assert_eq!(host.node_output.unwrap()(cx, 1, 0), 2);
            assert_eq!((host.graph_input.unwrap()(cx, 0), host.graph_output.unwrap()(cx, 0)), (0, 2));
            assert_eq!(host.callee.unwrap()(cx, 1), 0);
            let mut model = DelegraphModel {
                size: size_of::<DelegraphModel>(),
                data: std::ptr::null(),
                len: 0,
                owner: std::ptr::null_mut(),
                release: None,
            };
            assert_eq!(host.model.unwrap()(cx, &raw mut model), DELEGRAPH_OK);
            assert_eq!(&std::slice::from_raw_parts(model.data, model.len)[4..8], b"TFL3");
            model.release.unwrap()(model.owner);
            let mut count = 0usize;
            unsafe extern "C" fn each(count: *mut c_void, partition: *const DelegraphPartition) {
                // SAFETY: the number below, and a partition of the application.
                unsafe {
                    *count.cast::<usize>() += 1;
                    assert_eq!(((*partition).node_count, *(*partition).outputs), (2, 2));
                }
            }
            let nodes = [0usize, 1];
            let preview = host.preview_partitions.unwrap();
            let count_at = (&raw mut count).cast();
            assert_eq!(preview(cx, nodes.as_ptr(), 2, Some(each), count_at), DELEGRAPH_OK);
            assert_eq!(count, 1);
        }
        DELEGRAPH_OK
    };
    live(Plugin { prepare: ask, ..GOOD }).unwrap();
}

#[test]
fn reasons_keep_their_type() {
    let reject: Script = |host, cx| {
        let text = super::super::raw::text("input 0");
        let size = size_of::<DelegraphRejection>();
        let kinds = [(DELEGRAPH_REJECT_TYPE, 9), (DELEGRAPH_REJECT_TYPE, 99)];
        for (node, (kind, value)) in kinds.into_iter().enumerate() {
            let reason = DelegraphRejection { size, kind, text, value, limit: -1 };
            // SAFETY: as the interface requires.
            assert_eq!(unsafe { host.reject.unwrap()(cx, node, &raw const reason) }, DELEGRAPH_OK);
        }
        DELEGRAPH_OK
    };
    let (kernel, reasons) = claim(&mut load(Plugin { prepare: reject, ..GOOD }).unwrap()).unwrap();
    assert!(kernel.is_none());
    let int8 = Rejection::UnsupportedType { operand: "input 0".into(), ty: TensorType::Int8 };
    let unknown = Rejection::Other("input 0 has the unknown type 99".into());
    assert_eq!(reasons, [Some(int8), Some(unknown)]);
}
