//! REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::ReduceWindowFunction;
use delegraph_core::ops::reduce_window::{
    ReduceWindowParams, StablehloReduceWindowParams, Windows, operand_windows, param_windows,
};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::index::{Nest, StridedCopy, Strides, dense_strides};
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, known, prepared, unsupported_type};
use crate::common::region::{Combine, Combined, on_combined};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::REDUCE_WINDOW, prepared(by_operands), 1).add_builtin(
        BuiltinOp::STABLEHLO_REDUCE_WINDOW,
        prepared(by_params),
        1,
    );
}

fn by_operands(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let how = match cx.params::<ReduceWindowParams>()?.reduce_function {
        ReduceWindowFunction::Add => Combine::Add,
        ReduceWindowFunction::Mul => Combine::Multiply,
        ReduceWindowFunction::Minimum => Combine::Minimum,
        ReduceWindowFunction::Maximum => Combine::Maximum,
        ReduceWindowFunction::All => Combine::All,
        ReduceWindowFunction::Any => Combine::Any,
        ReduceWindowFunction::Unsupported => {
            return Err(Error::Unsupported(
                "an unknown reduction of windows; only ADD, MUL, MINIMUM, MAXIMUM, ALL and ANY are supported"
                    .into(),
            ));
        }
    };
    let windows = known(operand_windows(&cx.infer_context())?)?;
    reduce(cx, &windows, how)
}

fn by_params(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if cx.output_count() != 1 {
        return Err(Error::Unsupported(format!(
            "windows over {} tensors; only one is supported",
            cx.output_count()
        )));
    }
    let region = cx.params::<StablehloReduceWindowParams>()?.body_subgraph_index;
    let how = match Combine::by_subgraph(cx, region)? {
        // TFLite combines integers by logical operations, too.
        Combine::And => Combine::All,
        Combine::Or => Combine::Any,
        how => how,
    };
    let windows = param_windows(&cx.infer_context())?;
    reduce(cx, &windows, how)
}

fn reduce(cx: &mut PrepareContext<'_>, windows: &Windows, how: Combine) -> Result<Invoke> {
    let ty = cx.input(0)?.ty();
    let unsupported = |cx: &PrepareContext<'_>| Err(unsupported_type("input 0", cx.input(0)?));
    on_combined!(ty, reduce_of(cx, windows, how)).unwrap_or_else(|| unsupported(cx))
}

/// Steps of a [`Pace`] per window, beside its elements.
const WINDOW_STEPS: usize = 16;

/// Each output starts with input 1 and combines the elements of its window, in order. Elements between and around those
/// of input 0 have the value of input 1, too.
fn reduce_of<T: Combined>(cx: &mut PrepareContext<'_>, windows: &Windows, how: Combine) -> Result<Invoke> {
    let input = cx.input(0)?;
    let combine = T::combine(how).ok_or_else(|| unsupported_type("input 0", input))?;
    let strides = dense_strides(&windows.padded);
    let times = |factors: &[usize]| -> Strides {
        strides.iter().zip(factors).map(|(&s, &f)| s.wrapping_mul(f.cast_signed())).collect()
    };
    let starts = Nest::new(&windows.output, [&times(&windows.stride)]);
    let window = Nest::new(&windows.size, [&times(&windows.dilation)]);
    let size = window.count();
    let spread = (windows.padded != *input.shape() || windows.before.iter().any(|&n| n != 0)).then(|| {
        let (before, apart) = (&windows.before, &windows.base_dilation);
        StridedCopy::spread(input.shape(), &windows.padded, before, apart, 8 * size_of::<T>())
    });
    let spread = match spread {
        Some(copy) => {
            Some((copy, cx.temporary_of::<T>(windows.padded.elements())?, windows.padded.elements()))
        }
        None => None,
    };
    Ok(Box::new(move |cx| {
        let (input, initial) = (cx.input::<T>(0)?, cx.input::<T>(1)?[0]);
        let input = match &spread {
            None => input,
            Some((copy, temporary, elements)) => {
                let padded = &mut cx.temporary::<T>(*temporary)?[..*elements];
                padded.fill(initial);
                copy.run_on(bytemuck::cast_slice(input), bytemuck::cast_slice_mut(padded), cx.parallel());
                &*padded
            }
        };
        let mut outputs = cx.output::<T>(0)?.iter_mut();
        let mut pace = Pace::new(cx);
        starts.try_for_each([0], |[start]| {
            pace.spend(size.saturating_add(WINDOW_STEPS))?;
            let mut sum = initial;
            // In this order a NaN replaces an extremum, as in TFLite.
            if size <= PIECE {
                window.for_each([start], |[i]| sum = combine(input[i], sum));
            } else {
                window.try_for_each([start], |[i]| {
                    sum = combine(input[i], sum);
                    pace.spend(1)
                })?;
            }
            if let Some(output) = outputs.next() {
                *output = sum;
            }
            Ok(())
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, error};

    fn list(v: &[i64]) -> Option<T> {
        Some(T::new(&[v.len()], v))
    }

    #[test]
    fn windows_from_operands() {
        let x = || Some(T::new(&[3, 3], &[1i32, 2, 3, 4, 5, 6, 7, 8, 9]));
        let params = |reduce_function| ReduceWindowParams::default().reduce_function(reduce_function).into();
        let inputs =
            |initial: i32| [x(), Some(T::new(&[], &[initial])), list(&[2, 2]), list(&[1, 1]), list(&[2, 1])];
        let op = BuiltinOp::REDUCE_WINDOW;
        let check = |function, initial, want: [i32; 2]| {
            check(op, 1, params(function), &inputs(initial), &[T::new(&[1, 2], &want)]);
        };
        check(ReduceWindowFunction::Add, 100, [118, 122]);
        check(ReduceWindowFunction::Mul, 1, [112, 432]);
        check(ReduceWindowFunction::Maximum, 0, [8, 9]);
        check(ReduceWindowFunction::Minimum, 2, [1, 2]);
        check(ReduceWindowFunction::All, 5, [1, 1]);
        check(ReduceWindowFunction::Any, 0, [1, 1]);
        let e = error(
            op,
            1,
            params(ReduceWindowFunction::Unsupported),
            &inputs(0),
            &[T::new(&[1, 2], &[0i32; 2])],
        );
        assert!(e.contains("an unknown reduction of windows"), "{e}");
    }

    /// The region is a subgraph, which a model of one node does not have.
    #[test]
    fn regions_must_exist() {
        let params = StablehloReduceWindowParams::default().window_dimensions(vec![1]).body_subgraph_index(1);
        let inputs = [Some(T::new(&[1], &[1f32])), Some(T::new(&[], &[0f32]))];
        let e =
            error(BuiltinOp::STABLEHLO_REDUCE_WINDOW, 1, params.into(), &inputs, &[T::new(&[1], &[1f32])]);
        assert!(e.contains("calls subgraph 1"), "{e}");
    }
}
