//! Nodes whose output equals an input.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::{BuiltinOp, Shape};

use super::is_plain;
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::{Redirect, Rewriter};

/// Removes nodes whose output equals their input: `x + 0`, `x - 0`, `x · 1`, `x / 1`, `x¹`, CAST to the same type,
/// RESHAPE to the same shape, TRANSPOSE without a permutation, PAD by zero, SLICE of the whole tensor, CONCATENATION
/// and ADD_N of one tensor, TILE by 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveIdentity;

impl PatternFusion for RemoveIdentity {
    fn name(&self) -> &str {
        "remove-identity"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(remove(graph, id).is_some())
    }
}

fn remove(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let op = node.op().builtin()?;
    let [output] = *node.outputs() else { return None };
    let x = same_as(graph, node, op)?;
    let (from, to) = (graph.tensor(output)?, graph.tensor(x)?);
    let alike = (from.ty(), from.quantization()) == (to.ty(), to.quantization());
    let shapes = graph.shape(output).is_some() && graph.shape(output) == graph.shape(x);
    if !(alike && shapes) || from.is_variable() || to.is_variable() {
        return None;
    }
    // An output of the model keeps its tensor: the producer of the input writes the output, if the input has no other
    // consumer.
    if graph.is_output(output) {
        let producer = graph.producer(x).filter(|_| graph.is_private(x) && !graph.inputs().contains(&x))?;
        graph.remove(id);
        graph.change(producer, |node| {
            node.outputs_mut().iter_mut().filter(|t| **t == x).for_each(|t| *t = output);
        });
        return Some(());
    }
    graph.redirect(Redirect { from: output, to: x });
    graph.remove(id);
    Some(())
}

/// Returns the input that the node's output equals.
fn same_as(graph: &Rewriter<'_>, node: &Node, op: BuiltinOp) -> Option<TensorId> {
    use BuiltinOp as B;
    let x = node.input(0)?;
    if !is_plain(node) {
        return None;
    }
    // Whether input `i` is a float32 constant of one element, `value`. `remove` compares the shapes.
    let other = |i: usize, value: f32| {
        let c = node.input(i)?;
        (graph.scalar(c)? == value && graph.is_float(c)).then_some(())
    };
    match op {
        B::ADD => {
            let second = node.input(1)?;
            other(1, 0.0).map(|()| x).or_else(|| other(0, 0.0).map(|()| second))
        }
        B::MUL => {
            let second = node.input(1)?;
            other(1, 1.0).map(|()| x).or_else(|| other(0, 1.0).map(|()| second))
        }
        B::SUB => other(1, 0.0).map(|()| x),
        B::DIV | B::POW => other(1, 1.0).map(|()| x),
        B::CAST => Some(x),
        // Holds for every size of the first dimension, which may be -1 in the new shape.
        B::RESHAPE => same_shape(graph, node).then_some(x),
        B::TRANSPOSE => {
            let order = graph.integers(node.input(1)?)?;
            order.iter().enumerate().all(|(i, &d)| i as i64 == d).then_some(x)
        }
        B::PAD | B::PADV2 => graph.integers(node.input(1)?)?.iter().all(|&p| p == 0).then_some(x),
        B::CONCATENATION | B::ADD_N => (node.inputs().len() == 1).then_some(x),
        B::TILE => graph.integers(node.input(1)?)?.iter().all(|&n| n == 1).then_some(x),
        B::SLICE => {
            let (begin, size) = (graph.integers(node.input(1)?)?, graph.integers(node.input(2)?)?);
            (begin.iter().all(|&b| b == 0) && size.iter().all(|&s| s == -1)).then_some(x)
        }
        _ => None,
    }
}

/// Returns whether a RESHAPE keeps its input's shape, for every size of the first dimension.
fn same_shape(graph: &Rewriter<'_>, node: &Node) -> bool {
    let wanted = node.input(1).and_then(|shape| graph.integers(shape));
    let wanted = match (wanted, node.params()) {
        (Some(wanted), _) => wanted,
        (None, delegraph_core::Params::Reshape(p)) if node.inputs().len() == 1 => {
            p.new_shape.iter().map(|&d| i64::from(d)).collect()
        }
        _ => return false,
    };
    let Some(shape) = node.input(0).and_then(|x| graph.shape(x)) else { return false };
    fits(shape, &wanted)
}

fn fits(shape: &Shape, wanted: &[i64]) -> bool {
    shape.rank() == wanted.len()
        && shape.iter().zip(wanted).enumerate().all(|(i, (&has, &wants))| {
            usize::try_from(wants).is_ok_and(|wants| wants == has && has > 0) || (wants == -1 && i == 0)
        })
}
