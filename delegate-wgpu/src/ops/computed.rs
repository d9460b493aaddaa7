//! Computed filters and biases: laid out on the device as kernels read constant ones.

use delegraph_delegate_api::Rejection;
use delegraph_shaders::pad::{self, Fill};
use delegraph_shaders::{concatenation, tile, transpose};

use crate::graph::lowering::Lowering;
use crate::graph::{Computed, Element, Join, Spec, ValueId};

/// The layout of a filter that a kernel reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// The model's layout, followed by the bias.
    Plain,
    /// `[height][width][input channels / 4][output channels][4]`, followed by the bias padded to a multiple of four.
    ByTaps,
}

/// Adds a convolution of `input` with a filter and a bias that are inputs of the node: floats, computed or constant.
pub(super) fn push_weighted(
    cx: &mut Lowering<'_, '_, '_>,
    spec: impl Into<Spec>,
    input: ValueId,
    [filter, bias]: [usize; 2],
    layout: Layout,
    output: ValueId,
) -> Result<(), Rejection> {
    if cx.is_constant(filter) && (!cx.has_input(bias) || cx.is_constant(bias)) {
        let (filter, bias) = (cx.constant(filter)?, cx.optional_constant(bias)?);
        return cx.push_weighted(spec, input, filter, bias, output);
    }
    let [first, .., last] = cx.input_shape4(filter)?;
    let filter = cx.input(filter)?;
    let (filter, channels) = match layout {
        Layout::Plain => (filter, last),
        Layout::ByTaps => (by_taps(cx, filter)?, first),
    };
    let bias = match cx.has_input(bias) {
        true => Some(cx.input(bias)?),
        false => None,
    };
    let places = if layout == Layout::ByTaps { channels.next_multiple_of(4) } else { channels };
    let bias = match bias {
        Some(bias) => padded(cx, bias, [1, channels], places)?,
        None => zeros(cx, places)?,
    };
    let parts = [filter, bias];
    let sizes = parts.map(|part| cx.shape(part).iter().product::<u32>());
    let both = cx.checked_temporary(&[sizes[0].saturating_add(sizes[1])])?;
    let join = concatenation::Spec { inputs: sizes.map(|size| vec![size]).to_vec(), axis: 0 };
    for (part, value) in parts.into_iter().enumerate() {
        cx.push(Join { spec: join.clone(), part }, &[value], both)?;
    }
    cx.push(Computed(Box::new(spec.into())), &[input, both], output)
}

/// A value of `count` zeros, filled on the device.
fn zeros(cx: &mut Lowering<'_, '_, '_>, count: u32) -> Result<ValueId, Rejection> {
    let zero = cx.new_constant(&[1], Element::F32, &[0.0_f32]);
    let all = cx.checked_temporary(&[count])?;
    cx.push(tile::Spec { input: vec![1], multiples: vec![count] }, &[zero], all)?;
    Ok(all)
}

fn by_taps(cx: &mut Lowering<'_, '_, '_>, filter: ValueId) -> Result<ValueId, Rejection> {
    let [out_c, height, width, in_c] = cx.shape4(filter)?;
    let fours = in_c.next_multiple_of(4);
    let filter = padded(cx, filter, [out_c * height * width, in_c], fours)?;
    let shape = [out_c, height * width * (fours / 4), 4];
    let result = cx.checked_temporary(&[shape[1], shape[0], shape[2]])?;
    cx.push(transpose::Spec { input: shape.to_vec(), permutation: vec![1, 0, 2] }, &[filter], result)?;
    Ok(result)
}

/// Pads rows of `columns` columns with zeros to `to` columns.
fn padded(
    cx: &mut Lowering<'_, '_, '_>,
    value: ValueId,
    [rows, columns]: [u32; 2],
    to: u32,
) -> Result<ValueId, Rejection> {
    if columns == to {
        return Ok(value);
    }
    let result = cx.checked_temporary(&[rows, to])?;
    let padding = vec![[0, 0], [0, to - columns]];
    let spec = pad::Spec { input: vec![rows, columns], padding, fill: Fill::Value(0) };
    cx.push(spec, &[value], result)?;
    Ok(result)
}
