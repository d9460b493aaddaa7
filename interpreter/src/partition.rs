//! A partition at run time: a delegate's kernel, and the buffers that its tensors may be in.

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::TensorId;
use delegraph_core::kernel::{InvokeContext, PrepareContext, RuntimeTensor};
use delegraph_core::ops::Params;
use delegraph_delegate_api::{BufferHandle, Buffers, DelegateKernel, DelegateParams};
use smallvec::SmallVec;

use crate::delegation::{Claimant, contain};
use crate::engine::Env;
use crate::subgraph::Scratch;

/// A partition with its kernel.
pub(crate) struct Partition {
    pub(crate) owner: Claimant,
    /// Its number in the subgraph.
    number: usize,
    pub(crate) params: DelegateParams,
    /// The inputs in the form that contexts take.
    pub(crate) inputs: Vec<Option<TensorId>>,
    pub(crate) kernel: Box<dyn DelegateKernel>,
    pub(crate) scratch: Scratch,
    /// Shapes in it depend on data: it is prepared while running.
    pub(crate) dynamic: bool,
    /// Which outputs may stay with the delegate.
    pub(crate) may_stay: Vec<bool>,
    /// Which inputs it takes from buffers, in the run that is going on.
    pub(crate) taken: Vec<Option<BufferHandle>>,
    /// Which outputs it left in buffers in the last run.
    pub(crate) left: Vec<Option<BufferHandle>>,
}

impl Partition {
    pub(crate) fn new(
        owner: Claimant,
        number: usize,
        params: DelegateParams,
        kernel: Box<dyn DelegateKernel>,
        dynamic: bool,
    ) -> Self {
        Partition {
            owner,
            number,
            inputs: params.inputs.iter().copied().map(Some).collect(),
            kernel,
            scratch: Scratch::default(),
            dynamic,
            may_stay: vec![false; params.outputs.len()],
            taken: vec![None; params.inputs.len()],
            left: vec![None; params.outputs.len()],
            params,
        }
    }

    /// Prepares the kernel; returns the outputs whose shapes depend on data. `known`: inputs hold their data.
    pub(crate) fn prepare(
        &mut self,
        tensors: &mut [RuntimeTensor],
        known: bool,
        env: &mut Env<'_>,
    ) -> Result<SmallVec<[TensorId; 2]>> {
        let (kernel, threads) = (&mut self.kernel, env.parallel.threads());
        let (inputs, outputs) = (&self.inputs, &self.params.outputs);
        let result = contain(|| {
            let mut cx = PrepareContext::new(&Params::None, 1, inputs, outputs, tensors, known, threads, env);
            kernel.prepare(&mut cx)?;
            Ok(cx.finish())
        });
        let (bytes, data_dependent) = result.map_err(|e| self.failure(e, env))?;
        for &bytes in &bytes {
            env.check_size(bytes)?;
        }
        self.scratch.bytes = bytes;
        Ok(data_dependent)
    }

    /// Runs the kernel with the inputs in `taken`; what it leaves with the delegate is in `left`.
    pub(crate) fn invoke(&mut self, tensors: &mut [RuntimeTensor], env: &mut Env<'_>) -> Result<()> {
        let (kernel, parallel) = (&mut self.kernel, env.parallel);
        let (inputs, outputs, temporaries) = (&self.inputs, &self.params.outputs, self.scratch.pointers());
        self.left.fill(None);
        let mut buffers = Buffers::new(&self.taken, &self.may_stay, &mut self.left);
        let result = contain(|| {
            // SAFETY: ids come from the subgraph; a partition's outputs are computed in it, its inputs outside; the
            // planner gives tensors and temporaries that are alive at one step disjoint memory.
            let mut cx = unsafe { InvokeContext::new(inputs, outputs, tensors, temporaries, parallel, env) };
            kernel.invoke_with(&mut cx, &mut buffers)
        });
        result.map_err(|e| self.failure(e, env))
    }

    /// An error of the delegate: it names the delegate, the partition and its nodes.
    pub(crate) fn failure(&self, error: Error, env: &mut Env<'_>) -> Error {
        if matches!(error, Error::Cancelled) {
            return error;
        }
        let nodes = self.params.nodes.iter().take(6).map(|n| n.0.to_string()).collect::<Vec<_>>().join(", ");
        let more = if self.params.nodes.len() > 6 { ", …" } else { "" };
        env.delegation
            .fail(self.owner.index, format!("partition {} (nodes {nodes}{more}): {error}", self.number))
    }
}
