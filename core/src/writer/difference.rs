//! Comparison of two models.

use std::fmt::Debug;

use crate::graph::archive;
use crate::graph::{Model, Node, Subgraph, Tensor};

impl Model {
    /// Returns the first difference of the models, in words; `None` if they are the same. Positions in the file and the
    /// path are ignored.
    pub fn difference(&self, other: &Model) -> Option<String> {
        let metadata = |model: &Model| {
            let entry = |(name, _): &(String, _)| (name.clone(), model.metadata(name).map(<[u8]>::to_vec));
            model.metadata_entries().iter().map(entry).collect::<Vec<_>>()
        };
        let unnamed = |model: &Model| {
            let bytes = |range: &std::ops::Range<usize>| model.bytes().get(range.clone()).map(<[u8]>::to_vec);
            model.unnamed_metadata().iter().map(bytes).collect::<Vec<_>>()
        };
        let archive = |model: &Model| model.archive().map(|zip| archive::moved(zip, 0));
        differ("description", &self.description(), &other.description())
            .or_else(|| differ("signatures", &self.signatures(), &other.signatures()))
            .or_else(|| differ("metadata", &metadata(self), &metadata(other)))
            .or_else(|| differ("unnamed metadata", &unnamed(self), &unnamed(other)))
            .or_else(|| differ("archive", &archive(self), &archive(other)))
            .or_else(|| differ("number of subgraphs", &self.subgraphs().len(), &other.subgraphs().len()))
            .or_else(|| {
                let mut pairs = self.subgraphs().iter().zip(other.subgraphs()).enumerate();
                pairs.find_map(|(i, (a, b))| {
                    Some(format!("subgraph {i}: {}", subgraphs((self, a), (other, b))?))
                })
            })
    }
}

fn subgraphs((a_model, a): (&Model, &Subgraph), (b_model, b): (&Model, &Subgraph)) -> Option<String> {
    differ("name", &a.name(), &b.name())
        .or_else(|| differ("inputs", &a.inputs(), &b.inputs()))
        .or_else(|| differ("outputs", &a.outputs(), &b.outputs()))
        .or_else(|| differ("debug metadata", &a.debug_metadata(), &b.debug_metadata()))
        .or_else(|| differ("number of tensors", &a.tensors().len(), &b.tensors().len()))
        .or_else(|| differ("number of nodes", &a.nodes().len(), &b.nodes().len()))
        .or_else(|| {
            let mut pairs = a.tensors().iter().zip(b.tensors()).enumerate();
            pairs.find_map(|(i, (a, b))| {
                if a_model.constant(a) != b_model.constant(b) {
                    return Some(format!("tensor {i} (\"{}\"): its data", a.name()));
                }
                let without_place = |t: &Tensor| t.clone().with_data(None);
                differ(&format!("tensor {i}"), &without_place(a), &without_place(b))
            })
        })
        .or_else(|| {
            let mut pairs = a.nodes().iter().zip(b.nodes()).enumerate();
            pairs.find_map(|(i, (a, b))| {
                let options =
                    |model: &Model, n: &Node| model.bytes().get(n.custom_options()).map(<[u8]>::to_vec);
                if options(a_model, a) != options(b_model, b) {
                    return Some(format!("node {i} ({}): its custom options", a.op()));
                }
                let without_place = |n: &Node| n.clone().with_custom_options(0..0);
                differ(&format!("node {i}"), &without_place(a), &without_place(b))
            })
        })
}

/// Returns the two values as text if they differ. All NaNs are equal in text.
fn differ<T: Debug>(what: &str, a: &T, b: &T) -> Option<String> {
    let (a, b) = (format!("{a:?}"), format!("{b:?}"));
    (a != b).then(|| format!("{what}: {a} and {b}"))
}
