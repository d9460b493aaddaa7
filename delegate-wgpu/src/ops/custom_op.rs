//! Custom ops for which the application registered shaders.

use delegraph_core::TensorType;
use delegraph_core::error::counted;
use delegraph_delegate_api::Rejection;

use crate::custom::{Array, Spec, WgpuNode, WgpuOp, WgpuTensor};
use crate::graph::ValueId;
use crate::graph::lowering::{Lowering, unsupported};

/// Adds the dispatches of a node to the graph.
pub(crate) fn lower(op: &WgpuOp, cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let node = WgpuNode::new(cx.node(), cx.caps().max_workgroups_per_dimension);
    let plan = op.plan(&node)?;
    let count = node.view().output_count();
    if plan.outputs.len() != count {
        let outputs = counted(count, "output");
        return Err(unsupported(format!("{outputs}, the GPU kernel has {}", plan.outputs.len())));
    }
    for (i, computed) in plan.outputs.iter().enumerate() {
        let wanted = node.output(i)?.shape;
        if wanted != computed {
            let text = format!("output {i} has the shape {wanted}, the GPU kernel computes {computed}");
            return Err(unsupported(text));
        }
    }
    let mut temporaries = Vec::new();
    for shape in &plan.temporaries {
        let dims: Result<Vec<u32>, _> = shape.iter().map(|&d| u32::try_from(d)).collect();
        let dims = dims.map_err(|_| {
            Rejection::DeviceLimit(format!(
                "a temporary of shape {shape}; at most {} fits a dimension",
                u32::MAX
            ))
        })?;
        temporaries.push(cx.checked_temporary(&dims)?);
    }
    // An invalid plan is an error of the application, not a property of the node.
    let fault = |i: usize, text: String| Rejection::Other(format!("dispatch {i} of {}: {text}", op.name()));
    let mut written = vec![false; count];
    for (i, dispatch) in plan.dispatches.iter().enumerate() {
        let fault = |text: String| fault(i, text);
        let shader = op.shader(dispatch.shader);
        let shader = shader.ok_or_else(|| fault(format!("there is no shader {}", dispatch.shader)))?;
        let (has, wants) = (dispatch.reads.len(), shader.reads.len());
        if has != wants {
            let has = counted(has, "tensor");
            return Err(fault(format!("it names {has} to read, the shader binds {wants}")));
        }
        let (bytes, block) = (dispatch.uniform.len(), shader.uniform);
        if bytes != block {
            let bytes = counted(bytes, "byte");
            return Err(fault(format!("{bytes} for the uniform block, the shader's has {block}")));
        }
        let value = |cx: &mut Lowering<'_, '_, '_>, tensor: WgpuTensor, array: Array| {
            let id = match tensor {
                WgpuTensor::Input(i) => cx.any_input(i)?,
                WgpuTensor::Output(i) => cx.output(i)?,
                WgpuTensor::Temporary(i) => {
                    *temporaries.get(i).ok_or_else(|| fault(format!("there is no temporary {i}")))?
                }
            };
            check(cx, id, tensor, array, &node)?;
            Ok(id)
        };
        let reads = dispatch.reads.iter().zip(&shader.reads);
        let reads =
            reads.map(|(t, array)| value(cx, *t, *array)).collect::<Result<Vec<ValueId>, Rejection>>()?;
        let output = match dispatch.writes {
            WgpuTensor::Input(i) => return Err(fault(format!("it writes input {i}"))),
            tensor => value(cx, tensor, shader.writes)?,
        };
        if reads.contains(&output) {
            return Err(fault("it reads what it writes".into()));
        }
        if let WgpuTensor::Output(i) = dispatch.writes
            && let Some(written) = written.get_mut(i)
        {
            *written = true;
        }
        let (uniform, workgroups) = (dispatch.uniform.clone(), dispatch.workgroups);
        cx.push(Spec { shader: shader.clone(), uniform, workgroups }, &reads, output)?;
    }
    match written.iter().position(|written| !written) {
        Some(i) => Err(Rejection::Other(format!("no dispatch of {} writes output {i}", op.name()))),
        None => Ok(()),
    }
}

/// Checks that the shader's array can hold a value.
fn check(
    cx: &Lowering<'_, '_, '_>,
    id: ValueId,
    tensor: WgpuTensor,
    array: Array,
    node: &WgpuNode<'_>,
) -> Result<(), Rejection> {
    let (operand, ty) = match tensor {
        WgpuTensor::Input(i) => (format!("input {i}"), node.input(i)?.ty),
        WgpuTensor::Output(i) => (format!("output {i}"), node.output(i)?.ty),
        WgpuTensor::Temporary(i) => (format!("temporary {i}"), TensorType::Float32),
    };
    if cx.element(id) != array.element {
        return Err(Rejection::UnsupportedType { operand, ty });
    }
    let elements: usize = cx.shape(id).iter().map(|&d| d as usize).product();
    if !elements.is_multiple_of(array.lanes) {
        let elements = counted(elements, "element");
        let text = format!("{operand} has {elements}, the shader takes {} at a time", array.lanes);
        return Err(unsupported(text));
    }
    Ok(())
}
