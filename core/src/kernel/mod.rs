//! What runs a node: the [`Kernel`] trait, the contexts handed to it, and the tensors behind them.
//!
//! A kernel's life has the four steps of the field's C interface:
//!
//! | C interface | here |
//! |---|---|
//! | `init` | the registration's factory, once per node |
//! | `prepare` | [`Kernel::prepare`], again whenever an input's shape changed |
//! | `invoke` | [`Kernel::invoke`] |
//! | `free` | `Drop` |

use crate::error::Result;
use crate::flex;
use crate::graph::{Node, Subgraph};

mod buffer;
mod invoke;
mod prepare;
mod resources;
mod shared;
mod strings;
mod tensor;

pub use buffer::{ALIGNMENT, AlignedBuffer};
pub use invoke::InvokeContext;
pub use prepare::{Persistent, PrepareContext, Temporary, TensorView};
pub use resources::{Entries, Resources, SavedVariables, Table, Variable};
pub use shared::Shared;
pub use strings::Strings;
pub use tensor::{Placement, RuntimeTensor};

/// Runs one node. Nothing may be allocated in `invoke` once shapes are known.
pub trait Kernel: Send {
    /// Checks types, packs weights, asks for temporaries. For builtin ops the outputs already have the inferred
    /// types and shapes; custom ops set them here.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a type or param that the kernel does not do.
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()>;

    /// Computes the outputs from the inputs.
    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()>;

    /// True when output 0 is input 0's bytes under another shape: then the two may share memory and `invoke` is
    /// skipped where they do.
    fn is_view(&self) -> bool {
        false
    }

    /// True when the outputs depend on the shapes of the inputs alone. Such a node is computed while preparing.
    fn needs_shapes_only(&self) -> bool {
        false
    }
}

/// What a kernel is built from.
#[derive(Debug, Clone, Copy)]
pub struct InitContext<'a> {
    /// The node, with its typed params.
    pub node: &'a Node,
    /// The subgraph that the node is in.
    pub subgraph: &'a Subgraph,
    /// The options of a custom op, or the attributes of a composite for a kernel of its name; empty for builtin ones.
    pub custom_options: &'a [u8],
}

impl<'a> InitContext<'a> {
    /// The options of a custom op as a FlexBuffer map, which most are. Kernels of ops whose options are anything else
    /// read [`InitContext::custom_options`].
    ///
    /// # Errors
    /// [`Error::InvalidNode`](crate::Error::InvalidNode) where they are no map.
    pub fn options(&self) -> Result<flex::Map<'a>> {
        flex::Map::parse(self.custom_options)
    }
}

/// Splits work over threads. `core` has no threads of its own; the interpreter hands them in.
pub trait Parallel: Send + Sync {
    /// How many threads work, the caller included; at least 1.
    fn threads(&self) -> usize;

    /// Runs `f(0)`, …, `f(tasks - 1)`, in any order and possibly at the same time; returns when all are done.
    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync));

    /// Whether a task panicked on another thread since the last call: then what was computed is unusable.
    fn take_panicked(&self) -> bool {
        false
    }
}

/// Everything on the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(f);
    }
}

/// What the interpreter does for kernels that reach beyond their node: variables and other subgraphs.
pub trait Host {
    /// The resource variables of the interpreter.
    fn resources(&mut self) -> &mut Resources;

    /// Subgraph `index` of the model, as the file has it.
    fn subgraph(&self, index: usize) -> Option<&Subgraph>;

    /// Prepares subgraph `index` for inputs of these shapes; returns the shapes of its outputs, `None` where they
    /// depend on data.
    fn prepare_callee(&mut self, index: usize, inputs: &[crate::Shape]) -> Result<Vec<Option<crate::Shape>>>;

    /// Lets the variable tensors of subgraph `index` begin anew.
    fn reset_callee(&mut self, index: usize) -> Result<()>;

    /// Runs subgraph `index` on `inputs`, tensors of the caller; returns its outputs, valid until the next call.
    fn call(&mut self, index: usize, inputs: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>>;

    /// Where the kernel that is being prepared finds what others made of the same constants: the model's shared things,
    /// and subgraph and node. `None` where its constants depend on more than the model.
    fn shared(&self) -> Option<(&Shared, (usize, usize))> {
        None
    }

    /// Whether the application wants the invocation to end. A kernel that takes long asks now and then, and returns
    /// [`Error::Cancelled`](crate::Error::Cancelled) where it does.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Tells the application how far the kernel is: `done` of `total` of whatever it counts.
    fn progress(&mut self, done: usize, total: usize) {
        let (_, _) = (done, total);
    }
}
