//! A plugin that calls the application in any order, with any numbers and with pointers that are null or valid. The
//! interface guarantees an application nothing more.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use delegraph_core::ops::binary::AddParams;
use delegraph_core::{BuiltinOp, Model, ModelBuilder, SubgraphBuilder, TensorType};
use delegraph_delegate_api::plugin::abi::*;
use delegraph_delegate_api::plugin::{PluginLibrary, PluginOptions};
use delegraph_interpreter::{Interpreter, ResourceLimits};

use crate::models;
use crate::script::{byte, ended, number, size, start};

thread_local! {
    static HOST: Cell<*const DelegraphHost> = const { Cell::new(std::ptr::null()) };
    static KEPT: Cell<DelegraphContext> = const { Cell::new(0) };
}

/// Maximum number of calls of the application in one function of the plugin.
const MAX_CALLS: usize = 24;
/// Size in words of the memory for answers.
const ANSWER_WORDS: usize = 64;

/// Runs a model with the plugin whose choices are `bytes`.
pub fn run(bytes: &[u8]) {
    start(bytes);
    let mut table = TABLE;
    // A truncated or foreign table.
    match byte() {
        0..=240 => {}
        241 => table.size = size(),
        242 => table.abi_version = number() as u32,
        243 => table.prepare = None,
        _ => table.node_times = None,
    }
    // The table lives until the process ends, as the interface requires; most runs share one.
    let table = if byte() < 250 { &raw const TABLE } else { Box::leak(Box::new(table)) };
    // SAFETY: the table is static or leaked, and its functions follow the rules of the interface for memory.
    let Ok(library) = (unsafe { PluginLibrary::from_table("fuzzed", table) }) else { return };
    let Ok(delegate) = library.delegate(&PluginOptions::default()) else { return };
    let limits = ResourceLimits::default().with_memory(64 << 20);
    let _ = models::run(Interpreter::builder(model()).delegate(delegate).limits(limits));
}

/// `(x + x) + c`.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 2]);
    let c = graph.constant("c", [2, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
    let last = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, c]).output("last");
    graph.outputs([last]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

static TABLE: DelegraphPlugin = DelegraphPlugin {
    abi_version: DELEGRAPH_ABI_VERSION,
    size: size_of::<DelegraphPlugin>(),
    create: Some(create),
    destroy: Some(destroy),
    name: Some(name),
    versions: Some(versions),
    capabilities: Some(capabilities),
    prepare: Some(prepare),
    end_prepare: Some(destroy),
    create_kernel: Some(create_kernel),
    destroy_kernel: Some(destroy),
    prepare_kernel: Some(call_kernel),
    invoke_kernel: Some(call_kernel),
    kernel_stats: Some(kernel_stats),
    node_times: Some(node_times),
};

unsafe extern "C" fn create(
    host: *const DelegraphHost,
    _: *const DelegraphOption,
    _: usize,
    delegate: *mut *mut c_void,
    error: *mut DelegraphError,
) -> i32 {
    HOST.set(host);
    // SAFETY: the application's pointers are valid for the call.
    unsafe {
        delegate.write(std::ptr::without_provenance_mut(if byte() < 250 { 64 } else { 0 }));
        finish(error)
    }
}

unsafe extern "C" fn destroy(_: *mut c_void) {}

unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    match byte() {
        250 => std::ptr::null(),
        251 => c"\xff\x1b".as_ptr(),
        _ => c"fuzzed".as_ptr(),
    }
}

unsafe extern "C" fn versions(_: *mut c_void, count: *mut usize) -> *const DelegraphOpVersion {
    const ADD: DelegraphOpVersion =
        DelegraphOpVersion { op: 0, max_version: 5, custom_name: std::ptr::null() };
    const OTHER: DelegraphOpVersion =
        DelegraphOpVersion { op: -7, max_version: u32::MAX, custom_name: c"\xfe".as_ptr() };
    struct List([DelegraphOpVersion; 2]);
    // SAFETY: the names are constants, which any thread may read.
    unsafe impl Sync for List {}
    static LIST: List = List([ADD, OTHER]);
    // SAFETY: valid for a write.
    unsafe { count.write(usize::from(byte() % 3)) };
    if byte() == 255 { std::ptr::null() } else { LIST.0.as_ptr() }
}

unsafe extern "C" fn capabilities(_: *mut c_void) -> u64 {
    byte().into()
}

unsafe extern "C" fn prepare(_: *mut c_void, context: DelegraphContext, error: *mut DelegraphError) -> i32 {
    KEPT.set(context);
    // SAFETY: the application's pointers are valid for the call.
    unsafe {
        calls(context);
        let all = [0, 1];
        if byte() < 200
            && let Some(claim) = (*HOST.get()).claim
        {
            claim(context, all.as_ptr(), 1 + usize::from(byte() % 2), 7);
        }
        finish(error)
    }
}

unsafe extern "C" fn create_kernel(
    _: *mut c_void,
    context: DelegraphContext,
    _: u64,
    _: *const DelegraphPartition,
    kernel: *mut *mut c_void,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: the application's pointers are valid for the call.
    unsafe {
        calls(context);
        kernel.write(std::ptr::without_provenance_mut(if byte() < 250 { 64 } else { 0 }));
        finish(error)
    }
}

unsafe extern "C" fn call_kernel(
    _: *mut c_void,
    context: DelegraphContext,
    call: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: the application's pointers are valid for the call, and buffers for their declared lengths.
    unsafe {
        calls(context);
        let call = &*call;
        for i in 0..call.output_count {
            let buffer = &**call.outputs.add(i);
            if !buffer.data.is_null() {
                buffer.data.cast::<u8>().write_bytes(byte(), buffer.data_len);
            }
        }
        finish(error)
    }
}

unsafe extern "C" fn kernel_stats(_: *mut c_void, stats: *mut DelegraphStats) {
    // SAFETY: a struct of the application's.
    unsafe {
        (*stats).device_bytes = number() as u64;
        (*stats).upload_nanoseconds =
            [0, 1, DELEGRAPH_TIME_UNKNOWN - 1, DELEGRAPH_TIME_UNKNOWN][usize::from(byte() % 4)];
    }
}

unsafe extern "C" fn node_times(_: *mut c_void, count: *mut usize) -> *const DelegraphNodeTime {
    static TIMES: [DelegraphNodeTime; 2] = [
        DelegraphNodeTime { node: usize::MAX, nanoseconds: u64::MAX },
        DelegraphNodeTime { node: 1, nanoseconds: 2 },
    ];
    // SAFETY: valid for a write; the list has two.
    unsafe { count.write(usize::from(byte() % 3)) };
    TIMES.as_ptr()
}

/// Writes a message, and returns a status.
///
/// # Safety
/// `error` is valid for a message.
unsafe fn finish(error: *mut DelegraphError) -> i32 {
    // SAFETY: the application gave room for `capacity` bytes.
    unsafe {
        if byte() > 200 {
            let len = (*error).capacity.min(usize::from(byte()));
            (*error).message.cast::<u8>().write_bytes(byte(), len);
            (*error).len = if byte() > 250 { usize::MAX } else { len };
        }
    }
    if byte() > 230 { number() as i32 } else { DELEGRAPH_OK }
}

unsafe extern "C" fn task(user: *mut c_void, _: usize) {
    // SAFETY: null, or the counter that `kernels` passes.
    if let Some(count) = unsafe { user.cast::<std::sync::atomic::AtomicUsize>().as_ref() } {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

unsafe extern "C" fn each(_: *mut c_void, _: *const DelegraphPartition) {}

/// Calls functions of the application.
///
/// # Safety
/// The table of `create` lives on; all pointers are null or valid.
unsafe fn calls(context: DelegraphContext) {
    // SAFETY: the table lives as long as the process.
    let host = unsafe { &*HOST.get() };
    for _ in 0..MAX_CALLS {
        if ended() {
            return;
        }
        // Also contexts that ended or never existed.
        let context = match byte() {
            255 => KEPT.get(),
            254 => number() as u64,
            _ => context,
        };
        // SAFETY: all pointers are null or valid, and sizes of memory are correct.
        unsafe {
            if byte().is_multiple_of(2) {
                questions(host, context);
            } else {
                kernels(host, context);
            }
        }
    }
}

/// Functions that describe the graph.
///
/// # Safety
/// As of [`calls`].
unsafe fn questions(host: &DelegraphHost, context: DelegraphContext) {
    let mut room = [0_u64; ANSWER_WORDS];
    // A struct of any size up to the size of the memory.
    room[0] = (size() % (ANSWER_WORDS * 8)) as u64;
    let out: *mut c_void = if byte() < 250 { room.as_mut_ptr().cast() } else { std::ptr::null_mut() };
    const NAMES: [&CStr; 4] = [c"fused_activation_function", c"pot_scale_int16", c"", c"\xff"];
    let name = if byte() < 250 { NAMES[usize::from(byte() % 4)].as_ptr() } else { std::ptr::null() };
    let (a, b) = (size(), size());
    let mut len = 0;
    let list = [a, b, 0, 1];
    let count = usize::from(byte() % 5).min(list.len());
    // SAFETY: structs have their sizes, lists their lengths; the rest is numbers.
    unsafe {
        match byte() % 17 {
            0 => drop(host.graph.map(|f| f(context, out.cast()))),
            1 => {
                let mut model = MaybeUninit::<DelegraphModel>::zeroed().assume_init();
                model.size = if byte() < 250 { size_of::<DelegraphModel>() } else { 8 };
                if host.model.is_some_and(|f| f(context, &raw mut model) == DELEGRAPH_OK)
                    && let Some(release) = model.release
                {
                    release(model.owner);
                }
            }
            2 => drop(host.graph_input.map(|f| f(context, a))),
            3 => drop(host.graph_output.map(|f| f(context, a))),
            4 => drop(host.node.map(|f| f(context, a, out.cast()))),
            5 => drop(host.node_input.map(|f| f(context, a, b))),
            6 => drop(host.node_output.map(|f| f(context, a, b))),
            7 => drop(host.tensor.map(|f| f(context, a, out.cast()))),
            8 => drop(host.param_i64.map(|f| f(context, a, name, out.cast()))),
            9 => drop(host.param_f64.map(|f| f(context, a, name, out.cast()))),
            10 => drop(host.param_text.map(|f| f(context, a, name, out.cast()))),
            11 => drop(host.param_i64s.map(|f| f(context, a, name, out.cast(), ANSWER_WORDS, &raw mut len))),
            12 => {
                if let Some(callee) = host.callee {
                    let inner = callee(context, a);
                    host.node.map(|f| f(inner, b, out.cast()));
                }
            }
            13 => drop(host.may_claim.map(|f| f(context, a))),
            14 => {
                let each = (byte() < 250).then_some(each as unsafe extern "C" fn(_, _));
                host.preview_partitions.map(|f| f(context, list.as_ptr(), count, each, std::ptr::null_mut()));
            }
            15 => {
                let text = DelegraphText { data: c"r\xff".as_ptr(), len: 2 };
                let reason = DelegraphRejection {
                    size: size() % (size_of::<DelegraphRejection>() + 1),
                    kind: number() as i32,
                    text,
                    value: number(),
                    limit: number(),
                };
                host.reject.map(|f| f(context, a, &raw const reason));
            }
            _ => drop(host.claim.map(|f| f(context, list.as_ptr(), count, b as u64))),
        }
    }
}

/// Functions for kernels.
///
/// # Safety
/// As of [`calls`].
unsafe fn kernels(host: &DelegraphHost, context: DelegraphContext) {
    let dims = [size(), size(), size()];
    let rank = usize::from(byte() % 4);
    let list = if byte() < 250 { dims.as_ptr() } else { std::ptr::null() };
    let mut data = std::ptr::null_mut();
    let counter = std::sync::atomic::AtomicUsize::new(0);
    let text = DelegraphText { data: c"text\xff".as_ptr(), len: 5 };
    // SAFETY: lists have their lengths; the rest is numbers.
    unsafe {
        match byte() % 9 {
            0 => drop(host.temporary.map(|f| f(context, size()))),
            1 => drop(host.persistent.map(|f| f(context, size()))),
            2 => drop(host.set_output_shape.map(|f| f(context, size(), list, rank))),
            3 => drop(host.set_output_dynamic.map(|f| f(context, size()))),
            4 => drop(host.resize_output.map(|f| f(context, size(), list, rank, size(), &raw mut data))),
            5 => {
                let tasks = size() % 1000;
                let user = (&raw const counter).cast_mut().cast();
                let task = (byte() < 250).then_some(task as unsafe extern "C" fn(_, _));
                host.parallel.map(|f| f(context, tasks, task, user));
            }
            6 => drop(host.is_cancelled.map(|f| f(context))),
            7 => drop(host.progress.map(|f| f(context, size(), size()))),
            _ => drop(host.log.map(|f| f(number() as i32, text, text))),
        }
    }
}
