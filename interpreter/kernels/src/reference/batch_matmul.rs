//! BATCH_MATMUL.

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::index::Nest;
use crate::common::pace::{Pace, Polls};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{Multiplier, QuantizedElement};
use crate::common::weights::{
    DynamicInput, channel_scales, check_symmetric, scale_zero_point, weight_scales,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::BATCH_MATMUL, prepared(prepare), 1..=4);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int8, Int16, Int32};
    let product = Product::new(cx)?;
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let scales = b.quantization().and_then(|q| q.affine()).map_or(0, |affine| affine.scales.len());
    if scales > 1 && a.ty() != Float32 {
        // TFLite's kernel treats such scales as 0, and returns only zeros.
        let text = format!(
            "integers times \"{}\", which has a scale per channel; only one scale is supported",
            b.name()
        );
        return Err(Error::Unsupported(text));
    }
    match (a.ty(), b.ty(), output.ty()) {
        (Float32, Float32, _) => float(product),
        (Float32, Int8, _) => hybrid(cx, product),
        (Int8, Int8, Int8) => int8(cx, product),
        (Int8, Int8, Int32) => sums(product),
        (Int16, Int8, Int16) => int16::<i8>(cx, product),
        (Int16, Int16, Int16) => int16::<i16>(cx, product),
        (Float32 | Int8 | Int16, Float32 | Int8 | Int16, Float32 | Int8 | Int16) => {
            Err(unsupported_type("input 1", b))
        }
        (Float32 | Int8 | Int16, ..) => Err(unsupported_type("output", output)),
        _ => Err(unsupported_type("input 0", a)),
    }
}

/// The work is interrupted.
struct Ended;

/// Steps of a poll per output, beside its products.
const OUTPUT_STEPS: usize = 8;

/// Shapes of a batched matrix product.
struct Product {
    /// Pairs of matrices, as indices of matrices of each input.
    batches: Nest<2>,
    rows: usize,
    depth: usize,
    columns: usize,
    /// Strides of rows and columns of input 0, then of input 1.
    strides: [[usize; 2]; 2],
}

impl Product {
    fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let p: &BatchMatMulParams = cx.params()?;
        let (a, b, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
        let split = |shape: &[usize]| {
            let (batch, matrix) = shape.split_at(shape.len() - 2);
            (batch.to_vec(), [matrix[0], matrix[1]])
        };
        let ((a, a_matrix), (b, b_matrix), (batch, [rows, columns])) = (split(a), split(b), split(output));
        let strides =
            |[_, columns]: [usize; 2], transposed| if transposed { [1, columns] } else { [columns, 1] };
        Ok(Product {
            batches: Nest::broadcast(&a, &b, &batch),
            rows,
            depth: a_matrix[usize::from(!p.adj_x)],
            columns,
            strides: [strides(a_matrix, p.adj_x), strides(b_matrix, p.adj_y)],
        })
    }

    /// For each output element: `finish(row, column, sum)` of the sum that `add` accumulates over pairs of elements.
    /// Rows are those of input 0, counted through all its matrices.
    fn run<A: Copy, B: Copy, S: Default, O>(
        &self,
        parallel: &dyn Parallel,
        a: &[A],
        b: &[B],
        output: &mut [O],
        add: impl Fn(S, usize, A, B) -> S,
        finish: impl Fn(usize, usize, S) -> O,
    ) {
        let [[a_row, a_column], [b_row, b_column]] = self.strides;
        let (mut output, mut polls) = (output.iter_mut(), Polls::new(parallel));
        let matrices = |[at_a, at_b]: [usize; 2]| {
            let (a, b) = (&a[at_a * self.rows * self.depth..], &b[at_b * self.depth * self.columns..]);
            for row in 0..self.rows {
                for column in 0..self.columns {
                    let Some(out) = output.next() else { return Err(Ended) };
                    if polls.interrupted_after(self.depth.saturating_add(OUTPUT_STEPS)) {
                        return Err(Ended);
                    }
                    let row_of_all = at_a * self.rows + row;
                    let sum = (0..self.depth).fold(S::default(), |sum, k| {
                        let (a, b) = (a[row * a_row + k * a_column], b[k * b_row + column * b_column]);
                        add(sum, row_of_all, a, b)
                    });
                    *out = finish(row_of_all, column, sum);
                }
            }
            Ok(())
        };
        // Results of work that has ended early are not used.
        let _ = self.batches.try_for_each([0; 2], matrices);
    }
}

fn float(product: Product) -> Result<Invoke> {
    Ok(Box::new(move |cx| {
        let add = |sum: f32, _, a: f32, b: f32| sum + a * b;
        product.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output::<f32>(0)?, add, |_, _, sum| sum);
        Ok(())
    }))
}

/// Float input 0 and integer input 1: every row is quantized while running.
fn hybrid(cx: &mut PrepareContext<'_>, mut product: Product) -> Result<Invoke> {
    let p: &BatchMatMulParams = cx.params()?;
    let (asymmetric, adj_x) = (p.asymmetric_quantize_inputs, p.adj_x);
    let b = cx.input(1)?;
    let columns = b.shape().rank() - 1 - usize::from(p.adj_y);
    let scales = weight_scales(b, columns)?;
    let scales = channel_scales(cx, scales, product.columns)?;
    let elements = cx.input(0)?.shape().elements();
    let rows = elements.checked_div(product.depth).unwrap_or(0);
    let dynamic = DynamicInput::new(cx, rows, product.depth, asymmetric)?;
    let transposed = if adj_x { Some(cx.temporary_of::<f32>(elements)?) } else { None };
    // The quantized rows are dense.
    product.strides[0] = [product.depth, 1];
    Ok(Box::new(move |cx| {
        // All sums are empty, and rows without elements do not determine a scale.
        if product.depth == 0 {
            cx.output::<f32>(0)?.fill(0.0);
            return Ok(());
        }
        let mut a = cx.input::<f32>(0)?;
        if let Some(transposed) = transposed {
            let transposed = &mut cx.temporary::<f32>(transposed)?[..elements];
            let matrix = (product.rows * product.depth).max(1);
            let mut pace = Pace::new(cx);
            for (from, to) in a.chunks_exact(matrix).zip(transposed.chunks_exact_mut(matrix)) {
                for (i, to) in to.iter_mut().enumerate() {
                    pace.spend(8)?;
                    *to = from[i % product.depth * product.rows + i / product.depth];
                }
            }
            a = transposed;
        }
        let rows = dynamic.quantize(cx, a)?;
        let add = |sum: i32, row: usize, a: i8, b: i8| {
            sum.wrapping_add(i32::from(a).wrapping_sub(rows.zero_points[row]).wrapping_mul(b.into()))
        };
        product.run(cx.parallel(), rows.values, cx.input(1)?, cx.output(0)?, add, |row, column, sum| {
            sum as f32 * (rows.scales[row] * scales[column])
        });
        Ok(())
    }))
}

/// Factor from accumulators to outputs, and the output's zero point. TFLite multiplies the inputs' scales in single
/// precision.
fn rescale(cx: &PrepareContext<'_>) -> Result<(Multiplier, i32)> {
    let ((a, _), (b, _)) = (scale_zero_point(cx.input(0)?)?, scale_zero_point(cx.input(1)?)?);
    let (output, zero_point) = scale_zero_point(cx.output(0)?)?;
    Ok((Multiplier::new(f64::from(a * b) / f64::from(output))?, zero_point))
}

fn int8(cx: &mut PrepareContext<'_>, product: Product) -> Result<Invoke> {
    let (multiplier, zero_point) = rescale(cx)?;
    let (zero_a, zero_b) = (scale_zero_point(cx.input(0)?)?.1, scale_zero_point(cx.input(1)?)?.1);
    Ok(Box::new(move |cx| {
        let add = |sum: i32, _, a: i8, b: i8| {
            sum.wrapping_add(
                i32::from(a).wrapping_sub(zero_a).wrapping_mul(i32::from(b).wrapping_sub(zero_b)),
            )
        };
        product.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output(0)?, add, |_, _, sum| {
            i8::clamped(multiplier.apply(sum).wrapping_add(zero_point), i8::MIN.into(), i8::MAX.into())
        });
        Ok(())
    }))
}

/// 8-bit inputs and 32-bit outputs: plain sums, zero points ignored.
fn sums(product: Product) -> Result<Invoke> {
    Ok(Box::new(move |cx| {
        let add = |sum: i32, _, a: i8, b: i8| sum.wrapping_add(i32::from(a) * i32::from(b));
        product.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output::<i32>(0)?, add, |_, _, sum| sum);
        Ok(())
    }))
}

fn int16<B: QuantizedElement + Into<i64>>(cx: &mut PrepareContext<'_>, product: Product) -> Result<Invoke> {
    let (multiplier, _) = rescale(cx)?;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.input(1)?)?;
    check_symmetric(cx.output(0)?)?;
    Ok(Box::new(move |cx| {
        let add = |sum: i64, _, a: i16, b: B| sum.wrapping_add(i64::from(a) * Into::<i64>::into(b));
        product.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output(0)?, add, |_, _, sum| {
            i16::clamped(multiplier.apply_wide(sum), i16::MIN.into(), i16::MAX.into())
        });
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(adj_x: bool, adj_y: bool) -> Params {
        Params::BatchMatMul(
            BatchMatMulParams::default().adj_x(adj_x).adj_y(adj_y).asymmetric_quantize_inputs(false),
        )
    }

    #[test]
    fn matrices_may_be_transposed_and_repeated() {
        let a = || Some(T::new(&[2, 1, 2], &[1f32, 2.0, 3.0, 4.0]));
        let b = Some(T::new(&[2, 3], &[1f32, 0.0, 2.0, 0.0, 1.0, 10.0]));
        let output = T::new(&[2, 1, 3], &[1f32, 2.0, 22.0, 3.0, 4.0, 46.0]);
        check(BuiltinOp::BATCH_MATMUL, 1, params(false, false), &[a(), b], &[output]);
        let a = Some(T::new(&[2, 1], &[1f32, 2.0]));
        let b = Some(T::new(&[2, 2, 2], &[1f32, 0.0, 1.0, 1.0, 5.0, 6.0, 7.0, 8.0]));
        let output = T::new(&[2, 1, 2], &[1f32, 3.0, 17.0, 23.0]);
        check(BuiltinOp::BATCH_MATMUL, 1, params(true, true), &[a, b], &[output]);
    }

    #[test]
    fn float_rows_meet_integer_matrices() {
        let a = Some(T::new(&[2, 2], &[127f32, 12.7, -6.0, 1.27]));
        let b = Some(T::new(&[2, 2], &[1i8, 2, 3, 4]).quantized(0.5, 0));
        // Transposed, the rows are 127, -6 and 12.7, 1.27: steps of 1 and of 0.1.
        let output = T::new(&[2, 2], &[54.5f32, 115.0, 8.3, 15.3]);
        check(BuiltinOp::BATCH_MATMUL, 4, params(true, false), &[a, b], &[output]);
    }

    #[test]
    fn sums_of_no_terms() {
        for adj_x in [false, true] {
            let a = Some(T::new(if adj_x { &[0, 2] } else { &[2, 0] }, &[0f32; 0]));
            let b = Some(T::new(&[0, 3], &[0i8; 0]).quantized(0.5, 0));
            check(BuiltinOp::BATCH_MATMUL, 4, params(adj_x, false), &[a, b], &[T::new(&[2, 3], &[0f32; 6])]);
        }
    }

    #[test]
    fn integers() {
        let a = || Some(T::new(&[1, 2], &[3i8, 5]).quantized(0.5, 1));
        let b = || Some(T::new(&[2, 1], &[2i8, -3]).quantized(0.5, 1));
        let output = T::new(&[1, 1], &[-5i8]).quantized(0.5, 2);
        check(BuiltinOp::BATCH_MATMUL, 2, params(false, false), &[a(), b()], &[output]);
        check(BuiltinOp::BATCH_MATMUL, 2, params(false, false), &[a(), b()], &[T::new(&[1, 1], &[-9i32])]);
        let text = error(
            BuiltinOp::BATCH_MATMUL,
            1,
            params(true, false),
            &[a(), b()],
            &[T::new(&[2, 1], &[0i8; 2])],
        );
        assert!(text.contains("[1, 2] and [2, 1] do not multiply"), "{text}");
    }

    #[test]
    fn no_scales_per_channel_between_integers() {
        let a = Some(T::new(&[1, 2], &[3i8, 5]).quantized(0.5, 1));
        let b = Some(T::new(&[2, 2], &[2i8, -3, 1, 1]).per_channel(&[0.5, 0.25], 1));
        let output = T::new(&[1, 2], &[0i8; 2]).quantized(0.5, 2);
        let text = error(BuiltinOp::BATCH_MATMUL, 2, params(false, false), &[a, b], &[output]);
        assert!(text.contains("\"t1\", which has a scale per channel"), "{text}");
    }
}
