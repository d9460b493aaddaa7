//! A partition at run time: a delegate's kernel, and the buffers of its tensors.

use std::task::{Context, Poll};

use delegraph_core::error::Result;
use delegraph_core::graph::TensorId;
use delegraph_core::kernel::{Host, InvokeContext, Parallel, PrepareContext, RuntimeTensor};
use delegraph_core::ops::Params;
use delegraph_delegate_api::{BufferHandle, Buffers, DelegateKernel, DelegateParams, Submitted};
use smallvec::SmallVec;

use super::delegates::{Claimant, contain};
use crate::runtime::memory::Scratch;

/// The time at which the kernel of a partition is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// Once: all shapes are known.
    Static,
    /// In each invocation, when the inputs hold their data: shapes depend on data, or the kernel needs data to prepare.
    Dynamic,
}

/// The state of a kernel's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Idle,
    /// The device runs an invocation that is not finished.
    Submitted,
}

/// A partition with its kernel.
pub(crate) struct Partition {
    pub(crate) owner: Claimant,
    /// The number of the partition in the subgraph.
    number: usize,
    pub(crate) params: DelegateParams,
    /// The inputs in the form that contexts require.
    pub(crate) inputs: Vec<Option<TensorId>>,
    pub(crate) kernel: Box<dyn DelegateKernel>,
    pub(crate) scratch: Scratch,
    pub(crate) preparation: Preparation,
    work: Work,
    /// Per output, whether it may stay with the delegate.
    pub(crate) may_stay: Vec<bool>,
    /// Per input, the buffer that the kernel reads in the current run.
    pub(crate) taken: Vec<Option<BufferHandle>>,
    /// Per output, the buffer in which the kernel left it, until the run is settled.
    pub(crate) left: Vec<Option<BufferHandle>>,
}

impl Partition {
    pub(super) fn new(
        owner: Claimant,
        number: usize,
        params: DelegateParams,
        kernel: Box<dyn DelegateKernel>,
        preparation: Preparation,
    ) -> Self {
        Partition {
            owner,
            number,
            inputs: params.inputs.iter().copied().map(Some).collect(),
            kernel,
            scratch: Scratch::default(),
            preparation,
            work: Work::Idle,
            may_stay: vec![false; params.outputs.len()],
            taken: vec![None; params.inputs.len()],
            left: vec![None; params.outputs.len()],
            params,
        }
    }

    /// Prepares the kernel. Returns the outputs whose shapes depend on data. With `known`, inputs hold their data.
    ///
    /// # Errors
    /// The errors of the kernel; a panic of the kernel is also an error.
    pub(crate) fn prepare(
        &mut self,
        tensors: &mut [RuntimeTensor],
        known: bool,
        threads: usize,
        host: &mut dyn Host,
    ) -> Result<SmallVec<[TensorId; 2]>> {
        let (kernel, inputs, outputs) = (&mut self.kernel, &self.inputs, &self.params.outputs);
        let prepared = contain(|| {
            let mut cx = PrepareContext::new(&Params::None, 1, inputs, outputs, tensors, &mut *host)
                .with_threads(threads)
                .with_known_inputs(known);
            kernel.prepare(&mut cx)?;
            Ok(cx.finish())
        })?;
        self.scratch.request(prepared.temporaries(), &[], host.budget())?;
        Ok(prepared.data_dependent().into())
    }

    /// Begins a run with the input buffers in `taken`.
    ///
    /// # Errors
    /// As [`Partition::prepare`].
    pub(crate) fn submit(
        &mut self,
        tensors: &mut [RuntimeTensor],
        parallel: &dyn Parallel,
        host: &mut dyn Host,
    ) -> Result<Submitted> {
        self.abandon();
        self.left.fill(None);
        let submitted =
            self.run(tensors, parallel, host, |kernel, cx, buffers| kernel.submit(cx, buffers))?;
        if submitted == Submitted::Pending {
            self.work = Work::Submitted;
        }
        Ok(submitted)
    }

    /// Polls a run that was submitted.
    ///
    /// # Errors
    /// As [`Partition::prepare`]. The run has ended then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let kernel = &mut self.kernel;
        let polled = match contain(|| Ok(kernel.poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Err(panic)),
        };
        if let Poll::Ready(Err(_)) = polled {
            self.work = Work::Idle;
        }
        polled
    }

    /// Blocks until the work of a run is done.
    ///
    /// # Errors
    /// As [`Partition::poll`].
    pub(crate) fn wait(&mut self) -> Result<()> {
        let kernel = &mut self.kernel;
        contain(|| kernel.wait()).inspect_err(|_| self.work = Work::Idle)
    }

    /// Ends a run whose work is done. `left` holds the buffers that stay with the delegate.
    ///
    /// # Errors
    /// As [`Partition::poll`].
    pub(crate) fn finish(
        &mut self,
        tensors: &mut [RuntimeTensor],
        parallel: &dyn Parallel,
        host: &mut dyn Host,
    ) -> Result<()> {
        self.work = Work::Idle;
        self.run(tensors, parallel, host, |kernel, cx, buffers| kernel.finish(cx, buffers))
    }

    /// Drops work that was submitted and not finished.
    pub(crate) fn abandon(&mut self) {
        if std::mem::replace(&mut self.work, Work::Idle) == Work::Submitted {
            let kernel = &mut self.kernel;
            if let Err(panic) = contain(|| {
                kernel.abandon();
                Ok(())
            }) {
                log::warn!("delegate {} failed to abandon its work: {panic}", self.owner.name);
            }
        }
    }

    fn run<T>(
        &mut self,
        tensors: &mut [RuntimeTensor],
        parallel: &dyn Parallel,
        host: &mut dyn Host,
        f: impl FnOnce(&mut dyn DelegateKernel, &mut InvokeContext<'_>, &mut Buffers<'_>) -> Result<T>,
    ) -> Result<T> {
        let (inputs, outputs, temporaries) = (&self.inputs, &self.params.outputs, self.scratch.pointers());
        let mut buffers = Buffers::new(&self.taken, &self.may_stay, &mut self.left);
        let kernel = &mut *self.kernel;
        contain(|| {
            // SAFETY: ids come from the subgraph; a partition's outputs are computed in it and its inputs outside
            // (`partition`); the planner (`subgraph::planned`) gives tensors and temporaries that are alive at one step
            // disjoint memory, and `&mut` keeps other users of the subgraph out.
            let mut cx = unsafe { InvokeContext::new(inputs, outputs, tensors, temporaries, parallel, host) };
            f(kernel, &mut cx, &mut buffers)
        })
    }

    /// Returns the beginning of messages about an error of the kernel: the partition and its nodes.
    pub(crate) fn place(&self) -> String {
        let nodes = self.params.nodes.iter().take(6).map(|n| n.0.to_string()).collect::<Vec<_>>().join(", ");
        let (label, more) = match self.params.nodes.len() {
            1 => ("node", ""),
            count => ("nodes", if count > 6 { ", …" } else { "" }),
        };
        format!("partition {} ({label} {nodes}{more}): ", self.number)
    }
}
