//! Elementwise functions and softmax.

use std::borrow::Cow;

use delegraph_core::BuiltinOp;
use delegraph_core::error::{Error, Result};
use delegraph_core::graph::Node;
use delegraph_core::ops::Params;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::ops::unary::GeluParams;
use delegraph_core::types::short_name;

use crate::fusion::composite::{Call, CompositeFusion, Outcome};
use crate::fusion::rewriter::Rewriter;

/// Replaces `gelu(x)` by GELU. The optional attribute `approximate` is "tanh", "none", or a boolean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gelu(Cow<'static, str>);

impl Gelu {
    /// Creates the fusion for composites of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Gelu(name.into())
    }
}

/// Replaces `hardswish(x)` by HARD_SWISH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardSwish(Cow<'static, str>);

impl HardSwish {
    /// Creates the fusion for composites of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        HardSwish(name.into())
    }
}

/// Replaces `softmax(x)` along the last dimension by SOFTMAX. The attributes `axis` and `beta` are optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Softmax(Cow<'static, str>);

impl Softmax {
    /// Creates the fusion for composites of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Softmax(name.into())
    }
}

fn approximate(call: &Call) -> Result<bool> {
    let attributes = call.attributes()?;
    match attributes.optional::<&str>("approximate") {
        Ok(None) => Ok(false),
        Ok(Some("none")) => Ok(false),
        Ok(Some("tanh")) => Ok(true),
        Ok(Some(other)) => {
            let (name, version) = (&call.name, call.version);
            Err(Error::InvalidNode(format!(
                "composite \"{name}\" version {version}: the attribute approximate is \"{}\"; \
                 only \"tanh\", \"none\" and booleans are supported",
                short_name(other)
            )))
        }
        Err(_) => attributes.get("approximate"),
    }
}

/// Checks that there is one operand and one result.
fn verify(call: &Call) -> Result<()> {
    call.arity(1..=1, 1)?;
    call.argument(0, "x").map(drop)
}

fn put(call: &Call, graph: &mut Rewriter<'_>, op: BuiltinOp, params: impl Into<Params>) -> Result<Outcome> {
    let (x, output) = (call.argument(0, "x")?, call.output(0)?);
    if graph.shape(x).is_none() || graph.shape(x) != graph.shape(output) {
        return Outcome::unchanged("input and output do not have the same shape");
    }
    if !graph.is_float(x) {
        return Outcome::unchanged("only FLOAT32 is fused");
    }
    graph.replace(call.id, &[call.id], Node::new(op, 1, params, [Some(x)], [output]));
    Ok(Outcome::Fused)
}

impl CompositeFusion for Gelu {
    fn name(&self) -> &str {
        &self.0
    }

    fn verify_signature(&self, call: &Call, _: &Rewriter<'_>) -> Result<()> {
        verify(call)?;
        approximate(call).map(drop)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let params = GeluParams::default().approximate(approximate(call)?);
        put(call, graph, BuiltinOp::GELU, params)
    }
}

impl CompositeFusion for HardSwish {
    fn name(&self) -> &str {
        &self.0
    }

    fn verify_signature(&self, call: &Call, _: &Rewriter<'_>) -> Result<()> {
        verify(call)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        put(call, graph, BuiltinOp::HARD_SWISH, Params::None)
    }
}

impl CompositeFusion for Softmax {
    fn name(&self) -> &str {
        &self.0
    }

    fn verify_signature(&self, call: &Call, _: &Rewriter<'_>) -> Result<()> {
        verify(call)?;
        let attributes = call.attributes()?;
        attributes.optional::<i64>("axis")?;
        attributes.optional::<f32>("beta").map(drop)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let attributes = call.attributes()?;
        let axis = attributes.get_or::<i64>("axis", -1)?;
        let beta = attributes.get_or::<f32>("beta", 1.0)?;
        let rank = graph.shape(call.argument(0, "x")?).map(|s| s.rank() as i64);
        if axis != -1 {
            let Some(rank) = rank else { return Outcome::unchanged("a shape depends on data") };
            if axis + 1 != rank {
                return Outcome::unchanged(format!(
                    "its axis is {axis}; SOFTMAX supports the last dimension only"
                ));
            }
        }
        put(call, graph, BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(beta))
    }
}
