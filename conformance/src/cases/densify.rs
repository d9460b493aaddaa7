//! DENSIFY.

use delegraph_core::sparsity::{Level, Sparsity};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::DENSIFY])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let sparsity = Sparsity {
        traversal_order: vec![0, 1],
        block_map: Vec::new(),
        levels: vec![Level::Dense { size: 3 }, Level::csr(&[0, 2, 2, 5], &[0, 3, 0, 1, 2])],
    };
    for ty in [Float32, Float16, Int8] {
        let stored = x(ty, &[5]).data(0, 0);
        let dense = x(ty, &[3, 4]).constant().bytes(stored).sparse(sparsity.clone());
        out.push(match ty {
            Int8 => Case::new(Op::DENSIFY, Params::None, [dense.q(0.1, 0)]).q(0.1, 0),
            _ => Case::new(Op::DENSIFY, Params::None, [dense]),
        });
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::LstmKernelType;
    use delegraph_core::ops::lstm::LstmParams;
    use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver};

    use super::*;

    #[test]
    fn ops_that_read_dense_data_reject_sparse_inputs() {
        let sparsity = Sparsity {
            traversal_order: vec![0],
            block_map: Vec::new(),
            levels: vec![Level::csr(&[0, 2], &[0, 3])],
        };
        let sparse = x(Float32, &[4]).constant().bytes(vec![0; 8]).sparse(sparsity);
        for (op, inputs) in [
            (Op::MAXIMUM, vec![sparse.clone(), x(Float32, &[4])]),
            (Op::STABLEHLO_ADD, vec![x(Float32, &[4]), sparse.clone()]),
            (Op::ABS, vec![sparse.clone()]),
            (Op::FLOOR, vec![sparse]),
        ] {
            rejected(Case::new(op, Params::None, inputs));
        }
        // The basic LSTM cell: input, previous output, weights, bias, state.
        let levels = vec![Level::Dense { size: 4 }, Level::csr(&[0, 1, 1, 1, 1], &[0])];
        let sparsity = Sparsity { traversal_order: vec![0, 1], block_map: Vec::new(), levels };
        let weights = x(Float32, &[4, 2]).constant().bytes(vec![0; 4]).sparse(sparsity);
        let row = || x(Float32, &[1, 1]);
        let inputs = [row(), row(), weights, x(Float32, &[4]).constant(), row()];
        let params = LstmParams::default()
            .fused_activation_function(Activation::Tanh)
            .kernel_type(LstmKernelType::Basic);
        rejected(Case::new(Op::LSTM, params, inputs).outputs(vec![Output::of(Float32); 4]).version(2));
    }

    fn rejected(case: Case) {
        let model = case.build().unwrap();
        let results =
            [case.run(model.clone(), BuiltinOpResolver::new()), case.run(model, ReferenceOpResolver::new())];
        for result in results {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("only DENSIFY and weights of"), "{:?}: {error}", case.op);
        }
    }
}
