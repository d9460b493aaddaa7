//! The third step of preparing: kernels pack their constants and request temporaries.

use delegraph_core::error::{Error, Result};
use delegraph_delegate_api::Report;
use smallvec::SmallVec;

use super::claimed::Claimed;
use super::inferred::{Inference, Schedule};
use super::parts::{ConstantUse, Failed, Parts};
use super::residency;
use crate::runtime::delegation::{Partition, Preparation, Unit, contain_kernel};
use crate::runtime::host::Env;
use crate::runtime::memory::copy_small_constants;

/// Memory that a node's output 0 may share.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing {
    /// The input that output 0 is a view of.
    pub(super) view_of: Option<usize>,
    /// Inputs that output 0 may overwrite.
    pub(super) overwritable: SmallVec<[usize; 2]>,
}

/// A subgraph whose kernels are prepared.
pub(crate) struct Prepared {
    pub(super) parts: Box<Parts>,
    pub(super) inference: Inference,
    pub(super) report: Report,
    pub(super) partitions: Vec<Partition>,
    pub(super) units: Vec<Unit>,
    /// The memory that each node's output 0 may share.
    pub(super) sharing: Vec<Sharing>,
}

impl Claimed {
    /// Prepares the kernels of partitions and nodes whose shapes are known.
    ///
    /// # Errors
    /// The errors of kernels, with the node; [`Error::Delegate`] for a delegate's.
    pub(crate) fn prepare(mut self, env: &mut Env<'_>) -> Result<Prepared, Failed> {
        match self.prepare_kernels(env) {
            Ok(sharing) => {
                let Claimed { parts, inference, report, partitions, units } = self;
                Ok(Prepared { parts, inference, report, partitions, units, sharing })
            }
            Err(error) => Err(Failed { parts: self.parts, error }),
        }
    }

    fn prepare_kernels(&mut self, env: &mut Env<'_>) -> Result<Vec<Sharing>> {
        // Partitions come first: if a delegate fails, constants must still be available for the kernels that replace
        // it.
        for partition in self.partitions.iter_mut().filter(|p| p.preparation == Preparation::Static) {
            prepare_partition(partition, &mut self.parts, env)?;
        }
        let mut sharing = vec![Sharing::default(); self.parts.nodes.len()];
        for unit in &self.units {
            env.services.budget.check()?;
            let Unit::Node(id) = *unit else { continue };
            if self.inference.schedule[id.0] != Schedule::Folded {
                let model = self.parts.model.clone();
                let node = model.subgraphs()[self.parts.index].node(id);
                let computed = contain_kernel(|| self.inference.compute_inputs(&mut self.parts, node, env));
                computed.map_err(|e| self.parts.locate(id, e))?;
            }
            match self.inference.schedule[id.0] {
                Schedule::Static => {
                    let shared =
                        self.inference.readers.depends_on_model_alone(self.parts.subgraph().node(id));
                    let requests = contain_kernel(|| self.parts.prepare_node(id, false, shared, env));
                    let requests = requests.map_err(|e| self.parts.locate(id, e))?;
                    if !requests.data_dependent.is_empty() {
                        return Err(self.parts.locate(id, contradiction()));
                    }
                    let (overwritable, view_of) = (requests.overwritable, requests.view_of);
                    sharing[id.0] = Sharing { view_of, overwritable };
                    match requests.constants {
                        ConstantUse::Packed => self.inference.release_constants(&mut self.parts, id, env),
                        ConstantUse::Read => {
                            let Parts { model, index, tensors, .. } = &mut *self.parts;
                            copy_small_constants(model.subgraphs()[*index].node(id), tensors)?;
                        }
                    }
                }
                Schedule::Folded if !env.services.delegates.is_empty() => {
                    self.inference.release_constants(&mut self.parts, id, env);
                }
                Schedule::Folded | Schedule::Deferred => {}
            }
        }
        self.inference.readers.drop_spare();
        self.parts.model.release_pages();
        let Parts { buffers, tensors, .. } = &mut *self.parts;
        residency::drop_unfitting(buffers, tensors);
        Ok(sharing)
    }
}

fn prepare_partition(partition: &mut Partition, parts: &mut Parts, env: &mut Env<'_>) -> Result<()> {
    let (threads, budget) = (env.services.parallel.threads(), env.services.budget);
    let prepared = partition.prepare(&mut parts.tensors, false, threads, env).and_then(|data_dependent| {
        partition.scratch.requests().iter().try_for_each(|&bytes| budget.check_size(bytes))?;
        if data_dependent.is_empty() { Ok(()) } else { Err(contradiction()) }
    });
    prepared.map_err(|error| failure(partition, error, env))
}

/// Returns the error of a partition: the delegate has failed, unless the work was interrupted.
pub(super) fn failure(partition: &Partition, error: Error, env: &mut Env<'_>) -> Error {
    match error {
        error if error.is_interruption() => error,
        error => env.services.delegates.fail(partition.owner.index, &partition.place(), error),
    }
}

fn contradiction() -> Error {
    Error::State("the kernel declares an output data-dependent that has an inferred shape".into())
}
