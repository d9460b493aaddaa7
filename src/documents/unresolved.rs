//! Ops without a kernel.

use serde_json::{Value, json};

use super::text::{bounds, raw_name};
use crate::core::error::{UnresolvedNode, UnresolvedOp};

/// Describes an op without a kernel as JSON.
pub(crate) fn unresolved_op(op: &UnresolvedOp) -> Value {
    json!({
        "op": raw_name(&op.op),
        "version": op.version,
        "reason": format!("{:?}", op.reason),
        "registered": op.registered.iter().map(bounds).collect::<Vec<_>>(),
        "known": op.known.as_ref().map(bounds),
        "min_runtime": op.min_runtime,
        "why": op.why(),
        "nodes": op.nodes.iter().map(unresolved_node).collect::<Vec<_>>(),
    })
}

fn unresolved_node(node: &UnresolvedNode) -> Value {
    // Without the quotes of messages.
    let name = |output: &String| {
        let quoted = output.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        quoted.unwrap_or(output).to_owned()
    };
    let outputs: Vec<String> = node.outputs.iter().map(name).collect();
    json!({ "subgraph": node.subgraph, "node": node.node.0, "outputs": outputs })
}
