//! Tensors that stay on the GPU: between partitions, and between the application and the delegate.
//! Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use std::time::Duration;

use delegraph::core::{BuiltinOp, ModelBuilder, Op, Params, SubgraphBuilder};
use delegraph::delegate_api::PartitionOptions;
use delegraph::delegate_wgpu::{GpuBuffer, WgpuDelegate, wgpu};
use delegraph::{Error, Interpreter, Model, TensorType};

const SIZE: usize = 1000;

/// `|x|`, negated, made positive again.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [SIZE]);
    for op in [BuiltinOp::ABS, BuiltinOp::NEG, BuiltinOp::ABS] {
        x = graph.node(op, Params::None).inputs([x]).output("");
    }
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn input() -> Vec<f32> {
    (0..SIZE).map(|i| i as f32 - 500.0).collect()
}

fn without(op: BuiltinOp) -> PartitionOptions {
    PartitionOptions::default().with_excluded_ops([Op::Builtin(op)])
}

fn check(values: &[f32]) {
    assert!(values.iter().zip(input()).all(|(y, x)| *y == x.abs()));
}

#[test]
fn partitions_hand_tensors_over_on_the_device() {
    let Some(delegate) = gpu::delegate() else { return };
    let builder = Interpreter::builder(model());
    let builder = builder.delegate_with(delegate.clone(), without(BuiltinOp::NEG));
    let mut interpreter = builder.delegate_with(delegate, without(BuiltinOp::ABS)).build().unwrap();
    assert_eq!(interpreter.report().partitions.len(), 3);
    for _ in 0..3 {
        interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&input());
        interpreter.invoke().unwrap();
        check(interpreter.output(0).unwrap());
    }
    // Only the last of the three is read back.
    let stats = interpreter.delegate_stats();
    assert!(
        stats[0].readback_time.is_none()
            && stats[1].readback_time.is_none()
            && stats[2].readback_time.is_some()
    );
}

#[test]
fn partitions_on_two_devices_hand_tensors_over_on_the_cpu() {
    let (Some(one), Some(other)) = (gpu::delegate(), gpu::delegate()) else { return };
    let builder = Interpreter::builder(model()).delegate_with(one, without(BuiltinOp::NEG));
    let mut interpreter = builder.delegate_with(other, without(BuiltinOp::ABS)).build().unwrap();
    assert_eq!(interpreter.report().partitions.len(), 3);
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&input());
    interpreter.invoke().unwrap();
    check(interpreter.output(0).unwrap());
}

#[test]
fn a_cpu_kernel_between_partitions_gets_the_data() {
    let Some(delegate) = gpu::delegate() else { return };
    let builder = Interpreter::builder(model()).delegate_with(delegate, without(BuiltinOp::NEG));
    let mut interpreter = builder.build().unwrap();
    assert_eq!(interpreter.report().partitions.len(), 2);
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&input());
    interpreter.invoke().unwrap();
    check(interpreter.output(0).unwrap());
}

#[test]
fn inputs_and_outputs_of_the_application_never_leave_the_device() {
    let Some(delegate) = gpu::delegate() else { return };
    let (device, queue) = delegate.device_and_queue();
    let bytes = 4 * SIZE as u64;
    let make = |usage| {
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: bytes + 256, usage, mapped_at_creation: false };
        device.create_buffer(&descriptor)
    };
    let mine = make(wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST);
    let data: Vec<u8> = input().iter().flat_map(|x| x.to_le_bytes()).collect();
    queue.write_buffer(&mine, 256, &data);
    let handle = delegate.input_buffer(&mine, 256, bytes).unwrap();
    let builder = Interpreter::builder(model()).delegate(delegate.clone());
    let mut interpreter = builder.keep_outputs().build().unwrap();
    interpreter.set_input_buffer(0, Some(handle)).unwrap();
    for _ in 0..2 {
        interpreter.invoke().unwrap();
        let output = interpreter.output_buffer(0).unwrap();
        assert_eq!(output.downcast_ref::<GpuBuffer>().unwrap().size(), bytes);
        interpreter.fetch_output(0).unwrap();
        check(interpreter.output(0).unwrap());
    }
    let unusable = make(wgpu::BufferUsages::COPY_DST);
    for (buffer, offset, size, text) in [
        (&unusable, 0, bytes, "lacks COPY_SRC"),
        (&mine, 2, bytes, "multiples of 4"),
        (&mine, 512, bytes, "exceed the buffer of"),
    ] {
        let error = delegate.input_buffer(buffer, offset, size).unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)) && error.to_string().contains(text), "{error}");
    }
}

#[test]
fn outputs_go_to_buffers_of_the_application() {
    // On the device of the output, and on another device.
    let (Some(delegate), Some(other)) = (gpu::delegate(), gpu::delegate()) else { return };
    let bytes = 4 * SIZE as u64;
    let make = |on: &WgpuDelegate, usage| {
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: bytes + 256, usage, mapped_at_creation: false };
        on.device_and_queue().0.create_buffer(&descriptor)
    };
    let both = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    for (on, cpu_too) in [(&delegate, false), (&other, true)] {
        let mine = make(on, both);
        let target = on.output_buffer(&mine, 256, bytes).unwrap();
        let mut interpreter = Interpreter::builder(model()).delegate(delegate.clone()).build().unwrap();
        interpreter.set_output_buffer(0, Some(target.clone())).unwrap();
        for sign in [1.0, -2.0] {
            let x = input().iter().map(|x| x * sign).collect::<Vec<_>>();
            interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&x);
            interpreter.invoke().unwrap();
            let mut read = vec![0; bytes as usize];
            target.read(&mut read).unwrap();
            let words = read.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word));
            assert!(words.zip(x).all(|(y, x)| y == x.abs()));
            // Intermediate values were read back only if necessary.
            assert_eq!(interpreter.delegate_stats()[0].readback_time, None);
            assert_eq!(interpreter.output::<f32>(0).is_ok(), cpu_too);
        }
    }
    let unusable = make(&delegate, wgpu::BufferUsages::COPY_SRC);
    let error = delegate.output_buffer(&unusable, 0, bytes).unwrap_err().to_string();
    assert!(error.contains("lacks COPY_DST"), "{error}");
    // A write-only buffer is not accepted as an input.
    let only = make(&delegate, wgpu::BufferUsages::COPY_DST);
    let handle = delegate.output_buffer(&only, 0, bytes).unwrap();
    let mut interpreter = Interpreter::builder(model()).delegate(delegate).build().unwrap();
    interpreter.set_input_buffer(0, Some(handle)).unwrap();
    let error = interpreter.invoke().unwrap_err().to_string();
    assert!(error.contains("lacks COPY_SRC"), "{error}");
}

#[test]
fn the_delegate_can_be_measured() {
    let Some(delegate) = gpu::delegate() else { return };
    let model = delegraph::interpreter::measure(1, || Ok(delegate.clone())).unwrap();
    for number in [model.cpu, model.delegate].iter().flat_map(|r| [r.multiply_adds, r.bytes]) {
        assert!(number.is_finite() && number > 1e6, "{model:?}");
    }
    assert!(
        model.copies > 1e6 && model.overhead > Duration::ZERO && model.overhead < Duration::from_secs(1),
        "{model:?}"
    );
}
