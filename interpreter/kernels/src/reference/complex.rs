//! RFFT2D, IMAG, REAL, COMPLEX_ABS.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::fourier::{self, Fft, RealFft};
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, known, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::RFFT2D, prepared(rfft2d), 1)
        .add_builtin(BuiltinOp::REAL, prepared(|cx| part(cx, |[re, _]| re, |[re, _]| re)), 1)
        .add_builtin(BuiltinOp::IMAG, prepared(|cx| part(cx, |[_, im]| im, |[_, im]| im)), 1)
        .add_builtin(
            BuiltinOp::COMPLEX_ABS,
            prepared(|cx| part(cx, |[re, im]| re.hypot(im), |[re, im]| re.hypot(im))),
            1,
        );
}

/// Steps of a [`Pace`] per number of which a part or the absolute value is computed.
const PART_STEPS: usize = 8;

fn part(
    cx: &mut PrepareContext<'_>,
    narrow: fn([f32; 2]) -> f32,
    wide: fn([f64; 2]) -> f64,
) -> Result<Invoke> {
    fn on<I: Element, O: Element>(f: fn(I) -> O) -> Invoke {
        Box::new(move |cx| {
            let (input, output) = (cx.input::<I>(0)?, cx.output::<O>(0)?);
            Pace::new(cx).zip(PART_STEPS, input, output, |input, output| {
                output.iter_mut().zip(input).for_each(|(o, z)| *o = f(*z));
            })
        })
    }
    match cx.input(0)?.ty() {
        TensorType::Complex64 => Ok(on(narrow)),
        TensorType::Complex128 => Ok(on(wide)),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

/// Rows first, then columns, in double precision.
fn rfft2d(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let lengths = cx.input(1)?;
    if lengths.ty() != TensorType::Int32 {
        return Err(unsupported_type("lengths", lengths));
    }
    let &[height, width] = known(lengths.constant::<i32>()?)? else {
        return Err(Error::State("expected two lengths".into()));
    };
    let (outer, inner) = cx.input(0)?.shape().split_at(cx.input(0)?.shape().rank() - 2);
    let (images, [in_height, in_width]) = (outer.iter().product::<usize>(), [inner[0], inner[1]]);
    if images == 0 {
        // Without images the table is not needed. Unsupported lengths are still errors.
        fourier::check(width)?;
        fourier::check(height)?;
        return Ok(Box::new(|_| Ok(())));
    }
    let budget = cx.budget();
    let (rows, columns) = (RealFft::new(width, budget)?, Fft::new(height, budget)?);
    let (height, half) = (columns.len(), rows.frequencies());
    let line = cx.temporary_of::<[f64; 2]>(height)?;
    let spectrum = cx.temporary_of::<[f64; 2]>(height.saturating_mul(half))?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<[f32; 2]>(0)?);
        let (line, spectrum) = (cx.temporary::<[f64; 2]>(line)?, cx.temporary::<[f64; 2]>(spectrum)?);
        let mut pace = Pace::new(cx);
        for (image, output) in (0..images).zip(output.chunks_exact_mut(height * half)) {
            for (y, spectrum) in spectrum.chunks_exact_mut(half).take(height).enumerate() {
                pace.spend(16)?;
                let row = if y < in_height {
                    &input[(image * in_height + y) * in_width..][..in_width]
                } else {
                    &[]
                };
                rows.run(row.iter().map(|&x| f64::from(x)), spectrum, &mut pace)?;
            }
            if height == 1 {
                pace.zip(2, &*spectrum, output, |spectrum, output| {
                    output.iter_mut().zip(spectrum).for_each(|(o, z)| *o = z.map(|v| v as f32));
                })?;
                continue;
            }
            for x in 0..half {
                for (y, z) in line[..height].iter_mut().enumerate() {
                    pace.spend(4)?;
                    *z = spectrum[y * half + x];
                }
                columns.run(&mut line[..height], &mut pace)?;
                for (y, z) in line[..height].iter().enumerate() {
                    pace.spend(4)?;
                    output[y * half + x] = z.map(|v| v as f32);
                }
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn parts() {
        let z = || Some(T::new(&[2], &[[3.0f32, -4.0], [-1.0, 0.0]]));
        check(BuiltinOp::REAL, 1, Params::None, &[z()], &[T::new(&[2], &[3.0f32, -1.0])]);
        check(BuiltinOp::IMAG, 1, Params::None, &[z()], &[T::new(&[2], &[-4.0f32, 0.0])]);
        check(BuiltinOp::COMPLEX_ABS, 1, Params::None, &[z()], &[T::new(&[2], &[5.0f32, 1.0])]);
        let z = Some(T::new(&[1], &[[3.0f64, -4.0]]));
        check(BuiltinOp::COMPLEX_ABS, 1, Params::None, &[z], &[T::new(&[1], &[5.0f64])]);
    }

    /// The defining sum of the transform.
    fn slow(input: &[f32], [in_height, in_width]: [usize; 2], [height, width]: [usize; 2]) -> Vec<[f32; 2]> {
        let mut all = Vec::new();
        for (v, u) in (0..height).flat_map(|v| (0..width / 2 + 1).map(move |u| (v, u))) {
            let mut sum = [0.0, 0.0];
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
        let input: Vec<f32> = (0..40u8).map(|i| f32::from(i % 7) * 2.5 - f32::from(i % 11)).collect();
        for lengths in [[4, 8], [8, 4], [1, 16], [16, 1], [2, 2], [1, 1]] {
            let [height, width] = lengths;
            let (x, n) = (T::new(&[5, 8], &input), T::new(&[2], &lengths.map(|n: usize| n as i32)));
            let want = slow(&input, [5, 8], lengths);
            let got = crate::testing::run(
                crate::ReferenceOpResolver::new(),
                BuiltinOp::RFFT2D,
                1,
                Params::None,
                &[Some(x), Some(n)],
                &[T::new(&[height, width / 2 + 1], &want)],
            );
            let (shape, bytes) = &got.unwrap()[0];
            assert_eq!(shape.dims(), [height, width / 2 + 1]);
            let got: &[[f32; 2]] = bytemuck::cast_slice(bytes);
            for (got, want) in got.iter().zip(&want) {
                approx::assert_abs_diff_eq!(got[..], want[..], epsilon = 1e-3);
            }
        }
        let (x, n) = (Some(T::new(&[2, 2], &[1.0f32; 4])), Some(T::new(&[2], &[2, 3])));
        let e = error(BuiltinOp::RFFT2D, 1, Params::None, &[x, n], &[T::new(&[2, 2], &[[0.0f32; 2]; 4])]);
        assert!(e.ends_with("a length of 3; only powers of two are supported"), "{e}");
    }
}
