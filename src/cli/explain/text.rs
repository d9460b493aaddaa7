//! The explanation as text.

use delegraph::core::printable;

use super::super::output::{Document, bytes, scaled, table, work};
use super::super::text::{plural, warnings};
use crate::documents::explain::{
    BlockerLine, CompositeLine, Explanation, Gain, NodeLine, PartitionLine, RejectionLine, Section,
    SubgraphSection, TensorLine,
};

/// The number of blockers shown.
const MAX_BLOCKERS: usize = 5;

/// The runner of nodes without a kernel.
const NO_KERNEL: &str = "none";

/// The number of inputs, and of outputs, shown of a partition.
const MAX_TENSORS: usize = 8;

impl Document for Explanation {
    fn text(&self) -> String {
        let mut text = format!("{}\n\n{}", printable(&self.model), self.entry.text(self.cpu));
        for failure in &self.failures {
            text += &format!("\nfailed and left out: {}: {}\n", failure.delegate, failure.message);
        }
        if !self.unresolved_text.is_empty() {
            let ops = self.unresolved_text.join("\n  ");
            text += &format!("\nthe model cannot run: ops without a kernel:\n  {ops}\n");
            if self.claims_unresolved() {
                text += "nodes that a delegate claims need a kernel, too: it determines their shapes\n";
            }
        }
        if !self.understated_versions.is_empty() {
            text += &format!("\n{}", warnings(&self.understated_versions));
        }
        for subgraph in &self.subgraphs {
            text += &subgraph.text(self.cpu);
        }
        text
    }
}

impl Explanation {
    /// Returns whether a delegate claimed a node without a kernel.
    fn claims_unresolved(&self) -> bool {
        let sections = self.subgraphs.iter().filter_map(|subgraph| subgraph.section.as_ref());
        let nodes = sections.chain([&self.entry]).flat_map(|section| &section.nodes);
        nodes
            .filter(|node| node.partition.is_some())
            .any(|node| self.unresolved.iter().any(|op| op["op"] == node.op && op["version"] == node.version))
    }
}

impl SubgraphSection {
    fn text(&self, cpu: &str) -> String {
        let title = format!("\nsubgraph {} \"{}\"", self.subgraph, printable(&self.name));
        match &self.section {
            Some(section) => format!("{title}\n\n{}", section.text(cpu)),
            None => {
                let nodes = plural(self.node_count, "node");
                let why = match self.called {
                    true => format!("which nothing that runs on {cpu} calls"),
                    false => {
                        "which no node calls; those of inlined bodies are in the graphs that called them"
                            .into()
                    }
                };
                format!("{title}: {nodes}, {why}\n")
            }
        }
    }
}

impl Section {
    fn text(&self, cpu: &str) -> String {
        let header = ["node", "op", "version", "runs on", "why not elsewhere"];
        let mut text = table(&header, &[0, 2], self.nodes.iter().map(node));
        for (i, p) in self.partitions.iter().enumerate() {
            text += &partition(i, p);
        }
        for composite in &self.composites {
            text += &self::composite(composite);
        }
        text += &self.counts(cpu);
        let taken = self.partitions.iter().map(|p| p.multiply_adds).fold(0, u64::saturating_add);
        if !self.partitions.is_empty() {
            let boundary = self.partitions.iter().map(|p| p.boundary_bytes).fold(0, u64::saturating_add);
            text += &format!(
                "{} of {} delegated, {} over the borders of {}\n",
                scaled(taken),
                work(self.multiply_adds),
                bytes(boundary),
                plural(self.partitions.len(), "partition")
            );
        }
        text + &self.fix_first()
    }

    /// Describes the runners of the nodes.
    fn counts(&self, cpu: &str) -> String {
        let on =
            |runner: &str| self.nodes.iter().filter(|n| n.partition.is_none() && n.runner == runner).count();
        let missing = match on(NO_KERNEL) {
            0 => String::new(),
            n => format!(", {n} without a kernel"),
        };
        format!(
            "\n{} of {} delegated, {} on {cpu}, {} computed while preparing{missing}\n",
            self.delegated_nodes,
            plural(self.total_nodes, "node"),
            on(cpu),
            self.folded_nodes
        )
    }

    fn fix_first(&self) -> String {
        let shown = self.fix_first.iter().take(MAX_BLOCKERS).enumerate();
        let first = self.fix_first.first().map(|o| &o.delegate);
        let several = self.fix_first.iter().any(|o| Some(&o.delegate) != first);
        let mut text: String = shown.map(|(i, o)| blocker(i + 1, o, several)).collect();
        if text.is_empty() {
            return text;
        }
        let more = self.fix_first.len().saturating_sub(MAX_BLOCKERS);
        if more > 0 {
            text += &format!("and {}, which --json shows\n", plural(more, "more blocker"));
        }
        let pairs = self.fix_pairs.iter().filter(|p| p.blockers.iter().all(|&o| o < MAX_BLOCKERS));
        for pair in pairs.take(3) {
            let [a, b] = pair.blockers.map(|o| o + 1);
            text += &format!("{a} and {b} together would {}\n", pair.gain.text());
        }
        if let Some(all) = &self.fix_all {
            text += &format!("all of them together would {}\n", all.text());
        }
        format!("\nwhat to fix first\n{text}")
    }
}

fn node(n: &NodeLine) -> Vec<String> {
    let runner = n.partition.map_or_else(|| n.runner.clone(), |p| format!("{} #{p}", n.runner));
    vec![n.node.to_string(), n.op.clone(), n.version.to_string(), runner, reasons(&n.rejections)]
}

fn reasons(rejections: &[RejectionLine]) -> String {
    let reasons = rejections.iter().map(|r| format!("{}: {} ({})", r.delegate, r.reason, r.kind));
    reasons.collect::<Vec<_>>().join("; ")
}

fn composite(c: &CompositeLine) -> String {
    let how = match (c.resolution, &c.delegate) {
        (_, Some(delegate)) => format!("claimed by {delegate}"),
        ("kernel", _) => "run by the kernel of its name".into(),
        ("inlined", _) => "its body took its place".into(),
        _ => "its body is called".into(),
    };
    let nodes = match c.nodes.as_slice() {
        [] => "nothing is left of it".into(),
        [node] => format!("node {node}"),
        [first, .., last] => format!("nodes {first} to {last}"),
    };
    let left = match reasons(&c.rejections) {
        reasons if reasons.is_empty() => reasons,
        reasons => format!("; {reasons}"),
    };
    format!("\ncomposite \"{}\" version {}: {how}, {nodes}{left}\n", printable(&c.name), c.version)
}

fn partition(i: usize, p: &PartitionLine) -> String {
    let mut text = format!(
        "\npartition #{i} on {}: {}, {}, {} over its borders\n",
        p.delegate,
        plural(p.node_count, "node"),
        work(p.multiply_adds),
        bytes(p.boundary_bytes)
    );
    let row = |direction: &str, t: &TensorLine| {
        let dims = |dims: &Vec<usize>| dims.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        vec![
            format!("  {direction}"),
            if t.name.is_empty() { format!("#{}", t.tensor) } else { short(&t.name) },
            t.r#type.into(),
            t.shape.as_ref().map_or_else(|| "known while running".into(), |s| format!("[{}]", dims(s))),
            t.bytes.map(bytes).unwrap_or_default(),
        ]
    };
    let rows = |direction: &'static str, tensors: &[TensorLine]| {
        let mut rows: Vec<_> = tensors.iter().take(MAX_TENSORS).map(|t| row(direction, t)).collect();
        let more = tensors.len().saturating_sub(MAX_TENSORS);
        if more > 0 {
            rows.push(vec![format!("  {direction}"), format!("and {more} more")]);
        }
        rows
    };
    let rows = [rows("in", &p.inputs), rows("out", &p.outputs), rows("16 bits", &p.half_tensors)].concat();
    text += &table(&["  border", "tensor", "type", "shape", "bytes"], &[4], rows);
    text
}

/// Describes a blocker, with the name of its delegate if there are `several`.
fn blocker(number: usize, o: &BlockerLine, several: bool) -> String {
    let nodes = plural(o.nodes.len(), "node");
    let op = printable(&o.op);
    let delegate = if several { format!("{}: ", printable(&o.delegate)) } else { String::new() };
    let mut text = format!("{number}. {op} v{}, {nodes}: {delegate}{} ({})\n", o.version, o.reason, o.kind);
    if let Some(gain) = &o.gain {
        let subject = match o.kind {
            "Excluded" | "Overridden" => "delegating it all the same",
            _ => "supporting it",
        };
        text += &format!("   {subject} would {}\n", gain.text());
    }
    text
}

impl Gain {
    /// Describes the gain as the continuation of "would".
    fn text(&self) -> String {
        let (before, after) = (self.partitions_before, self.partitions_after);
        let work = format!("{}, {}", plural(self.nodes, "node"), work(self.multiply_adds));
        let borders = match self.boundary_bytes_saved {
            0 => "as much over the borders".into(),
            saved => format!(
                "{} {} over the borders",
                bytes(saved.unsigned_abs()),
                if saved > 0 { "less" } else { "more" }
            ),
        };
        match after {
            _ if after < before => {
                format!("merge {} into {after} ({work}, {borders})", plural(before, "partition"))
            }
            _ if after > before => {
                format!("add {} ({work}, {borders})", plural(after - before, "partition"))
            }
            _ => format!("add {work} to {}, {borders}", plural(before, "partition")),
        }
    }
}

/// A shortened name: converters join the names of all fused ops, and the end of a path identifies it best.
fn short(name: &str) -> String {
    const LENGTH: usize = 60;
    let (first, more) = name.split_once(';').map_or((name, ""), |(first, _)| (first, "…"));
    let letters = first.chars().count();
    let cut = if letters > LENGTH { "…" } else { "" };
    let end: String = first.chars().skip(letters.saturating_sub(LENGTH)).collect();
    format!("{cut}{end}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names() {
        assert_eq!(short("a/b"), "a/b");
        assert_eq!(short("a/b;c/d;e"), "a/b…");
        let long = "x".repeat(50) + "/" + &"é".repeat(30);
        assert_eq!(short(&long), format!("…{}/{}", "x".repeat(29), "é".repeat(30)));
    }

    #[test]
    fn gains() {
        let gain = |before, after, saved| {
            let (nodes, multiply_adds) = (12, 3_400_000);
            let (partitions_before, partitions_after) = (before, after);
            Gain { partitions_before, partitions_after, nodes, multiply_adds, boundary_bytes_saved: saved }
                .text()
        };
        let work = "12 nodes, 3.4 M multiply-adds";
        assert_eq!(
            gain(3, 1, 5 << 18),
            format!("merge 3 partitions into 1 ({work}, 1.25 MiB less over the borders)")
        );
        assert_eq!(gain(0, 1, -2048), format!("add 1 partition ({work}, 2.00 KiB more over the borders)"));
        assert_eq!(gain(2, 2, 0), format!("add {work} to 2 partitions, as much over the borders"));
    }
}
