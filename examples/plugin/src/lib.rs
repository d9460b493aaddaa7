//! A delegate in a shared library: ADD, MUL and RELU of float32, as one loop per partition over values that stay in
//! its own memory.
//!
//! ```text
//! cargo build --release -p delegraph-example-plugin
//! delegraph explain MODEL --delegate 'plugin:target/release/libdelegraph_example_plugin.so?min_nodes=2'
//! ```

use std::collections::HashMap;

use delegraph_core::ops::Activation;
use delegraph_core::{
    BuiltinOp, Error, InvokeContext, Kernel, Params, PrepareContext, Result, TensorId, TensorType,
};
use delegraph_delegate_api::plugin::PluginOptions;
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, PartitionOptions, Rejection, Simple, SimpleDelegate,
    TensorInfo, VersionTable, export_delegate,
};

export_delegate!(|options: &PluginOptions| {
    let min_nodes = options.parse("min_nodes")?.unwrap_or(1);
    let versions = [(BuiltinOp::ADD, 1), (BuiltinOp::MUL, 1), (BuiltinOp::RELU, 1)];
    Ok(Simple(Chains { versions: VersionTable::new(&versions), min_nodes }))
});

struct Chains {
    versions: VersionTable,
    min_nodes: usize,
}

impl SimpleDelegate for Chains {
    fn name(&self) -> &str {
        "chains"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        if let Some(t) = node.inputs().chain(node.outputs()).find(|t| t.ty() != TensorType::Float32) {
            return Err(Rejection::UnsupportedType { operand: t.name().into(), ty: t.ty() });
        }
        let activation = match node.params() {
            Params::Add(p) => p.fused_activation_function,
            Params::Mul(p) => p.fused_activation_function,
            _ => Activation::None,
        };
        if !matches!(activation, Activation::None | Activation::Relu) {
            let text = format!("fused activation {activation:?}; only None and Relu are supported");
            return Err(Rejection::UnsupportedParam(text));
        }
        let output = node.output(0).map_or(0, |t| elements(&t));
        if let Some(n) = node.inputs().map(|t| elements(&t)).find(|&n| n != 1 && n != output) {
            let text = format!("an operand of {n} elements; only 1 and the output's {output} are supported");
            return Err(Rejection::UnsupportedParam(text));
        }
        Ok(())
    }

    fn partition_options(&self) -> PartitionOptions {
        PartitionOptions::default().with_min_nodes(self.min_nodes)
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let mut kernel = ChainsKernel { inputs: params.inputs.len(), ..Default::default() };
        let mut places = HashMap::new();
        for id in &params.inputs {
            kernel.place(&mut places, graph.tensor(*id));
        }
        for id in &params.nodes {
            let node = graph.node(*id);
            let mut operands = Vec::new();
            for tensor in node.inputs() {
                operands.push(match places.get(&tensor.id()) {
                    Some(place) => *place,
                    None => kernel.place(&mut places, tensor),
                });
            }
            let output = node.output(0).ok_or_else(|| Error::InvalidNode("no output".into()))?;
            let relu = match node.params() {
                Params::Add(p) => p.fused_activation_function == Activation::Relu,
                Params::Mul(p) => p.fused_activation_function == Activation::Relu,
                _ => true,
            };
            let multiply = matches!(node.params(), Params::Mul(_));
            let output = kernel.place(&mut places, output);
            kernel.steps.push(Step { operands, output, multiply, relu });
        }
        kernel.outputs = params.outputs.iter().filter_map(|id| places.get(id).copied()).collect();
        Ok(Box::new(kernel))
    }
}

fn elements(tensor: &TensorInfo<'_>) -> usize {
    tensor.shape().map_or(0, |shape| shape.elements())
}

/// One node.
struct Step {
    operands: Vec<usize>,
    output: usize,
    multiply: bool,
    relu: bool,
}

#[derive(Default)]
struct ChainsKernel {
    /// The partition's inputs, constants and results, in the order of use.
    values: Vec<Vec<f32>>,
    inputs: usize,
    outputs: Vec<usize>,
    steps: Vec<Step>,
}

impl ChainsKernel {
    /// Allocates a tensor; constants are copied once.
    fn place(&mut self, places: &mut HashMap<TensorId, usize>, tensor: TensorInfo<'_>) -> usize {
        let value = tensor.constant_as::<f32>().map(<[f32]>::to_vec);
        self.values.push(value.unwrap_or_else(|| vec![0.0; elements(&tensor)]));
        places.insert(tensor.id(), self.values.len() - 1);
        self.values.len() - 1
    }
}

impl Kernel for ChainsKernel {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        for i in 0..self.inputs {
            self.values[i].copy_from_slice(cx.input(i)?);
        }
        for step in &self.steps {
            // A node's output is stored after all of its operands.
            let (before, after) = self.values.split_at_mut(step.output);
            let out = &mut after[0];
            let operand = |i: usize, at: usize| {
                let values = &before[step.operands[i]];
                values[if values.len() == 1 { 0 } else { at }]
            };
            for (at, out) in out.iter_mut().enumerate() {
                let value = match (step.operands.len(), step.multiply) {
                    (1, _) => operand(0, at),
                    (_, true) => operand(0, at) * operand(1, at),
                    (_, false) => operand(0, at) + operand(1, at),
                };
                *out = if step.relu { value.max(0.0) } else { value };
            }
        }
        for (i, place) in self.outputs.iter().enumerate() {
            cx.output::<f32>(i)?.copy_from_slice(&self.values[*place]);
        }
        Ok(())
    }
}

impl DelegateKernel for ChainsKernel {}
