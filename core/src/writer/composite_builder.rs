//! Composites made from scratch.

use super::subgraph_builder::SubgraphBuilder;
use crate::error::counted;
use crate::flex::Attributes;
use crate::graph::{Node, TensorId};
use crate::ops::control_flow::StableHloCompositeParams;
use crate::types::BuiltinOp;

/// Builds a marked composite from a [`SubgraphBuilder`]: a node that represents a named operation, and the body that
/// computes it with other ops.
#[derive(Debug)]
#[must_use = "the composite is added by `output` or `outputs`"]
pub struct CompositeBuilder<'g> {
    graph: &'g mut SubgraphBuilder,
    body: SubgraphBuilder,
    params: StableHloCompositeParams,
    inputs: Vec<TensorId>,
}

impl SubgraphBuilder {
    /// Begins a composite, `STABLEHLO_COMPOSITE`: a node that represents the operation `name`. Inputs and outputs of
    /// `body` are its interface; `body` becomes a separate subgraph, after those added to the model.
    ///
    /// [`Composite::of`](crate::Composite::of) reads it, and has an example.
    pub fn composite(&mut self, name: &str, body: SubgraphBuilder) -> CompositeBuilder<'_> {
        let params = StableHloCompositeParams::default()
            .name(name.to_owned())
            .composite_attributes(Attributes::new().to_bytes())
            .version(1);
        CompositeBuilder { graph: self, body, params, inputs: Vec::new() }
    }
}

impl CompositeBuilder<'_> {
    /// Sets the attributes that parametrize the operation.
    pub fn attributes(mut self, attributes: &Attributes) -> Self {
        self.params.composite_attributes = attributes.to_bytes();
        self
    }

    /// Sets the version of the operation; 1 unless this is called. A negative version is an error when the model is
    /// built.
    pub fn version(mut self, version: i32) -> Self {
        self.params.version = version;
        self
    }

    /// Sets the inputs, in the order of the body's inputs.
    pub fn inputs(mut self, ids: impl IntoIterator<Item = TensorId>) -> Self {
        self.inputs = ids.into_iter().collect();
        self
    }

    /// Adds the composite, with its only output.
    pub fn output(self, name: &str) -> TensorId {
        let [id] = self.outputs([name]);
        id
    }

    /// Adds the composite, with its outputs, which have the types, shapes and quantization of the body's outputs.
    pub fn outputs<const N: usize>(self, names: [&str; N]) -> [TensorId; N] {
        let CompositeBuilder { graph, body, params, inputs } = self;
        let fits = fits(graph, &body, &inputs, N).map_err(|message| {
            let node = graph.subgraph.nodes().len();
            format!(
                "node {node} (composite \"{}\", writes \"{}\"): {message}",
                params.name,
                names.join("\", \"")
            )
        });
        if let Err(message) = fits {
            graph.fail(message);
        }
        let declared = body.subgraph.outputs().iter().map(|id| body.subgraph.tensors().get(id.0).cloned());
        let mut declared: Vec<_> = declared.flatten().collect();
        declared.reverse();
        let ids = names.map(|name| match declared.pop() {
            Some(tensor) => {
                let id = graph.tensor(name, tensor.ty(), tensor.shape().clone());
                graph.change(id, |t| t.set_quantization(tensor.shared_quantization()));
                id
            }
            None => graph.tensor(name, crate::types::TensorType::Float32, crate::types::Shape::default()),
        });
        graph.bodies.push((graph.subgraph.nodes().len(), body));
        let inputs = inputs.into_iter().map(Some);
        graph.subgraph.nodes_mut().push(Node::new(BuiltinOp::STABLEHLO_COMPOSITE, 1, params, inputs, ids));
        ids
    }
}

/// Checks that these inputs and this number of outputs fit those of `body`.
fn fits(
    graph: &SubgraphBuilder,
    body: &SubgraphBuilder,
    inputs: &[TensorId],
    outputs: usize,
) -> Result<(), String> {
    let interface = &body.subgraph;
    if interface.inputs().len() != inputs.len() || interface.outputs().len() != outputs {
        let (takes, gives) = (interface.inputs().len(), interface.outputs().len());
        let (takes, gives) = (counted(takes, "input"), counted(gives, "output"));
        let given = inputs.len();
        return Err(format!("the body has {takes} and {gives}; the call has {given} and {outputs}"));
    }
    for (i, (id, of_body)) in inputs.iter().zip(interface.inputs()).enumerate() {
        let given =
            graph.subgraph.tensors().get(id.0).ok_or_else(|| format!("there is no tensor {}", id.0))?;
        let Some(wanted) = interface.tensors().get(of_body.0) else { continue };
        if (given.ty(), given.shape()) != (wanted.ty(), wanted.shape()) {
            let (name, ty, shape) = (wanted.name(), wanted.ty(), wanted.shape());
            return Err(format!(
                "input {i} (\"{name}\") is {ty} {shape} in the body, but it is given {} {}",
                given.ty(),
                given.shape()
            ));
        }
    }
    Ok(())
}
