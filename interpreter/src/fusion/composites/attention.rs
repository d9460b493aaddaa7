//! Scaled dot-product attention.

use std::borrow::Cow;

use delegraph_core::error::Result;
use delegraph_core::graph::Node;
use delegraph_core::ops::Params;
use delegraph_core::{Attributes, Op};

use super::names;
use crate::fusion::composite::{Call, CompositeFusion, Outcome};
use crate::fusion::rewriter::Rewriter;

/// Replaces `softmax(scale · q · kᵀ + mask) · v` by one custom op of this project. Queries are `[batch, queries, heads,
/// width]`, keys and values `[batch, keys, groups, width]`; several heads may share a group. The mask is optional. So
/// are the attributes: `scale` (`1 / √width` by default) and `logit_cap`, which must be 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention(Cow<'static, str>);

impl Attention {
    /// Creates the fusion for composites of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Attention(name.into())
    }
}

impl CompositeFusion for Attention {
    fn name(&self) -> &str {
        &self.0
    }

    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()> {
        call.arity(3..=4, 1)?;
        let [(_, q), (_, k), (_, v)] = [
            call.of_rank(graph, 0, "the queries", 4)?,
            call.of_rank(graph, 1, "the keys", 4)?,
            call.of_rank(graph, 2, "the values", 4)?,
        ];
        if let (Some(q), Some(k), Some(v)) = (q, k, v) {
            if k != v {
                return Err(call.wrong(
                    2,
                    "the values",
                    &format!("must have the shape of the keys, {k}, is {v}"),
                ));
            }
            let (heads, groups) = (q[2], k[2]);
            if q[0] != k[0] || q[3] != k[3] || groups == 0 || heads % groups != 0 {
                let message = format!(
                    "must be [batch, keys, groups, width] for queries [batch, queries, heads, width], where \
                     groups divides heads, is {k} for queries {q}"
                );
                return Err(call.wrong(1, "the keys", &message));
            }
        }
        let attributes = call.attributes()?;
        attributes.optional::<f64>("logit_cap")?;
        attributes.optional::<f64>("scale").map(drop)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let attributes = call.attributes()?;
        if let Some(cap) = attributes.optional::<f64>("logit_cap")?.filter(|cap| *cap != 0.0) {
            return Outcome::unchanged(format!("its logit_cap is {cap}; only 0 is supported"));
        }
        if !call.node.inputs().iter().flatten().all(|id| graph.is_float(*id)) {
            return Outcome::unchanged("only FLOAT32 is fused");
        }
        let Some(width) = graph.shape(call.argument(0, "the queries")?).and_then(|s| s.last().copied())
        else {
            return Outcome::unchanged("a shape depends on data");
        };
        let scale = attributes.get_or::<f64>("scale", 1.0 / (width.max(1) as f64).sqrt())?;
        let options = Attributes::new().with("scale", scale).to_bytes();
        let output = call.output(0)?;
        let mut fused =
            Node::new(Op::custom(names::ATTENTION), 1, Params::Custom, call.node.inputs().to_vec(), [output]);
        fused.set_custom_options(graph.store(&options));
        graph.replace(call.id, &[call.id], fused);
        Ok(Outcome::Fused)
    }
}
