//! Weights that are stored in files next to the model.

use super::{Invalid, index_of, invalid};
use crate::error::tensor_name;
use crate::schema;

/// Returns the message for a model with weights in other files; `None` if all weights are in this file.
pub(super) fn find(model: &schema::Model<'_>) -> Result<Option<String>, Invalid> {
    let mut count = 0usize;
    let mut first = None;
    let mut groups: Vec<String> = Vec::new();
    for (g, subgraph) in model.subgraphs().unwrap_or_default().iter().enumerate() {
        for (i, tensor) in subgraph.tensors().unwrap_or_default().iter().enumerate() {
            if tensor.external_buffer() == 0 {
                continue;
            }
            let name = tensor_name(tensor.name().unwrap_or_default(), i);
            let place = if g == 0 { name } else { format!("{name} of subgraph {g}") };
            let group = group(model, tensor.external_buffer())
                .map_err(|Invalid(message)| Invalid(format!("tensor {i} ({place}): {message}")))?;
            if !groups.contains(&group) {
                groups.push(group);
            }
            count = count.saturating_add(1);
            first.get_or_insert(place);
        }
    }
    let Some(first) = first else { return Ok(None) };
    let tensors = match count.saturating_sub(1) {
        0 => format!("the data of {first} is"),
        1 => format!("the data of {first} and of 1 more tensor is"),
        more => format!("the data of {first} and of {more} more tensors is"),
    };
    Ok(Some(format!("{tensors} not in this file, but in external buffers: {}", groups.join(", "))))
}

/// The name of the group that external buffer `id` belongs to.
fn group(model: &schema::Model<'_>, id: u32) -> Result<String, Invalid> {
    let buffers = model.external_buffers().unwrap_or_default();
    let Some(buffer) = buffers.iter().find(|b| b.id() == id) else {
        return invalid!("external buffer {id} does not exist; the file has {}", buffers.len());
    };
    let groups = model.external_buffer_groups().unwrap_or_default();
    let index = index_of(buffer.group());
    if index >= groups.len() {
        return invalid!(
            "external buffer {id} is in group {index}, which does not exist; the file has {}",
            groups.len()
        );
    }
    Ok(format!("group \"{}\"", groups.get(index).name().unwrap_or_default()))
}
