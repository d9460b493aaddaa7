use delegraph_core::Params;

use super::*;
use crate::testing::{SingleNode, T, check, error};

/// A cell that accumulates its inputs: all gates are 0.5, as their weights are 0.
fn inputs(weights: impl Fn(f32) -> T, steps: usize) -> Vec<Option<T>> {
    let bias = || Some(T::new(&[1], &[0f32]));
    let mut inputs = vec![Some(T::new(&[1, steps, 1], &vec![1f32; steps]))];
    inputs.extend([0.0, 0.0, 2.0, 0.0].map(|w| Some(weights(w))));
    inputs.extend([0.0; 4].map(|w| Some(weights(w))));
    inputs.extend([None, None, None, bias(), bias(), bias(), bias(), None, None]);
    inputs.extend([(); 2].map(|()| Some(T::new(&[1, 1], &[0f32]).variable())));
    inputs
}

fn params(cell_clip: f32) -> Params {
    Params::UnidirectionalSequenceLstm(
        UnidirectionalSequenceLstmParams::default()
            .fused_activation_function(Activation::None)
            .cell_clip(cell_clip)
            .proj_clip(0.0)
            .time_major(false)
            .asymmetric_quantize_inputs(false)
            .diagonal_recurrent_tensors(false),
    )
}

#[test]
fn cells_remember() {
    let op = BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM;
    let float = |w: f32| T::new(&[1, 1], &[w]);
    // The state is 1, 1.5, 1.75; the output half of it.
    let output = || T::new(&[1, 3, 1], &[0.5f32, 0.75, 0.875]);
    check(op, 1, params(0.0), &inputs(float, 3), &[output()]);
    let clipped = T::new(&[1, 3, 1], &[0.5f32, 0.625, 0.625]);
    check(op, 1, params(1.25), &inputs(float, 3), &[clipped]);
    let integer = |w: f32| T::new(&[1, 1], &[(w * 50.0) as i8]).quantized(0.02, 0);
    check(op, 2, params(0.0), &inputs(integer, 3), &[output()]);
    let mut wrong = inputs(float, 3);
    wrong[5] = None;
    let text = error(op, 1, params(0.0), &wrong, &[output()]);
    assert!(text.contains("input 5 is missing"), "{text}");
}

/// Operands of a cell of [`cells_remember`], without the input and the states.
fn cell() -> Vec<Option<T>> {
    inputs(|w| T::new(&[1, 1], &[w]), 1)[1..18].to_vec()
}

#[test]
fn two_directions() {
    let op = BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM;
    let params = |merge_outputs| {
        let mut params = BidirectionalSequenceLstmParams::default();
        (params.merge_outputs, params.time_major) = (merge_outputs, false);
        params.fused_activation_function = Activation::None;
        Params::from(params)
    };
    let input = |values: [f32; 2]| Some(T::new(&[1, 2, 1], &values));
    let states = vec![Some(T::new(&[1, 1], &[0f32]).variable()); 4];
    let weights = vec![None; 8];
    let plain = [vec![input([1.0, 3.0])], cell(), cell(), states.clone(), vec![None; 9]].concat();
    // Each direction keeps half of its state and adds the input; half of that is the output.
    let outputs = [T::new(&[1, 2, 1], &[0.5f32, 1.75]), T::new(&[1, 2, 1], &[1.25f32, 1.5])];
    check(op, 1, params(false), &plain, &outputs);
    check(op, 1, params(true), &plain, &[T::new(&[1, 2, 2], &[0.5f32, 1.25, 1.75, 1.5])]);
    // The backward cell sees the auxiliary input instead.
    let auxiliary = vec![input([0.0, 2.0])];
    let stacked = [vec![input([1.0, 3.0])], cell(), cell(), states, auxiliary, weights].concat();
    check(op, 1, params(true), &stacked, &[T::new(&[1, 2, 2], &[0.5f32, 0.5, 1.75, 1.0])]);
}

#[test]
fn the_basic_cell() {
    let params = || Params::from(LstmParams::default().kernel_type(LstmKernelType::Basic));
    let operands = |ty: u8| -> Vec<Option<T>> {
        let (byte, half) = ((1.0 / 128.0, 128), (1.0 / 2048.0, 0));
        let quantized = |t: T, (scale, zero): (f32, i64)| Some(t.quantized(scale, zero));
        match ty {
            0 => vec![
                Some(T::new(&[1, 1], &[0.5f32])),
                Some(T::new(&[1, 1], &[9f32])),
                Some(T::new(&[4, 2], &[0f32, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0])),
                Some(T::new(&[4], &[0f32; 4])),
                Some(T::new(&[1, 1], &[3f32]).variable()),
            ],
            _ => vec![
                quantized(T::new(&[1, 1], &[192u8]), byte),
                quantized(T::new(&[1, 1], &[255u8]), byte),
                quantized(T::new(&[4, 2], &[100u8, 100, 228, 100, 100, 100, 100, 100]), (1.0 / 64.0, 100)),
                quantized(T::new(&[4], &[0i32; 4]), (1.0 / 8192.0, 0)),
                quantized(T::new(&[1, 1], &[0i16]).variable(), half),
            ],
        }
    };
    // Half of what the candidate adds to a state of 0, and half of that for the output.
    let state = 0.5 * 1f32.tanh();
    let floats = [
        T::new(&[1, 1], &[0.5 * state.tanh()]),
        T::new(&[1, 1], &[state]),
        T::new(&[1, 2], &[0.5f32, 9.0]),
        T::new(&[1, 4], &[0f32, 1.0, 0.0, 0.0]),
    ];
    check(BuiltinOp::LSTM, 2, params(), &operands(0), &floats);
    let integers = [
        T::new(&[1, 1], &[151u8]).quantized(1.0 / 128.0, 128),
        T::new(&[1, 1], &[780i16]).quantized(1.0 / 2048.0, 0),
        T::new(&[1, 2], &[192u8, 255]).quantized(1.0 / 128.0, 128),
        T::new(&[1, 4], &[0i16, 4096, 0, 0]).quantized(1.0 / 4096.0, 0),
    ];
    check(BuiltinOp::LSTM, 2, params(), &operands(1), &integers);
    let mut wrong = operands(0);
    wrong[3] = Some(T::new(&[4], &[0i32; 4]));
    let text = error(BuiltinOp::LSTM, 2, params(), &wrong, &floats);
    assert!(text.contains("operand \"t3\" of type INT32"), "{text}");
}

#[test]
fn integer_cells_need_what_the_file_says_of_values_in_between() {
    let weights = || Some(T::new(&[1, 1], &[0i8]).quantized(0.01, 0));
    let bias = || Some(T::new(&[1], &[0i32]));
    let mut inputs = vec![Some(T::new(&[1, 1, 1], &[1i8]).quantized(0.1, 0))];
    inputs.extend((0..8).map(|_| weights()));
    inputs.extend([None, None, None, bias(), bias(), bias(), bias(), None, None]);
    inputs.push(Some(T::new(&[1, 1], &[0i8]).quantized(0.01, 5).variable()));
    inputs.push(Some(T::new(&[1, 1], &[0i16]).quantized(1.0 / 2048.0, 0).variable()));
    let output = T::new(&[1, 1, 1], &[0i8]).quantized(0.01, 5);
    let op = BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM;
    let text = error(op, 1, params(0.0), &inputs, &[output]);
    assert!(text.contains("an integer cell with 0 intermediates, expected 5 or 12"), "{text}");
}

/// Operands of an integer cell with two features, three cells and two outputs; with peepholes if `wide`.
fn integer_cell(wide: bool) -> Vec<Option<T>> {
    let mut number = 0;
    let mut pattern = |elements: i32| -> Vec<i32> {
        number += 1;
        (0..elements).map(|i| (i * 37 + number * 53 + 11) % 255 - 127).collect()
    };
    let bytes = |values: Vec<i32>| values.into_iter().map(|x| x as i8).collect::<Vec<_>>();
    let halves = |values: Vec<i32>| {
        let values: Vec<i16> = values.into_iter().map(|x| (x * 100) as i16).collect();
        Some(T::new(&[3], &values).quantized(3e-5, 0))
    };
    let mut inputs = vec![Some(T::new(&[1, 2], &[-116i8, -79]).quantized(0.02, 3))];
    inputs.extend((0..8).map(|_| Some(T::new(&[3, 2], &bytes(pattern(6))).quantized(0.01, 0))));
    inputs.extend((0..3).map(|_| if wide { halves(pattern(3)) } else { None }));
    for _ in 0..4 {
        let bias: Vec<i32> = pattern(3).into_iter().map(|x| x * 1000).collect();
        inputs.push(Some(T::new(&[3], &bias)));
    }
    let scale = if wide { 0.004 } else { 0.03 };
    inputs.push(Some(T::new(&[2, 3], &bytes(pattern(6))).quantized(scale, 0)));
    pattern(2);
    inputs.push(Some(T::new(&[2], &[3000i32, -2000])));
    inputs.push(Some(T::new(&[1, 2], &[0i8; 2]).quantized(0.01, -4).variable()));
    let state = 2f32.powi(if wide { -11 } else { -15 });
    inputs.push(Some(T::new(&[1, 3], &[0i16; 3]).quantized(state, 0).variable()));
    inputs.extend((0..4).map(|_| halves(pattern(3))));
    if wide {
        inputs.extend((0..4).map(|_| Some(T::intermediate(0.0005, 0))));
        inputs.push(Some(T::intermediate(0.006, 7)));
    } else {
        let between = |i: i64| if i % 3 == 0 { (0.002, 0) } else { (0.02, i - 5) };
        inputs.extend((0..12).map(|i| Some(T::intermediate(between(i).0, between(i).1))));
    }
    inputs
}

/// TFLite's results for these cells in three consecutive invocations: states last until they are reset.
#[test]
fn integer_cells() {
    for (wide, want) in [(true, [[2i8, -6], [2, -5], [2, -4]]), (false, [[-45, 0], [-68, 2], [-81, 4]])] {
        let params = Params::from(LstmParams::default().fused_activation_function(Activation::Tanh));
        let output = [T::new(&[1, 2], &[0i8; 2]).quantized(0.01, -4)];
        let resolver = crate::ReferenceOpResolver::new();
        let op = BuiltinOp::LSTM;
        let cell = integer_cell(wide);
        let mut node = SingleNode::new(&resolver, op, 1, params, (&[], 1), &cell, &output).unwrap();
        for again in [false, true] {
            for want in &want {
                node.invoke().unwrap();
                let got = node.output(0).bytes();
                assert_eq!(got, bytemuck::cast_slice::<i8, u8>(want), "wide {wide}, again {again}");
            }
            node.reset_variables().unwrap();
        }
    }
}
