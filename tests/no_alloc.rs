//! `invoke` takes no memory once shapes are known: a counting allocator around it.

/// The delegate of `docs/write-a-delegate.md`, which promises the same.
#[path = "write_a_delegate/dense/mod.rs"]
#[allow(missing_docs, unreachable_pub, clippy::new_without_default)] // As the page shows it.
mod dense;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use delegraph::{BuiltinOpResolver, Interpreter, ReferenceOpResolver, load};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn invoke_allocates_nothing() {
    for form in ["float32", "float16", "dynamic_range", "int8"] {
        let path = format!("{}/assets/digits/digits_{form}.tflite", env!("CARGO_MANIFEST_DIR"));
        for (kernels, threads) in [("cpu", 1), ("cpu", 2), ("reference", 1), ("delegate", 2)] {
            let builder = Interpreter::builder(load(&path).unwrap()).threads(threads);
            let builder = match kernels {
                "cpu" => builder.resolver(BuiltinOpResolver::new()),
                "delegate" => builder.delegate(Box::new(dense::DenseDelegate::new())),
                _ => builder.resolver(ReferenceOpResolver::new()),
            };
            let mut interpreter = builder.build().unwrap();
            let delegated = interpreter.report().delegated_nodes() > 0;
            assert_eq!(delegated, kernels == "delegate" && form.starts_with("float"));
            // Threads take memory of their own when they start.
            for _ in 0..20 {
                interpreter.invoke().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for _ in 0..3 {
                interpreter.invoke().unwrap();
            }
            let taken = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(taken, 0, "{form} on {kernels} with {threads} threads allocates while invoking");
        }
    }
}
