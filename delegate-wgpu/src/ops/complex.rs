//! REAL, IMAG, COMPLEX_ABS of COMPLEX64; RFFT2D, as transforms of the rows and then, where there are several, of the
//! columns.

use delegraph_core::TensorType::{Complex64, Float32};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::complex::{Abs, Lines, Transform};
use delegraph_shaders::{Shader, slice};

use super::{GpuOp, count_of};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::COMPLEX_ABS, 1, &[Complex64], abs),
    GpuOp::new(BuiltinOp::IMAG, 1, &[Complex64], |cx| part(cx, 1)),
    GpuOp::new(BuiltinOp::REAL, 1, &[Complex64], real),
    GpuOp::new(BuiltinOp::RFFT2D, 1, &[Float32], transform),
];

fn abs(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (input, output) = (cx.complex_input(0)?, cx.output(0)?);
    cx.push(Abs { elements: cx.shape(output).iter().product() }, &[input], output)
}

/// The real part of input 0, as the floats of output 0.
pub(super) fn real(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    part(cx, 0)
}

fn part(cx: &mut Lowering<'_, '_, '_>, which: u32) -> Result<(), Rejection> {
    let (input, output) = (cx.complex_input(0)?, cx.output(0)?);
    if let Some(ty) = cx.node().output(0).map(|tensor| tensor.ty()).filter(|ty| *ty != TensorType::Float32) {
        return Err(Rejection::UnsupportedType { operand: "output 0".into(), ty });
    }
    let elements = cx.shape(output).iter().product();
    let spec = slice::Spec {
        input: vec![elements, 2],
        output: vec![elements, 1],
        begin: vec![0, which],
        step: vec![1; 2],
    };
    cx.push(spec, &[input], output)
}

fn transform(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (input, output) = (cx.input(0)?, cx.held_output(0)?);
    let (shape, lengths) = (cx.shape(input), cx.integers(1)?);
    let length = |n: &i64| {
        u32::try_from(*n).map_err(|_| {
            unsupported(format!("lengths {lengths:?}; only lengths from 0 to {} are supported", u32::MAX))
        })
    };
    let lengths = lengths.iter().map(length).collect::<Result<Vec<_>, _>>()?;
    let (&[ref outer @ .., height, width], &[rows, columns]) = (shape.as_slice(), lengths.as_slice()) else {
        return Err(unsupported(format!(
            "an input of shape {shape:?} with lengths {lengths:?}; \
            only images with two lengths are supported"
        )));
    };
    let images = outer.iter().product();
    let spec = |lines| Transform { images, input: [height, width], lengths: [rows, columns], lines };
    if rows == 1 {
        return lines(cx, spec(Lines::Rows), input, output);
    }
    let between = cx.checked_temporary(&[images, rows, columns / 2 + 1, 2])?;
    lines(cx, spec(Lines::Rows), input, between)?;
    lines(cx, spec(Lines::Columns), between, output)
}

fn lines(
    cx: &mut Lowering<'_, '_, '_>,
    spec: Transform,
    input: ValueId,
    output: ValueId,
) -> Result<(), Rejection> {
    // Checked before the table of roots is allocated, since the model chooses the length.
    spec.kernel(cx.caps()).map_err(|e| unsupported(e.to_string()))?;
    let roots = spec.roots();
    let count = count_of("roots of unity", roots.len())?;
    let roots = cx.new_constant(&[count, 2], Element::F32, &roots);
    cx.push(spec, &[input, roots], output)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;

    #[test]
    fn parts() {
        let z = || Some(T::new(&[4], &[[3.0f32, -4.0], [-1.0, 0.0], [0.0, 0.0], [-3e30, 4e30]]));
        let run = |op, floats: [f32; 4]| check(op, 1, Params::None, &[z()], &[T::new(&[4], &floats)]);
        run(BuiltinOp::REAL, [3.0, -1.0, 0.0, -3e30]);
        run(BuiltinOp::IMAG, [-4.0, 0.0, 0.0, 4e30]);
        run(BuiltinOp::COMPLEX_ABS, [5.0, 1.0, 0.0, 5e30]);
        run(BuiltinOp::CAST, [3.0, -1.0, 0.0, -3e30]);
    }

    /// The definition of the transform, as a sum.
    fn slow(input: &T, [in_height, in_width]: [usize; 2], [height, width]: [usize; 2]) -> Vec<[f32; 2]> {
        let input = input.floats();
        let mut all = Vec::new();
        for (v, u) in (0..height).flat_map(|v| (0..width / 2 + 1).map(move |u| (v, u))) {
            let mut sum = [0.0; 2];
            for (y, x) in
                (0..in_height.min(height)).flat_map(|y| (0..in_width.min(width)).map(move |x| (y, x)))
            {
                let turn = (y * v) as f64 / height as f64 + (x * u) as f64 / width as f64;
                let (sin, cos) = (-TAU * turn).sin_cos();
                let value = f64::from(input[y * in_width + x]);
                sum = [sum[0] + value * cos, sum[1] + value * sin];
            }
            all.push(sum.map(|v| v as f32));
        }
        all
    }

    #[test]
    fn transforms() {
        let run = |input: [usize; 2], lengths: [usize; 2]| {
            let x = T::noise(&input, 7);
            let want = slow(&x, input, lengths);
            let numbers = T::new(&[2], &lengths.map(|n| n as i32)).constant();
            let output = T::new(&[lengths[0], lengths[1] / 2 + 1], &want);
            check(BuiltinOp::RFFT2D, 1, Params::None, &[Some(x), Some(numbers)], &[output]);
        };
        for lengths in [[4, 8], [8, 4], [1, 16], [16, 1], [2, 2], [1, 1], [1, 1024], [256, 2]] {
            run([5, 8], lengths);
        }
        run([3, 700], [1, 512]);
    }

    #[test]
    fn lengths_other_than_powers_of_two_or_too_large_are_rejected() {
        let rejected = |lengths: [i32; 2], reason: &str| {
            let shape = [lengths[0] as usize, lengths[1] as usize / 2 + 1];
            let (x, n) = (T::noise(&[2, 2], 1), T::new(&[2], &lengths).constant());
            let output = T::new(&shape, &vec![[0.0f32; 2]; shape[0] * shape[1]]);
            let answer = support(BuiltinOp::RFFT2D, 1, Params::None, &[Some(x), Some(n)], &[output]);
            let answer = answer.map(|answer| answer.unwrap_err().to_string());
            assert!(answer.as_ref().is_none_or(|answer| answer.contains(reason)), "{answer:?}");
        };
        rejected([2, 6], "lengths of 2 and 6; powers of two are supported");
        rejected([1, 1 << 22], "workgroup memory");
    }
}
