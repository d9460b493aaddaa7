//! StableHLO ops that move elements.

use std::marker::PhantomData;

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::ops::stablehlo_movement::{
    StablehloIotaParams, StablehloPadParams, broadcast_dimensions, concatenation_dimension,
    static_permutation, static_slice,
};
use delegraph_core::{BuiltinOp, MutableOpResolver, Registration, Result, Shape, TensorType};
use half::{bf16, f16};
use smallvec::SmallVec;

use super::dilate::spread;
use super::reshape;
use super::slice::copy_ranges;
use crate::common::index::{StridedCopy, Strides, View, dense_strides};
use crate::common::number::Number;
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Integers, Invoke, copies, copy_bytes, moved_bits, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::STABLEHLO_RESHAPE, Registration::new(|_| Ok(reshape::View)), 1)
        .add_builtin(BuiltinOp::STABLEHLO_CONCATENATE, prepared(concatenate), 1)
        .add_builtin(BuiltinOp::STABLEHLO_BROADCAST_IN_DIM, prepared(broadcast), 1)
        .add_builtin(BuiltinOp::STABLEHLO_SLICE, prepared(slice), 1)
        .add_builtin(BuiltinOp::STABLEHLO_DYNAMIC_SLICE, prepared(dynamic_slice), 1)
        .add_builtin(BuiltinOp::STABLEHLO_DYNAMIC_UPDATE_SLICE, prepared(dynamic_update_slice), 1)
        .add_builtin(BuiltinOp::STABLEHLO_PAD, prepared(pad), 1)
        .add_builtin(BuiltinOp::STABLEHLO_IOTA, prepared(iota), 1)
        .add_builtin(BuiltinOp::STABLEHLO_TRANSPOSE, prepared(transpose), 1);
}

fn concatenate(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let axis = concatenation_dimension(&cx.infer_context())?;
    let shape = cx.output(0)?.shape();
    let bits = moved_bits("output", cx.output(0)?)?;
    let mut origin = vec![0; shape.rank()];
    let mut list = Vec::new();
    for i in 0..cx.input_count() {
        let part = cx.input(i)?.shape();
        list.push((i, 0, StridedCopy::new(part, bits, &View::dense(part), &View::at(shape, &origin))));
        origin[axis] += part[axis];
    }
    copies(cx, list)
}

fn broadcast(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let dimensions = broadcast_dimensions(&cx.infer_context())?;
    let (input, shape) = (cx.input(0)?, cx.output(0)?.shape());
    let mut from = View { start: 0, strides: Strides::from_elem(0, shape.rank()) };
    for ((&d, &size), &stride) in
        dimensions.iter().zip(input.shape().iter()).zip(&dense_strides(input.shape()))
    {
        from.strides[d] = if size == 1 { 0 } else { stride };
    }
    let bits = moved_bits("input 0", input)?;
    copies(cx, vec![(0, 0, StridedCopy::new(shape, bits, &from, &View::dense(shape)))])
}

fn slice(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let ranges = static_slice(&cx.infer_context())?;
    copy_ranges(cx, &ranges)
}

fn transpose(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let permutation = static_permutation(&cx.infer_context())?;
    let (input, shape) = (cx.input(0)?, cx.output(0)?.shape());
    let strides = dense_strides(input.shape());
    let from = View { start: 0, strides: permutation.iter().map(|&d| strides[d]).collect() };
    let bits = moved_bits("input 0", input)?;
    copies(cx, vec![(0, 0, StridedCopy::new(shape, bits, &from, &View::dense(shape)))])
}

fn pad(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<StablehloPadParams>()?;
    let before: SmallVec<[isize; 8]> = p.edge_padding_low.iter().map(|&n| n as isize).collect();
    let apart: SmallVec<[usize; 8]> = p.interior_padding.iter().map(|&n| n as usize + 1).collect();
    spread(cx, &before, &apart, 1)
}

/// A box inside a tensor of shape `all`. Inputs from `first` on hold its start indices, which are clamped so that the
/// box is inside.
struct Part {
    all: Shape,
    size: Shape,
    first: usize,
}

impl Part {
    fn new(cx: &PrepareContext<'_>, size: Shape, first: usize) -> Result<Self> {
        for i in first..cx.input_count() {
            if !matches!(cx.input(i)?.ty(), TensorType::Int16 | TensorType::Int32 | TensorType::Int64) {
                return Err(unsupported_type(&format!("input {i}"), cx.input(i)?));
            }
        }
        Ok(Part { all: cx.input(0)?.shape().clone(), size, first })
    }

    fn view(&self, cx: &mut InvokeContext<'_>) -> Result<View> {
        let mut view = View::dense(&self.all);
        for d in 0..self.all.rank() {
            let start = usize::try_from(Integers::input(cx, self.first + d)?.get(0)).unwrap_or(0);
            view.start += start.min(self.all[d] - self.size[d]) * view.strides[d].cast_unsigned();
        }
        Ok(view)
    }
}

fn dynamic_slice(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let part = Part::new(cx, cx.output(0)?.shape().clone(), 1)?;
    let bits = moved_bits("input 0", cx.input(0)?)?;
    Ok(Box::new(move |cx| {
        let copy = StridedCopy::new(&part.size, bits, &part.view(cx)?, &View::dense(&part.size));
        copy.run_on(cx.input_bytes(0)?, cx.output_bytes(0)?, cx.parallel());
        Ok(())
    }))
}

fn dynamic_update_slice(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let part = Part::new(cx, cx.input(1)?.shape().clone(), 2)?;
    let bits = moved_bits("input 0", cx.input(0)?)?;
    Ok(Box::new(move |cx| {
        let copy = StridedCopy::new(&part.size, bits, &View::dense(&part.size), &part.view(cx)?);
        let output = cx.output_bytes(0)?;
        copy_bytes(cx.input_bytes(0)?, output, cx.parallel());
        copy.run_on(cx.input_bytes(1)?, output, cx.parallel());
        Ok(())
    }))
}

fn iota(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn of<T: Number>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        let dimension = cx.params::<StablehloIotaParams>()?.iota_dimension;
        let shape = cx.output(0)?.shape();
        let (_, from) = shape.split_at(usize::try_from(dimension).unwrap_or(0).min(shape.rank()));
        let (size, inner) = (from.first().copied().unwrap_or(1), from.iter().skip(1).product::<usize>());
        Ok(Box::new(move |cx| {
            let mut pace = Pace::new(cx);
            for (i, output) in cx.output::<T>(0)?.chunks_exact_mut(inner.max(1)).enumerate() {
                let value = T::truncated((i % size) as i64);
                for piece in output.chunks_mut(PIECE) {
                    pace.spend(piece.len() + 8)?;
                    piece.fill(value);
                }
            }
            Ok(())
        }))
    }
    match cx.output(0)?.ty() {
        TensorType::Float32 => of(cx, PhantomData::<f32>),
        TensorType::Float64 => of(cx, PhantomData::<f64>),
        TensorType::Float16 => of(cx, PhantomData::<f16>),
        TensorType::BFloat16 => of(cx, PhantomData::<bf16>),
        TensorType::Int8 => of(cx, PhantomData::<i8>),
        TensorType::UInt8 => of(cx, PhantomData::<u8>),
        TensorType::Int16 => of(cx, PhantomData::<i16>),
        TensorType::UInt16 => of(cx, PhantomData::<u16>),
        TensorType::Int32 => of(cx, PhantomData::<i32>),
        TensorType::UInt32 => of(cx, PhantomData::<u32>),
        TensorType::Int64 => of(cx, PhantomData::<i64>),
        TensorType::UInt64 => of(cx, PhantomData::<u64>),
        _ => Err(unsupported_type("output", cx.output(0)?)),
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::stablehlo_movement::{
        StablehloBroadcastInDimParams, StablehloConcatenateParams, StablehloDynamicSliceParams,
        StablehloSliceParams, StablehloTransposeParams,
    };

    use super::*;
    use crate::testing::{T, check, error};

    fn x() -> Option<T> {
        Some(T::new(&[2, 3], &[1i32, 2, 3, 4, 5, 6]))
    }

    fn one(op: BuiltinOp, params: impl Into<Params>, shape: &[usize], want: &[i32]) {
        check(op, 1, params.into(), &[x()], &[T::new(shape, want)]);
    }

    #[test]
    fn moves() {
        one(BuiltinOp::STABLEHLO_RESHAPE, Params::None, &[3, 2], &[1, 2, 3, 4, 5, 6]);
        let params = StablehloTransposeParams::default().permutation(vec![1, 0]);
        one(BuiltinOp::STABLEHLO_TRANSPOSE, params, &[3, 2], &[1, 4, 2, 5, 3, 6]);
        let params = StablehloBroadcastInDimParams::default().broadcast_dimensions(vec![2, 0]);
        one(BuiltinOp::STABLEHLO_BROADCAST_IN_DIM, params, &[3, 2, 2], &[1, 4, 1, 4, 2, 5, 2, 5, 3, 6, 3, 6]);
        let params = StablehloSliceParams::default()
            .start_indices(vec![1, 0])
            .limit_indices(vec![2, 3])
            .strides(vec![1, 2]);
        one(BuiltinOp::STABLEHLO_SLICE, params, &[1, 2], &[4, 6]);
        let params = StablehloConcatenateParams::default().dimension(1);
        let inputs = [x(), Some(T::new(&[2, 1], &[7i32, 8]))];
        let want = T::new(&[2, 4], &[1i32, 2, 3, 7, 4, 5, 6, 8]);
        check(BuiltinOp::STABLEHLO_CONCATENATE, 1, params.into(), &inputs, &[want]);
    }

    #[test]
    fn dynamic_boxes() {
        let start = |v: i64| Some(T::new(&[], &[v]));
        let params = || StablehloDynamicSliceParams::default().slice_sizes(vec![1, 2]).into();
        let (op, want) = (BuiltinOp::STABLEHLO_DYNAMIC_SLICE, [T::new(&[1, 2], &[5i32, 6])]);
        check(op, 1, params(), &[x(), start(9), start(1)], &want);
        let bad = Some(T::new(&[], &[1u8]));
        let e = error(op, 1, params(), &[x(), start(9), bad], &want);
        assert!(e.contains("of type UINT8"), "{e}");
        let inputs = [x(), Some(T::new(&[1, 2], &[7i32, 8])), start(-3), start(1)];
        let want = T::new(&[2, 3], &[1i32, 7, 8, 4, 5, 6]);
        check(BuiltinOp::STABLEHLO_DYNAMIC_UPDATE_SLICE, 1, Params::None, &inputs, &[want]);
    }

    #[test]
    fn pads_and_crops() {
        let params = StablehloPadParams::default()
            .edge_padding_low(vec![1, -1])
            .edge_padding_high(vec![-1, 2])
            .interior_padding(vec![1, 1]);
        let inputs = [x(), Some(T::new(&[], &[0i32]))];
        let want = [0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0];
        check(BuiltinOp::STABLEHLO_PAD, 1, params.into(), &inputs, &[T::new(&[3, 6], &want)]);
    }

    #[test]
    fn counts() {
        let params = |iota_dimension| StablehloIotaParams::default().iota_dimension(iota_dimension).into();
        check(BuiltinOp::STABLEHLO_IOTA, 1, params(0), &[], &[T::new(&[2, 2], &[0f32, 0.0, 1.0, 1.0])]);
        check(BuiltinOp::STABLEHLO_IOTA, 1, params(1), &[], &[T::new(&[2, 2], &[0u64, 1, 0, 1])]);
    }
}
