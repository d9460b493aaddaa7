//! Kernels: the [`Kernel`] trait, the contexts passed to it, and runtime tensors.
//!
//! A kernel has the four steps of TFLite's C interface:
//!
//! | C interface | here |
//! |---|---|
//! | `init` | the registration's factory, once per node |
//! | `prepare` | [`Kernel::prepare`], again whenever an input's shape changed |
//! | `invoke` | [`Kernel::invoke`] |
//! | `free` | `Drop` |

use std::sync::Arc;

use crate::error::Result;
use crate::flex;
use crate::graph::{Node, Subgraph};

mod budget;
mod buffer;
mod invoke;
mod prepare;
mod resources;
mod shared;
mod tensor;

pub use crate::graph::{Strings, StringsError};
pub use budget::{Budget, Charge, Charged};
pub use buffer::{ALIGNMENT, AlignedBuffer};
pub use invoke::InvokeContext;
pub use prepare::{KernelRequests, Persistent, PrepareContext, Temporary, TensorView};
pub use resources::{DeviceValue, Entries, Resources, SavedVariables, Table, TableKind, Variable};
pub use shared::SharedWeights;
pub use tensor::{Placement, RuntimeTensor};

/// Runs one node. Nothing may be allocated in `invoke` once shapes are known.
pub trait Kernel: Send {
    /// Checks types, packs weights, and requests temporaries. For builtin ops the outputs already have the inferred
    /// types and shapes; custom ops set them here.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a type or param that the kernel does not support.
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()>;

    /// Computes the outputs from the inputs.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) for data for which the op is not defined; the errors of the context.
    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()>;

    /// Returns true when output 0 is input 0's bytes under another shape: then the two may share memory, and `invoke`
    /// is skipped if they do.
    fn is_view(&self) -> bool {
        false
    }

    /// Returns true when the outputs depend only on the shapes of the inputs. Such a node is computed while preparing.
    fn needs_shapes_only(&self) -> bool {
        false
    }
}

/// The information from which a kernel is created.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct InitContext<'a> {
    /// The node, with its typed params.
    pub node: &'a Node,
    /// The subgraph that the node is in.
    pub subgraph: &'a Subgraph,
    /// The options of a custom op, or the attributes of a composite whose kernel is registered by its name; empty for
    /// other ops.
    pub custom_options: &'a [u8],
}

impl<'a> InitContext<'a> {
    /// Creates the context of a node of `subgraph`, without custom options.
    pub fn new(node: &'a Node, subgraph: &'a Subgraph) -> Self {
        InitContext { node, subgraph, custom_options: &[] }
    }

    /// Sets [`InitContext::custom_options`].
    #[must_use]
    pub fn with_custom_options(mut self, options: &'a [u8]) -> Self {
        self.custom_options = options;
        self
    }

    /// Returns the options of a custom op as a FlexBuffer map, the usual format. Kernels of ops with another format
    /// read [`InitContext::custom_options`].
    ///
    /// # Errors
    /// [`Error::InvalidNode`](crate::Error::InvalidNode) if the options are not a map.
    pub fn options(&self) -> Result<flex::Map<'a>> {
        flex::Map::parse(self.custom_options)
    }
}

/// Splits work over threads. `core` has no threads of its own; the interpreter passes them to kernels.
///
/// # Safety
/// Kernels give each task its own part of an output, so an implementation of [`Parallel::run`]
/// - calls `f` with numbers below `tasks` only, and with no number twice;
/// - returns or unwinds only after every call of `f` has ended, and does not keep `f`.
///
/// ```compile_fail,E0200
/// use delegraph_core::kernel::Parallel;
///
/// struct Twice;
///
/// // Two calls with one number would write one part of an output from two places.
/// impl Parallel for Twice {
///     fn threads(&self) -> usize {
///         1
///     }
///
///     fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
///         (0..tasks).chain(0..tasks).for_each(f);
///     }
/// }
/// ```
pub unsafe trait Parallel: Send + Sync {
    /// Returns the number of threads that work, including the caller; at least 1.
    fn threads(&self) -> usize;

    /// Runs `f(0)`, …, `f(tasks - 1)`, in any order and possibly at the same time; returns when all are done.
    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync));

    /// Returns whether the work is to end. Kernels with long loops poll it between chunks and skip the rest; their
    /// results are not used then.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Returns whether a task panicked since the last call. The computed results are unusable then.
    fn take_panicked(&self) -> bool {
        false
    }
}

/// Runs everything on the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Serial;

// SAFETY: `run` calls `f` once per number, on the calling thread.
unsafe impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(f);
    }
}

/// Services of the interpreter for kernels whose effects go beyond their node: variables and other subgraphs.
pub trait Host {
    /// Returns the resource variables and tables of the interpreter.
    fn resources(&mut self) -> &mut Resources;

    /// Subgraph `index` of the model, as the file has it.
    fn subgraph(&self, index: usize) -> Option<&Subgraph>;

    /// Prepares subgraph `index` for inputs of these shapes; returns the shapes of its outputs, `None` where they
    /// depend on data.
    fn prepare_callee(
        &mut self,
        index: usize,
        inputs: &[crate::types::Shape],
    ) -> Result<Vec<Option<crate::types::Shape>>>;

    /// Resets the variable tensors of subgraph `index`.
    fn reset_callee(&mut self, index: usize) -> Result<()>;

    /// Runs subgraph `index` on `inputs`, tensors of the caller; returns its outputs, valid until the next call.
    fn call(&mut self, index: usize, inputs: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>>;

    /// Returns the model's packed weights, and the subgraph and node of the kernel that is being prepared. `None` if
    /// its constants depend on more than the model.
    fn shared(&self) -> Option<(Arc<SharedWeights>, (usize, usize))> {
        None
    }

    /// The memory and time that the interpreter may use: kernels charge their allocations to it, and long-running
    /// kernels poll it.
    fn budget(&self) -> &Arc<Budget> {
        Budget::unlimited()
    }

    /// Returns whether the application requested the end of the invocation. A kernel with a long run time checks this
    /// periodically, and returns [`Error::Cancelled`](crate::Error::Cancelled).
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Reports the progress of the kernel to the application: `done` of `total`, in a unit of the kernel's choice.
    fn progress(&mut self, done: usize, total: usize) {
        let (_, _) = (done, total);
    }
}
