//! Versions of ops that are lower than those of the features that nodes use.

use serde::Serialize;

use super::text::raw_name;
use crate::Model;
use crate::core::error::UnderstatedVersion;
use crate::core::graph::understated_versions;

/// The understated versions of a model: see [`understated`].
#[derive(Debug, Default)]
pub struct Understated(pub(crate) Vec<UnderstatedLine>);

/// An op whose nodes use features of a newer version.
#[derive(Debug, Serialize)]
pub(crate) struct UnderstatedLine {
    op: String,
    version: u32,
    needed: u32,
    nodes: Vec<Place>,
    #[serde(skip)]
    #[cfg_attr(not(feature = "cli"), allow(dead_code))]
    pub(crate) text: String,
}

#[derive(Debug, Serialize)]
struct Place {
    subgraph: usize,
    node: usize,
}

/// Returns the ops of a model whose version is lower than that of the features that their nodes use.
pub fn understated(model: &Model) -> Understated {
    let line = |found: UnderstatedVersion| UnderstatedLine {
        text: found.to_string(),
        op: raw_name(&found.op),
        version: found.version,
        needed: found.needed,
        nodes: found
            .nodes
            .iter()
            .map(|(subgraph, node)| Place { subgraph: *subgraph, node: node.0 })
            .collect(),
    };
    Understated(understated_versions(model).into_iter().map(line).collect())
}
