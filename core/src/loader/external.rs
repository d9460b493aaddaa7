//! Weights that are stored in files next to the model.

use std::collections::{HashMap, HashSet};

use super::{Invalid, index_of, invalid};
use crate::error::tensor_name;
use crate::schema;

/// Returns the message for a model with weights in other files; `None` if all weights are in this file.
pub(super) fn find(model: &schema::Model<'_>) -> Result<Option<String>, Invalid> {
    let mut count = 0usize;
    let mut first = None;
    let (mut named, mut names, mut groups) = (HashSet::new(), HashSet::new(), Vec::new());
    let buffers = buffers(model);
    for (g, subgraph) in model.subgraphs().unwrap_or_default().iter().enumerate() {
        for (i, tensor) in subgraph.tensors().unwrap_or_default().iter().enumerate() {
            if tensor.external_buffer() == 0 {
                continue;
            }
            let place = || {
                let name = tensor_name(tensor.name().unwrap_or_default(), i);
                if g == 0 { name } else { format!("{name} of subgraph {g}") }
            };
            let group = group(model, &buffers, tensor.external_buffer())
                .map_err(|Invalid(message)| Invalid(format!("tensor {i} ({}): {message}", place())))?;
            // Several groups may have one name.
            if named.insert(group) {
                let name = name(model, group);
                if names.insert(name) {
                    groups.push(format!("group \"{name}\""));
                }
            }
            count = count.saturating_add(1);
            first.get_or_insert_with(place);
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

/// The group of each external buffer, by the buffer's id. The first buffer of an id counts.
fn buffers(model: &schema::Model<'_>) -> HashMap<u32, u32> {
    let mut groups = HashMap::new();
    for buffer in model.external_buffers().unwrap_or_default() {
        groups.entry(buffer.id()).or_insert(buffer.group());
    }
    groups
}

/// The index of the group that external buffer `id` belongs to.
fn group(model: &schema::Model<'_>, buffers: &HashMap<u32, u32>, id: u32) -> Result<usize, Invalid> {
    let Some(group) = buffers.get(&id) else {
        let count = model.external_buffers().unwrap_or_default().len();
        return invalid!("external buffer {id} does not exist; the file has {count}");
    };
    let (index, count) = (index_of(*group), model.external_buffer_groups().unwrap_or_default().len());
    if index >= count {
        return invalid!(
            "external buffer {id} is in group {index}, which does not exist; the file has {count}"
        );
    }
    Ok(index)
}

/// The name of a group, which must exist.
fn name<'m>(model: &schema::Model<'m>, group: usize) -> &'m str {
    model.external_buffer_groups().unwrap_or_default().get(group).name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// A file with one tensor for each of `tensors`, the id of its external buffer. `buffers` are ids and groups.
    fn file(tensors: &[u32], buffers: &[(u32, u32)], groups: &[&str]) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let tensors: Vec<_> = tensors
            .iter()
            .map(|&external_buffer| {
                let arguments = schema::TensorArgs { external_buffer, ..Default::default() };
                schema::Tensor::create(&mut builder, &arguments)
            })
            .collect();
        let tensors = Some(builder.create_vector(&tensors));
        let arguments = schema::SubGraphArgs { tensors, ..Default::default() };
        let subgraph = schema::SubGraph::create(&mut builder, &arguments);
        let subgraphs = Some(builder.create_vector(&[subgraph]));
        let buffers: Vec<_> = buffers
            .iter()
            .map(|&(id, group)| {
                let arguments = schema::ExternalBufferArgs { id, group, ..Default::default() };
                schema::ExternalBuffer::create(&mut builder, &arguments)
            })
            .collect();
        let external_buffers = Some(builder.create_vector(&buffers));
        let groups: Vec<_> = groups
            .iter()
            .map(|name| {
                let name = Some(builder.create_string(name));
                schema::ExternalBufferGroup::create(&mut builder, &schema::ExternalBufferGroupArgs { name })
            })
            .collect();
        let external_buffer_groups = Some(builder.create_vector(&groups));
        let arguments =
            schema::ModelArgs { subgraphs, external_buffers, external_buffer_groups, ..Default::default() };
        let model = schema::Model::create(&mut builder, &arguments);
        builder.finish(model, Some(schema::MODEL_IDENTIFIER));
        builder.finished_data().to_vec()
    }

    fn found(tensors: &[u32], buffers: &[(u32, u32)], groups: &[&str]) -> Result<Option<String>, String> {
        let file = file(tensors, buffers, groups);
        let model = schema::root_as_model(&file).map_err(|e| e.to_string())?;
        find(&model).map_err(|Invalid(message)| message)
    }

    #[test]
    fn groups_are_named_once_in_the_order_of_their_tensors() {
        assert_eq!(found(&[0, 0], &[], &[]), Ok(None));
        // The first buffer of an id counts, and two groups have one name.
        let buffers = [(1, 0), (2, 1), (3, 2), (2, 7)];
        let text = found(&[0, 3, 2, 1, 2], &buffers, &["a", "b", "a"]);
        let expected = "the data of tensor 1 and of 3 more tensors is not in this file, but in external buffers: \
            group \"a\", group \"b\"";
        assert_eq!(text, Ok(Some(expected.to_owned())));
        let missing = "tensor 1 (tensor 1): external buffer 4 does not exist; the file has 1";
        assert_eq!(found(&[1, 4], &[(1, 0)], &["a"]), Err(missing.to_owned()));
        let outside =
            "tensor 0 (tensor 0): external buffer 1 is in group 2, which does not exist; the file has 1";
        assert_eq!(found(&[1], &[(1, 2)], &["a"]), Err(outside.to_owned()));
    }
}
