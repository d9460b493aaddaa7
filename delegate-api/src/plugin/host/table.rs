//! The functions that plugins call.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{UnwindSafe, catch_unwind};

use delegraph_core::ModelBytes;
use delegraph_core::error::counted;
use delegraph_core::flex::{Map, Value};
use delegraph_core::ops::ParamValue;

use super::super::abi::*;
use super::super::raw::{read, slice, text, text_of, write};
use super::frames::{Scope, answer, ask};
use super::graph::HostGraph;

/// The functions for every plugin.
pub(super) static HOST: DelegraphHost = DelegraphHost {
    size: size_of::<DelegraphHost>(),
    log_level: Some(log_level),
    log: Some(log_text),
    graph: Some(graph),
    model: Some(model),
    metadata: Some(metadata),
    graph_input: Some(graph_input),
    graph_output: Some(graph_output),
    node: Some(node),
    node_input: Some(node_input),
    node_output: Some(node_output),
    tensor: Some(tensor),
    param_i64: Some(param_i64),
    param_f64: Some(param_f64),
    param_text: Some(param_text),
    param_i64s: Some(param_i64s),
    callee: Some(callee),
    may_claim: Some(may_claim),
    preview_partitions: Some(preview_partitions),
    reject: Some(reject),
    claim: Some(claim),
    temporary: Some(temporary),
    set_output_shape: Some(set_output_shape),
    set_output_dynamic: Some(set_output_dynamic),
    resize_output: Some(resize_output),
    parallel: Some(parallel),
    is_cancelled: Some(is_cancelled),
    progress: Some(progress),
    persistent: Some(persistent),
    option_i64: Some(option_i64),
    option_f64: Some(option_f64),
    option_text: Some(option_text),
    option_f64s: Some(option_f64s),
};

const LEVELS: [log::Level; 5] =
    [log::Level::Error, log::Level::Warn, log::Level::Info, log::Level::Debug, log::Level::Trace];

unsafe extern "C" fn log_level() -> i32 {
    log::max_level() as i32
}

unsafe extern "C" fn log_text(level: i32, target: DelegraphText, text: DelegraphText) {
    let level = usize::try_from(level.saturating_sub(1)).ok().and_then(|i| LEVELS.get(i));
    // The application's logger may panic.
    contained(|| {
        // SAFETY: the plugin guarantees the length of the text.
        let (target, text) = unsafe { (text_of(target), text_of(text)) };
        let target = if target.is_empty() { "delegraph::plugin" } else { &target };
        log::log!(target: target, level.copied().unwrap_or(log::Level::Trace), "{text}");
    });
}

/// Calls `f`, which may panic.
fn contained(f: impl FnOnce() + UnwindSafe) {
    if let Err(panic) = catch_unwind(f) {
        // Dropping a payload may panic.
        std::mem::forget(panic);
    }
}

/// Returns the graph of a call, if it has one.
fn graph_of<'c, 'g>(scope: Scope<'c, 'g>) -> Result<&'c HostGraph<'g>, String> {
    match scope {
        Scope::Prepare(graph, _) | Scope::CreateKernel(graph) => Ok(graph),
        _ => Err("it may be called only in `prepare` and `create_kernel` of a delegate".into()),
    }
}

/// Writes a result to a plugin's memory.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), String> {
    if out.is_null() || !out.is_aligned() {
        return Err("there is no room for the answer".into());
    }
    // SAFETY: not null, aligned; the caller guarantees the rest.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a list to a plugin's memory, up to its capacity.
///
/// # Safety
/// `out` is null or valid for `capacity` values; `len` is null or valid for a write.
unsafe fn put_list<T: Copy>(list: &[T], out: *mut T, capacity: usize, len: *mut usize) -> Result<(), String> {
    let count = list.len().min(capacity);
    if count > 0 && (out.is_null() || !out.is_aligned()) {
        return Err("there is no room for the answer".into());
    }
    if count > 0 {
        // SAFETY: `out` is valid for `capacity` values (guaranteed by the caller), and `count` is not larger.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), out, count) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { put(len, list.len()) }
}

/// # Safety
/// `name` is null or zero-terminated.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a str, String> {
    if name.is_null() {
        return Err("the name is null".into());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|e| format!("the name: {e}"))
}

fn status(written: bool) -> Result<i32, String> {
    if written { Ok(DELEGRAPH_OK) } else { Err("the struct for the answer is null or has no size".into()) }
}

unsafe extern "C" fn graph(context: DelegraphContext, out: *mut DelegraphGraph) -> i32 {
    answer(context, "graph", |scope| {
        let graph = graph_of(scope)?.describe();
        // SAFETY: the plugin passes a struct with its size, or null.
        status(unsafe { write(out, &graph) })
    })
}

unsafe extern "C" fn release_model(owner: *mut c_void) {
    if !owner.is_null() {
        // SAFETY: `owner` was returned by `model`, and is released once.
        contained(|| drop(unsafe { Box::from_raw(owner.cast::<ModelBytes>()) }));
    }
}

unsafe extern "C" fn model(context: DelegraphContext, out: *mut DelegraphModel) -> i32 {
    answer(context, "model", |scope| {
        // SAFETY: the plugin passes a struct with its size, or null.
        if unsafe { read(out) }.is_none_or(|out| out.size < size_of::<DelegraphModel>()) {
            return status(false);
        }
        let bytes = graph_of(scope)?.file()?;
        let (data, len) = (bytes.as_ref().as_ptr(), bytes.as_ref().len());
        let owner = Box::into_raw(Box::new(bytes)).cast();
        let model = DelegraphModel {
            size: size_of::<DelegraphModel>(),
            data,
            len,
            owner,
            release: Some(release_model),
        };
        // SAFETY: as above.
        status(unsafe { write(out, &model) })
    })
}

unsafe extern "C" fn metadata(
    context: DelegraphContext,
    name: *const c_char,
    data: *mut *const u8,
    len: *mut usize,
) -> i32 {
    answer(context, "metadata", |scope| {
        // SAFETY: the plugin passes zero-terminated text, or null.
        let name = unsafe { name_of(name) }?;
        let Some(bytes) = graph_of(scope)?.view.model().metadata(name) else {
            return Ok(DELEGRAPH_NOT_FOUND);
        };
        // SAFETY: the plugin passes pointers for the results, or null.
        unsafe { put(data, bytes.as_ptr()).and_then(|()| put(len, bytes.len())) }?;
        Ok(DELEGRAPH_OK)
    })
}

/// Returns the number of a tensor; -2 for none.
fn number(id: Option<usize>) -> i64 {
    id.and_then(|id| i64::try_from(id).ok()).unwrap_or(-2)
}

unsafe extern "C" fn graph_input(context: DelegraphContext, index: usize) -> i64 {
    let get = |scope: Scope<'_, '_>| Ok(graph_of(scope)?.view.subgraph().inputs().get(index).map(|id| id.0));
    number(ask(context, "graph_input", get).flatten())
}

unsafe extern "C" fn graph_output(context: DelegraphContext, index: usize) -> i64 {
    let get = |scope: Scope<'_, '_>| Ok(graph_of(scope)?.view.subgraph().outputs().get(index).map(|id| id.0));
    number(ask(context, "graph_output", get).flatten())
}

unsafe extern "C" fn node(context: DelegraphContext, node: usize, out: *mut DelegraphNode) -> i32 {
    answer(context, "node", |scope| {
        let node = graph_of(scope)?.describe_node(node)?;
        // SAFETY: the plugin passes a struct with its size, or null.
        status(unsafe { write(out, &node) })
    })
}

unsafe extern "C" fn node_input(context: DelegraphContext, node: usize, index: usize) -> i64 {
    let get = |scope: Scope<'_, '_>| Ok(graph_of(scope)?.node(node)?.node().inputs().get(index).copied());
    match ask(context, "node_input", get).flatten() {
        Some(None) => -1,
        id => number(id.flatten().map(|id| id.0)),
    }
}

unsafe extern "C" fn node_output(context: DelegraphContext, node: usize, index: usize) -> i64 {
    let get =
        |scope: Scope<'_, '_>| Ok(graph_of(scope)?.node(node)?.node().outputs().get(index).map(|id| id.0));
    number(ask(context, "node_output", get).flatten())
}

unsafe extern "C" fn tensor(context: DelegraphContext, tensor: usize, out: *mut DelegraphTensor) -> i32 {
    answer(context, "tensor", |scope| {
        let tensor = graph_of(scope)?.describe_tensor(tensor)?;
        // SAFETY: the plugin passes a struct with its size, or null.
        status(unsafe { write(out, &tensor) })
    })
}

/// Looks up a param, and calls `give` with it, which returns `None` for a param of another kind.
///
/// # Safety
/// `name` is null or zero-terminated.
unsafe fn param(
    (context, node, name): (DelegraphContext, usize, *const c_char),
    function: &str,
    give: impl FnOnce(&ParamValue<'_>) -> Option<Result<(), String>>,
) -> i32 {
    answer(context, function, |scope| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name_of(name) }?;
        let node = graph_of(scope)?.node(node)?;
        match node.node().param(name).as_ref().and_then(give) {
            Some(given) => given.map(|()| DELEGRAPH_OK),
            None => Ok(DELEGRAPH_NOT_FOUND),
        }
    })
}

unsafe extern "C" fn param_i64(
    context: DelegraphContext,
    node: usize,
    name: *const c_char,
    out: *mut i64,
) -> i32 {
    // SAFETY: the plugin passes zero-terminated text and a pointer for the result, or null.
    unsafe { param((context, node, name), "param_i64", |value| Some(put(out, value.as_i64()?))) }
}

unsafe extern "C" fn param_f64(
    context: DelegraphContext,
    node: usize,
    name: *const c_char,
    out: *mut f64,
) -> i32 {
    // SAFETY: the plugin passes zero-terminated text and a pointer for the result, or null.
    unsafe { param((context, node, name), "param_f64", |value| Some(put(out, value.as_f64()?))) }
}

unsafe extern "C" fn param_text(
    context: DelegraphContext,
    node: usize,
    name: *const c_char,
    out: *mut DelegraphText,
) -> i32 {
    // SAFETY: the plugin passes zero-terminated text and a pointer for the result, or null.
    unsafe { param((context, node, name), "param_text", |value| Some(put(out, text(value.as_str()?)))) }
}

unsafe extern "C" fn param_i64s(
    context: DelegraphContext,
    node: usize,
    name: *const c_char,
    out: *mut i64,
    capacity: usize,
    len: *mut usize,
) -> i32 {
    let give = |value: &ParamValue<'_>| {
        let list = value.to_i64s()?;
        // SAFETY: the plugin passes memory for `capacity` numbers and a pointer for the result, or null.
        Some(unsafe { put_list(&list, out, capacity, len) })
    };
    // SAFETY: the plugin passes zero-terminated text, or null.
    unsafe { param((context, node, name), "param_i64s", give) }
}

unsafe extern "C" fn callee(context: DelegraphContext, subgraph: usize) -> DelegraphContext {
    ask(context, "callee", |scope| Ok(graph_of(scope)?.callee(subgraph))).unwrap_or(0)
}

/// Returns the calls that are valid in `prepare` only.
fn preparing<'c, 'g>(
    scope: Scope<'c, 'g>,
) -> Result<(&'c HostGraph<'g>, &'c dyn super::frames::Prepares), String> {
    match scope {
        Scope::Prepare(graph, prepares) => Ok((graph, prepares)),
        _ => Err("it may be called in `prepare` only".into()),
    }
}

/// # Safety
/// As [`slice`].
unsafe fn nodes_of<'a>(
    graph: &HostGraph<'_>,
    nodes: *const usize,
    count: usize,
) -> Result<&'a [usize], String> {
    if count > graph.view.subgraph().nodes().len() {
        let count = counted(count, "node");
        return Err(format!("{count}, but the graph has {}", graph.view.subgraph().nodes().len()));
    }
    // SAFETY: guaranteed by the caller.
    let nodes = unsafe { slice(nodes, count) }.ok_or("the list of nodes is null")?;
    nodes.iter().try_for_each(|&n| graph.node(n).map(|_| ()))?;
    Ok(nodes)
}

unsafe extern "C" fn may_claim(context: DelegraphContext, node: usize) -> i32 {
    answer(context, "may_claim", |scope| {
        let (graph, prepares) = preparing(scope)?;
        graph.node(node)?;
        Ok(if prepares.may_claim(node) { DELEGRAPH_OK } else { DELEGRAPH_UNSUPPORTED })
    })
}

unsafe extern "C" fn preview_partitions(
    context: DelegraphContext,
    nodes: *const usize,
    node_count: usize,
    each: Option<unsafe extern "C" fn(user: *mut c_void, partition: *const DelegraphPartition)>,
    user: *mut c_void,
) -> i32 {
    answer(context, "preview_partitions", |scope| {
        let (graph, prepares) = preparing(scope)?;
        // SAFETY: the plugin guarantees the number of nodes.
        let nodes = unsafe { nodes_of(graph, nodes, node_count) }?;
        let each = each.ok_or("there is no function to call")?;
        // SAFETY: the function belongs to the plugin, and is called with the argument that the plugin passed.
        prepares.preview(nodes, &mut |partition| unsafe { each(user, partition) });
        Ok(DELEGRAPH_OK)
    })
}

unsafe extern "C" fn reject(
    context: DelegraphContext,
    node: usize,
    reason: *const DelegraphRejection,
) -> i32 {
    answer(context, "reject", |scope| {
        let (graph, prepares) = preparing(scope)?;
        graph.node(node)?;
        // SAFETY: the plugin passes a struct with its size, or null.
        let reason = unsafe { read(reason) }.ok_or("the reason is null or has no size")?;
        prepares.reject(node, &reason);
        Ok(DELEGRAPH_OK)
    })
}

unsafe extern "C" fn claim(
    context: DelegraphContext,
    nodes: *const usize,
    node_count: usize,
    claim: u64,
) -> i32 {
    answer(context, "claim", |scope| {
        let (graph, prepares) = preparing(scope)?;
        // SAFETY: the plugin guarantees the number of nodes.
        let nodes = unsafe { nodes_of(graph, nodes, node_count) }?;
        prepares.claim(nodes, claim);
        Ok(DELEGRAPH_OK)
    })
}

fn preparing_kernel<'c>(scope: Scope<'c, '_>) -> Result<&'c dyn super::frames::KernelPrepares, String> {
    match scope {
        Scope::PrepareKernel(kernel) => Ok(kernel),
        _ => Err("it may be called in `prepare_kernel` only".into()),
    }
}

unsafe extern "C" fn temporary(context: DelegraphContext, bytes: usize) -> i64 {
    let get = |scope: Scope<'_, '_>| Ok(preparing_kernel(scope)?.temporary(bytes));
    ask(context, "temporary", get).and_then(|i| i64::try_from(i).ok()).unwrap_or(-1)
}

unsafe extern "C" fn persistent(context: DelegraphContext, bytes: usize) -> i64 {
    let get = |scope: Scope<'_, '_>| preparing_kernel(scope)?.persistent(bytes);
    ask(context, "persistent", get).and_then(|i| i64::try_from(i).ok()).unwrap_or(-1)
}

/// Looks up an option of a custom op, and writes it with `read`.
///
/// # Safety
/// `name` is null or zero-terminated.
unsafe fn option(
    (context, name): (DelegraphContext, *const c_char),
    function: &str,
    read: impl FnOnce(&Map<'_>, &str) -> delegraph_core::Result<Result<(), String>>,
) -> i32 {
    answer(context, function, |scope| {
        let Scope::CreateOp(options) = scope else {
            return Err("it may be called in `create_kernel` of a custom op only".into());
        };
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name_of(name) }?;
        let mut status = DELEGRAPH_INVALID;
        let given = Map::parse(options.bytes).and_then(|map| {
            if matches!(map.value(name)?, None | Some(Value::Null)) {
                status = DELEGRAPH_NOT_FOUND;
            }
            read(&map, name)
        });
        match given {
            Ok(given) => given.map(|()| DELEGRAPH_OK),
            Err(wrong) => {
                *options.wrong.borrow_mut() = Some(wrong);
                Ok(status)
            }
        }
    })
}

unsafe extern "C" fn option_i64(context: DelegraphContext, name: *const c_char, out: *mut i64) -> i32 {
    let read = |map: &Map<'_>, name: &str| {
        let value = map.get::<bool>(name).map(i64::from).or_else(|_| map.get(name))?;
        // SAFETY: the plugin passes a pointer for the result, or null.
        Ok(unsafe { put(out, value) })
    };
    // SAFETY: the plugin passes zero-terminated text, or null.
    unsafe { option((context, name), "option_i64", read) }
}

unsafe extern "C" fn option_f64(context: DelegraphContext, name: *const c_char, out: *mut f64) -> i32 {
    // SAFETY: the plugin passes zero-terminated text and a pointer for the result, or null.
    unsafe { option((context, name), "option_f64", |map, name| Ok(put(out, map.get(name)?))) }
}

unsafe extern "C" fn option_text(
    context: DelegraphContext,
    name: *const c_char,
    out: *mut DelegraphText,
) -> i32 {
    // SAFETY: the plugin passes zero-terminated text and a pointer for the result, or null.
    unsafe { option((context, name), "option_text", |map, name| Ok(put(out, text(map.get(name)?)))) }
}

unsafe extern "C" fn option_f64s(
    context: DelegraphContext,
    name: *const c_char,
    out: *mut f64,
    capacity: usize,
    len: *mut usize,
) -> i32 {
    let read = |map: &Map<'_>, name: &str| {
        let list: Vec<f64> = map.get(name)?;
        // SAFETY: the plugin passes memory for `capacity` numbers and a pointer for the result, or null.
        Ok(unsafe { put_list(&list, out, capacity, len) })
    };
    // SAFETY: the plugin passes zero-terminated text, or null.
    unsafe { option((context, name), "option_f64s", read) }
}

/// # Safety
/// As [`slice`].
unsafe fn dims_of<'a>(dims: *const usize, rank: usize) -> Result<&'a [usize], String> {
    const MAX_RANK: usize = 64;
    if rank > MAX_RANK {
        return Err(format!("the shape has {rank} dimensions, more than {MAX_RANK}"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice(dims, rank) }.ok_or_else(|| "the list of dimensions is null".into())
}

unsafe extern "C" fn set_output_shape(
    context: DelegraphContext,
    output: usize,
    dims: *const usize,
    rank: usize,
) -> i32 {
    answer(context, "set_output_shape", |scope| {
        let kernel = preparing_kernel(scope)?;
        // SAFETY: the plugin guarantees the number of dimensions.
        let dims = unsafe { dims_of(dims, rank) }?;
        kernel.set_output_shape(output, dims)?;
        Ok(DELEGRAPH_OK)
    })
}

unsafe extern "C" fn set_output_dynamic(context: DelegraphContext, output: usize) -> i32 {
    answer(context, "set_output_dynamic", |scope| {
        preparing_kernel(scope)?.set_output_dynamic(output)?;
        Ok(DELEGRAPH_OK)
    })
}

fn invoking<'c>(scope: Scope<'c, '_>) -> Result<&'c dyn super::frames::Invokes, String> {
    match scope {
        Scope::Invoke(kernel) => Ok(kernel),
        _ => Err("it may be called in `invoke_kernel` only".into()),
    }
}

unsafe extern "C" fn resize_output(
    context: DelegraphContext,
    output: usize,
    dims: *const usize,
    rank: usize,
    bytes: usize,
    data: *mut *mut c_void,
) -> i32 {
    answer(context, "resize_output", |scope| {
        let kernel = invoking(scope)?;
        // SAFETY: the plugin guarantees the number of dimensions.
        let dims = unsafe { dims_of(dims, rank) }?;
        let memory = kernel.resize_output(output, dims, bytes)?;
        // SAFETY: the plugin passes a pointer for the result, or null.
        unsafe { put(data, memory.cast()) }?;
        Ok(DELEGRAPH_OK)
    })
}

unsafe extern "C" fn parallel(
    context: DelegraphContext,
    tasks: usize,
    task: Option<unsafe extern "C" fn(user: *mut c_void, index: usize)>,
    user: *mut c_void,
) -> i32 {
    /// The plugin's argument of its tasks.
    struct User(*mut c_void);
    // SAFETY: by calling `parallel`, the plugin declares that its tasks may run on any thread.
    unsafe impl Sync for User {}
    answer(context, "parallel", |scope| {
        let kernel = invoking(scope)?;
        let task = task.ok_or("there is no function to call")?;
        let user = User(user);
        let user = &user;
        // SAFETY: the function belongs to the plugin, and is called with the argument that the plugin passed.
        kernel.parallel(tasks, &|index| unsafe { task(user.0, index) });
        Ok(DELEGRAPH_OK)
    })
}

unsafe extern "C" fn is_cancelled(context: DelegraphContext) -> i32 {
    let get = |scope: Scope<'_, '_>| Ok(invoking(scope)?.is_cancelled());
    i32::from(ask(context, "is_cancelled", get).unwrap_or(false))
}

unsafe extern "C" fn progress(context: DelegraphContext, done: usize, total: usize) -> i32 {
    answer(context, "progress", |scope| {
        invoking(scope)?.progress(done, total);
        Ok(DELEGRAPH_OK)
    })
}
