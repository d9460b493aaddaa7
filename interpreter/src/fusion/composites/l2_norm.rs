//! Normalization of vectors to length 1.

use std::borrow::Cow;

use delegraph_core::BuiltinOp;
use delegraph_core::error::Result;
use delegraph_core::graph::Node;
use delegraph_core::ops::l2_normalization::L2NormParams;

use crate::fusion::composite::{Call, CompositeFusion, Outcome};
use crate::fusion::rewriter::Rewriter;

/// The largest `epsilon` without a visible effect on vectors of usual lengths. L2_NORMALIZATION has its own epsilon.
const LARGEST_EPSILON: f64 = 1e-5;

/// Replaces `l2_norm(x)` along the last dimension by L2_NORMALIZATION. The attributes `axis` and `epsilon` are
/// optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L2Norm(Cow<'static, str>);

impl L2Norm {
    /// Creates the fusion for composites of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        L2Norm(name.into())
    }
}

impl CompositeFusion for L2Norm {
    fn name(&self) -> &str {
        &self.0
    }

    fn verify_signature(&self, call: &Call, _: &Rewriter<'_>) -> Result<()> {
        call.arity(1..=1, 1)?;
        call.argument(0, "x")?;
        let attributes = call.attributes()?;
        attributes.optional::<i64>("axis")?;
        attributes.optional::<f64>("epsilon").map(drop)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let (x, output, attributes) = (call.argument(0, "x")?, call.output(0)?, call.attributes()?);
        let axis = attributes.get_or::<i64>("axis", -1)?;
        let Some(shape) = graph.shape(x) else { return Outcome::unchanged("a shape depends on data") };
        if axis != -1 && axis + 1 != shape.rank() as i64 {
            return Outcome::unchanged(format!(
                "its axis is {axis}; L2_NORMALIZATION supports the last dimension only"
            ));
        }
        if !graph.is_float(x) {
            return Outcome::unchanged("only FLOAT32 is fused");
        }
        if graph.shape(output) != Some(shape) {
            return Outcome::unchanged("input and output do not have the same shape");
        }
        if attributes.get_or::<f64>("epsilon", 0.0)? > LARGEST_EPSILON {
            return Outcome::unchanged("its epsilon is not that of L2_NORMALIZATION");
        }
        let fused = Node::new(BuiltinOp::L2_NORMALIZATION, 1, L2NormParams::default(), [Some(x)], [output]);
        graph.replace(call.id, &[call.id], fused);
        Ok(Outcome::Fused)
    }
}
