//! A delegate for layers of FULLY_CONNECTED and RELU, in float32.

mod kernel;

use delegraph_core::ops::WeightsFormat;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::{BuiltinOp, Op, Result, TensorType};
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, SimpleDelegate, VersionTable,
};
use kernel::Layers;

/// Runs FULLY_CONNECTED and RELU.
pub struct DenseDelegate {
    versions: VersionTable,
}

impl DenseDelegate {
    /// Creates a delegate without options.
    pub fn new() -> Self {
        let versions = [
            // Version 6 made the bias optional; 7 and later add types and formats other than float32.
            (BuiltinOp::FULLY_CONNECTED, 6),
            (BuiltinOp::RELU, 1),
            // Claimed only if folded while preparing: float16 weights.
            (BuiltinOp::DEQUANTIZE, 3),
        ];
        DenseDelegate { versions: VersionTable::new(&versions) }
    }
}

impl SimpleDelegate for DenseDelegate {
    fn name(&self) -> &str {
        "dense"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        // The outputs are constants already, for any op.
        if node.state().folded {
            return Ok(());
        }
        let inputs = node.inputs().enumerate().map(|(i, t)| (format!("input {i}"), t));
        let outputs = node.outputs().enumerate().map(|(i, t)| (format!("output {i}"), t));
        for (operand, tensor) in inputs.chain(outputs) {
            if tensor.ty() != TensorType::Float32 {
                return Err(Rejection::UnsupportedType { operand, ty: tensor.ty() });
            }
        }
        match node.op() {
            Op::Builtin(BuiltinOp::RELU) => Ok(()),
            Op::Builtin(BuiltinOp::FULLY_CONNECTED) => supports_fully_connected(node),
            op => Err(Rejection::UnsupportedOp { op: op.clone() }),
        }
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(Layers::new(params, graph)?))
    }
}

fn supports_fully_connected(node: &NodeView<'_>) -> Result<(), Rejection> {
    let refuse = |why: &str| Err(Rejection::UnsupportedParam(why.into()));
    let params: Result<&FullyConnectedParams, _> = node.params().try_into();
    let params = params.map_err(|e| Rejection::Other(e.to_string()))?;
    if params.weights_format != WeightsFormat::Default {
        return refuse("shuffled weights; only the default format is supported");
    }
    if params.fused_activation_function.clamp().is_none() {
        return refuse("only activations that clamp are supported");
    }
    // Input 1 is the weights, input 2 the optional bias.
    let Some(weights) = node.input(1) else { return refuse("no weights") };
    let constants = [Some(weights), node.input(2)];
    if constants.iter().flatten().any(|t| !t.is_constant() || t.tensor().sparsity.is_some()) {
        return refuse("weights and bias must be constant and dense");
    }
    if weights.shape().is_some_and(|shape| shape.contains(&0)) {
        return refuse("weights without elements");
    }
    Ok(())
}
