//! Normalizations without a builtin op.

use std::borrow::Cow;

use delegraph_core::error::Result;
use delegraph_core::graph::Node;
use delegraph_core::ops::Params;
use delegraph_core::{Attributes, Op};

use super::names;
use crate::fusion::composite::{Call, CompositeFusion, Outcome};
use crate::fusion::rewriter::Rewriter;

/// Replaces a normalization by a custom op of this project. Operands: `x`, factors per channel, and terms per channel
/// except for [`NormalizationKind::RootMeanSquare`]. Attributes: `epsilon`; for groups, `num_groups` and
/// `channel_axis`, which must be the last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Normalization {
    name: Cow<'static, str>,
    /// The elements that are normalized together.
    pub kind: NormalizationKind,
}

impl Normalization {
    /// Creates a fusion of the composites `name`.
    pub fn new(name: impl Into<Cow<'static, str>>, kind: NormalizationKind) -> Self {
        Normalization { name: name.into(), kind }
    }
}

/// The elements that a layer normalizes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormalizationKind {
    /// The last dimension.
    Layer,
    /// Groups of channels, over all positions.
    Group,
    /// The last dimension, by its root mean square.
    RootMeanSquare,
}

impl CompositeFusion for Normalization {
    fn name(&self) -> &str {
        &self.name
    }

    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()> {
        let operands = if self.kind == NormalizationKind::RootMeanSquare { 2 } else { 3 };
        call.arity(operands..=operands, 1)?;
        let x = call.argument(0, "x")?;
        let attributes = call.attributes()?;
        attributes.get::<f64>("epsilon")?;
        if self.kind == NormalizationKind::Group {
            attributes.optional::<i64>("channel_axis")?;
            attributes.get::<i64>("num_groups")?;
        }
        let channels = graph.shape(x).and_then(|s| s.last().copied());
        for (i, what) in [(1, "the factors"), (2, "the terms")].into_iter().take(operands - 1) {
            let (_, shape) = call.of_rank(graph, i, what, 1)?;
            if let (Some(channels), Some(shape)) = (channels, shape)
                && shape.dims() != [channels]
            {
                return Err(call.wrong(i, what, &format!("must be of shape [{channels}], is {shape}")));
            }
        }
        Ok(())
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let (x, output, attributes) = (call.argument(0, "x")?, call.output(0)?, call.attributes()?);
        if !call.node.inputs().iter().flatten().all(|id| graph.is_float(*id)) {
            return Outcome::unchanged("only FLOAT32 is fused");
        }
        let Some(shape) = graph.shape(x).filter(|s| graph.shape(output) == Some(s)) else {
            return Outcome::unchanged("input and output do not have the same shape");
        };
        let mut options = Attributes::new().with("epsilon", attributes.get::<f64>("epsilon")?);
        let name = match self.kind {
            NormalizationKind::Layer => names::LAYER_NORM,
            NormalizationKind::RootMeanSquare => names::RMS_NORM,
            NormalizationKind::Group => {
                let axis = attributes.get_or::<i64>("channel_axis", -1)?;
                if axis != -1 && axis + 1 != shape.rank() as i64 {
                    return Outcome::unchanged(format!(
                        "its channel_axis is {axis}; only the last dimension is supported"
                    ));
                }
                options = options.with("num_groups", attributes.get::<i64>("num_groups")?);
                names::GROUP_NORM
            }
        };
        let mut fused = Node::new(Op::custom(name), 1, Params::Custom, call.node.inputs().to_vec(), [output]);
        fused.set_custom_options(graph.store(&options.to_bytes()));
        graph.replace(call.id, &[call.id], fused);
        Ok(Outcome::Fused)
    }
}
