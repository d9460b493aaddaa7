//! Stand-ins for missing kernels, so that a model that cannot run is still shown.

use delegraph::core::error::UnresolvedOps;
use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::{Op, Result, Shape};
use delegraph::{Error, MutableOpResolver, Registration};

/// Registers a kernel for each of these ops. It sets the output shapes of the file and cannot run.
pub(super) fn register(missing: &UnresolvedOps, resolver: &mut MutableOpResolver) {
    let registration = || Registration::new(|_| Ok(StandIn));
    for missing in &missing.ops {
        match &missing.op {
            Op::Custom(name) => resolver.add_custom(name, registration(), missing.version),
            // With side effects, because nodes of builtin ops with constant inputs would otherwise be computed while
            // preparing.
            Op::Builtin(op) => resolver.add_builtin(*op, registration().with_side_effects(), missing.version),
        };
    }
}

struct StandIn;

impl Kernel for StandIn {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        for i in 0..cx.output_count() {
            let shape: Shape = cx.output(i)?.shape().clone();
            cx.set_output_shape(i, shape)?;
        }
        Ok(())
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        Err(Error::Unsupported("no kernel is registered".into()))
    }
}
