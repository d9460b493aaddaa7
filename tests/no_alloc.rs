//! `invoke` allocates no memory once shapes are known. A counting allocator checks it.

#![allow(clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

/// The delegate of `docs/write-a-delegate.md`, which guarantees the same.
#[path = "write_a_delegate/dense/mod.rs"]
#[allow(missing_docs, unreachable_pub, clippy::new_without_default)] // As on the page.
mod dense;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::delegate_api::{
    BufferHandle, Buffers, DelegateKernel, DelegateParams, DeviceBuffer, GraphView, NodeView, Rejection,
    Simple, SimpleDelegate, VersionTable,
};
use delegraph::{BuiltinOpResolver, Interpreter, ReferenceOpResolver, Result, TensorType, load};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A single test, because the allocations of all threads of the process are counted.
#[test]
fn invoke_allocates_nothing() {
    models();
    partitions_and_the_buffers_between_them();
}

fn models() {
    for form in ["float32", "float16", "dynamic_range", "int8"] {
        let path = format!("{}/assets/digits/digits_{form}.tflite", env!("CARGO_MANIFEST_DIR"));
        for (kernels, threads) in [("cpu", 1), ("cpu", 2), ("reference", 1), ("delegate", 2)] {
            let builder = Interpreter::builder(load(&path).unwrap()).threads(threads);
            let builder = match kernels {
                "cpu" => builder.resolver(BuiltinOpResolver::new()),
                "delegate" => builder.delegate(Simple(dense::DenseDelegate::new())),
                _ => builder.resolver(ReferenceOpResolver::new()),
            };
            let mut interpreter = builder.build().unwrap();
            let delegated = interpreter.report().delegated_nodes() > 0;
            assert_eq!(delegated, kernels == "delegate" && form.starts_with("float"));
            // Threads allocate when they start.
            for _ in 0..20 {
                interpreter.invoke().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let mut taken = || {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                (0..3).for_each(|_| interpreter.invoke().unwrap());
                ALLOCATIONS.load(Ordering::Relaxed) - before
            };
            // On a busy machine a thread may start only now.
            let taken = (0..5).map(|_| taken()).min();
            assert_eq!(taken, Some(0), "{form} on {kernels} with {threads} threads allocates while invoking");
        }
    }
}

/// A delegate whose kernel negates its input. Instead of a result that may stay in a buffer, it returns a buffer of
/// four ones.
struct Negates(VersionTable);

impl SimpleDelegate for Negates {
    fn name(&self) -> &str {
        "negates"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn supports(&self, _: &NodeView<'_>) -> std::result::Result<(), Rejection> {
        Ok(())
    }

    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(NegateKernel(BufferHandle::new(Four))))
    }
}

struct NegateKernel(BufferHandle);

/// A buffer that holds four ones.
struct Four;

impl DeviceBuffer for Four {
    fn byte_size(&self) -> usize {
        16
    }

    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        bytes.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&1f32.to_le_bytes()));
        Ok(())
    }
}

impl Kernel for NegateKernel {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = -x);
        Ok(())
    }
}

impl DelegateKernel for NegateKernel {
    fn keeps(&self, _: usize) -> bool {
        true
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        if buffers.may_keep(0) {
            buffers.keep(0, self.0.clone());
            return Ok(());
        }
        self.invoke(cx)
    }
}

fn partitions_and_the_buffers_between_them() {
    // Alternating partitions of two delegates, followed by CPU kernels.
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [4]);
    for op in [BuiltinOp::NEG, BuiltinOp::SQUARE, BuiltinOp::ABS, BuiltinOp::NEG] {
        x = graph.node(op, Params::None).inputs([x]).output("");
    }
    graph.outputs([x]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let delegate = |op| Simple(Negates(VersionTable::new(&[(op, 1)])));
    let builder = Interpreter::builder(model).delegate(delegate(BuiltinOp::NEG));
    let mut interpreter = builder.delegate(delegate(BuiltinOp::SQUARE)).build().unwrap();
    assert_eq!(interpreter.report().partitions.len(), 3);
    interpreter.invoke().unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..3 {
        interpreter.invoke().unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    // Four ones, negated by the second delegate, and by the first delegate after the CPU kernel.
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [-1.0; 4]);
}
