//! Tensors that stay with a delegate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use delegraph_core::{Error, Result};
use delegraph_delegate_api::{BufferHandle, DeviceBuffer};

use crate::support::{
    ABS, ADD, MUL, NEG, Scripted, Seen, TestBuffer, X, chain, on_cpu, partitions, run, with,
};

fn keeping(name: &'static str, ops: &[delegraph_core::BuiltinOp]) -> (Scripted, Arc<Seen>) {
    let mut delegate = Scripted::new(name, ops);
    delegate.buffers = true;
    let seen = delegate.seen.clone();
    (delegate, seen)
}

#[test]
fn one_partition_takes_what_another_left_without_a_copy() {
    // Two delegates: one runs NEG and ABS, the other ADD.
    let model = chain(&[NEG, ADD, ABS]);
    let ((first, a), (second, b)) = (keeping("first", &[NEG, ABS]), keeping("second", &[ADD]));
    let mut interpreter = with(&model, [first, second]).build().unwrap();
    assert_eq!(partitions(&interpreter), [[0], [1], [2]]);
    for _ in 0..3 {
        assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    }
    assert_eq!(a.reads.load(Ordering::Relaxed) + b.reads.load(Ordering::Relaxed), 0);
}

#[test]
fn a_delegate_that_does_not_take_the_buffer_has_it_copied() {
    let model = chain(&[NEG, ADD, ABS]);
    let ((first, seen), second) = (keeping("first", &[NEG, ABS]), Scripted::new("second", &[ADD]));
    let mut interpreter = with(&model, [first, second]).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert_eq!(seen.reads.load(Ordering::Relaxed), 1);
}

#[test]
fn what_a_cpu_kernel_reads_is_in_memory_at_once() {
    let model = chain(&[NEG, MUL, ABS]);
    let (delegate, seen) = keeping("d", &[NEG, ABS]);
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert_eq!(seen.reads.load(Ordering::Relaxed), 0);
}

#[test]
fn outputs_stay_with_the_delegate_where_the_application_wants_that() {
    let model = chain(&[NEG]);
    let (delegate, seen) = keeping("d", &[NEG]);
    let mut interpreter = with(&model, [delegate]).keep_outputs().build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    interpreter.invoke().unwrap();
    let buffer = interpreter.output_buffer(0).unwrap().clone();
    assert_eq!(buffer.downcast_ref::<TestBuffer>().unwrap().data, on_cpu(&model));
    let error = interpreter.output::<f32>(0).unwrap_err();
    assert!(matches!(error, Error::State(_)) && error.to_string().contains("fetch_output(0)"), "{error}");
    assert_eq!(seen.reads.load(Ordering::Relaxed), 0);
    interpreter.fetch_output(0).unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
    assert_eq!(seen.reads.load(Ordering::Relaxed), 1);
    // A second fetch copies nothing.
    interpreter.fetch_output(0).unwrap();
    assert_eq!(seen.reads.load(Ordering::Relaxed), 1);
}

#[test]
fn an_application_hands_its_own_buffer_in() {
    let model = chain(&[NEG, ABS]);
    let (delegate, seen) = keeping("d", &[NEG]);
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    let buffer = |values: &[f32]| BufferHandle::new(TestBuffer { data: values.to_vec(), seen: seen.clone() });
    interpreter.set_input_buffer(0, Some(buffer(&X))).unwrap();
    for _ in 0..2 {
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
    }
    assert_eq!(seen.reads.load(Ordering::Relaxed), 0);
    let error = interpreter.set_input_buffer(0, Some(buffer(&[1.0]))).unwrap_err();
    assert!(error.to_string().contains("has 16 bytes, the buffer 4"), "{error}");
    // Back to the CPU's memory.
    interpreter.set_input_buffer(0, None).unwrap();
    assert_eq!(run(&mut interpreter, &[1.0, -2.0, 3.0, 0.5]).unwrap(), [1.0, 2.0, 3.0, 0.5]);
}

#[test]
fn a_cpu_kernel_gets_a_copy_of_the_applications_buffer() {
    let model = chain(&[ABS, NEG]);
    let (delegate, seen) = keeping("d", &[NEG]);
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    let buffer = TestBuffer { data: X.to_vec(), seen: seen.clone() };
    interpreter.set_input_buffer(0, Some(BufferHandle::new(buffer))).unwrap();
    for reads in 1..3 {
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<f32>(0).unwrap(), on_cpu(&model));
        assert_eq!(seen.reads.load(Ordering::Relaxed), reads);
    }
}

#[test]
fn an_application_has_outputs_in_its_own_buffers() {
    // With NEG delegated, the output is in the delegate's buffer; with ABS delegated, the CPU computes it.
    let model = chain(&[ABS, NEG]);
    for delegated in [NEG, ABS] {
        let (delegate, seen) = keeping("d", &[delegated]);
        let mut interpreter = with(&model, [delegate]).build().unwrap();
        let target = Arc::new(std::sync::Mutex::new(vec![0.0; X.len()]));
        let handle = BufferHandle::new(Target(target.clone()));
        interpreter.set_output_buffer(0, Some(handle.clone())).unwrap();
        for sign in [1.0, 2.0] {
            let x = X.map(|x| x * sign);
            interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&x);
            interpreter.invoke().unwrap();
            assert_eq!(*target.lock().unwrap(), x.map(|x| -x.abs()));
        }
        // The target is the only consumer of the delegate's buffer.
        assert_eq!(seen.reads.load(Ordering::Relaxed), 0);
        assert_eq!(interpreter.output_buffer(0).is_some(), delegated == NEG);
        let small = BufferHandle::new(Target(Arc::new(std::sync::Mutex::new(vec![0.0]))));
        let error = interpreter.set_output_buffer(0, Some(small)).unwrap_err();
        assert!(error.to_string().contains("has 16 bytes, the buffer 4"), "{error}");
        assert!(interpreter.set_output_buffer(1, Some(handle)).is_err());
        interpreter.set_output_buffer(0, None).unwrap();
        assert_eq!(run(&mut interpreter, &X).unwrap(), X.map(|x| -x.abs()));
        assert_eq!(*target.lock().unwrap(), X.map(|x| -2.0 * x.abs()), "no longer written");
    }
}

/// A buffer of the application.
struct Target(Arc<std::sync::Mutex<Vec<f32>>>);

impl DeviceBuffer for Target {
    fn byte_size(&self) -> usize {
        self.0.lock().unwrap().len() * 4
    }

    fn read(&self, _: &mut [u8]) -> Result<()> {
        unreachable!("it has no consumer")
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        *self.0.lock().unwrap() = bytemuck::pod_collect_to_vec(bytes);
        Ok(())
    }

    fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        let Some(source) = source.downcast_ref::<TestBuffer>() else { return Ok(false) };
        *self.0.lock().unwrap() = source.data.clone();
        Ok(true)
    }
}

#[test]
fn a_resized_input_leaves_its_buffer() {
    let model = chain(&[NEG]);
    let (delegate, seen) = keeping("d", &[NEG]);
    let mut interpreter = with(&model, [delegate]).build().unwrap();
    let buffer = TestBuffer { data: X.to_vec(), seen };
    interpreter.set_input_buffer(0, Some(BufferHandle::new(buffer))).unwrap();
    interpreter.resize_input(0, &[2]).unwrap();
    assert_eq!(run(&mut interpreter, &[3.0, -4.0]).unwrap(), [-3.0, 4.0]);
}

#[test]
fn all_tensors_that_are_kept_are_in_memory() {
    let model = chain(&[NEG, ADD, ABS]);
    let ((first, _), (second, _)) = (keeping("first", &[NEG, ABS]), keeping("second", &[ADD]));
    let mut interpreter = with(&model, [first, second]).preserve_all_tensors().build().unwrap();
    run(&mut interpreter, &X).unwrap();
    let negated = model.subgraphs()[0].nodes()[0].outputs()[0];
    assert_eq!(interpreter.tensor(negated).unwrap().elements::<f32>().unwrap(), X.map(|x| -x));
}
