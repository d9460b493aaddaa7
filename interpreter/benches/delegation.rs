//! The cost of a partition beyond its kernel: `cargo bench -p delegraph-interpreter --bench delegation`. A chain of
//! negations of 64 floats runs on CPU kernels, and with every second node delegated to an equal kernel. Without
//! `--bench` (as tests run it) everything runs once.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Instant;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, ModelBuilder, NodeId, Params, Result, SubgraphBuilder, TensorType};
use delegraph_delegate_api::{Delegate, DelegateContext, DelegateKernel, VersionTable};
use delegraph_interpreter::Interpreter;

const NODES: usize = 1000;

struct EverySecond(VersionTable);

impl Delegate for EverySecond {
    fn name(&self) -> &str {
        "every second"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let nodes: Vec<NodeId> = (0..NODES).step_by(2).map(NodeId).collect();
        cx.claim(&nodes, |_, _| Ok(Box::new(Negate)));
        Ok(())
    }
}

struct Negate;

impl Kernel for Negate {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = -x);
        Ok(())
    }
}

impl DelegateKernel for Negate {}

fn main() {
    let runs = if std::env::args().any(|a| a == "--bench") { 2000 } else { 1 };
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [64]);
    for _ in 0..NODES {
        x = graph.node(BuiltinOp::NEG, Params::None).inputs([x]).output("");
    }
    graph.outputs([x]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let delegate = || Box::new(EverySecond(VersionTable::new(&[(BuiltinOp::NEG, 1)])));
    let mut plain = Interpreter::builder(model.clone()).build().unwrap();
    let mut delegated = Interpreter::builder(model).delegate(delegate()).build().unwrap();
    assert_eq!(delegated.report().partitions.len(), NODES / 2);
    // Alternating, so that the machine's load affects both equally.
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (interpreter, times) in [&mut plain, &mut delegated].into_iter().zip(&mut times) {
            let start = Instant::now();
            interpreter.invoke().unwrap();
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let [plain, delegated] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e9 / NODES as f64
    });
    println!("{plain:.1} ns per node on the CPU alone, {delegated:.1} with every second one delegated");
}
