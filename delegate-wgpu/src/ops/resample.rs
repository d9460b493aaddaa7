//! The custom ops `TransformTensorBilinear` and `Resampler`.

use delegraph_core::ops::transform_tensor::TransformTensorParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::resample::{Positions, Spec};

use super::{CustomOp, GpuOp, expect_one_of};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const TRANSFORM: CustomOp =
    CustomOp { name: "TransformTensorBilinear", max_version: 2, lower: transform };
pub(super) const RESAMPLER: CustomOp = CustomOp { name: "Resampler", max_version: 1, lower: resampler };

fn transform(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (options, version) = (cx.node().custom_options(), cx.node().version());
    let params = TransformTensorParams::read(options, version).map_err(|e| unsupported(e.to_string()))?;
    let matrix = cx.input_shape(1)?;
    if matrix.iter().product::<u32>() != 16 {
        return Err(unsupported(format!("a matrix of shape {matrix:?}; only 16 elements are supported")));
    }
    push(cx, Positions::Matrix { centered: params.centered }, Some(params.size))
}

fn resampler(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let ([batch, height, width, _], positions) = (cx.input_shape4(0)?, cx.input_shape4(1)?);
    if positions != [batch, height, width, 2] {
        return Err(unsupported(format!(
            "positions of shape {positions:?}; only {:?} is supported",
            [batch, height, width, 2]
        )));
    }
    push(cx, Positions::Each, None)
}

/// One step; the output has the input's size unless the node sets one.
fn push(
    cx: &mut Lowering<'_, '_, '_>,
    positions: Positions,
    size: Option<[usize; 2]>,
) -> Result<(), Rejection> {
    (0..2).try_for_each(|i| expect_one_of(cx, i, GpuOp::FLOATS))?;
    let (inputs, output) = ([cx.input(0)?, cx.input(1)?], cx.output(0)?);
    let (input, shape) = (cx.shape4(inputs[0])?, cx.shape4(output)?);
    let [maps, height, width, channels] = input;
    let wanted = size.unwrap_or([height as usize, width as usize]);
    if (maps, channels) != (shape[0], shape[3]) || wanted != [shape[1] as usize, shape[2] as usize] {
        return Err(unsupported(format!(
            "an output of shape {shape:?}; only {:?} is supported",
            [maps as usize, wanted[0], wanted[1], channels as usize]
        )));
    }
    cx.push(Spec { positions, input, size: [shape[1], shape[2]] }, &inputs, output)
}

#[cfg(test)]
mod tests {
    use crate::testing::{T, check_custom};
    use delegraph_core::{Op, Params};

    #[test]
    fn a_matrix_leads_into_the_map() {
        let check = |version: u32, [a, x, y]: [f32; 3], expected: [f32; 2]| {
            let mut builder = flexbuffers::Builder::default();
            let mut map = builder.start_map();
            if version == 2 {
                map.push("output_height", 1);
                map.push("output_width", 2);
            } else {
                map.push("output_size", &[1, 2]);
            }
            map.end_map();
            let matrix = [a, 0.0, 0.0, x, 0.0, a, 0.0, y, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
            let inputs =
                [Some(T::new(&[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 5.0])), Some(T::new(&[1, 4, 4], &matrix))];
            let op = Op::custom("TransformTensorBilinear");
            let expected = [T::new(&[1, 1, 2, 1], &expected)];
            check_custom(op, version, Params::Custom, builder.view(), &inputs, &expected);
        };
        check(1, [1.0, 0.0, 0.5], [2.0, 3.5]);
        check(1, [1.0, 0.5, 0.0], [1.5, 0.0]);
        check(1, [1e30, 0.0, 0.0], [1.0, 0.0]);
        check(2, [1.0, 0.0, 1.0], [3.0, 5.0]);
        check(2, [2.0, -0.5, 0.0], [2.0, 0.0]);
    }

    #[test]
    fn every_pixel_has_a_position() {
        let maps = T::new(&[2, 1, 2, 2], &[1.0_f32, 10.0, 3.0, 30.0, 5.0, 50.0, 7.0, 70.0]);
        // Between pixels, half outside on the left; on a pixel; entirely outside.
        let positions = T::new(&[2, 1, 2, 2], &[0.5_f32, 0.0, -0.5, 0.0, 1.0, 0.0, 2.0, 0.0]);
        let expected = T::new(&[2, 1, 2, 2], &[2.0_f32, 20.0, 0.5, 5.0, 7.0, 70.0, 0.0, 0.0]);
        let inputs = [Some(maps), Some(positions)];
        check_custom(Op::custom("Resampler"), 1, Params::Custom, &[], &inputs, &[expected]);
    }
}
