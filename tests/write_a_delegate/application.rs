//! A delegate in an application.

use delegraph::{Interpreter, Model, Policy, Result};
use delegraph_delegate_api::{PartitionOptions, Runner, Simple};

use crate::dense::DenseDelegate;

pub fn classify(model: Model, pixels: &[f32]) -> Result<Vec<f32>> {
    let mut interpreter = Interpreter::builder(model)
        // `Require`: an error unless every node is delegated. `Report`: claims are reported, nodes run on the CPU.
        .policy(Policy::Prefer)
        .delegate_with(Simple(DenseDelegate::new()), PartitionOptions::default().with_min_nodes(2))
        .threads(2)
        .build()?;
    for node in &interpreter.report().nodes {
        match (&node.runner, node.rejections.last()) {
            (Runner::Cpu, Some((_, reason))) => println!("node {} ({}): {reason}", node.node.0, node.op),
            _ => println!("node {} ({}): {:?}", node.node.0, node.op, node.runner),
        }
    }
    interpreter.input_mut::<f32>(0)?.copy_from_slice(pixels);
    // A delegate that fails is dropped, and the CPU repeats the run with the same inputs.
    for failure in interpreter.invoke_with_fallback()? {
        eprintln!("{failure}");
    }
    Ok(interpreter.output::<f32>(0)?.to_vec())
}

#[test]
fn a_model_runs_with_the_delegate() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits_float32.tflite");
    let model = delegraph::load(path).unwrap();
    let elements = model.subgraphs()[0].tensor(model.subgraphs()[0].inputs()[0]).shape().elements();
    let got = classify(model.clone(), &vec![0.5; elements]).unwrap();
    let mut plain = Interpreter::builder(model).build().unwrap();
    plain.input_mut::<f32>(0).unwrap().fill(0.5);
    plain.invoke().unwrap();
    for (got, want) in got.iter().zip(plain.output::<f32>(0).unwrap()) {
        approx::assert_abs_diff_eq!(got, want, epsilon = 1e-5);
    }
}
