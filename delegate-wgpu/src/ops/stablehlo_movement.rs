//! The StableHLO ops that move elements to positions that the model fixes.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::stablehlo_movement::{
    StablehloPadParams, broadcast_dimensions, concatenation_dimension, static_permutation, static_slice,
};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{pad, slice, tile, transpose};

use super::slice::take;
use super::{GpuOp, concatenation, invalid, not_constant, reshape};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::STABLEHLO_BROADCAST_IN_DIM, 1, &[], broadcast),
    GpuOp::new(BuiltinOp::STABLEHLO_CONCATENATE, 1, &[], concatenate),
    GpuOp::new(BuiltinOp::STABLEHLO_PAD, 1, GpuOp::UNPACKED, border),
    GpuOp::new(BuiltinOp::STABLEHLO_RESHAPE, 1, &[], reshape::lower),
    GpuOp::new(BuiltinOp::STABLEHLO_SLICE, 1, &[], cut),
    GpuOp::new(BuiltinOp::STABLEHLO_TRANSPOSE, 1, &[], reorder),
];

/// Transposes the input's dimensions into their order, then repeats those of extent one.
fn broadcast(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let dimensions = broadcast_dimensions(&cx.infer()).map_err(invalid)?;
    let mut input = cx.any_input(0)?;
    let (shape, wanted) = (cx.shape(input), cx.output_shape(0)?);
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.sort_by_key(|&d| dimensions.get(d));
    let size_at = |place: usize| dimensions.iter().position(|&d| d == place).and_then(|d| shape.get(d));
    let expanded: Vec<u32> = (0..wanted.len()).map(|place| size_at(place).copied().unwrap_or(1)).collect();
    let moved = order.iter().filter(|&&d| shape.get(d).is_some_and(|&size| size != 1));
    if !moved.is_sorted() {
        let ordered = cx.temporary_like(&expanded, input);
        cx.push(transpose::Spec { input: shape, permutation: order }, &[input], ordered)?;
        input = ordered;
    }
    let multiples: Vec<u32> =
        wanted.iter().zip(&expanded).map(|(to, from)| if from == to { 1 } else { *to }).collect();
    if multiples.iter().all(|&n| n == 1) {
        return cx.alias(0, input, 0);
    }
    let output = cx.output(0)?;
    cx.push(tile::Spec { input: expanded, multiples }, &[input], output)
}

fn concatenate(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let axis = concatenation_dimension(&cx.infer()).map_err(invalid)?;
    let shapes = (0..cx.node().input_count()).map(|i| cx.input_shape(i)).collect::<Result<_, _>>()?;
    concatenation::join(cx, shapes, axis)
}

fn cut(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let ranges = static_slice(&cx.infer()).map_err(invalid)?;
    let input = cx.any_input(0)?;
    let error = || {
        unsupported(format!(
            "slice {ranges:?}; \
        only extents below 2^32 and steps below 2^31 are supported"
        ))
    };
    let (mut output, mut begin, mut step) = (Vec::new(), Vec::new(), Vec::new());
    for range in &ranges {
        output.push(u32::try_from(range.count).map_err(|_| error())?);
        begin.push(u32::try_from(range.start).map_err(|_| error())?);
        step.push(i32::try_from(if range.count > 1 { range.step } else { 1 }).map_err(|_| error())?);
    }
    take(cx, 0, input, slice::Spec { input: cx.shape(input), output, begin, step })
}

fn reorder(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let permutation = static_permutation(&cx.infer()).map_err(invalid)?.to_vec();
    let input = cx.any_input(0)?;
    let shape = cx.shape(input);
    let moved = permutation.iter().filter(|&&d| shape.get(d).is_some_and(|&size| size != 1));
    if moved.is_sorted() {
        return cx.alias(0, input, 0);
    }
    let output = cx.output(0)?;
    cx.push(transpose::Spec { input: shape, permutation }, &[input], output)
}

/// Pads with a constant value.
fn border(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &StablehloPadParams = cx.params()?;
    if p.interior_padding.iter().any(|&gap| gap != 0) {
        return Err(unsupported(format!("interior padding {:?}; only 0 is supported", p.interior_padding)));
    }
    let side = |&size: &i64| u32::try_from(size).ok();
    let sides = p.edge_padding_low.iter().zip(&p.edge_padding_high);
    let padding: Option<Vec<[u32; 2]>> = sides.map(|(low, high)| Some([side(low)?, side(high)?])).collect();
    let padding = padding.ok_or_else(|| {
        unsupported(format!(
            "edge padding {:?} and {:?}; \
        only padding from 0 on is supported",
            p.edge_padding_low, p.edge_padding_high
        ))
    })?;
    let fill = pad::Fill::Value(cx.constant_words(1)?.first().copied().ok_or_else(not_constant)?);
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    cx.push(pad::Spec { input: cx.shape(input), padding, fill }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::stablehlo_movement::{
        StablehloBroadcastInDimParams, StablehloConcatenateParams, StablehloSliceParams,
        StablehloTransposeParams,
    };

    fn floats(shape: &[usize], values: &[i16]) -> T {
        T::new(shape, &values.iter().map(|&v| f32::from(v)).collect::<Vec<_>>())
    }

    #[test]
    fn broadcasts_along_the_dimensions_that_it_names() {
        let along = |d: &[i64]| -> Params {
            StablehloBroadcastInDimParams::default().broadcast_dimensions(d.to_vec()).into()
        };
        let op = BuiltinOp::STABLEHLO_BROADCAST_IN_DIM;
        let row = || Some(floats(&[2], &[1, 2]));
        check(op, 1, along(&[0]), &[row()], &[floats(&[2, 3], &[1, 1, 1, 2, 2, 2])]);
        check(op, 1, along(&[1]), &[row()], &[floats(&[2, 2], &[1, 2, 1, 2])]);
        let matrix = Some(floats(&[2, 3], &[1, 2, 3, 4, 5, 6]));
        let turned = [1, 4, 2, 5, 3, 6, 1, 4, 2, 5, 3, 6];
        check(op, 1, along(&[2, 1]), &[matrix], &[floats(&[2, 3, 2], &turned)]);
        check(op, 1, along(&[]), &[Some(T::new(&[], &[7_i32]))], &[T::new(&[2], &[7, 7])]);
    }

    #[test]
    fn moves() {
        let matrix = || Some(floats(&[2, 3], &[1, 2, 3, 4, 5, 6]));
        let params = StablehloTransposeParams::default().permutation(vec![1, 0]);
        let turned = floats(&[3, 2], &[1, 4, 2, 5, 3, 6]);
        check(BuiltinOp::STABLEHLO_TRANSPOSE, 1, params.into(), &[matrix()], &[turned]);
        let params = StablehloSliceParams::default()
            .start_indices(vec![0, 0])
            .limit_indices(vec![2, 3])
            .strides(vec![1, 2]);
        check(BuiltinOp::STABLEHLO_SLICE, 1, params.into(), &[matrix()], &[floats(&[2, 2], &[1, 3, 4, 6])]);
        let params = StablehloConcatenateParams::default().dimension(0);
        let both = floats(&[3, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let inputs = [matrix(), Some(floats(&[1, 3], &[7, 8, 9]))];
        check(BuiltinOp::STABLEHLO_CONCATENATE, 1, params.into(), &inputs, &[both]);
        let params = StablehloPadParams::default()
            .edge_padding_low(vec![0, 1])
            .edge_padding_high(vec![1, 0])
            .interior_padding(vec![0, 0]);
        let inputs = [matrix(), Some(floats(&[], &[9]).constant())];
        let padded = floats(&[3, 4], &[9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9]);
        check(BuiltinOp::STABLEHLO_PAD, 1, params.into(), &inputs, &[padded]);
    }
}
