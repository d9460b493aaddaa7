//! Times the partitioner on graphs of 1,000 to 100,000 nodes: `cargo bench -p delegraph-delegate-api`. Without
//! `--bench` (as tests run it) only the smallest graphs are made.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Instant;

use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::ops::binary::AddParams;
use delegraph_core::{BuiltinOp, Model, ModelBuilder, Params, SubgraphBuilder, TensorId, TensorType};
use delegraph_delegate_api::{GraphView, NodeState, partition};

/// Numbers that look random, the same every time.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// A graph whose nodes read one or two of the `near` tensors before them.
fn graph(nodes: usize, near: usize) -> Model {
    let (mut graph, mut noise) = (SubgraphBuilder::new("main"), Noise(nodes as u64));
    let mut tensors: Vec<TensorId> = vec![graph.input("x", TensorType::Float32, [4])];
    for _ in 0..nodes {
        let mut before = || tensors[tensors.len() - 1 - noise.below(tensors.len().min(near))];
        let (a, b) = (before(), before());
        let y = match a == b {
            true => graph.node(BuiltinOp::NEG, Params::None).inputs([a]).output(""),
            false => graph.node(BuiltinOp::ADD, AddParams::default()).inputs([a, b]).output(""),
        };
        tensors.push(y);
    }
    graph.outputs([tensors[nodes]]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn main() {
    let timed = std::env::args().any(|a| a == "--bench");
    println!("{:>8} {:>10} {:>8} {:>12} {:>10}", "nodes", "owners", "groups", "ms", "ns/node");
    for nodes in if timed { vec![1_000, 10_000, 100_000] } else { vec![1_000] } {
        let model = graph(nodes, 16);
        let subgraph = &model.subgraphs()[0];
        let tensors: Vec<RuntimeTensor> = subgraph.tensors().iter().map(RuntimeTensor::new).collect();
        let (known, states) = (vec![true; tensors.len()], vec![NodeState::default(); nodes]);
        let view = GraphView::new(&model, 0, &tensors, &known, &states);
        // One delegate that takes nine nodes of ten; two delegates that share them; one that claims each node
        // separately.
        let mut noise = Noise(7);
        let mut shared = |owners: usize| -> Vec<usize> {
            (0..nodes).map(|_| if noise.below(10) == 0 { 0 } else { 1 + noise.below(owners) }).collect()
        };
        let mut owners: Vec<Vec<usize>> = [1, 2].map(&mut shared).into();
        owners.push((1..=nodes).collect());
        for owner in owners {
            let repeat = if timed { 10 } else { 1 };
            let mut times = Vec::new();
            let mut groups = 0;
            for _ in 0..repeat {
                let start = Instant::now();
                groups = partition(&view, &owner).len();
                times.push(start.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            let (median, count) = (times[times.len() / 2], owner.iter().max().unwrap_or(&0));
            println!(
                "{nodes:>8} {count:>10} {groups:>8} {:>12.3} {:>10.0}",
                median * 1e3,
                median * 1e9 / nodes as f64
            );
        }
    }
}
