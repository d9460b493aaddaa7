//! VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE.

use delegraph_core::ops::variables::VarHandleParams;
use delegraph_core::{ModelBuilder, SubgraphBuilder};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::MOVED, &[Op::VAR_HANDLE, Op::READ_VARIABLE, Op::ASSIGN_VARIABLE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, Int16, Int32, Int64, UInt8, UInt32, Bool] {
        for shape in [&[3][..], &[2, 2]] {
            // A stored value is read in the same step and, before the next store, in the next step.
            let mut graph = SubgraphBuilder::new("main");
            let data = graph.input("data", ty, shape);
            let handle = VarHandleParams::default().container("c".into()).shared_name("v".into());
            let handle = graph.node(Op::VAR_HANDLE, handle).output("handle");
            graph.node(Op::ASSIGN_VARIABLE, Params::None).inputs([handle, data]).writes([]);
            let read = graph.tensor("read", ty, shape);
            graph.node(Op::READ_VARIABLE, Params::None).inputs([handle]).writes([read]);
            graph.outputs([read]);
            let model = ModelBuilder::new().subgraph(graph);
            for op in [Op::VAR_HANDLE, Op::ASSIGN_VARIABLE, Op::READ_VARIABLE] {
                out.push(Case::model(op, model.clone(), [x(ty, shape)]).of(ty).steps(2));
            }
        }
    }
}
