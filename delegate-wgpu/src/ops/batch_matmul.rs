//! BATCH_MATMUL.

use delegraph_core::TensorType::{Float32, Int8, Int16};
use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::Activation as Fused;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::batch_matmul::Spec;
use delegraph_shaders::batch_matmul_wide::Spec as Wide;

use super::integers::steps;
use super::{GpuOp, expect_one_of, invalid_scale, mixed_types};
use crate::graph::lowering::{Lowering, no_scale, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::BATCH_MATMUL, 4, &[Float32, Int16, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &BatchMatMulParams = cx.params()?;
    if cx.ty(0) == Some(TensorType::Int16) {
        return wide(cx, p);
    }
    // LiteRT's kernel for float and 8-bit operands first quantizes the floats with a scale per row; that is not
    // implemented here.
    if cx.ty(0) != cx.ty(1) {
        return Err(cx.wrong_type(1));
    }
    let (transpose_a, transpose_b, activation) = (p.adj_x, p.adj_y, Activation::None);
    let spec =
        |[a, b]: [Vec<u32>; 2], integers| Spec { a, b, transpose_a, transpose_b, activation, integers };
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    let shapes = inputs.map(|id| cx.shape(id));
    if !cx.is_bytes(inputs[0]) {
        let (inputs, output) = ([cx.input(0)?, cx.input(1)?], cx.real_output(0)?);
        return cx.push(spec(shapes, None), &inputs, output);
    }
    let output = cx.output(0)?;
    if !cx.is_bytes(output) {
        return Err(mixed_types(cx));
    }
    let (Some(a), Some(b), Some(to)) = (cx.affine(inputs[0]), cx.affine(inputs[1]), cx.affine(output)) else {
        return Err(no_scale());
    };
    let depth = shapes[0].iter().rev().nth(usize::from(p.adj_x)).copied().unwrap_or(0);
    let steps = steps([a, b, to], depth, false, false, Fused::None)?;
    cx.push(spec(shapes, Some(steps)), &inputs, output)
}

/// 16-bit integers, with 64-bit sums.
fn wide(cx: &mut Lowering<'_, '_, '_>, p: &BatchMatMulParams) -> Result<(), Rejection> {
    expect_one_of(cx, 1, &[TensorType::Int8, TensorType::Int16])?;
    let (inputs, output) = ([cx.any_input(0)?, cx.any_input(1)?], cx.output(0)?);
    if cx.narrow(output) != Some((16, true)) {
        return Err(mixed_types(cx));
    }
    let [a, b, to] = [cx.steps(inputs[0])?, cx.steps(inputs[1])?, cx.steps(output)?];
    if [a.zero, b.zero, to.zero] != [0; 3] {
        return Err(unsupported(format!(
            "zero points {}, {} and {} of 16-bit operands; \
            only 0 is supported",
            a.zero, b.zero, to.zero
        )));
    }
    let factor =
        Multiplier::new(f64::from(a.scale * b.scale) / f64::from(to.scale)).map_err(invalid_scale)?;
    let (multiplier, right) = factor.wide();
    let spec = Wide {
        a: cx.shape(inputs[0]),
        b: cx.shape(inputs[1]),
        transpose_a: p.adj_x,
        transpose_b: p.adj_y,
        multiplier: multiplier.unsigned_abs(),
        right,
    };
    cx.push(spec, &inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn products_of_matrices() {
        let a = T::new(&[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
        let b = T::new(&[3, 2], &[1.0_f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let params = BatchMatMulParams::default().adj_x(false).adj_y(true).asymmetric_quantize_inputs(false);
        let expected = T::new(&[2, 1, 3], &[1.0_f32, 2.0, 3.0, 3.0, 4.0, 7.0]);
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::BATCH_MATMUL, 1, Params::BatchMatMul(params), &inputs, &[expected]);
    }

    #[test]
    fn floats_would_lose_the_last_two() {
        // After subtracting the zero points: 1029 times 255 and a 1, on columns whose sums are 255 * 2^18 and two less.
        let a = [vec![127_i8; 1029], vec![-127]].concat();
        let columns = [[127_i8, 127]; 1028].into_iter().chain([[-124, -125], [-128, 125]]);
        let b: Vec<i8> = columns.flatten().collect();
        let a = T::new(&[1, 1030], &a).quantized(1.0, -128);
        let b = T::new(&[1030, 2], &b).quantized(1.0, -128);
        // 127.5 steps are rounded away from zero, slightly less is rounded towards it.
        let expected = T::new(&[1, 2], &[0_i8, -1]).quantized(524_288.0, -128);
        let params = BatchMatMulParams::default().adj_x(false).adj_y(false).asymmetric_quantize_inputs(false);
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::BATCH_MATMUL, 2, Params::BatchMatMul(params), &inputs, &[expected]);
    }
}
