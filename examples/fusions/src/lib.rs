//! A library of fusions: a pattern, and a marked composite.
//!
//! ```text
//! cargo build --release -p delegraph-example-fusions
//! delegraph fuse MODEL -o OUT --fusion plugin:target/release/libdelegraph_example_fusions.so --report
//! ```

use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Node, NodeId, Result};
use delegraph_interpreter::export_fusions;
use delegraph_interpreter::fusion::{Call, CompositeFusion, Fusions, Outcome, PatternFusion, Rewriter};

export_fusions!(register);

/// Adds every fusion of this crate. An application that links it passes them to its own pipeline.
pub fn register(fusions: &mut Fusions) {
    fusions.pattern(SquaredDifference).composite(FuseSquare);
}

/// `(a - b)²` becomes SQUARED_DIFFERENCE.
pub struct SquaredDifference;

impl PatternFusion for SquaredDifference {
    fn name(&self) -> &str {
        "acme-squared-difference"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<bool> {
        let Some(square) = graph.node_of(node, BuiltinOp::SQUARE) else { return Ok(false) };
        let (Some(difference), Some(&output)) = (square.input(0), square.outputs().first()) else {
            return Ok(false);
        };
        let Some((subtraction, sub)) = graph.made_by(difference, BuiltinOp::SUB) else { return Ok(false) };
        let plain = matches!(sub.params(), Params::Sub(p) if p.fused_activation_function == Activation::None);
        // A value with another consumer must be kept.
        if !plain || !graph.is_private(difference) || !graph.is_float(output) {
            return Ok(false);
        }
        let fused =
            Node::new(BuiltinOp::SQUARED_DIFFERENCE, 1, Params::None, sub.inputs().to_vec(), [output]);
        graph.replace(node, &[node, subtraction], fused);
        Ok(true)
    }
}

/// The composite `acme.square` becomes SQUARE.
pub struct FuseSquare;

impl CompositeFusion for FuseSquare {
    fn name(&self) -> &str {
        "acme.square"
    }

    fn verify_signature(&self, call: &Call, _: &Rewriter<'_>) -> Result<()> {
        call.arity(1..=1, 1)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let x = call.argument(0, "x")?;
        if !graph.is_float(x) {
            return Outcome::unchanged("its operand is not FLOAT32");
        }
        let fused = Node::new(BuiltinOp::SQUARE, 1, Params::None, [Some(x)], [call.output(0)?]);
        graph.replace(call.id, &[call.id], fused);
        Ok(Outcome::Fused)
    }
}
