use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::Params;
use delegraph_core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, Simple, SimpleDelegate, VersionTable,
};

use super::*;

/// Claims RELU on tensors of rank 2, and multiplies the result by `factor`.
struct Relu {
    versions: VersionTable,
    factor: f32,
    fails: bool,
}

fn relu(factor: f32) -> Simple<Relu> {
    Simple(Relu { versions: VersionTable::new(&[(BuiltinOp::RELU, 1)]), factor, fails: false })
}

impl SimpleDelegate for Relu {
    fn name(&self) -> &str {
        "relu"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        match node.input(0).and_then(|t| t.shape()).map(|s| s.rank()) {
            Some(2) => Ok(()),
            _ => Err(Rejection::UnsupportedParam("only rank 2".into())),
        }
    }

    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        match self.fails {
            true => Err(Error::Unsupported("no device".into())),
            false => Ok(Box::new(Times(self.factor))),
        }
    }
}

struct Times(f32);

impl Kernel for Times {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        input.iter().zip(output).for_each(|(x, y)| *y = x.max(0.0) * self.0);
        Ok(())
    }
}

impl DelegateKernel for Times {}

/// RELU of a `[2, 2]` tensor, followed by NEG.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 2]);
    let r = graph.node(BuiltinOp::RELU, Params::None).inputs([x]).output("r");
    let y = graph.node(BuiltinOp::NEG, Params::None).inputs([r]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn panic_of(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(f).expect_err("it does not panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn an_offer_reports_claims_and_reasons() {
    let claims = claims_of(&model(), relu(1.0)).unwrap();
    claims.assert_claims(&[0]);
    claims.assert_partitions(&[&[0]]);
    claims.assert_rejects(1, "UnsupportedOp");
    assert!(claims.claimed(0) && !claims.claimed(1) && !claims.claimed(7));
    assert_eq!(claims.reason(0), None);
    assert_eq!(claims.reason(1), Some(&Rejection::UnsupportedOp { op: BuiltinOp::NEG.into() }));
    let table = "  node 0 RELU v1: claimed by relu, partition 0\n  node 1 NEG v1: UnsupportedOp: NEG is not supported\n";
    assert_eq!(claims.to_string(), table);
}

#[test]
fn assertions_that_fail_show_the_table() {
    let claims = claims_of(&model(), relu(1.0)).unwrap();
    let text = panic_of(|| claims.assert_claims(&[0, 1]));
    assert!(text.starts_with("nodes [0] are claimed, expected [0, 1]\n  node 0 RELU v1: claimed"), "{text}");
    let text = panic_of(|| claims.assert_rejects(1, "VersionTooHigh"));
    assert!(text.starts_with("node 1: the reason is UnsupportedOp, expected VersionTooHigh\n"), "{text}");
    let text = panic_of(|| claims.assert_rejects(0, "UnsupportedOp"));
    assert!(text.starts_with("node 0: the reason is none: it is claimed"), "{text}");
    let text = panic_of(|| claims.assert_partitions(&[&[0], &[1]]));
    assert!(text.starts_with("the partitions are [[0]], expected [[0], [1]]\n"), "{text}");
}

#[test]
fn a_delegate_that_fails_is_an_error() {
    let failing = || Simple(Relu { fails: true, ..relu(1.0).0 });
    // Offering creates no kernel, so nothing fails.
    claims_of(&model(), failing()).unwrap().assert_claims(&[0]);
    let text = agree(&model(), failing(), 0).unwrap_err().to_string();
    assert!(text.starts_with("the delegate failed: not supported: no device\n"), "{text}");
}

#[test]
fn a_right_delegate_agrees() {
    let agreement = agree(&model(), relu(1.0), 0).unwrap();
    assert_eq!(agreement, Agreement { nodes: 1, partitions: 1, max_abs: 0.0 });
    DelegateTrial::new(&model()).resize(0, &[5, 3]).threads(2).runs(1).agree(relu(1.0)).unwrap();
}

#[test]
fn a_wrong_delegate_disagrees() {
    let text = format!("{:?}", agree(&model(), relu(2.0), 0).unwrap_err());
    assert!(text.starts_with("run 0, output 0 (\"y\"): "), "{text}");
    assert!(text.contains(" of 4 elements differ by more than ") && text.contains("\n  at ["), "{text}");
    assert!(text.contains("\nseed 0\n  node 0 RELU v1: claimed by relu"), "{text}");
    let text = agree(&model(), relu(f32::NAN), 0).unwrap_err().to_string();
    assert!(text.contains("NaN, expected "), "{text}");
}

#[test]
fn comparing_nothing_is_an_error() {
    let rank_3 = DelegateTrial::new(&model()).resize(0, &[1, 2, 2]);
    rank_3.claims_of(relu(1.0)).unwrap().assert_rejects(0, "UnsupportedParam");
    let text = rank_3.agree(relu(1.0)).unwrap_err().to_string();
    assert!(text.starts_with("the delegate claims nothing, so nothing is compared\n"), "{text}");
}

#[test]
fn limits_hold() {
    let limits = PartitionOptions::default().with_min_nodes(2);
    DelegateTrial::new(&model())
        .limits(limits)
        .claims_of(relu(1.0))
        .unwrap()
        .assert_rejects(0, "PartitionTooSmall");
}

#[test]
fn indices_are_of_the_shape() {
    assert_eq!(index_of(7, &[2, 2, 3]), [1, 0, 1]);
    assert_eq!(index_of(0, &[]), [0usize; 0]);
}
