//! The composites of LiteRT's test files, rebuilt. Unfused and fused, on the CPU and on the GPU, the results are the
//! same. The GPU part is skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use delegraph::core::ops::batch_matmul::BatchMatMulParams;
use delegraph::core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph::core::ops::reduce::ReducerParams;
use delegraph::core::ops::reshape::ReshapeParams;
use delegraph::core::ops::softmax::SoftmaxParams;
use delegraph::core::{
    Attributes, BuiltinOp as B, Composite, ModelBuilder, Params, SubgraphBuilder, TensorId,
};
use delegraph::delegate_wgpu::{PipelineCache, WgpuDelegate, WgpuError, WgpuOptions};
use delegraph::fusion::Pipeline;
use delegraph::{Interpreter, Model, ReferenceOpResolver, TensorType};

const FLOAT: TensorType = TensorType::Float32;

fn node(g: &mut SubgraphBuilder, op: B, inputs: &[TensorId]) -> TensorId {
    let params: Params = match op {
        B::ADD => AddParams::default().into(),
        B::SUB => SubParams::default().into(),
        B::MUL => MulParams::default().into(),
        B::DIV => DivParams::default().into(),
        B::SUM | B::MEAN => ReducerParams::default().keep_dims(true).into(),
        B::RESHAPE => ReshapeParams::default().into(),
        B::SOFTMAX => SoftmaxParams::default().beta(1.0).into(),
        _ => Params::None,
    };
    g.node(op, params).inputs(inputs.iter().copied()).output("")
}

fn integers(g: &mut SubgraphBuilder, values: &[usize]) -> TensorId {
    let values: Vec<i32> = values.iter().map(|&v| v as i32).collect();
    g.constant("", [values.len()], &values)
}

fn scalar(g: &mut SubgraphBuilder, op: B, x: TensorId, value: f32) -> TensorId {
    let c = g.constant("", [], &[value]);
    node(g, op, &[x, c])
}

/// The composite with a node before and a node after it.
fn model(name: &str, attributes: &Attributes, body: SubgraphBuilder, shapes: &[&[usize]]) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut inputs: Vec<TensorId> = shapes.iter().map(|shape| graph.input("x", FLOAT, *shape)).collect();
    inputs[0] = node(&mut graph, B::TANH, &[inputs[0]]);
    let y = graph.composite(name, body).attributes(attributes).inputs(inputs).output("y");
    let y = node(&mut graph, B::ABS, &[y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn l2_norm() -> Model {
    let mut body = SubgraphBuilder::new("body");
    let g = &mut body;
    let x = g.input("x", FLOAT, [1, 768]);
    let square = node(g, B::MUL, &[x, x]);
    let axis = integers(g, &[1]);
    let sum = node(g, B::SUM, &[square, axis]);
    let sum = scalar(g, B::MAXIMUM, sum, 1e-6);
    let root = node(g, B::RSQRT, &[sum]);
    let y = node(g, B::MUL, &[x, root]);
    g.outputs([y]);
    model("odml.l2_norm", &Attributes::new().with("epsilon", 1e-6), body, &[&[1, 768]])
}

/// Normalization over groups, over the last dimension, or by the root mean square.
fn normalization(name: &str, groups: usize) -> Model {
    let (shape, mean_square) = ([2usize, 3, 5, 8], name.contains("rms"));
    let mut body = SubgraphBuilder::new("body");
    let g = &mut body;
    let x = g.input("x", FLOAT, shape);
    let factors = g.input("factors", FLOAT, [8]);
    let terms = if mean_square { None } else { Some(g.input("terms", FLOAT, [8])) };
    let grouped = name.contains("group");
    let (value, axes) = match grouped {
        true => {
            let split = integers(g, &[2, 3, 5, groups, 8 / groups]);
            (node(g, B::RESHAPE, &[x, split]), integers(g, &[1, 2, 4]))
        }
        false => (x, integers(g, &[3])),
    };
    let difference = match mean_square {
        true => value,
        false => {
            let mean = node(g, B::MEAN, &[value, axes]);
            node(g, B::SUB, &[value, mean])
        }
    };
    let square = node(g, B::MUL, &[difference, difference]);
    let variance = node(g, B::MEAN, &[square, axes]);
    let sum = scalar(g, B::ADD, variance, 1e-5);
    let root = node(g, B::RSQRT, &[sum]);
    let mut y = node(g, B::MUL, &[difference, root]);
    if grouped {
        let whole = integers(g, &shape);
        y = node(g, B::RESHAPE, &[y, whole]);
    }
    y = node(g, B::MUL, &[y, factors]);
    if let Some(terms) = terms {
        y = node(g, B::ADD, &[y, terms]);
    }
    g.outputs([y]);
    let attributes = Attributes::new().with("epsilon", 1e-5).with("num_groups", groups as i64);
    let attributes = attributes.with("channel_axis", 3);
    let shapes: [&[usize]; 3] = [&shape, &[8], &[8]];
    model(name, &attributes, body, &shapes[..if mean_square { 2 } else { 3 }])
}

/// 32 heads of queries, and `groups` of keys and values: multi-head, grouped-query, multi-query.
fn attention(groups: usize) -> Model {
    let (heads, keys, width, queries) = (32, 64, 4, 3);
    let share = heads / groups;
    let mut body = SubgraphBuilder::new("body");
    let g = &mut body;
    let q = g.input("q", FLOAT, [1, queries, heads, width]);
    let k = g.input("k", FLOAT, [1, keys, groups, width]);
    let v = g.input("v", FLOAT, [1, keys, groups, width]);
    let mask = g.input("mask", FLOAT, [1, 1, queries, keys]);
    let by_head = integers(g, &[0, 2, 1, 3]);
    // [1, groups, share · queries, width]
    let q = scalar(g, B::MUL, q, 0.5);
    let q = node(g, B::TRANSPOSE, &[q, by_head]);
    let shape = integers(g, &[1, groups, share * queries, width]);
    let q = node(g, B::RESHAPE, &[q, shape]);
    let [k, v] = [k, v].map(|t| node(g, B::TRANSPOSE, &[t, by_head]));
    let product = BatchMatMulParams::default().adj_y(true);
    let scores = g.node(B::BATCH_MATMUL, product).inputs([q, k]).output("");
    let shape = integers(g, &[1, heads, queries, keys]);
    let scores = node(g, B::RESHAPE, &[scores, shape]);
    let scores = node(g, B::ADD, &[scores, mask]);
    let weights = node(g, B::SOFTMAX, &[scores]);
    let shape = integers(g, &[1, groups, share * queries, keys]);
    let weights = node(g, B::RESHAPE, &[weights, shape]);
    let y = g.node(B::BATCH_MATMUL, BatchMatMulParams::default()).inputs([weights, v]).output("");
    let shape = integers(g, &[1, heads, queries, width]);
    let y = node(g, B::RESHAPE, &[y, shape]);
    let y = node(g, B::TRANSPOSE, &[y, by_head]);
    g.outputs([y]);
    let shapes: [&[usize]; 4] = [
        &[1, queries, heads, width],
        &[1, keys, groups, width],
        &[1, keys, groups, width],
        &[1, 1, queries, keys],
    ];
    model("odml.scaled_dot_product_attention", &Attributes::new().with("scale", 0.5), body, &shapes)
}

fn run(mut interpreter: Interpreter) -> Vec<f32> {
    for i in 0..interpreter.input_count() {
        let input = interpreter.input_mut::<f32>(i).unwrap();
        input.iter_mut().enumerate().for_each(|(j, x)| *x = ((j * 31 + 7 * i) % 23) as f32 / 11.0 - 1.0);
    }
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

fn same(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert!(approx::abs_diff_eq!(a, b, epsilon = 1e-5 + 1e-4 * a.abs()), "{what}: {a} {b}");
    }
}

#[test]
fn composites_give_the_same_on_every_device_fused_or_not() {
    let gpu = match WgpuDelegate::new(WgpuOptions::default().with_pipeline_cache(PipelineCache::Off)) {
        Ok(delegate) => Some(delegate),
        Err(error @ WgpuError::NoAdapter) => {
            eprintln!("left out: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    };
    // The fused ops: builtin, and with custom ops allowed.
    let cases = [
        (l2_norm(), "L2_NORMALIZATION", "L2_NORMALIZATION"),
        (normalization("odml.group_norm", 4), "", "custom op \"delegraph.group_norm\""),
        (normalization("odml.group_norm", 1), "", "custom op \"delegraph.group_norm\""),
        (normalization("odml.layer_norm", 1), "", "custom op \"delegraph.layer_norm\""),
        (normalization("odml.rms_norm", 1), "", "custom op \"delegraph.rms_norm\""),
        (attention(32), "", "custom op \"delegraph.attention\""),
        (attention(4), "", "custom op \"delegraph.attention\""),
        (attention(1), "", "custom op \"delegraph.attention\""),
    ];
    for (model, builtin, custom) in cases {
        let name = Composite::of(&model, &model.subgraphs()[0].nodes()[1]).unwrap().name.to_owned();
        let expected =
            run(Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new()).build().unwrap());
        assert!(expected.iter().all(|v| v.is_finite()) && expected.iter().any(|v| *v > 1e-3), "{name}");
        let pipelines = [
            (Pipeline::new(), builtin),
            (Pipeline::new().allow_custom(), custom),
            (
                Pipeline::new().keep_composites(),
                if builtin.is_empty() { "STABLEHLO_COMPOSITE" } else { builtin },
            ),
        ];
        let mut models = vec![("as it is".to_owned(), model.clone())];
        for (pipeline, wanted) in pipelines {
            let fused = pipeline.run(&model).unwrap();
            let ops: Vec<String> =
                fused.model.subgraphs()[0].nodes().iter().map(|n| n.op().to_string()).collect();
            match wanted {
                // The body replaces the composite.
                "" => assert!(
                    ops.len() > 4 && !ops.iter().any(|op| op == "STABLEHLO_COMPOSITE"),
                    "{name}: {ops:?}"
                ),
                _ => assert_eq!(ops, ["TANH", wanted, "ABS"], "{name}: {:?}", fused.report.unchanged),
            }
            models.push((format!("{ops:?}"), fused.model));
        }
        for (what, model) in models {
            let what = format!("{name}, {what}");
            same(
                &expected,
                &run(Interpreter::builder(model.clone()).build().unwrap()),
                &format!("{what}, cpu"),
            );
            let Some(gpu) = &gpu else { continue };
            let interpreter = Interpreter::builder(model).delegate(gpu.clone()).build().unwrap();
            let report = interpreter.report();
            assert!(report.failures.is_empty() && report.delegated_nodes() >= 2, "{what}: {report:?}");
            same(&expected, &run(interpreter), &format!("{what}, wgpu"));
        }
    }
}
