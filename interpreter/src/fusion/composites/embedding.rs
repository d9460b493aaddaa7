//! Lookup of rows in a table.

use std::borrow::Cow;

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, Tensor};
use delegraph_core::ops::Params;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::{BuiltinOp, TensorType};

use crate::fusion::composite::{Call, CompositeFusion, Outcome};
use crate::fusion::rewriter::Rewriter;

/// Replaces `embedding_lookup(table [rows, width], ids)`, as in TensorFlow's guide, by EMBEDDING_LOOKUP, whose first
/// input is a list of ids. Ids of other shapes are reshaped to a list, and the result is reshaped back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingLookup(Cow<'static, str>);

impl EmbeddingLookup {
    /// Creates the fusion for composites of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        EmbeddingLookup(name.into())
    }
}

impl CompositeFusion for EmbeddingLookup {
    fn name(&self) -> &str {
        &self.0
    }

    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()> {
        call.arity(2..=2, 1)?;
        call.of_rank(graph, 0, "the table", 2)?;
        let ids = call.argument(1, "the ids")?;
        match graph.ty(ids) {
            Some(TensorType::Int32 | TensorType::Int64) | None => Ok(()),
            Some(ty) => Err(call.wrong(1, "the ids", &format!("must be of INT32 or INT64, is of {ty}"))),
        }
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let (table, ids, output) = (call.argument(0, "")?, call.argument(1, "")?, call.output(0)?);
        if let Some(ty) = graph.ty(ids).filter(|ty| *ty != TensorType::Int32) {
            return Outcome::unchanged(format!("its ids are {ty}; EMBEDDING_LOOKUP supports INT32 only"));
        }
        let (Some(shape), Some(result), Some(rows)) =
            (graph.shape(ids).cloned(), graph.shape(output).cloned(), graph.shape(table).cloned())
        else {
            return Outcome::unchanged("a shape depends on data");
        };
        let lookup = |ids, output| {
            Node::new(BuiltinOp::EMBEDDING_LOOKUP, 1, Params::None, [Some(ids), Some(table)], [output])
        };
        if shape.rank() == 1 {
            graph.replace(call.id, &[call.id], lookup(ids, output));
            return Ok(Outcome::Fused);
        }
        let (count, width) = (shape.elements(), rows.last().copied().unwrap_or(0));
        let flat = Tensor::new(graph.name(ids, "list"), TensorType::Int32, [count]);
        let flat = graph.new_tensor(flat);
        let mut found = match graph.tensor(output) {
            Some(tensor) => tensor.clone(),
            None => return Outcome::unchanged("it has no output"),
        };
        found.set_shape([count, width]);
        found.set_shape_signature(None);
        found.set_name(graph.name(output, "rows"));
        let found = graph.new_tensor(found);
        let list = graph.new_constant("list", [1], &[-1i32]);
        let sizes: Option<Vec<i32>> = result.iter().map(|&d| i32::try_from(d).ok()).collect();
        let Some(mut sizes) = sizes else { return Outcome::unchanged("its output is too large") };
        if let Some(first) = sizes.first_mut() {
            *first = -1;
        }
        let back = graph.new_constant("shape", [sizes.len()], &sizes);
        let reshape = |x, shape, y| {
            Node::new(BuiltinOp::RESHAPE, 1, ReshapeParams::default(), [Some(x), Some(shape)], [y])
        };
        graph.insert(call.id, reshape(ids, list, flat));
        graph.insert(call.id, lookup(flat, found));
        graph.replace(call.id, &[call.id], reshape(found, back, output));
        Ok(Outcome::Fused)
    }
}
