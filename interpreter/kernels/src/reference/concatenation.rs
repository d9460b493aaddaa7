//! CONCATENATION.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::concatenation::{ConcatenationParams, axis};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::quantized::Steps;
use delegraph_core::quantized::concatenation::Rescale;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View};
use crate::common::pace::Pace;
use crate::common::prepared::{
    Invoke, check_same_quantization, copies, moved_bits, prepared, scale_zero_point,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::CONCATENATION, prepared(prepare), 1..=7);
}

/// Steps of a [`Pace`] per rescaled element.
const ELEMENT_STEPS: usize = 8;

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let params = cx.params::<ConcatenationParams>()?;
    if params.fused_activation_function != Activation::None {
        let text = format!("activation {:?}; only None is supported", params.fused_activation_function);
        return Err(Error::Unsupported(text));
    }
    let axis = axis(&cx.infer_context())?;
    let output = cx.output(0)?;
    let bits = moved_bits("output", output)?;
    let shape = output.shape();
    let to = scale_zero_point(output);
    let mut origin = vec![0; shape.rank()];
    let (mut list, mut rescaled) = (cx.budget().reserved(cx.input_count())?, false);
    let mut scaling = cx.budget().reserved(cx.input_count())?;
    for i in 0..cx.input_count() {
        let input = cx.input(i)?;
        let mut part = shape.to_vec();
        part[axis] = if input.shape().rank() == 0 { 1 } else { input.shape()[axis] };
        let from = scale_zero_point(input);
        match input.ty() {
            TensorType::UInt8 => rescaled |= from != to,
            TensorType::Int8 | TensorType::Int16 => check_same_quantization(input, output)?,
            _ => {}
        }
        let steps = |(scale, zero)| Steps::new(TensorType::UInt8, scale, zero);
        scaling.push(steps(from).zip(steps(to)).and_then(|(from, to)| Rescale::new(from, to)))?;
        list.push((i, 0, StridedCopy::new(&part, bits, &View::dense(&part), &View::at(shape, &origin))))?;
        origin[axis] += part[axis];
    }
    if !rescaled {
        return copies(cx, list);
    }
    Ok(Box::new(move |cx| {
        let (output, mut pace) = (cx.output::<u8>(0)?, Pace::new(cx));
        for ((i, _, copy), rescale) in list.iter().zip(scaling.iter()) {
            let input = cx.input::<u8>(*i)?;
            match rescale {
                None => copy.run_on(input, output, cx.parallel()),
                Some(rescale) => copy.try_for_each(|i, o| {
                    output[o] = rescale.apply(input[i].into()) as u8;
                    pace.spend(ELEMENT_STEPS)
                })?,
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(axis: i32) -> Params {
        Params::Concatenation(
            ConcatenationParams::default().axis(axis).fused_activation_function(Activation::None),
        )
    }

    #[test]
    fn along_any_dimension() {
        let (a, b) = (T::new(&[2, 1], &[1i64, 2]), T::new(&[2, 2], &[3i64, 4, 5, 6]));
        let want = T::new(&[2, 3], &[1i64, 3, 4, 2, 5, 6]);
        check(BuiltinOp::CONCATENATION, 1, params(-1), &[Some(a), Some(b)], &[want]);
    }

    #[test]
    fn bytes_are_rescaled() {
        let a = T::new(&[3], &[0u8, 128, 255]).quantized(0.5, 128);
        let b = T::new(&[2], &[10u8, 250]).quantized(1.0, 100);
        let want = T::new(&[5], &[36u8, 100, 164, 10, 250]).quantized(1.0, 100);
        check(BuiltinOp::CONCATENATION, 1, params(0), &[Some(a.clone()), Some(b.clone())], &[want]);
        let a = T::new(&[1], &[1i8]).quantized(0.5, 0);
        let b = T::new(&[1], &[1i8]).quantized(0.25, 0);
        let e = error(BuiltinOp::CONCATENATION, 2, params(0), &[Some(a.clone()), Some(b)], &[a]);
        assert!(e.contains("not supported: scale and zero point"), "{e}");
    }
}
