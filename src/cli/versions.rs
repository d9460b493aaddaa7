//! Versions of ops that are lower than those of the features that nodes use.

use delegraph::Model;
use delegraph::core::graph::{UnderstatedVersion, understated_versions};
use serde::Serialize;

use super::text::raw_name;

/// An op whose nodes use features of a newer version.
#[derive(Serialize)]
pub(crate) struct UnderstatedLine {
    op: String,
    version: u32,
    needed: u32,
    nodes: Vec<Place>,
    #[serde(skip)]
    text: String,
}

#[derive(Serialize)]
struct Place {
    subgraph: usize,
    node: usize,
}

/// Returns the understated versions of a model.
pub(crate) fn understated(model: &Model) -> Vec<UnderstatedLine> {
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
    understated_versions(model).into_iter().map(line).collect()
}

/// Returns a warning for each; empty without any.
pub(crate) fn warnings(lines: &[UnderstatedLine]) -> String {
    let mut text: String = lines.iter().map(|line| format!("warning: {}\n", line.text)).collect();
    if !lines.is_empty() {
        text += "`delegraph fuse MODEL -o OUT --versions-only` writes the versions that are needed\n";
    }
    text
}
