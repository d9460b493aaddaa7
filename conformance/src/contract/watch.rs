//! A delegate that wraps another one, records its calls, and fails on request.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use delegraph_core::kernel::{InvokeContext, Kernel, Placement, PrepareContext};
use delegraph_core::{Error, Result};
use delegraph_delegate_api::{
    BufferHandle, Buffers, Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateStats, NodeTime,
    VersionTable,
};

/// The call in which a failure is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    /// After the delegate has claimed its nodes.
    Prepare,
    /// Instead of creating a kernel.
    Create,
    /// In a kernel's `prepare`.
    PrepareKernel,
    /// In a kernel's `invoke`.
    Invoke,
}

/// A failure to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) hook: Hook,
    pub(super) panics: bool,
}

impl Fault {
    pub(super) const ALL: [Fault; 8] = {
        use Hook::{Create, Invoke, Prepare, PrepareKernel};
        [
            Fault { hook: Prepare, panics: false },
            Fault { hook: Prepare, panics: true },
            Fault { hook: Create, panics: false },
            Fault { hook: Create, panics: true },
            Fault { hook: PrepareKernel, panics: false },
            Fault { hook: PrepareKernel, panics: true },
            Fault { hook: Invoke, panics: false },
            Fault { hook: Invoke, panics: true },
        ]
    };

    pub(super) fn name(self) -> String {
        let what = if self.panics { "a panic" } else { "an error" };
        let place = match self.hook {
            Hook::Prepare => "prepare",
            Hook::Create => "making a kernel",
            Hook::PrepareKernel => "a kernel's prepare",
            Hook::Invoke => "a kernel's invoke",
        };
        format!("{what} in {place}")
    }
}

/// The recorded calls and violations.
#[derive(Default)]
pub(super) struct Log {
    problems: Mutex<Vec<String>>,
    invocations: AtomicUsize,
    fault: Mutex<Option<Fault>>,
    /// Whether the fault occurred.
    pub(super) struck: AtomicBool,
}

impl Log {
    fn report(&self, problem: String) {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
    }

    /// Returns the violations of the contract.
    pub(super) fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of invocations of kernels.
    pub(super) fn invocations(&self) -> usize {
        self.invocations.load(Ordering::Relaxed)
    }

    /// Removes the fault.
    pub(super) fn heal(&self) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn strike(&self, hook: Hook) -> Result<()> {
        let fault = *self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fault) = fault.filter(|f| f.hook == hook) else { return Ok(()) };
        self.struck.store(true, Ordering::Relaxed);
        if fault.panics {
            // Unlike `panic!`, this runs no hook, so that nothing is printed.
            resume_unwind(Box::new(INJECTED.to_owned()));
        }
        Err(Error::State(INJECTED.into()))
    }
}

/// The message of the injected fault.
const INJECTED: &str = "injected by the conformance suite";

/// A delegate that wraps another one.
pub(super) struct Watch {
    inner: Box<dyn Delegate>,
    log: Arc<Log>,
}

impl Watch {
    pub(super) fn new(inner: Box<dyn Delegate>, fault: Option<Fault>) -> (Self, Arc<Log>) {
        let log = Arc::new(Log { fault: Mutex::new(fault), ..Default::default() });
        (Watch { inner, log: Arc::clone(&log) }, log)
    }
}

impl Delegate for Watch {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn max_versions(&self) -> &VersionTable {
        self.inner.max_versions()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let graph = cx.graph();
        let nodes: Vec<_> = graph.nodes().map(|n| (n.id(), cx.may_claim(&n).err())).collect();
        let mut own = DelegateContext::new(graph, self.inner.max_versions().clone())
            .with_capabilities(self.inner.capabilities());
        self.inner.prepare(&mut own)?;
        let (claims, reasons) = own.finish();
        self.log.strike(Hook::Prepare)?;
        for ((node, refused), reason) in nodes.into_iter().zip(reasons) {
            if let Some(reason) = refused.or(reason) {
                cx.reject(node, reason);
            }
        }
        let log = &self.log;
        for mut claim in claims {
            cx.claim(&claim.nodes, move |params, graph| {
                log.strike(Hook::Create)?;
                let inner = (claim.factory)(params, graph)?;
                Ok(Box::new(WatchKernel { inner, log: Arc::clone(log), before: Vec::new() }))
            });
        }
        Ok(())
    }
}

struct WatchKernel {
    inner: Box<dyn DelegateKernel>,
    log: Arc<Log>,
    /// The inputs' bytes before an invocation.
    before: Vec<Option<Vec<u8>>>,
}

impl WatchKernel {
    /// Runs the kernel, and checks its inputs.
    fn watched(
        &mut self,
        cx: &mut InvokeContext<'_>,
        run: impl FnOnce(&mut dyn DelegateKernel, &mut InvokeContext<'_>) -> Result<()>,
    ) -> Result<()> {
        self.log.strike(Hook::Invoke)?;
        self.log.invocations.fetch_add(1, Ordering::Relaxed);
        let count = cx.input_count();
        self.before.resize(count, None);
        for (i, kept) in self.before.iter_mut().enumerate() {
            *kept = watched_bytes(cx, i).map(<[u8]>::to_vec);
        }
        run(&mut *self.inner, cx)?;
        for (i, kept) in self.before.iter().enumerate() {
            let Some(kept) = kept else { continue };
            if watched_bytes(cx, i).is_some_and(|now| now != kept.as_slice()) {
                self.log.report(format!("it wrote to its input {i}"));
            }
        }
        Ok(())
    }
}

/// Returns the bytes of an input that the kernel must not change.
fn watched_bytes<'a>(cx: &mut InvokeContext<'a>, i: usize) -> Option<&'a [u8]> {
    let placement = cx.input_tensor(i).ok()?.placement();
    let kept = [Placement::Arena, Placement::Bound, Placement::Constant, Placement::Dynamic];
    if kept.contains(&placement) { cx.input_bytes(i).ok() } else { None }
}

impl Kernel for WatchKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.log.strike(Hook::PrepareKernel)?;
        self.inner.prepare(cx)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.watched(cx, |inner, cx| inner.invoke(cx))
    }

    fn is_view(&self) -> bool {
        self.inner.is_view()
    }

    fn needs_shapes_only(&self) -> bool {
        self.inner.needs_shapes_only()
    }
}

impl DelegateKernel for WatchKernel {
    fn stats(&self) -> DelegateStats {
        self.inner.stats()
    }

    fn node_times(&self) -> &[NodeTime] {
        self.inner.node_times()
    }

    fn accepts(&self, input: usize, buffer: &BufferHandle) -> bool {
        self.inner.accepts(input, buffer)
    }

    fn keeps(&self, output: usize) -> bool {
        self.inner.keeps(output)
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        self.watched(cx, |inner, cx| inner.invoke_with(cx, buffers))
    }
}
