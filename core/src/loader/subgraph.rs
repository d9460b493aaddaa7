//! Operator codes, subgraphs and their nodes.

use std::sync::Arc;

use super::{Buffers, Invalid, index_in, index_of, invalid, quantization, tensor};
use crate::error::{counted, tensor_name};
use crate::graph::{Node, Subgraph, Tensor, TensorId, at_node, writes};
use crate::ops;
use crate::schema;
use crate::types::{BuiltinOp, Op};

/// The effective code: old files store only the byte, newer ones both, codes from 127 on only the wide field.
fn effective_code(code: &schema::OperatorCode<'_>) -> BuiltinOp {
    BuiltinOp(code.builtin_code().0.max(i32::from(code.deprecated_builtin_code())))
}

/// An operator code of the file, or its defect, which is an error once a node uses the code.
pub(super) type Code = Result<(Op, u32), String>;

pub(super) fn operator_codes(model: &schema::Model<'_>) -> Vec<Code> {
    let read = |(i, code): (usize, schema::OperatorCode<'_>)| {
        let op = match (effective_code(&code), code.custom_code()) {
            (BuiltinOp::CUSTOM, Some(name)) if !name.is_empty() => Op::Custom(Arc::from(name)),
            (BuiltinOp::CUSTOM, _) => return Err(format!("operator code {i} is a custom op without a name")),
            (BuiltinOp(code), _) if code < 0 => {
                return Err(format!("operator code {i} is the negative number {code}"));
            }
            (builtin, _) => Op::Builtin(builtin),
        };
        match u32::try_from(code.version()) {
            Ok(version) if version > 0 => Ok((op, version)),
            _ => Err(format!(
                "operator code {i} ({}) has version {}; versions start at 1",
                op.in_short(),
                code.version()
            )),
        }
    };
    model.operator_codes().unwrap_or_default().iter().enumerate().map(read).collect()
}

pub(super) fn read(
    table: &schema::SubGraph<'_>,
    buffers: &Buffers<'_>,
    codes: &[Code],
) -> Result<Subgraph, Invalid> {
    // The exact capacity, which the verifier has counted: growing would leave memory unused.
    let mut tensors = exactly(table.tensors().unwrap_or_default().len())?;
    for (i, t) in table.tensors().unwrap_or_default().iter().enumerate() {
        let read = tensor::read(&t, buffers);
        tensors.push(read.map_err(|Invalid(m)| {
            let name = tensor_name(t.name().unwrap_or_default(), i);
            Invalid(format!("tensor {i} ({name}): {m}"))
        })?);
    }
    quantization::drop_default_zero_points(&mut tensors);
    let ids = |list: Option<flatbuffers::Vector<'_, i32>>, what: &str| {
        let list = list.unwrap_or_default();
        list.iter()
            .map(|i| index_in(i, tensors.len(), what, "tensor").map(TensorId))
            .collect::<Result<Vec<_>, _>>()
    };
    let inputs = ids(table.inputs(), "the graph's input tensor")?;
    let outputs = ids(table.outputs(), "the graph's output tensor")?;
    let mut nodes = exactly(table.operators().unwrap_or_default().len())?;
    for (i, operator) in table.operators().unwrap_or_default().iter().enumerate() {
        let (op, version) = match codes.get(index_of(operator.opcode_index())) {
            Some(Ok(code)) => code,
            Some(Err(message)) => return invalid!("node {i}: {message}"),
            None => {
                return invalid!(
                    "node {i}: operator code {} does not exist; the file has {}",
                    operator.opcode_index(),
                    counted(codes.len(), "operator code")
                );
            }
        };
        let node = read_node(operator, op, *version, &tensors, buffers);
        nodes.push(node.map_err(|e| {
            let outputs = operator.outputs().unwrap_or_default();
            let label = writes(&tensors, outputs.iter().filter_map(|o| usize::try_from(o).ok()));
            at_node(i, op, &label, e)
        })?);
    }
    let mut subgraph = Subgraph::new(table.name().unwrap_or_default(), tensors, nodes, inputs, outputs);
    subgraph.set_debug_metadata(u32::try_from(table.debug_metadata_index()).ok());
    Ok(subgraph)
}

fn exactly<T>(count: usize) -> Result<Vec<T>, Invalid> {
    let mut list = Vec::new();
    match list.try_reserve_exact(count) {
        Ok(()) => Ok(list),
        Err(_) => invalid!("not enough memory for {count} of its tensors or nodes"),
    }
}

fn read_node(
    operator: schema::Operator<'_>,
    op: &Op,
    version: u32,
    tensors: &[Tensor],
    buffers: &Buffers<'_>,
) -> Result<Node, Invalid> {
    let tensors = tensors.len();
    let required = |what: &'static str| move |i: i32| index_in(i, tensors, what, "tensor").map(TensorId);
    let optional =
        |what: &'static str| move |i: i32| if i == -1 { Ok(None) } else { required(what)(i).map(Some) };
    let inputs = operator.inputs().unwrap_or_default().iter().map(optional("input tensor"));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let outputs = operator.outputs().unwrap_or_default().iter().map(required("output tensor"));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let intermediates = operator.intermediates().unwrap_or_default().iter();
    let intermediates = intermediates.map(optional("intermediate tensor")).collect::<Result<Vec<_>, _>>()?;
    let definition = op.builtin().and_then(ops::definition);
    let (params, custom_options) = match op {
        Op::Custom(_) => {
            let format = operator.custom_options_format();
            if format != schema::CustomOptionsFormat::FLEXBUFFERS {
                return invalid!("its custom options have the unknown format {}", format.0);
            }
            (ops::Params::Custom, custom_options(&operator, buffers)?)
        }
        Op::Builtin(_) => {
            // An unknown version may have unknown options. The error that such a node has no kernel explains more than
            // an error about its options.
            let newest = definition.and_then(|d| d.history.last()).map(|(version, _)| *version);
            match ops::read_params(definition, operator) {
                Ok(params) => (params, 0..0),
                Err(_) if newest.is_some_and(|newest| version > newest) => (ops::Params::Undefined, 0..0),
                Err(e) => return Err(Invalid(e.to_string())),
            }
        }
    };
    let options_left_out = definition.is_some_and(|d| d.codec.ty != ops::OptionsType::None)
        && operator.builtin_options_type() == schema::BuiltinOptions::NONE
        && operator.builtin_options_2_type() == schema::BuiltinOptions2::NONE;
    let mut node = Node::new(op.clone(), version, params, inputs, outputs);
    node.set_options_left_out(options_left_out);
    node.set_intermediates(intermediates);
    node.set_custom_options(custom_options);
    let mutating = operator.mutating_variable_inputs().unwrap_or_default();
    node.set_mutating_variable_inputs(mutating.iter().collect::<Vec<_>>());
    node.set_debug_metadata(u32::try_from(operator.debug_metadata_index()).ok());
    Ok(node)
}

fn custom_options(
    operator: &schema::Operator<'_>,
    buffers: &Buffers<'_>,
) -> Result<std::ops::Range<usize>, Invalid> {
    if let Some(options) = operator.custom_options() {
        return buffers.range_of(options.bytes());
    }
    let (offset, size) = (operator.large_custom_options_offset(), operator.large_custom_options_size());
    if offset > 1 { buffers.outside(offset, size, "large custom options") } else { Ok(0..0) }
}
