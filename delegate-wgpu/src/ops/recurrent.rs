//! Code that all LSTM and RNN ops share.

use delegraph_core::ops::Activation as Fused;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{ShaderError, concatenation};

use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Join, ValueId};

/// The params of a direction of an LSTM.
pub(super) struct Settings {
    pub activation: Fused,
    pub cell_clip: f32,
    pub output_clip: f32,
    pub asymmetric: bool,
    pub sequences: u32,
    pub steps: u32,
    pub time_major: bool,
}

/// Returns the number of sequences, their steps, and the width of each, of an input `[time, batch, width]` or `[batch,
/// time, width]`.
pub(super) fn order(
    cx: &Lowering<'_, '_, '_>,
    input: usize,
    time_major: bool,
) -> Result<([u32; 2], u32), Rejection> {
    let shape = cx.input_shape(input)?;
    let &[first, second, width] = shape.as_slice() else {
        return Err(unsupported(format!("an input of shape {shape:?}; only rank 3 is supported")));
    };
    Ok((if time_major { [second, first] } else { [first, second] }, width))
}

/// Writes the outputs of two directions, each at the beginning of a value, side by side or to separate outputs.
pub(super) fn both(
    cx: &mut Lowering<'_, '_, '_>,
    merged: bool,
    directions: [(ValueId, u32); 2],
) -> Result<(), Rejection> {
    if !merged {
        return (0..).zip(directions).try_for_each(|(i, (whole, _))| cx.alias(i, whole, 0));
    }
    let shape = cx.output_shape(0)?;
    let &[first, second, _] = shape.as_slice() else {
        return Err(unsupported(format!("an output of shape {shape:?}; only rank 3 is supported")));
    };
    let inputs: Vec<_> = directions.iter().map(|(_, width)| vec![first, second, *width]).collect();
    let output = cx.output(0)?;
    for (part, (whole, width)) in directions.into_iter().enumerate() {
        let outputs = cx.view(whole, &[first, second, width], 0);
        let spec = concatenation::Spec { inputs: inputs.clone(), axis: 2 };
        cx.push(Join { spec, part }, &[outputs], output)?;
    }
    Ok(())
}

/// Rows of two matrices side by side.
pub(super) fn beside(matrices: [&[f32]; 2], widths: [u32; 2]) -> Vec<f32> {
    let [a, b] = widths.map(|width| width.max(1) as usize);
    let rows = matrices[0].chunks_exact(a).zip(matrices[1].chunks_exact(b));
    rows.flat_map(|(x, y)| x.iter().chain(y)).copied().collect()
}

/// Rows of two inputs side by side.
pub(super) fn joined_inputs(
    cx: &mut Lowering<'_, '_, '_>,
    rows: u32,
    inputs: [(usize, u32); 2],
) -> Result<ValueId, Rejection> {
    let spec = concatenation::Spec { inputs: inputs.map(|(_, width)| vec![rows, width]).into(), axis: 1 };
    let width = inputs[0].1.saturating_add(inputs[1].1);
    let joined = cx.checked_temporary(&[rows, width])?;
    for (part, (i, _)) in inputs.into_iter().enumerate() {
        let value = cx.input(i)?;
        cx.push(Join { spec: spec.clone(), part }, &[value], joined)?;
    }
    Ok(joined)
}

/// Returns the alignment of views, in elements.
pub(super) fn alignment(cx: &Lowering<'_, '_, '_>) -> u32 {
    u32::try_from(cx.view_alignment() / 4).unwrap_or(1).max(1)
}

pub(super) fn invalid(error: ShaderError) -> Rejection {
    unsupported(error.to_string())
}
