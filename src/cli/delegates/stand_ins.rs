//! Stand-ins for missing kernels, so that a model that cannot run is still shown.

use std::ops::RangeInclusive;

use delegraph::core::error::UnresolvedOps;
use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::{Op, OpResolver, Result, Shape};
use delegraph::{Error, MutableOpResolver, Registration};

/// A resolver and the stand-ins for the kernels that it lacks. The stand-ins are registered apart: in the resolver itself,
/// they would count as the application's kernels for builtin ops, which delegates leave alone.
pub(super) struct WithStandIns {
    kernels: MutableOpResolver,
    stand_ins: MutableOpResolver,
}

impl WithStandIns {
    /// Adds a kernel for each of the missing ops. It sets the output shapes of the file and cannot run.
    pub(super) fn new(kernels: MutableOpResolver, missing: Option<&UnresolvedOps>) -> Self {
        let mut stand_ins = MutableOpResolver::new();
        let registration = || Registration::new(|_| Ok(StandIn));
        for missing in missing.iter().flat_map(|missing| &missing.ops) {
            match &missing.op {
                Op::Custom(name) => stand_ins.add_custom(name, registration(), missing.version),
                // With side effects, because nodes of builtin ops with constant inputs would otherwise be computed
                // while preparing.
                Op::Builtin(op) => {
                    stand_ins.add_builtin(*op, registration().with_side_effects(), missing.version)
                }
            };
        }
        WithStandIns { kernels, stand_ins }
    }
}

impl OpResolver for WithStandIns {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        self.kernels.find(op, version).or_else(|| self.stand_ins.find(op, version))
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.kernels.versions(op)
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

#[cfg(test)]
mod tests {
    use delegraph::core::ops::binary::AddParams;
    use delegraph::core::resolver::check_resolved;
    use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
    use delegraph::delegate_api::{
        DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, Runner, VersionTable,
    };
    use delegraph::{BuiltinOpResolver, Interpreter, Model, Simple, SimpleDelegate, TensorType};

    use super::*;

    /// Claims ADD up to a version, and runs nothing.
    struct Adds(VersionTable);

    impl SimpleDelegate for Adds {
        fn name(&self) -> &str {
            "adds"
        }
        fn max_versions(&self) -> &VersionTable {
            &self.0
        }
        fn supports(&self, _: &NodeView<'_>) -> std::result::Result<(), Rejection> {
            Ok(())
        }
        fn create_kernel(
            &mut self,
            _: &DelegateParams,
            _: &GraphView<'_>,
        ) -> Result<Box<dyn DelegateKernel>> {
            Ok(Box::new(StandIn))
        }
    }

    impl DelegateKernel for StandIn {}

    fn add(version: u32) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [4]);
        let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("y");
        graph.outputs([y]);
        let mut draft = ModelBuilder::new().subgraph(graph).build().unwrap().into_draft();
        draft.subgraphs[0].nodes_mut()[0].set_version(version);
        draft.verify().unwrap()
    }

    #[test]
    fn a_stand_in_is_not_a_replaced_kernel() {
        let runner = |max: u32| {
            let model = add(99);
            let kernels = MutableOpResolver::extending(BuiltinOpResolver::new());
            let missing = check_resolved(&model, &kernels).unwrap_err();
            let resolver = WithStandIns::new(kernels, Some(&missing));
            let delegate = Simple(Adds(VersionTable::new(&[(BuiltinOp::ADD, max)])));
            let interpreter = Interpreter::builder(model).resolver(resolver).delegate(delegate).build();
            interpreter.unwrap().report().nodes[0].clone()
        };
        let low = runner(6);
        assert_eq!(low.runner, Runner::Cpu);
        assert_eq!(
            low.rejections.iter().map(|(_, reason)| reason.kind()).collect::<Vec<_>>(),
            ["VersionTooHigh"]
        );
        assert!(matches!(runner(200).runner, Runner::Delegate { .. }));
    }
}
