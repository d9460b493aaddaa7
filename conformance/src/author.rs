//! Test helpers for authors of delegates: the nodes that a delegate claims, and a comparison of its results with the
//! reference kernels. Graphs are built in memory; no model file is needed.
//!
//! ```
//! use delegraph_conformance::author::{agree, claims_of};
//! use delegraph_core::ops::binary::{AddParams, MulParams};
//! use delegraph_core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType};
//! # use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
//! # use delegraph_core::Result;
//! # use delegraph_delegate_api::*;
//! # struct Adder(VersionTable);
//! # impl SimpleDelegate for Adder {
//! #     fn name(&self) -> &str { "adder" }
//! #     fn max_versions(&self) -> &VersionTable { &self.0 }
//! #     fn supports(&self, _: &NodeView<'_>) -> Result<(), Rejection> { Ok(()) }
//! #     fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
//! #         Ok(Box::new(Double))
//! #     }
//! # }
//! # struct Double;
//! # impl Kernel for Double {
//! #     fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> { Ok(()) }
//! #     fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
//! #         let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
//! #         input.iter().zip(output).for_each(|(x, y)| *y = x + x);
//! #         Ok(())
//! #     }
//! # }
//! # impl DelegateKernel for Double {}
//! # fn my_delegate() -> Simple<Adder> { Simple(Adder(VersionTable::new(&[(BuiltinOp::ADD, 1)]))) }
//!
//! # fn main() -> delegraph_core::Result<()> {
//! let mut graph = SubgraphBuilder::new("main");
//! let x = graph.input("x", TensorType::Float32, [2, 3]);
//! let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
//! let y = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([sum, sum]).output("y");
//! graph.outputs([y]);
//! let model = ModelBuilder::new().subgraph(graph).build()?;
//!
//! let claims = claims_of(&model, my_delegate())?;
//! claims.assert_claims(&[0]);
//! claims.assert_rejects(1, "UnsupportedOp");
//! agree(&model, my_delegate(), 0).unwrap();
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;

use delegraph_core::error::counted;
use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::types::rounded;
use delegraph_core::{Error, Model, MutableOpResolver, NodeId, Result, TensorType};
use delegraph_delegate_api::{
    Delegate, DelegateFailure, PartitionOptions, Policy, Rejection, Report, Runner,
};
use delegraph_interpreter::{Interpreter, ReferenceOpResolver};

use crate::compare::{Tolerance, compare, numbers};
use crate::seeded::{SplitMix64, fill};

/// Offers every node of `model` to a delegate, without running the model or creating kernels. Returns its claims and
/// rejections.
///
/// # Errors
/// The error of preparing the model; [`Error::Delegate`] if the delegate fails or panics.
pub fn claims_of(model: &Model, delegate: impl Delegate + 'static) -> Result<Claims> {
    DelegateTrial::new(model).claims_of(delegate)
}

/// Runs `model` with a delegate and on the reference kernels, with the same inputs generated from `seed`, and compares
/// the outputs. Nodes that the delegate does not claim run on the reference kernels in both cases, so the delegate
/// causes any difference.
///
/// # Errors
/// The difference, or the reason why there is no comparison: the model does not run, or the delegate fails or claims no
/// node.
pub fn agree(model: &Model, delegate: impl Delegate + 'static, seed: u64) -> Result<Agreement, Disagreement> {
    DelegateTrial::new(model).seed(seed).agree(delegate)
}

/// Settings for offering and running a model; [`claims_of`] and [`agree`] use the defaults.
#[derive(Clone)]
pub struct DelegateTrial {
    model: Arc<Model>,
    resolver: MutableOpResolver,
    limits: PartitionOptions,
    resizes: Vec<(usize, Vec<usize>)>,
    seed: u64,
    runs: usize,
    threads: usize,
}

impl fmt::Debug for DelegateTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegateTrial")
            .field("limits", &self.limits)
            .field("resizes", &self.resizes)
            .field("seed", &self.seed)
            .field("runs", &self.runs)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl DelegateTrial {
    /// Creates a trial with seed 0, three runs, one thread and the shapes of the model.
    pub fn new(model: &Model) -> Self {
        DelegateTrial {
            model: Arc::new(model.clone()),
            resolver: MutableOpResolver::extending(ReferenceOpResolver::new()),
            limits: PartitionOptions::default(),
            resizes: Vec::new(),
            seed: 0,
            runs: 3,
            threads: 1,
        }
    }

    /// Sets the seed that inputs are generated from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of runs. Each has other inputs; state is kept from run to run.
    #[must_use]
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = runs;
        self
    }

    /// Sets the number of threads that kernels may use.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Resizes an input after the model was prepared with its own shape, so that the delegate prepares again.
    #[must_use]
    pub fn resize(mut self, input: usize, shape: &[usize]) -> Self {
        self.resizes.push((input, shape.to_vec()));
        self
    }

    /// Sets the application's limits on delegation.
    #[must_use]
    pub fn limits(mut self, limits: PartitionOptions) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the kernels to compare with, for custom ops and replaced builtin ones. The default is the reference
    /// kernels.
    #[must_use]
    pub fn resolver(mut self, resolver: MutableOpResolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Offers every node of the model to a delegate; see the function [`claims_of`].
    ///
    /// # Errors
    /// As [`claims_of`].
    pub fn claims_of(&self, delegate: impl Delegate + 'static) -> Result<Claims> {
        let interpreter = self.build(Some(Box::new(delegate)), Policy::Report)?;
        let claims = Claims::of(&interpreter);
        match claims.report.failures.first() {
            Some(DelegateFailure { delegate, message, .. }) => Err(Error::delegate(delegate, message)),
            None => Ok(claims),
        }
    }

    /// Compares a delegate with the reference kernels; see the function [`agree`].
    ///
    /// # Errors
    /// As [`agree`].
    pub fn agree(&self, delegate: impl Delegate + 'static) -> Result<Agreement, Disagreement> {
        let failed = |what: &str, e: Error| Disagreement(format!("{what}: {e}"));
        let mut reference = self
            .build(None, Policy::Prefer)
            .map_err(|e| failed("the reference kernels do not run the model", e))?;
        let mut delegated = self
            .build(Some(Box::new(delegate)), Policy::Prefer)
            .map_err(|e| failed("the model does not build with the delegate", e))?;
        let claims = Claims::of(&delegated);
        if let Some(DelegateFailure { message, .. }) = claims.report.failures.first() {
            return Err(Disagreement(format!("the delegate failed: {message}\n{claims}")));
        }
        let nodes = claims.report.delegated_nodes();
        if nodes == 0 {
            return Err(Disagreement(format!(
                "the delegate claims nothing, so nothing is compared\n{claims}"
            )));
        }
        let mut largest = 0f64;
        for run in 0..self.runs {
            for interpreter in [&mut reference, &mut delegated] {
                self.fill(interpreter, run).map_err(|e| failed("an input cannot be filled", e))?;
            }
            reference.invoke().map_err(|e| failed(&format!("run {run}, on the reference kernels"), e))?;
            delegated.invoke().map_err(|e| failed(&format!("run {run}, with the delegate"), e))?;
            for output in 0..reference.output_count() {
                let tensors = (delegated.output_tensor(output), reference.output_tensor(output));
                let (got, want) = match tensors {
                    (Ok(got), Ok(want)) => (got, want),
                    (Err(e), _) | (_, Err(e)) => return Err(failed(&format!("output {output}"), e)),
                };
                let difference = difference(got, want).map_err(|difference| {
                    let place = format!("run {run}, output {output} (\"{}\")", want.name);
                    Disagreement(format!("{place}: {difference}\nseed {}\n{claims}", self.seed))
                })?;
                largest = largest.max(difference);
            }
        }
        Ok(Agreement { nodes, partitions: claims.report.partitions.len(), max_abs: largest })
    }

    fn build(&self, delegate: Option<Box<dyn Delegate>>, policy: Policy) -> Result<Interpreter> {
        let mut builder = Interpreter::builder(self.model.clone())
            .resolver(self.resolver.clone())
            .policy(policy)
            .threads(self.threads);
        if let Some(delegate) = delegate {
            builder = builder.delegate_with(delegate, self.limits.clone());
        }
        let mut interpreter = builder.build()?;
        for (input, shape) in &self.resizes {
            interpreter.resize_input(*input, shape)?;
        }
        interpreter.prepare()?;
        Ok(interpreter)
    }

    fn fill(&self, interpreter: &mut Interpreter, run: usize) -> Result<()> {
        for input in 0..interpreter.input_count() {
            let ty = interpreter.input_tensor(input)?.ty;
            let mut generator = SplitMix64::new(self.seed).for_input(input).for_invocation(run);
            fill(ty, interpreter.input_bytes_mut(input)?, &mut generator);
        }
        Ok(())
    }
}

/// A delegate's claims and rejections of a graph. Nodes are numbered from 0, in the order in which they were added.
///
/// `Display` prints a table of all nodes; failed assertions print it, too.
#[derive(Debug, Clone)]
pub struct Claims {
    report: Report,
}

impl Claims {
    /// Returns the claims and rejections of the delegates of an interpreter.
    pub fn of(interpreter: &Interpreter) -> Self {
        Claims { report: interpreter.report().clone() }
    }

    /// Returns whether a delegate claimed the node.
    pub fn claimed(&self, node: usize) -> bool {
        self.report.nodes.get(node).is_some_and(|n| matches!(n.runner, Runner::Delegate { .. }))
    }

    /// Returns every claimed node.
    pub fn claims(&self) -> Vec<usize> {
        (0..self.report.nodes.len()).filter(|&node| self.claimed(node)).collect()
    }

    /// Returns the reason why a node is not claimed; `None` if it is claimed, has no rejection or does not exist.
    pub fn reason(&self, node: usize) -> Option<&Rejection> {
        let node = self.report.nodes.get(node).filter(|_| !self.claimed(node))?;
        node.rejections.last().map(|(_, reason)| reason)
    }

    /// Returns the nodes of each partition.
    pub fn partitions(&self) -> Vec<Vec<usize>> {
        let numbers = |nodes: &[NodeId]| nodes.iter().map(|n| n.0).collect();
        self.report.partitions.iter().map(|p| numbers(&p.nodes)).collect()
    }

    /// Returns the full report: versions, inputs and outputs of partitions, multiply-adds, bytes.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Panics unless exactly these nodes are claimed.
    #[track_caller]
    pub fn assert_claims(&self, nodes: &[usize]) {
        let claims = self.claims();
        assert!(claims == nodes, "nodes {claims:?} are claimed, expected {nodes:?}\n{self}");
    }

    /// Panics unless the node is rejected with a reason of this [kind](Rejection::kind).
    #[track_caller]
    pub fn assert_rejects(&self, node: usize, kind: &str) {
        let found =
            self.reason(node).map_or("none: it is claimed, or there is no such node", Rejection::kind);
        assert!(found == kind, "node {node}: the reason is {found}, expected {kind}\n{self}");
    }

    /// Panics unless the claimed nodes form exactly these partitions.
    #[track_caller]
    pub fn assert_partitions(&self, partitions: &[&[usize]]) {
        let found = self.partitions();
        assert!(found == partitions, "the partitions are {found:?}, expected {partitions:?}\n{self}");
    }
}

impl fmt::Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.report.nodes {
            write!(f, "  node {} {} v{}: ", node.node.0, node.op, node.version)?;
            match (&node.runner, node.rejections.last()) {
                (Runner::Delegate { delegate, partition }, _) => {
                    let name = self.report.delegates.get(*delegate).map_or("?", String::as_str);
                    writeln!(f, "claimed by {name}, partition {partition}")?;
                }
                (_, Some((_, reason))) => writeln!(f, "{}: {reason}", reason.kind())?,
                (Runner::Folded, None) => writeln!(f, "computed while preparing")?,
                _ => writeln!(f, "on the CPU")?,
            }
        }
        Ok(())
    }
}

/// The result of a delegate that agrees with the reference kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Agreement {
    /// The number of nodes that the delegate ran.
    pub nodes: usize,
    /// The number of partitions.
    pub partitions: usize,
    /// The largest absolute difference, within the tolerance.
    pub max_abs: f64,
}

/// The difference between a delegate and the reference kernels, or the reason why nothing was compared. `Debug` prints
/// the same text as `Display`, so that `unwrap` is readable.
#[derive(Clone, PartialEq, Eq)]
pub struct Disagreement(String);

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Disagreement {}

/// Returns the largest difference of two tensors that agree within the tolerance; the error describes where they
/// differ.
fn difference(got: &RuntimeTensor, want: &RuntimeTensor) -> Result<f64, String> {
    if (got.ty, &got.shape) != (want.ty, &want.shape) {
        return Err(format!("{} {}, expected {} {}", got.ty, got.shape, want.ty, want.shape));
    }
    let tolerance = Tolerance::of(want.ty, want.quantization.is_some());
    let (Some(g), Some(w)) = (numbers(got.ty, got.bytes()), numbers(want.ty, want.bytes())) else {
        return match got.bytes() == want.bytes() {
            true => Ok(0.0),
            false => Err(format!("its bytes differ ({} {})", want.ty, want.shape)),
        };
    };
    let comparison = compare(&g, &w, tolerance);
    if comparison.passes() {
        return Ok(comparison.max_abs);
    }
    // A complex element is compared as two numbers.
    let parts = match want.ty {
        TensorType::Complex64 | TensorType::Complex128 => 2,
        _ => 1,
    };
    let same = Tolerance { abs: comparison.allowed, rel: 0.0, quantum: 0 };
    let wrong: Vec<usize> = (0..w.len()).filter(|&i| !compare(&g[i..=i], &w[i..=i], same).passes()).collect();
    let examples = wrong.iter().take(4).map(|&i| {
        let index = index_of(i / parts, &want.shape);
        format!("\n  at {index:?}: {}, expected {}", g[i], w[i])
    });
    Err(format!(
        "{} of {} {} by more than {}, at most by {}{}",
        wrong.len(),
        counted(w.len(), "element"),
        if w.len() == 1 { "differs" } else { "differ" },
        rounded(comparison.allowed),
        rounded(comparison.max_abs),
        examples.collect::<String>()
    ))
}

/// Returns the index of element `i` of a tensor of this shape.
fn index_of(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let position = i % size.max(1);
            i /= size.max(1);
            position
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests;
