//! Tests of a delegate in a runtime.

mod host;

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, Error, NodeId, Op, Result, TensorId};
use delegraph_delegate_api::plugin::{CreateError, PluginOptions};
use delegraph_delegate_api::{
    Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, VersionTable,
};
use host::{BOOL, F16, F32, Host, I32, I64, foreign_invoke};

use crate::abi;

/// The call in which the delegate fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Prepare,
    Factory,
    KernelPrepare,
    Invoke,
}

/// The delegate's calls, recorded for a test.
#[derive(Default)]
struct Log {
    kernels: AtomicUsize,
    dropped: AtomicUsize,
    /// Addresses of constants.
    constants: Mutex<Vec<usize>>,
    options: Mutex<Vec<u8>>,
}

/// Runs ADD, "twice", and DEQUANTIZE of constants.
#[derive(Clone)]
struct Adder {
    versions: VersionTable,
    log: Arc<Log>,
    /// The failing call, and whether it panics.
    fails: Option<(Hook, bool)>,
    /// Whether every node is a separate claim.
    singly: bool,
}

impl Adder {
    fn new() -> Self {
        let builtins = [(BuiltinOp::ADD, 2), (BuiltinOp::DEQUANTIZE, 3), (BuiltinOp::SHAPE, 2)];
        let versions = VersionTable::new(&builtins).with_custom("twice", 1);
        Adder { versions, log: Arc::default(), fails: None, singly: false }
    }

    fn check(&self, hook: Hook) -> Result<()> {
        match self.fails {
            Some((h, false)) if h == hook => Err(Error::State(format!("{hook:?} fails"))),
            Some((h, true)) if h == hook => panic!("{hook:?} panics"),
            _ => Ok(()),
        }
    }
}

impl Delegate for Adder {
    fn name(&self) -> &str {
        "adder"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        self.check(Hook::Prepare)?;
        let (this, graph) = (self.clone(), cx.graph());
        let known = |n: &delegraph_delegate_api::NodeView<'_>| {
            n.op().builtin() != Some(BuiltinOp::DEQUANTIZE) || n.state().folded
        };
        let nodes: Vec<NodeId> = graph.nodes().filter(known).map(|n| n.id()).collect();
        let chunk = if self.singly { 1 } else { nodes.len().max(1) };
        for nodes in nodes.chunks(chunk) {
            let this = this.clone();
            cx.claim(nodes, move |params, graph| this.kernel(params, graph));
        }
        Ok(())
    }
}

impl Adder {
    fn kernel(&self, params: &DelegateParams, graph: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        self.check(Hook::Factory)?;
        self.log.kernels.fetch_add(1, Ordering::Relaxed);
        let mut values = vec![None; graph.tensor_count()];
        let mut nodes = Vec::new();
        for &id in &params.nodes {
            let node = graph.node(id);
            for input in node.inputs() {
                if let Some(constant) = input.constant_as::<f32>() {
                    self.log.constants.lock().unwrap().push(constant.as_ptr().addr());
                    values[input.id().0] = Some(constant.to_vec());
                }
            }
            if matches!(node.op(), Op::Custom(_)) {
                self.log.options.lock().unwrap().extend(node.custom_options());
            }
            if !node.state().folded {
                let inputs = node.inputs().map(|t| t.id()).collect();
                nodes.push((matches!(node.op(), Op::Custom(_)), inputs, node.output(0).unwrap().id()));
            }
        }
        let size = |id: &TensorId| graph.tensor(*id).shape().unwrap().elements();
        let sizes = params.outputs.iter().map(size).collect();
        Ok(Box::new(Sum { adder: self.clone(), params: params.clone(), nodes, values, sizes }))
    }
}

struct Sum {
    adder: Adder,
    params: DelegateParams,
    nodes: Vec<(bool, Vec<TensorId>, TensorId)>,
    values: Vec<Option<Vec<f32>>>,
    sizes: Vec<usize>,
}

impl Drop for Sum {
    fn drop(&mut self) {
        self.adder.log.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Kernel for Sum {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.adder.check(Hook::KernelPrepare)?;
        assert_eq!(
            (cx.input_count(), cx.output_count()),
            (self.params.inputs.len(), self.params.outputs.len())
        );
        cx.temporary(16);
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.adder.check(Hook::Invoke)?;
        for (i, id) in self.params.inputs.iter().enumerate() {
            self.values[id.0] = Some(cx.input::<f32>(i)?.to_vec());
        }
        for (twice, inputs, output) in &self.nodes {
            let operands: Vec<&Vec<f32>> =
                inputs.iter().map(|t| self.values[t.0].as_ref().unwrap()).collect();
            let len = operands.iter().map(|o| o.len()).max().unwrap();
            let sum = (0..len).map(|i| operands.iter().map(|o| o[i % o.len()]).sum::<f32>());
            let sum = sum.map(|s| if *twice { 2.0 * s } else { s }).collect();
            self.values[output.0] = Some(sum);
        }
        for (i, (id, size)) in self.params.outputs.iter().zip(&self.sizes).enumerate() {
            let output = cx.output::<f32>(i)?;
            assert_eq!(output.len(), *size);
            output.copy_from_slice(self.values[id.0].as_ref().unwrap());
        }
        Ok(())
    }
}

impl DelegateKernel for Sum {}

/// A delegate as held by a runtime.
struct Handle(*mut abi::Delegate);

impl Handle {
    fn new(adder: &Adder, options: &[(&str, &str)]) -> Self {
        let options = [&[("allow_unknown_host", "1")], options].concat();
        Handle::strict(adder, &options).unwrap()
    }

    fn strict(adder: &Adder, options: &[(&str, &str)]) -> Result<Self, String> {
        static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        unsafe extern "C" fn report(text: *const c_char) {
            // SAFETY: a text.
            REPORTED.lock().unwrap().push(unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned());
        }
        let texts: Vec<[CString; 2]> =
            options.iter().map(|(k, v)| [k, v].map(|s| CString::new(*s).unwrap())).collect();
        let [keys, values] = [0, 1].map(|i| texts.iter().map(|t| t[i].as_ptr()).collect::<Vec<_>>());
        let make = |_: &PluginOptions| Ok::<_, CreateError>(adder.clone());
        // SAFETY: lists of texts.
        let made = unsafe { crate::create(keys.as_ptr(), values.as_ptr(), keys.len(), Some(report), make) };
        if made.is_null() { Err(REPORTED.lock().unwrap().pop().unwrap()) } else { Ok(Handle(made)) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and unused from now on.
        unsafe { crate::destroy(self.0) };
    }
}

/// `z = (x + c) + d`, four floats.
fn chain() -> (Box<Host>, c_int, c_int) {
    let mut host = Host::new();
    let (x, c) = (host.tensor(F32, &[2, 2], None), host.floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]));
    let (y, d) = (host.tensor(F32, &[2, 2], None), host.floats(&[1], &[10.0]));
    let z = host.tensor(F32, &[2, 2], None);
    host.add(&[x, c], y);
    host.add(&[y, d], z);
    host.outputs = vec![z];
    (host, x, z)
}

/// The result of `chain` for ones.
const CHAIN: [f32; 4] = [12.0, 13.0, 14.0, 15.0];

fn run(host: &mut Host, x: c_int, z: c_int) -> Vec<f32> {
    assert_eq!(host.allocate(), abi::OK, "{:?}", host.errors);
    let ones = host.dims(x).iter().product::<c_int>() as usize;
    host.set(x, &vec![1.0; ones]);
    assert_eq!(host.invoke(), abi::OK, "{:?}", host.errors);
    host.get(z)
}

#[test]
fn a_graph_is_claimed_and_runs() {
    let adder = Adder::new();
    for misaligned in [0, 1] {
        let handle = Handle::new(&adder, &[("policy", "require")]);
        let (mut host, x, z) = chain();
        host.misaligned = misaligned;
        assert_eq!(host.apply(handle.0), abi::OK);
        assert_eq!((host.partitions(), host.plan.len()), (1, 1));
        for _ in 0..2 {
            assert_eq!(run(&mut host, x, z), CHAIN);
        }
        // Constants were read in the host's memory.
        let seen = std::mem::take(&mut *adder.log.constants.lock().unwrap());
        assert_eq!(seen, [1, 3].map(|t| host.raw_tensors[t].data.addr()));
    }
    assert_eq!(adder.log.kernels.load(Ordering::Relaxed), 2);
    assert_eq!(adder.log.dropped.load(Ordering::Relaxed), 2);
}

#[test]
fn kernels_outlive_the_delegate() {
    let (adder, (mut host, x, z)) = (Adder::new(), chain());
    let handle = Handle::new(&adder, &[]);
    assert_eq!(host.apply(handle.0), abi::OK);
    assert_eq!(host.allocate(), abi::OK);
    drop(handle);
    assert_eq!(run(&mut host, x, z), CHAIN);
}

#[test]
fn interpreters_on_several_threads_share_a_delegate() {
    struct Shared(Handle);
    // SAFETY: a delegate may be applied by several threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(Handle::new(&Adder::new(), &[]));
    let (shared, barrier) = (&shared, std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..100 {
                    // A thread must not get kernels created for another.
                    let own = [thread as f32];
                    let mut host = Host::new();
                    let (x, c) = (host.tensor(F32, &[1], None), host.floats(&[1], &own));
                    let y = host.tensor(F32, &[1], None);
                    host.add(&[x, c], y);
                    host.outputs = vec![y];
                    assert_eq!(host.apply(shared.0.0), abi::OK);
                    assert_eq!(host.partitions(), 1, "{:?}", host.errors);
                    assert_eq!(run(&mut host, x, y), [1.0 + own[0]]);
                }
            });
        }
    });
}

#[test]
fn what_may_not_be_claimed_stays() {
    type Change = fn(&mut Host);
    let cases: [(&str, Change); 4] = [
        ("version", |host| host.nodes[0].registration.version = 3),
        ("overridden", |host| host.nodes[0].registration.invoke = Some(foreign_invoke())),
        ("activation", |host| host.node_params(0)[0] = 99),
        ("type", |host| host.raw_tensors[2].ty = 4),
    ];
    for (what, change) in cases {
        let (mut host, x, z) = chain();
        change(&mut host);
        let handle = Handle::new(&Adder::new(), &[]);
        assert_eq!(host.apply(handle.0), abi::OK, "{what}");
        let expected = if what == "type" { 0 } else { 1 };
        assert_eq!(host.partitions(), expected, "{what}");
        if what != "overridden" && what != "type" {
            assert_eq!(run(&mut host, x, z), CHAIN, "{what}");
        }
        let handle = Handle::new(&Adder::new(), &[("policy", "require")]);
        let (mut host, ..) = chain();
        change(&mut host);
        assert_eq!(host.apply(handle.0), abi::DELEGATE_ERROR, "{what}");
        assert_eq!(host.plan, [0, 1], "{what}");
        assert!(host.errors[0].contains("of 2 nodes are left"), "{what}: {:?}", host.errors);
    }
}

#[test]
fn optional_inputs_and_custom_ops_are_claimed() {
    let (mut host, adder) = (Host::new(), Adder::new());
    let (x, y, z) =
        (host.tensor(F32, &[3], None), host.tensor(F32, &[3], None), host.tensor(F32, &[3], None));
    host.node(BuiltinOp::CUSTOM, 1, &[x, -1], &[y]);
    host.add(&[y, x], z);
    host.outputs = vec![z];
    let handle = Handle::new(&adder, &[]);
    assert_eq!(host.apply(handle.0), abi::OK);
    assert_eq!(host.plan.len(), 1);
    assert_eq!(run(&mut host, x, z), [3.0; 3]);
    assert_eq!(*adder.log.options.lock().unwrap(), b"options");
}

#[test]
fn half_constants_are_folded() {
    // The second reader of the weights is above the delegate's version in one case: then the runtime also expands them.
    for (version, plan) in [(1, 1), (9, 3)] {
        let (mut host, adder) = (Host::new(), Adder::new());
        let half = [0x00_u8, 0x3c, 0x00, 0x40];
        let (h, w) = (host.tensor(F16, &[2], Some(&half)), host.tensor(F32, &[2], None));
        let (x, y, z) =
            (host.tensor(F32, &[2], None), host.tensor(F32, &[2], None), host.tensor(F32, &[2], None));
        host.node(BuiltinOp::DEQUANTIZE, 3, &[h], &[w]);
        host.add(&[x, w], y);
        host.node(BuiltinOp::ADD, version, &[y, w], &[z]);
        host.outputs = vec![z];
        let handle = Handle::new(&adder, &[]);
        assert_eq!(host.apply(handle.0), abi::OK);
        assert_eq!((host.partitions(), host.plan.len()), (1, plan));
        assert_eq!(run(&mut host, x, z), [3.0, 5.0]);
    }
}

#[test]
fn shapes_that_depend_on_data_are_left() {
    let (mut host, adder) = (Host::new(), Adder::new());
    let (x, y) = (host.tensor(F32, &[2], None), host.tensor(F32, &[2], None));
    let (b, found, shape) =
        (host.tensor(BOOL, &[2], None), host.tensor(I64, &[1, 1], None), host.tensor(2, &[2], None));
    host.add(&[x, x], y);
    host.node(BuiltinOp::WHERE, 1, &[b], &[found]);
    host.node(BuiltinOp::SHAPE, 1, &[found], &[shape]);
    host.outputs = vec![y, shape];
    let handle = Handle::new(&adder, &[]);
    assert_eq!(host.apply(handle.0), abi::OK);
    assert_eq!((host.partitions(), host.plan.len()), (1, 3));
}

#[test]
fn kernels_are_created_again_for_new_shapes() {
    let (adder, (mut host, x, z)) = (Adder::new(), chain());
    let handle = Handle::new(&adder, &[]);
    assert_eq!(host.apply(handle.0), abi::OK);
    assert_eq!(run(&mut host, x, z), CHAIN);
    host.resize(x, &[3, 2, 2]);
    assert_eq!(run(&mut host, x, z), [CHAIN; 3].concat());
    assert_eq!(host.dims(z), [3, 2, 2]);
    assert_eq!(run(&mut host, x, z), [CHAIN; 3].concat());
    assert_eq!(adder.log.kernels.load(Ordering::Relaxed), 2);
    // A shape that the op does not support.
    host.resize(x, &[5]);
    assert_eq!(host.allocate(), abi::ERROR);
    assert!(host.errors[0].contains("cannot be delegated with the new shapes"), "{:?}", host.errors);
    host.resize(x, &[2, 2]);
    assert_eq!(run(&mut host, x, z), CHAIN);
}

#[test]
fn computed_shapes_are_constants_that_follow_the_input() {
    let (mut host, adder) = (Host::new(), Adder::new());
    let (x, shape) = (host.tensor(F32, &[4, 2], None), host.tensor(I32, &[2], None));
    host.node(BuiltinOp::SHAPE, 1, &[x], &[shape]);
    host.node_params(0)[0] = I32;
    host.outputs = vec![shape];
    let handle = Handle::new(&adder, &[]);
    assert_eq!(host.apply(handle.0), abi::OK);
    for dims in [[4, 2], [3, 5]] {
        host.resize(x, &dims);
        let found: Vec<u32> = run(&mut host, x, shape).into_iter().map(f32::to_bits).collect();
        assert_eq!(found, dims.map(|d| d as u32));
    }
    assert_eq!(host.partitions(), 1);
}

#[test]
fn several_claims_make_several_kernels() {
    let (mut host, x, z) = chain();
    let handle = Handle::new(&Adder { singly: true, ..Adder::new() }, &[]);
    assert_eq!(host.apply(handle.0), abi::OK);
    assert_eq!((host.partitions(), host.plan.len()), (2, 2));
    assert_eq!(run(&mut host, x, z), CHAIN);
}

#[test]
fn failures_leave_the_plan_as_it_was() {
    for hook in [Hook::Prepare, Hook::Factory, Hook::KernelPrepare] {
        for (panics, options, status) in [
            (false, &[][..], abi::OK),
            (true, &[], abi::OK),
            (true, &[("policy", "require")], abi::DELEGATE_ERROR),
        ] {
            let adder = Adder { fails: Some((hook, panics)), ..Adder::new() };
            let (mut host, x, z) = chain();
            let handle = Handle::new(&adder, options);
            assert_eq!(host.apply(handle.0), status);
            assert_eq!(host.plan, [0, 1], "{hook:?}");
            let expected =
                if panics { format!("it panicked: {hook:?} panics") } else { format!("{hook:?} fails") };
            assert_eq!(host.errors.len(), 1);
            assert!(host.errors[0].contains(&expected), "{:?}", host.errors);
            assert_eq!(run(&mut host, x, z), CHAIN);
        }
    }
}

#[test]
fn failures_while_running_name_the_nodes() {
    for panics in [false, true] {
        let adder = Adder { fails: Some((Hook::Invoke, panics)), ..Adder::new() };
        let (mut host, ..) = chain();
        let handle = Handle::new(&adder, &[]);
        assert_eq!(host.apply(handle.0), abi::OK);
        assert_eq!((host.allocate(), host.invoke()), (abi::OK, abi::ERROR));
        assert!(host.errors[0].starts_with("delegate adder: partition of nodes 0, 1: "), "{:?}", host.errors);
    }
}

#[test]
fn strange_hosts_are_refused() {
    type Change = fn(&mut Host);
    let cases: [(&str, Change); 6] = [
        ("laid out in an unknown way", |host| host.raw_tensors[2].allocation_type = 77),
        ("laid out in an unknown way", |host| host.raw_tensors[0].is_variable = 2),
        ("a function of the context is null", |host| host.context.preview_delegate_partitioning = None),
        ("tensor 99 is out of range", |host| host.nodes[0].set_input(0, 99)),
        ("its inputs is null", |host| host.nodes[1].raw.inputs = std::ptr::null_mut()),
        ("GetNodeAndRegistration failed", |host| host.plan.push(7)),
    ];
    for (expected, change) in cases {
        let (mut host, ..) = chain();
        change(&mut host);
        let plan = host.plan.clone();
        let handle = Handle::new(&Adder::new(), &[]);
        assert_eq!(host.apply(handle.0), abi::OK, "{expected}");
        assert_eq!(host.plan, plan, "{expected}");
        assert!(host.errors[0].contains(expected), "{expected}: {:?}", host.errors);
    }
    // Without the option, this program is not a known runtime.
    let (mut host, x, z) = chain();
    let handle = Handle::strict(&Adder::new(), &[]).unwrap();
    assert_eq!((host.apply(handle.0), host.partitions()), (abi::OK, 0));
    assert!(host.errors[0].contains("allow_unknown_host=1"), "{:?}", host.errors);
    assert_eq!(run(&mut host, x, z), CHAIN);
}

/// Damaged descriptions of tensors and nodes: nothing panics, and nodes that they do not affect are still claimed.
#[test]
fn damaged_tensors_and_nodes_are_left() {
    type Change = fn(&mut Host);
    // The change, and how many nodes of the chain are still claimed.
    let cases: [(Change, usize); 17] = [
        (|host| host.raw_tensors[1].dims = std::ptr::null_mut(), 0),
        (|host| host.resize(1, &[-1, 2]), 0),
        (|host| host.resize(1, &[i32::MAX, i32::MAX, i32::MAX]), 0),
        (|host| host.resize(0, &[3]), 0),
        (|host| host.raw_tensors[1].bytes = 15, 0),
        (|host| host.raw_tensors[1].data = std::ptr::null_mut(), 0),
        (|host| host.raw_tensors[1].ty = 0, 0),
        (|host| host.raw_tensors[1].ty = 24, 0),
        (|host| host.raw_tensors[0].name = std::ptr::null(), 2),
        (|host| host.raw_tensors[0].quantization.kind = 1, 0),
        (|host| host.raw_tensors[0].quantization.kind = 9, 0),
        (|host| host.nodes[0].raw.builtin_data = std::ptr::null_mut(), 1),
        (|host| host.nodes[0].registration.builtin_code = -7, 1),
        (|host| host.nodes[0].registration.builtin_code = BuiltinOp::CUSTOM.0, 1),
        (|host| host.nodes[0].registration.version = -1, 2),
        (|host| host.nodes[1].set_input(0, -1), 1),
        (|host| host.resize(0, &[i32::MAX, i32::MAX, i32::MAX, 1, 1]), 0),
    ];
    for (i, (change, expected)) in cases.into_iter().enumerate() {
        let (mut host, ..) = chain();
        change(&mut host);
        let handle = Handle::new(&Adder::new(), &[]);
        assert_eq!(host.apply(handle.0), abi::OK, "case {i}");
        assert!(!host.errors.iter().any(|e| e.contains("panicked")), "case {i}: {:?}", host.errors);
        let claimed = 2 - host.plan.iter().filter(|&&n| n < 2).count();
        assert_eq!(claimed, expected, "case {i}: {:?}", host.errors);
    }
}

#[test]
fn wrong_options_are_reported() {
    let error = |options| Handle::strict(&Adder::new(), options).err().unwrap();
    assert!(error(&[("sped", "1")]).contains("\"sped\" is not known; it takes: allow_unknown_host, policy"));
    assert!(error(&[("policy", "maybe")]).contains("none of: prefer, require"));
    // SAFETY: no options, and a null delegate, are allowed.
    unsafe {
        let make = |_: &PluginOptions| Err::<Adder, _>(Error::State("no device".into()));
        assert!(crate::create(std::ptr::null(), std::ptr::null(), 0, None, make).is_null());
        crate::destroy(std::ptr::null_mut());
    }
}
