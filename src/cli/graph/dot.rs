//! A graph in DOT, the language of Graphviz.

use std::fmt::Write;

use delegraph::core::printable_lines;

use super::scene::{Look, Scene};
use super::svg::fill;

/// Returns the graph in DOT.
pub(super) fn dot(scene: &Scene) -> String {
    let mut dot = format!("digraph {} {{\n", quote(&scene.title));
    dot += "  node [shape=box, style=\"rounded,filled\", fontname=\"monospace\", fontsize=11];\n";
    dot += "  edge [fontname=\"monospace\", fontsize=9, color=\"#6b7280\"];\n";
    // Writing to a string cannot fail.
    for (v, vertex) in scene.vertices.iter().enumerate() {
        let more = match vertex.look {
            Look::Border => ", shape=oval",
            _ if vertex.folded => ", style=\"rounded,filled,dashed\"",
            _ => "",
        };
        let _ = writeln!(
            dot,
            "  v{v} [label={}, tooltip={}, fillcolor=\"{}\"{more}];",
            quote(&format!("{}\n{}", vertex.label, vertex.detail)),
            quote(&vertex.title),
            fill(vertex.look)
        );
    }
    for edge in &scene.edges {
        let more = match (edge.crosses, edge.constant) {
            (true, _) => ", color=\"#b91c1c\", penwidth=2",
            (_, true) => ", style=dashed",
            _ => "",
        };
        let _ = writeln!(
            dot,
            "  v{} -> v{} [label={}, tooltip={}{more}];",
            edge.from,
            edge.to,
            quote(&edge.label),
            quote(&edge.title)
        );
    }
    dot + "}\n"
}

/// Returns a text as a quoted string of DOT.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in printable_lines(text).chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quote("a\"b\\c\nd\u{0}"), r#""a\"b\\c\nd\\u{0}""#);
    }
}
