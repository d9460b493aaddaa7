//! The custom ops `Landmarks2TransformMatrix` and `TransformLandmarks`.

use delegraph_core::Error;
use delegraph_core::ops::landmarks::{CropParams, CropSize, TransformParams};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::landmarks::{Crop, Transform};

use super::{CustomOp, GpuOp, expect_one_of};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const MATRIX: CustomOp =
    CustomOp { name: "Landmarks2TransformMatrix", max_version: 2, lower: matrix };
pub(super) const TRANSFORM: CustomOp =
    CustomOp { name: "TransformLandmarks", max_version: 2, lower: transform };

fn invalid(error: Error) -> Rejection {
    unsupported(error.to_string())
}

fn matrix(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let params = CropParams::read(cx.node().custom_options(), cx.node().version()).map_err(invalid)?;
    expect_one_of(cx, 0, GpuOp::FLOATS)?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    params.check(cx.shape(input).iter().product::<u32>() as usize / 3).map_err(invalid)?;
    if cx.shape(output) != [1, 4, 4] {
        return Err(unsupported(format!(
            "a matrix of shape {:?}; only [1, 4, 4] is supported",
            cx.shape(output)
        )));
    }
    let index = |&i: &usize| {
        u32::try_from(i).map_err(|_| unsupported(format!("landmark {i}; at most {} is supported", u32::MAX)))
    };
    let subset = params.subset.iter().map(index).collect::<Result<_, _>>()?;
    let line = [index(&params.line[0])?, index(&params.line[1])?];
    let spec = match params.size {
        CropSize::Absolute { angle, scale, output: [height, width] } => Crop {
            subset,
            line,
            angle: Some(angle),
            scale: [scale[1] / width, scale[0] / height],
            unit: [1.0, 0.0],
            half: [width / 2.0, height / 2.0],
            columns: [1.0; 2],
            rows: [1.0; 2],
            ends: [0.0; 2],
        },
        // Positions from -1 to 1, in the crop and in the map.
        CropSize::Relative { range, multiplier, input: [in_h, in_w], output: [out_h, out_w] } => {
            let middle = [(in_w - 1.0) / 2.0, (in_h - 1.0) / 2.0];
            Crop {
                subset,
                line,
                angle: None,
                scale: [multiplier / range; 2],
                unit: [2.0 / range, -1.0],
                half: [1.0; 2],
                columns: [2.0 / (out_w - 1.0), 2.0 / (out_h - 1.0)],
                rows: middle,
                ends: middle,
            }
        }
    };
    cx.push(spec, &[input], output)
}

fn transform(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let params = TransformParams::read(cx.node().custom_options(), cx.node().version()).map_err(invalid)?;
    (0..2).try_for_each(|i| expect_one_of(cx, i, GpuOp::FLOATS))?;
    let (inputs, output) = ([cx.input(0)?, cx.input(1)?], cx.output(0)?);
    let [shape, matrix] = inputs.map(|id| cx.shape(id));
    let sizes: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
    let coordinates = params.coordinates(&sizes, matrix.iter().product::<u32>() as usize).map_err(invalid)?;
    if cx.shape(output) != shape {
        return Err(unsupported(format!(
            "an output of shape {:?}; only the landmarks' shape {shape:?} is supported",
            cx.shape(output)
        )));
    }
    let dimensions = if coordinates == 2 { 2 } else { 3 };
    let count = shape.iter().product::<u32>() / dimensions;
    cx.push(Transform { count, dimensions, scale: params.scale }, &inputs, output)
}

#[cfg(test)]
mod tests {
    use crate::testing::{T, check_custom};
    use delegraph_core::{Op, Params};

    fn options(write: impl FnOnce(&mut flexbuffers::MapBuilder<'_>)) -> Vec<u8> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        write(&mut map);
        map.end_map();
        builder.view().to_vec()
    }

    fn check_matrix(version: u32, options: &[u8], corners: [[f32; 2]; 4], rows: [[f32; 3]; 2]) {
        let landmarks: Vec<f32> = corners.iter().flat_map(|[x, y]| [*x, *y, 9.0]).collect();
        let [[a, b, x], [c, d, y]] = rows;
        let expected = [a, b, 0.0, x, c, d, 0.0, y, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let op = Op::custom("Landmarks2TransformMatrix");
        let inputs = [Some(T::new(&[1, 4, 3], &landmarks))];
        check_custom(op, version, Params::Custom, options, &inputs, &[T::new(&[1, 4, 4], &expected)]);
    }

    #[test]
    fn a_crop_around_landmarks() {
        let absolute = options(|map| {
            map.push("target_rotation_radians", 0.0);
            map.push("scale_x", 1.5);
            map.push("scale_y", 1.0);
            map.push("output_height", 8);
            map.push("output_width", 4);
            map.push("left_rotation_idx", 0);
            map.push("right_rotation_idx", 1);
            map.push("subset_idxs", &[0, 1, 2, 3]);
        });
        let square = [[2.0, 2.0], [6.0, 2.0], [2.0, 6.0], [6.0, 6.0]];
        check_matrix(2, &absolute, square, [[1.5, 0.0, 1.0], [0.0, 0.5, 2.0]]);
        // The same square, rotated by a right angle: the crop's x points down.
        let turned = [[6.0, 2.0], [6.0, 6.0], [2.0, 2.0], [2.0, 6.0]];
        check_matrix(2, &absolute, turned, [[0.0, -0.5, 6.0], [1.5, 0.0, 1.0]]);
        let relative = options(|map| {
            map.push("dimensions", 3);
            map.push("landmarks_range", 8);
            map.push("bbox_size_multiplier", 1.0);
            map.push("input_hw", &[9, 9]);
            map.push("output_hw", &[3, 5]);
            map.push("left_rotation_idx", 0);
            map.push("right_rotation_idx", 1);
            map.push("subset", &[0, 3]);
        });
        // The middle half of the map: from 2 to 6 of 0 to 8.
        check_matrix(1, &relative, square, [[1.0, 0.0, 2.0], [0.0, 2.0, 2.0]]);
    }

    #[test]
    fn landmarks_move() {
        let mut matrix = [0.0_f32; 16];
        (matrix[0], matrix[1], matrix[3]) = (2.0, 1.0, 10.0);
        (matrix[4], matrix[5], matrix[7]) = (0.0, 3.0, 20.0);
        let matrix = || Some(T::new(&[1, 4, 4], &matrix));
        let op = || Op::custom("TransformLandmarks");
        let inputs = [Some(T::new(&[1, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0])), matrix()];
        let expected = T::new(&[1, 2, 2], &[14.0_f32, 26.0, 20.0, 32.0]);
        check_custom(op(), 2, Params::Custom, &options(|_| {}), &inputs, &[expected]);
        let scaled = options(|map| {
            map.push("dimensions", 3);
            map.push("scale", 0.5);
        });
        let inputs = [Some(T::new(&[1, 3], &[1.0_f32, 2.0, 7.0])), matrix()];
        check_custom(op(), 1, Params::Custom, &scaled, &inputs, &[T::new(&[1, 3], &[9.0_f32, 16.0, 7.0])]);
    }
}
