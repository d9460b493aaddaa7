//! Weights with quantization that no kernel supports.

use delegraph_core::error::ErrorKind;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::{BuiltinOp, ModelBuilder, Quantization, SubgraphBuilder, TensorType};
use delegraph_interpreter::Interpreter;

#[test]
fn blocks_with_scales_of_their_own_are_not_supported_rather_than_invalid() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 64]);
    let weights = graph.constant("weights", [1, 64], &[1i8; 64]);
    let scales = graph.constant("scales", [1, 2], &[half::f16::ONE; 2]);
    let blocks = Quantization::Blockwise { scales, zero_points: None, block_size: 32 };
    graph.quantize(weights, blocks);
    let params = BatchMatMulParams::default().adj_x(false).adj_y(true).asymmetric_quantize_inputs(false);
    let y = graph.node(BuiltinOp::BATCH_MATMUL, params).inputs([x, weights]).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let error = Interpreter::builder(model).build().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("tensor \"weights\""), "{error}");
}
