//! A graph as an SVG picture.

use std::fmt::Write;

use delegraph::core::printable_lines;

use super::layout::{self, Layout, Vertex};
use super::scene::{self, Edge, Look, Scene};

const BOX_HEIGHT: f64 = 34.0;
/// The distance between layers.
const LAYER: f64 = 78.0;
const MARGIN: f64 = 16.0;
/// The width of a letter in boxes. The font is monospaced, so sizes are known without measuring.
const LETTER: f64 = 6.7;
/// The width of a letter next to edges.
const SMALL_LETTER: f64 = 5.5;
const LEGEND_LINE: f64 = 18.0;
/// Vertices with more outputs have edge labels only in tooltips.
const LABELLED_OUTPUTS: usize = 6;

const STYLE: &str = "\
text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2937}\
.label{font-size:11px;text-anchor:middle}\
.detail{font-size:9px;text-anchor:middle;fill:#4b5563}\
.shape{font-size:9px;fill:#4b5563;stroke:#fff;stroke-width:3px;paint-order:stroke}\
.title{font-size:14px;font-weight:bold}\
.legend{font-size:11px}\
.box{stroke:#6b7280;stroke-width:1}\
.edge{fill:none;stroke:#6b7280;stroke-width:1.2}\
.edge.crosses{stroke:#b91c1c;stroke-width:2.2}\
.edge.constant{stroke:#9ca3af;stroke-dasharray:4 3}\
.arrow{fill:#6b7280}.arrow.crosses{fill:#b91c1c}.arrow.constant{fill:#9ca3af}\
.callee{fill:#1d4ed8;text-decoration:underline}\
.node:hover .box{stroke:#111827;stroke-width:2.5}.edge:hover{stroke-width:4}";

/// The targets of links from nodes to the subgraphs that they call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// No links: the picture shows one subgraph.
    None,
    /// Elements with the [`anchor`] of the subgraph.
    Anchors,
}

/// Returns the id of the element that shows a subgraph.
pub(super) fn anchor(subgraph: usize) -> String {
    format!("subgraph{subgraph}")
}

/// Returns the picture.
pub(super) fn svg(scene: &Scene, links: Links) -> String {
    let outputs = Outputs::new(scene);
    let width = |(i, v): (usize, &super::scene::Vertex)| {
        let letters = v.label.chars().count() as f64 * LETTER;
        let links = v.callees.iter().map(|c| link_text(*c).chars().count() + 1).sum::<usize>();
        let detail = (v.detail.chars().count() + links) as f64 * SMALL_LETTER;
        Vertex { width: (letters.max(detail) + 16.0).max(outputs.width(i)), late: v.folded }
    };
    let vertices: Vec<Vertex> = scene.vertices.iter().enumerate().map(width).collect();
    let edge =
        |e: &Edge| layout::Edge { from: e.from, to: e.to, weight: if e.constant { 0.01 } else { 1.0 } };
    let edges: Vec<layout::Edge> = scene.edges.iter().map(edge).collect();
    let layout = Layout::new(&vertices, &edges);
    let top = MARGIN + 30.0 + LEGEND_LINE * (scene.legend.len() + 1) as f64;
    let picture = Picture { scene, vertices, layout, outputs, top, links };

    let letters = scene.legend.iter().map(|l| l.text.chars().count()).max().unwrap_or(0).max(48);
    let letters = (letters as f64 + 4.0) * LETTER;
    let letters = letters.max(scene.title.chars().count() as f64 * 8.6);
    let width = picture.layout.width.max(letters) + 2.0 * MARGIN;
    let height = top + picture.layout.layers as f64 * LAYER + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    picture.legend(&mut svg);
    (0..scene.edges.len()).for_each(|e| picture.edge(&mut svg, e));
    picture.shapes(&mut svg);
    (0..scene.vertices.len()).for_each(|v| picture.vertex(&mut svg, v));
    svg + "</svg>\n"
}

/// The start points of a vertex's output tensors, in separate columns that are wide enough for their labels.
struct Outputs {
    /// Per vertex, the tensors, each with the width of its label and the first of its edges.
    of: Vec<Vec<(usize, f64, usize)>>,
}

impl Outputs {
    fn new(scene: &Scene) -> Self {
        let mut of: Vec<Vec<(usize, f64, usize)>> = vec![Vec::new(); scene.vertices.len()];
        for (e, edge) in scene.edges.iter().enumerate() {
            let tensors = &mut of[edge.from];
            if tensors.iter().all(|(tensor, ..)| *tensor != edge.tensor) {
                tensors.push((edge.tensor, edge.label.chars().count() as f64 * SMALL_LETTER + 10.0, e));
            }
        }
        Outputs { of }
    }

    fn labelled(&self, vertex: usize) -> bool {
        self.of[vertex].len() <= LABELLED_OUTPUTS
    }

    /// Returns the width of the labels. One label is next to the middle.
    fn width(&self, vertex: usize) -> f64 {
        match &self.of[vertex][..] {
            [(_, width, _)] => 2.0 * width,
            several if self.labelled(vertex) => several.iter().map(|(_, width, _)| width).sum(),
            _ => 0.0,
        }
    }

    /// The distance from the middle of the vertex to the start of a tensor's edges.
    fn offset(&self, vertex: usize, tensor: usize, box_width: f64) -> f64 {
        let tensors = &self.of[vertex];
        let at = tensors.iter().position(|(t, ..)| *t == tensor).unwrap_or(0);
        match tensors.len() {
            0 | 1 => 0.0,
            _ if self.labelled(vertex) => {
                tensors.iter().take(at).map(|(_, width, _)| width).sum::<f64>() + 5.0
                    - self.width(vertex) / 2.0
            }
            count => box_width * ((at as f64 + 0.5) / count as f64 - 0.5),
        }
    }
}

struct Picture<'s> {
    scene: &'s Scene,
    vertices: Vec<Vertex>,
    layout: Layout,
    outputs: Outputs,
    top: f64,
    links: Links,
}

// Writing to a string cannot fail.
impl Picture<'_> {
    fn y(&self, layer: usize) -> f64 {
        self.top + layer as f64 * LAYER
    }

    fn x(&self, vertex: usize) -> f64 {
        self.layout.vertices[vertex].0 + MARGIN
    }

    fn legend(&self, svg: &mut String) {
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
            MARGIN + 12.0,
            escape(&self.scene.title)
        );
        let mut y = MARGIN + 24.0;
        for line in &self.scene.legend {
            let (fill, dash) = (fill(line.look), dash(line.look == Look::Folded));
            let _ = writeln!(
                svg,
                "<rect class=\"box\" x=\"{MARGIN}\" y=\"{y}\" width=\"16\" height=\"12\" rx=\"3\" fill=\"{fill}\"{dash}/>\
                 <text class=\"legend\" x=\"{}\" y=\"{}\">{}</text>",
                MARGIN + 24.0,
                y + 10.0,
                escape(&line.text)
            );
            y += LEGEND_LINE;
        }
        let _ = writeln!(
            svg,
            "<path class=\"edge crosses\" d=\"M{MARGIN} {0}h16\"/>\
             <text class=\"legend\" x=\"{1}\" y=\"{2}\">a tensor over the border of a partition</text>",
            y + 6.0,
            MARGIN + 24.0,
            y + 10.0
        );
    }

    /// The subgraphs that a vertex calls, behind its detail.
    fn callees(&self, vertex: &scene::Vertex) -> String {
        let link = |callee: &usize| match self.links {
            Links::None => format!(" {}", link_text(*callee)),
            Links::Anchors => {
                format!(" <a class=\"callee\" href=\"#{}\">{}</a>", anchor(*callee), link_text(*callee))
            }
        };
        vertex.callees.iter().map(link).collect()
    }

    fn vertex(&self, svg: &mut String, v: usize) {
        let vertex = &self.scene.vertices[v];
        let (fill, dash) = (fill(vertex.look), dash(vertex.folded));
        let (x, y, width) = (self.x(v), self.y(self.layout.vertices[v].1), self.vertices[v].width);
        let id = vertex.node.map(|node| match self.scene.subgraph {
            0 => format!(" id=\"node{node}\""),
            subgraph => format!(" id=\"{}-node{node}\"", anchor(subgraph)),
        });
        let id = id.unwrap_or_default();
        let round = if vertex.look == Look::Border { BOX_HEIGHT / 2.0 } else { 5.0 };
        let _ = writeln!(
            svg,
            "<g class=\"node\"{id}><title>{}</title><rect class=\"box\" x=\"{:.1}\" y=\"{y:.1}\" \
             width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"{round}\" fill=\"{fill}\"{dash}/>\
             <text class=\"label\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"detail\" x=\"{x:.1}\" y=\"{:.1}\">{}{}</text></g>",
            escape(&vertex.title),
            x - width / 2.0,
            y + 14.0,
            escape(&vertex.label),
            y + 27.0,
            escape(&vertex.detail),
            self.callees(vertex)
        );
    }

    /// Returns the start of an edge.
    fn start(&self, edge: &Edge) -> f64 {
        let width = self.vertices[edge.from].width;
        self.x(edge.from) + self.outputs.offset(edge.from, edge.tensor, width)
    }

    fn edge(&self, svg: &mut String, e: usize) {
        let edge = &self.scene.edges[e];
        let (x, mut y) = (self.start(edge), self.y(self.layout.vertices[edge.from].1) + BOX_HEIGHT);
        let mut path = format!("M{x:.1} {y:.1}");
        let mut curve = |x: &mut f64, to: f64, end: f64| {
            let middle = f64::midpoint(y, end);
            let _ = match (*x - to).abs() < 0.5 {
                true => write!(path, "L{to:.1} {end:.1}"),
                false => write!(path, "C{x:.1} {middle:.1} {to:.1} {middle:.1} {to:.1} {end:.1}"),
            };
            (*x, y) = (to, end);
        };
        let mut x = x;
        for &(lane, layer) in &self.layout.edges[e] {
            let top = self.y(layer);
            curve(&mut x, lane + MARGIN, top - 4.0);
            curve(&mut x, lane + MARGIN, top + BOX_HEIGHT + 4.0);
        }
        let (to, end) = (self.x(edge.to), self.y(self.layout.vertices[edge.to].1));
        // Edges end at separate points, in their order.
        let reach = (self.vertices[edge.to].width * 0.35).min(30.0);
        let to = to + (x - to).clamp(-reach, reach);
        curve(&mut x, to, end - 6.0);
        let kind = match (edge.crosses, edge.constant) {
            (true, _) => " crosses",
            (_, true) => " constant",
            _ => "",
        };
        let _ = writeln!(
            svg,
            "<path class=\"edge{kind}\" d=\"{path}\"><title>{}</title></path>\
             <path class=\"arrow{kind}\" d=\"M{to:.1} {end:.1}l-3.5 -7h7z\"/>",
            escape(&edge.title)
        );
    }

    /// The shapes of tensors, each at the start of its edges.
    fn shapes(&self, svg: &mut String) {
        for (v, tensors) in self.outputs.of.iter().enumerate().filter(|(v, _)| self.outputs.labelled(*v)) {
            for &(_, _, e) in tensors {
                let edge = &self.scene.edges[e];
                let _ = writeln!(
                    svg,
                    "<text class=\"shape\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    self.start(edge) + 4.0,
                    self.y(self.layout.vertices[v].1) + BOX_HEIGHT + 11.0,
                    escape(&edge.label)
                );
            }
        }
    }
}

fn link_text(callee: usize) -> String {
    format!("→ {callee}")
}

/// The frame of folded nodes.
fn dash(folded: bool) -> &'static str {
    if folded { " stroke-dasharray=\"4 3\"" } else { "" }
}

/// Returns the colour of a look, as `#rrggbb`: a hue for each delegate, a shade of it for each partition.
pub(super) fn fill(look: Look) -> String {
    let (hue, saturation, lightness) = match look {
        Look::Border => (0.0, 0.0, 1.0),
        Look::Cpu => (0.0, 0.0, 0.83),
        Look::None => (0.0, 0.75, 0.85),
        Look::Folded => (0.0, 0.0, 0.98),
        Look::Partition { delegate, number } => {
            // The golden angle keeps the hues of any number of delegates apart.
            let hue = (210.0 + delegate as f64 * 137.5 + (number % 5) as f64 * 7.0).rem_euclid(360.0);
            (hue, 0.75, [0.80, 0.68, 0.87, 0.74][number % 4])
        }
    };
    let chroma = saturation * (1.0 - (2.0 * lightness - 1.0_f64).abs()) / 2.0;
    let channel = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        let value = lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

/// Text in XML. Characters that XML does not allow are escaped, or replaced by question marks.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable_lines(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_delegates_are_apart() {
        let partition = |delegate, number| fill(Look::Partition { delegate, number });
        assert_eq!(fill(Look::Border), "#ffffff");
        assert_eq!(partition(0, 0), "#a6ccf2");
        let all: std::collections::HashSet<String> =
            (0..6).flat_map(|delegate| (0..12).map(move |number| partition(delegate, number))).collect();
        assert_eq!(all.len(), 6 * 12);
    }

    #[test]
    fn names_cannot_break_out_of_the_picture() {
        assert_eq!(escape("a<b> & \"c\"\u{0}\u{1b}\n"), "a&lt;b&gt; &amp; &quot;c&quot;\\u{0}\\u{1b}\n");
    }
}
