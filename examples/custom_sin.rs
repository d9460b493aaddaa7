//! The walk-through of TensorFlow's guide to custom operators: `y = Sin(x + offset)`, where `Sin` is a custom op.
//!
//! ```sh
//! cargo run --example custom_sin
//! ```
//!
//! `assets/custom/sin.tflite` was trained and converted by `scripts/make_sin_model.py`; `docs/custom-ops.md` explains
//! the kernel line by line.

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::delegate_wgpu::{
    WgpuDelegate, WgpuDispatch, WgpuOp, WgpuOpError, WgpuOptions, WgpuPlan, WgpuTensor,
};
use delegraph::{
    BuiltinOpResolver, Error, Interpreter, Model, MutableOpResolver, Registration, Result, TensorType,
};

/// The sine of every element.
pub(crate) struct Sin;

impl Kernel for Sin {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(1, 1)?;
        cx.output(0)?.ensure_type(&[TensorType::Float32])?;
        let shape = cx.input(0)?.ensure_type(&[TensorType::Float32])?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = x.sin());
        Ok(())
    }
}

/// Returns the builtin ops and `Sin`.
pub(crate) fn resolver() -> MutableOpResolver {
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    resolver.add_custom("Sin", Registration::new(|_| Ok(Sin)), 1);
    resolver
}

/// `Sin` on the GPU, so that it does not split a model.
pub(crate) fn gpu_sin() -> Result<WgpuOp, WgpuOpError> {
    WgpuOp::new("Sin", 1, &[include_str!("custom_sin.wgsl")], |node| {
        let shape = node.input(0)?.shape;
        let dispatch = WgpuDispatch::new(0, [WgpuTensor::Input(0)], WgpuTensor::Output(0));
        let dispatch = dispatch.workgroups(node.workgroups(shape.elements(), 64)?);
        Ok(WgpuPlan::new([shape.clone()]).dispatch(dispatch))
    })
}

/// Runs `model` on `x`.
pub(crate) fn run(model: Model, x: &[f32]) -> Result<Vec<f32>> {
    let mut interpreter = Interpreter::builder(model).resolver(resolver()).build()?;
    interpreter.input_mut::<f32>(0)?.copy_from_slice(x);
    interpreter.invoke()?;
    Ok(interpreter.output::<f32>(0)?.to_vec())
}

fn main() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/custom/sin.tflite");
    // Without the kernel: an error that lists every unresolved op.
    if let Err(error) = Interpreter::builder(delegraph::load(path)?).build() {
        println!("{error}\n");
    }
    let x = [-8.0, 0.5, 2.0, 2.2, 201.0];
    let y = run(delegraph::load(path)?, &x)?;
    x.iter().zip(y).for_each(|(x, y)| println!("sin({x} + 1) = {y}"));

    let op = gpu_sin().map_err(|e| Error::Unsupported(e.to_string()))?;
    let delegate = match WgpuDelegate::new(WgpuOptions::default().with_custom_op(op)) {
        Ok(delegate) => delegate,
        Err(error) => {
            println!("\nwithout a GPU: {error}");
            return Ok(());
        }
    };
    let builder = Interpreter::builder(delegraph::load(path)?).resolver(resolver());
    let mut interpreter = builder.delegate(delegate).build()?;
    interpreter.input_mut::<f32>(0)?.copy_from_slice(&x);
    interpreter.invoke()?;
    let (report, y) = (interpreter.report(), interpreter.output::<f32>(0)?);
    let (delegated, parts) = (report.delegated_nodes(), report.partitions.len());
    println!("\non the GPU, {delegated} nodes in {parts} partition: {y:?}");
    Ok(())
}
