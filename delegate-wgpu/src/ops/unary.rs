//! ABS, CEIL, COS, ELU, EXP, FLOOR, GELU, HARD_SWISH, LEAKY_RELU, LOG, LOGISTIC, NEG, RELU, RELU6, RELU_N1_TO_1,
//! RELU_0_TO_1, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE, TANH.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::unary::{GeluParams, LeakyReluParams};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::gather;
use delegraph_shaders::unary::{Spec, Unary};

use super::{GpuOp, invalid_scale};
use crate::graph::{Element, ValueId};
use crate::lower::Lowering;
use crate::table::table;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::ABS, max_version: 5, lower },
    GpuOp { op: BuiltinOp::CEIL, max_version: 1, lower },
    GpuOp { op: BuiltinOp::COS, max_version: 2, lower },
    GpuOp { op: BuiltinOp::ELU, max_version: 1, lower },
    GpuOp { op: BuiltinOp::EXP, max_version: 2, lower },
    GpuOp { op: BuiltinOp::FLOOR, max_version: 1, lower },
    GpuOp { op: BuiltinOp::GELU, max_version: 3, lower },
    GpuOp { op: BuiltinOp::HARD_SWISH, max_version: 1, lower },
    GpuOp { op: BuiltinOp::LEAKY_RELU, max_version: 2, lower },
    GpuOp { op: BuiltinOp::LOG, max_version: 2, lower },
    GpuOp { op: BuiltinOp::LOGISTIC, max_version: 3, lower },
    GpuOp { op: BuiltinOp::NEG, max_version: 1, lower },
    GpuOp { op: BuiltinOp::RELU, max_version: 3, lower },
    GpuOp { op: BuiltinOp::RELU6, max_version: 3, lower },
    GpuOp { op: BuiltinOp::RELU_N1_TO_1, max_version: 1, lower },
    GpuOp { op: BuiltinOp::RELU_0_TO_1, max_version: 1, lower },
    GpuOp { op: BuiltinOp::ROUND, max_version: 1, lower },
    GpuOp { op: BuiltinOp::RSQRT, max_version: 3, lower },
    GpuOp { op: BuiltinOp::SIGN, max_version: 2, lower },
    GpuOp { op: BuiltinOp::SIN, max_version: 2, lower },
    GpuOp { op: BuiltinOp::SQRT, max_version: 2, lower },
    GpuOp { op: BuiltinOp::SQUARE, max_version: 1, lower },
    GpuOp { op: BuiltinOp::TANH, max_version: 3, lower },
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let function = match op.builtin() {
        Some(BuiltinOp::ABS) => Unary::Abs,
        Some(BuiltinOp::CEIL) => Unary::Ceil,
        Some(BuiltinOp::COS) => Unary::Cos,
        Some(BuiltinOp::ELU) => Unary::Elu,
        Some(BuiltinOp::EXP) => Unary::Exp,
        Some(BuiltinOp::FLOOR) => Unary::Floor,
        Some(BuiltinOp::GELU) if cx.params::<GeluParams>()?.approximate => Unary::GeluTanh,
        Some(BuiltinOp::GELU) => Unary::Gelu,
        Some(BuiltinOp::HARD_SWISH) => Unary::HardSwish,
        Some(BuiltinOp::LEAKY_RELU) => Unary::LeakyRelu { alpha: cx.params::<LeakyReluParams>()?.alpha },
        Some(BuiltinOp::LOG) => Unary::Log,
        Some(BuiltinOp::LOGISTIC) => Unary::Logistic,
        Some(BuiltinOp::NEG) => Unary::Neg,
        Some(BuiltinOp::RELU) => Unary::RELU,
        Some(BuiltinOp::RELU6) => Unary::RELU6,
        Some(BuiltinOp::RELU_N1_TO_1) => Unary::RELU_N1_TO_1,
        Some(BuiltinOp::RELU_0_TO_1) => Unary::RELU_0_TO_1,
        Some(BuiltinOp::ROUND) => Unary::Round,
        Some(BuiltinOp::RSQRT) => Unary::Rsqrt,
        Some(BuiltinOp::SIGN) => Unary::Sign,
        Some(BuiltinOp::SIN) => Unary::Sin,
        Some(BuiltinOp::SQRT) => Unary::Sqrt,
        Some(BuiltinOp::SQUARE) => Unary::Square,
        Some(BuiltinOp::TANH) => Unary::Tanh,
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    if let (true, Some(from), Some(to)) = (cx.is_bytes(input), cx.affine(input), cx.affine(output)) {
        let table = table(function, from, to).map_err(invalid_scale)?;
        return look_up(cx, input, &table, output);
    }
    let (input, output) = (cx.input(0)?, cx.real_output(0)?);
    let elements = cx.shape(output).iter().product();
    cx.push(Spec { steps: vec![function], elements }, &[input], output)
}

/// What a table has for each byte of `input`.
pub(super) fn look_up(
    cx: &mut Lowering<'_, '_, '_>,
    input: ValueId,
    table: &[i32],
    output: ValueId,
) -> Result<(), Rejection> {
    let entries = u32::try_from(table.len()).unwrap_or(u32::MAX);
    let table = cx.new_constant(&[entries], Element::I32, table);
    let indices = vec![cx.shape(input).iter().product()];
    // An index below 0 counts from the end, as the table's makers expect.
    let spec = gather::Spec { input: vec![entries], indices, axis: 0, batch_dims: 0 };
    cx.push(spec, &[table, input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn functions() {
        let input = T::new(&[5], &[-4.0_f32, -1.0, 0.0, 0.5, 7.0]);
        let run = |op, params, f: &dyn Fn(f32) -> f32| {
            let expected = T::from_fn(&[5], |i| f(input.floats()[i]));
            check(op, 1, params, &[Some(input.clone())], &[expected]);
        };
        run(BuiltinOp::ABS, Params::None, &f32::abs);
        run(BuiltinOp::RELU6, Params::None, &|x| x.clamp(0.0, 6.0));
        run(BuiltinOp::LOGISTIC, Params::None, &|x| 1.0 / (1.0 + (-x).exp()));
        run(BuiltinOp::HARD_SWISH, Params::None, &|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0);
        let params = Params::LeakyRelu(LeakyReluParams { alpha: 0.25 });
        run(BuiltinOp::LEAKY_RELU, params, &|x| if x > 0.0 { x } else { 0.25 * x });
    }
}
