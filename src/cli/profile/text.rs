//! A profile as text.

use delegraph::core::printable;

use super::{KernelTime, NodeTime, PartitionTime, Profile, Roofline, bytes};
use crate::cli::output::{Document, scaled, table};
use crate::cli::text::{milliseconds, plural};

/// Number of lines of a table, unless all are requested.
const LINES: usize = 25;

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, milliseconds)
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{:.1}%", v * 100.0))
}

fn size(n: u64) -> String {
    usize::try_from(n).map_or_else(|_| n.to_string(), bytes)
}

impl PartitionTime {
    fn row(&self) -> Vec<String> {
        vec![
            self.partition.to_string(),
            self.delegate.clone(),
            self.nodes.to_string(),
            self.kernels.to_string(),
            number(Some(self.ms)),
            number(self.upload_ms),
            number(self.gpu_ms),
            number(self.readback_ms),
            size(self.gpu_bytes),
        ]
    }
}

impl Roofline {
    fn text(self) -> String {
        if self.cached { "cached".into() } else { percent(self.roofline) }
    }
}

impl NodeTime {
    fn row(&self) -> Vec<String> {
        let place = if self.subgraph == 0 { String::new() } else { format!("{}:", self.subgraph) };
        vec![
            format!("{place}{}", self.node),
            self.op.clone(),
            self.runner.clone(),
            number(self.ms),
            percent(self.share),
            scaled(self.multiply_adds),
            size(self.bytes),
            self.roofline.text(),
        ]
    }
}

impl KernelTime {
    fn row(&self) -> Vec<String> {
        let nodes = self.nodes.iter().zip(&self.ops).map(|(node, op)| format!("{node} {op}"));
        let mut shown: Vec<String> = nodes.take(3).collect();
        if self.nodes.len() > shown.len() {
            shown.push(format!("and {} more", self.nodes.len() - shown.len()));
        }
        vec![
            self.kernel.clone(),
            shown.join(", "),
            number(self.ms),
            percent(self.share),
            scaled(self.multiply_adds),
            size(self.bytes),
            self.roofline.text(),
        ]
    }
}

impl Document for Profile {
    fn text(&self) -> String {
        let Profile { model, delegate, threads, runs, total_ms, .. } = self;
        let (threads, runs) = (plural(*threads, "thread"), plural(*runs as usize, "run"));
        let (model, total) = (printable(model), milliseconds(*total_ms));
        let mut text = format!("{model} on {delegate}, {threads}: {total} ms, median of {runs}\n");
        self.delegates.iter().for_each(|line| text += &line.text());
        for peak in &self.peaks {
            let integers = peak.integer_multiply_adds_per_s;
            let integers =
                integers.map_or_else(String::new, |n| format!(" ({:.1} G in 8-bit integers)", n / 1e9));
            text += &format!(
                "{} reaches {:.1} G multiply-adds{integers} and {:.1} GB a second at most\n",
                peak.runner,
                peak.multiply_adds_per_s / 1e9,
                peak.bytes_per_s / 1e9
            );
        }
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        let mut section =
            |title: &str, header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>, all: usize| {
                if rows.is_empty() {
                    return;
                }
                let left = all.saturating_sub(rows.len());
                text += &format!("\n{title}\n{}", table(header, numbers, rows));
                if left > 0 {
                    text += &format!("and {left} more: --all\n");
                }
            };
        let header =
            ["partition", "delegate", "nodes", "kernels", "ms", "upload", "gpu", "readback", "device memory"];
        let rows: Vec<_> = self.partitions.iter().map(PartitionTime::row).collect();
        let count = rows.len();
        section("Partitions", &header, &[2, 3, 4, 5, 6, 7, 8], rows, count);
        let rows = self.ops.iter().map(|op| {
            let (time, share) = (number(op.ms), percent(op.share));
            vec![op.op.clone(), op.nodes.to_string(), time, share, scaled(op.multiply_adds)]
        });
        section(
            "Ops",
            &["op", "nodes", "ms", "share", "multiply-adds"],
            &[1, 2, 3, 4],
            rows.collect(),
            self.ops.len(),
        );
        let most = if self.all { usize::MAX } else { LINES };
        let slowest = |a: Option<f64>, b: Option<f64>| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
        let mut kernels: Vec<&KernelTime> = self.kernels.iter().collect();
        kernels.sort_by(|a, b| slowest(a.ms, b.ms));
        let header = ["kernel", "nodes", "ms", "share", "multiply-adds", "bytes", "of roofline"];
        let rows = kernels.iter().take(most).map(|k| k.row()).collect();
        section("Kernels on the device", &header, &[2, 3, 4, 5, 6], rows, kernels.len());
        let mut nodes: Vec<&NodeTime> = self.nodes.iter().filter(|n| n.ms.is_some()).collect();
        nodes.sort_by(|a, b| slowest(a.ms, b.ms));
        let header = ["node", "op", "on", "ms", "share", "multiply-adds", "bytes", "of roofline"];
        let rows = nodes.iter().take(most).map(|n| n.row()).collect();
        section("Nodes", &header, &[3, 4, 5, 6, 7], rows, nodes.len());
        text
    }
}
