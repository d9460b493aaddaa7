//! A delegate exported to a table and loaded from it again: requests of kernels reach the application.

use std::ffi::c_void;

use delegraph_core::kernel::{Host as KernelHost, Placement, Resources, RuntimeTensor, Serial, Temporary};
use delegraph_core::ops::binary::AddParams;
use delegraph_core::{
    BuiltinOp, Error, InvokeContext, Kernel, ModelBuilder, NodeId, Params, PrepareContext, Result, Shape,
    Subgraph, SubgraphBuilder, TensorType,
};

use super::super::abi::*;
use super::super::{CreateError, PluginLibrary, PluginOptions};
use super::{create, table};
use crate::{
    Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, NodeState, NodeTime,
    NodeView, Rejection, Simple, SimpleDelegate, VersionTable,
};

/// Adds the input to a variable, and returns the positive sums.
struct Sums(VersionTable);

impl SimpleDelegate for Sums {
    fn name(&self) -> &str {
        "sums"
    }
    fn max_versions(&self) -> &VersionTable {
        &self.0
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::default().with_dynamic_shapes(true)
    }
    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        match node.input(1).is_some_and(|t| t.is_variable()) {
            true => Ok(()),
            false => Err(Rejection::UnsupportedParam("no variable".into())),
        }
    }
    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(SumsKernel { scratch: None, times: Vec::new() }))
    }
}

struct SumsKernel {
    scratch: Option<Temporary>,
    times: Vec<NodeTime>,
}

impl Kernel for SumsKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.scratch = Some(cx.temporary(8 * size_of::<f32>()));
        cx.set_output_data_dependent(0)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        if cx.host().is_cancelled() {
            return Err(Error::Cancelled);
        }
        cx.host().progress(1, 3);
        let scratch = self.scratch.ok_or_else(|| Error::State("not prepared".into()))?;
        let scratch: &mut [f32] = cx.temporary(scratch)?;
        assert_eq!(scratch.len(), 8);
        let (input, state): (&[f32], &mut [f32]) = (cx.input(0)?, cx.variable(1)?);
        let mut count = 0;
        for (sum, value) in state.iter_mut().zip(input) {
            *sum += value;
            if *sum > 0.0 {
                scratch[count] = *sum;
                count += 1;
            }
        }
        cx.resize_output(0, [count])?;
        cx.output(0)?.copy_from_slice(&scratch[..count]);
        self.times = vec![NodeTime { node: NodeId(0), time: std::time::Duration::from_micros(5) }];
        Ok(())
    }
}

impl DelegateKernel for SumsKernel {
    fn node_times(&self) -> &[NodeTime] {
        &self.times
    }
}

unsafe extern "C" fn create_sums(
    host: *const DelegraphHost,
    options: *const DelegraphOption,
    count: usize,
    delegate: *mut *mut c_void,
    error: *mut DelegraphError,
) -> i32 {
    let make = |options: &PluginOptions| {
        options.get("known");
        Ok::<_, CreateError>(Simple(Sums(VersionTable::new(&[(BuiltinOp::ADD, 2)]))))
    };
    // SAFETY: the arguments follow the interface.
    unsafe { create(host, options, count, delegate, error, make) }
}
static TABLE: DelegraphPlugin = table(create_sums);

/// An application that cancels, and records progress.
struct App {
    resources: Resources,
    cancelled: bool,
    progress: Option<(usize, usize)>,
}

impl KernelHost for App {
    fn resources(&mut self) -> &mut Resources {
        &mut self.resources
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
    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
    fn progress(&mut self, done: usize, total: usize) {
        self.progress = Some((done, total));
    }
}

#[test]
fn requests_of_kernels_reach_the_application() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let state = graph.variable("state", TensorType::Float32, [4]);
    let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, state]).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let mut tensors: Vec<RuntimeTensor> =
        model.subgraphs()[0].tensors().iter().map(RuntimeTensor::new).collect();

    // SAFETY: a static table of this test.
    let library = unsafe { PluginLibrary::from_table("sums", &raw const TABLE) }.unwrap();
    let mut delegate = library.delegate(&PluginOptions::default()).unwrap();
    assert!(delegate.capabilities().dynamic_shapes);
    let mut kernel = {
        let (known, states) = (vec![true; tensors.len()], [NodeState::default()]);
        let view = GraphView::new(&model, 0, &tensors, &known, &states);
        let versions = delegate.max_versions().clone();
        let mut cx = DelegateContext::new(view, versions).with_capabilities(delegate.capabilities());
        delegate.prepare(&mut cx).unwrap();
        let (mut claims, _) = cx.finish();
        let params = DelegateParams { nodes: vec![NodeId(0)], inputs: vec![x, state], outputs: vec![y] };
        (claims[0].factory)(&params, &view).unwrap()
    };

    let (inputs, outputs) = ([Some(x), Some(state)], [y]);
    let mut app = App { resources: Resources::default(), cancelled: false, progress: None };
    tensors[x.0].allocate(Placement::Arena).unwrap();
    tensors[state.0].allocate(Placement::Variable).unwrap();
    tensors[y.0].allocate_bytes(Placement::Dynamic, 0).unwrap();
    let mut cx = PrepareContext::new(&Params::None, 1, &inputs, &outputs, &mut tensors, &mut app);
    kernel.prepare(&mut cx).unwrap();
    let prepared = cx.finish();
    assert_eq!((prepared.temporaries(), prepared.data_dependent()), (&[32][..], &[y][..]));

    let mut memory = [0u64; 16];
    let at = memory.as_mut_ptr().map_addr(|a| a.next_multiple_of(64)).cast::<u8>();
    let temporaries = [(at, 32)];
    let mut run = |tensors: &mut [RuntimeTensor], app: &mut App| {
        // SAFETY: tensors have separate memory; the temporary is in `memory`, at a multiple of 64.
        let mut cx = unsafe { InvokeContext::new(&inputs, &outputs, tensors, &temporaries, &Serial, app) };
        kernel.invoke(&mut cx)
    };
    for (input, want) in [([1.0, -1.0, 0.0, 2.0], &[1.0, 2.0][..]), ([0.5, 2.0, 0.5, -9.0], &[1.5, 1.0, 0.5])]
    {
        tensors[x.0].elements_mut::<f32>().unwrap().copy_from_slice(&input);
        run(&mut tensors, &mut app).unwrap();
        assert_eq!(tensors[y.0].elements::<f32>().unwrap(), want);
        assert_eq!(*tensors[y.0].shape, [want.len()]);
    }
    assert_eq!(tensors[state.0].elements::<f32>().unwrap(), [1.5, 1.0, 0.5, -7.0]);
    assert_eq!(app.progress, Some((1, 3)));
    app.cancelled = true;
    assert!(matches!(run(&mut tensors, &mut app), Err(Error::Cancelled)));
}

#[test]
fn an_older_application_is_told_so() {
    let mut room = super::super::raw::MessageRoom::new();
    let mut check = |size: usize, status: i32, want: &str| {
        let (mut slot, mut delegate) = (room.slot(), std::ptr::null_mut());
        // Only the size; functions beyond it do not exist.
        let host = [size, 0, 0];
        // SAFETY: the table has the size that it declares; the other pointers follow the interface.
        let got = unsafe {
            let host = host.as_ptr().cast();
            create_sums(host, std::ptr::null(), 0, &raw mut delegate, &raw mut slot)
        };
        assert_eq!(got, status);
        assert!(delegate.is_null());
        let message = room.message(&slot);
        assert!(message.contains(want), "{message}");
    };
    let old = "the application is too old for this plugin: it has no function `log_level`";
    check(size_of::<usize>(), DELEGRAPH_UNSUPPORTED, old);
    check(0, DELEGRAPH_FAILED, "there is no application");
}

#[test]
fn a_newer_application_or_plugin_fits() {
    // A table with fields added after the known ones.
    #[repr(C)]
    struct Newer {
        known: DelegraphPlugin,
        added: [usize; 3],
    }
    let newer =
        Newer { known: DelegraphPlugin { size: size_of::<Newer>(), ..TABLE }, added: [usize::MAX; 3] };
    assert_eq!(newer.added.len(), 3);
    // SAFETY: a table of this test, which outlives the library.
    let library = unsafe { PluginLibrary::from_table("newer", (&raw const newer).cast()) }.unwrap();
    let delegate = library.delegate(&PluginOptions::new([("known", "1")]).unwrap()).unwrap();
    assert_eq!(delegate.name(), "sums");
    assert_eq!(delegate.max_versions().max_version(&BuiltinOp::ADD.into()), Some(2));
    let unknown = library.delegate(&PluginOptions::new([("unknown", "1")]).unwrap()).unwrap_err();
    let want = "newer: an option is invalid: the option \"unknown\" is not known; it takes: known";
    assert_eq!(Error::external(unknown).chain(), want);
}
