//! The custom ops `Landmarks2TransformMatrix`, which computes the affine crop around landmarks, and
//! `TransformLandmarks`, which maps landmarks from a crop to the image.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::landmarks::{CropParams, CropSize, TransformParams};
use delegraph_core::{MutableOpResolver, Registration, Result};

use super::check_floats;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let matrix =
        Registration::new(|cx| Ok(Crop { params: CropParams::read(cx.custom_options, cx.node.version())? }));
    let landmarks = Registration::new(|cx| {
        Ok(Landmarks { params: TransformParams::read(cx.custom_options, cx.node.version())?, dimensions: 2 })
    });
    resolver.add_custom("Landmarks2TransformMatrix", matrix, 1..=2).add_custom(
        "TransformLandmarks",
        landmarks,
        1..=2,
    );
}

/// Geometry of a crop around landmarks of three coordinates each.
struct Crop {
    params: CropParams,
}

impl Crop {
    /// Center, height and width, `[y, x]`, of the landmarks' bounding box after a rotation by `angle`.
    fn bounds(&self, landmarks: &[[f32; 3]], angle: f32) -> ([f32; 2], [f32; 2]) {
        let (mut least, mut greatest) = ([f32::INFINITY; 2], [f32::NEG_INFINITY; 2]);
        for &i in &self.params.subset {
            let [x, y, _] = landmarks[i];
            let turned = turn([y, x], angle);
            least = [least[0].min(turned[0]), least[1].min(turned[1])];
            greatest = [greatest[0].max(turned[0]), greatest[1].max(turned[1])];
        }
        let center = [(least[0] + greatest[0]) / 2.0, (least[1] + greatest[1]) / 2.0];
        (center, [greatest[0] - least[0], greatest[1] - least[1]])
    }

    /// The matrix's rows for x and y: the factors of a position in the crop, and the translation.
    fn matrix(&self, landmarks: &[[f32; 3]]) -> [[f32; 3]; 2] {
        let [[left_x, left_y, _], [right_x, right_y, _]] = self.params.line.map(|i| landmarks[i]);
        match self.params.size {
            CropSize::Absolute { angle, scale, output: [height, width] } => {
                let angle = angle - (right_y - left_y).atan2(right_x - left_x);
                let (center, [box_h, box_w]) = self.bounds(landmarks, angle);
                let [y, x] = turn(center, -angle);
                // From the crop's center: scale to the box's size, rotate back, translate to the box's center.
                let (sin, cos) = (-angle).sin_cos();
                let (scale_x, scale_y) = (scale[1] * box_w / width, scale[0] * box_h / height);
                let (middle_x, middle_y) = (-width / 2.0, -height / 2.0);
                let across = [cos * scale_x, -sin * scale_y];
                let down = [sin * scale_x, cos * scale_y];
                [
                    [across[0], across[1], x + across[0] * middle_x + across[1] * middle_y],
                    [down[0], down[1], y + down[0] * middle_x + down[1] * middle_y],
                ]
            }
            CropSize::Relative { range, multiplier, input, output } => {
                let angle = -((right_y - left_y) / (right_x - left_x)).atan();
                let (center, [box_h, box_w]) = self.bounds(landmarks, angle);
                let [y, x] = turn(center, -angle).map(|v| v / range * 2.0 - 1.0);
                // Positions from -1 to 1, in the crop and in the map.
                let (sin, cos) = (-angle).sin_cos();
                let (scale_x, scale_y) = (box_w * multiplier / range, box_h * multiplier / range);
                let relative = [2.0 / (output[1] - 1.0), 2.0 / (output[0] - 1.0)];
                let row = |along: f32, from_x: f32, from_y: f32, shift: f32| {
                    let half = (along - 1.0) / 2.0;
                    let (from_x, from_y) = (from_x * scale_x, from_y * scale_y);
                    [
                        half * from_x * relative[0],
                        half * from_y * relative[1],
                        half * (shift - from_x - from_y) + half,
                    ]
                };
                [row(input[1], cos, -sin, x), row(input[0], sin, cos, y)]
            }
        }
    }
}

/// Rotates `[y, x]` around the origin.
fn turn([y, x]: [f32; 2], angle: f32) -> [f32; 2] {
    let (sin, cos) = angle.sin_cos();
    [sin * x + cos * y, cos * x - sin * y]
}

/// Input: landmarks `[…, 3 * landmarks]` or `[1, landmarks, 3]`. Output: a matrix `[1, 4, 4]` from positions in the
/// crop to positions in the image.
impl Kernel for Crop {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 1, 1)?;
        self.params.check(cx.input(0)?.shape().elements() / 3)?;
        cx.set_output_shape(0, [1, 4, 4])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (landmarks, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let [x, y] = self.matrix(landmarks.as_chunks().0);
        let rows =
            [[x[0], x[1], 0.0, x[2]], [y[0], y[1], 0.0, y[2]], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        output.copy_from_slice(rows.as_flattened());
        Ok(())
    }
}

struct Landmarks {
    params: TransformParams,
    /// Number of coordinates of a landmark.
    dimensions: usize,
}

/// Inputs: landmarks of two or three coordinates, of which the third is unchanged, and a matrix `[…, 4, 4]`.
impl Kernel for Landmarks {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 2, 1)?;
        let (landmarks, matrix) = (cx.input(0)?.shape().clone(), cx.input(1)?.shape().elements());
        self.dimensions = self.params.coordinates(landmarks.dims(), matrix)?;
        cx.set_output_shape(0, landmarks)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (landmarks, m, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        output.copy_from_slice(landmarks);
        for landmark in output.chunks_exact_mut(self.dimensions) {
            let [x, y] = [landmark[0], landmark[1]];
            landmark[0] = m[0] * x + m[1] * y + m[3] * self.params.scale;
            landmark[1] = m[4] * x + m[5] * y + m[7] * self.params.scale;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::f32::consts::PI;

    use delegraph_core::{Op, Params};

    use super::*;
    use crate::ReferenceOpResolver;
    use crate::testing::{T, run_custom};

    fn run(op: &str, version: u32, options: &[u8], inputs: &[Option<T>], output: T) -> Result<Vec<f32>> {
        let (op, resolver) = (Op::custom(op), ReferenceOpResolver::new());
        let result = run_custom(resolver, op, version, Params::Custom, options, inputs, &[output])?;
        Ok(result[0].1.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect())
    }

    fn matrix() -> T {
        T::new(&[1, 4, 4], &[0.0f32; 16])
    }

    /// A square of landmarks, axis-aligned or rotated by 45 degrees.
    fn square(turned: bool) -> Option<T> {
        let corners = match turned {
            false => [[2.0f32, 2.0], [6.0, 2.0], [2.0, 6.0], [6.0, 6.0]],
            true => [[4.0, 1.0], [7.0, 4.0], [1.0, 4.0], [4.0, 7.0]],
        };
        Some(T::new(&[1, 4, 3], &corners.map(|[x, y]| [x, y, 9.0]).concat()))
    }

    fn near(got: &[f32], want: &[f32]) {
        approx::assert_abs_diff_eq!(*got, *want, epsilon = 1e-5);
    }

    #[test]
    fn crops_around_landmarks() {
        let options = |scale: f32, left: i32| {
            let mut builder = flexbuffers::Builder::default();
            let mut map = builder.start_map();
            map.push("subset_idxs", &[0, 1, 2, 3]);
            map.push("left_rotation_idx", left);
            map.push("right_rotation_idx", 1);
            map.push("target_rotation_radians", 0.0f32);
            map.push("output_height", 8);
            map.push("output_width", 16);
            map.push("scale_x", scale);
            map.push("scale_y", scale);
            map.end_map();
            builder.view().to_vec()
        };
        let crop = |options: &[u8], turned| {
            run("Landmarks2TransformMatrix", 2, options, &[square(turned)], matrix())
        };
        let upright = crop(&options(2.0, 0), false).unwrap();
        let third = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        near(&upright, &[&[0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0], &third[..]].concat());
        // The edge from the first to the second landmark points down and to the right.
        let turned = crop(&options(1.0, 0), true).unwrap();
        let side = f32::hypot(3.0, 3.0);
        let (a, b) = ((PI / 4.0).cos() * side / 16.0, (PI / 4.0).cos() * side / 8.0);
        near(
            &turned,
            &[&[a, -b, 0.0, 4.0 - 8.0 * a + 4.0 * b, a, b, 0.0, 4.0 - 8.0 * a - 4.0 * b], &third[..]]
                .concat(),
        );
        let text = crop(&options(1.0, 4), true).unwrap_err().to_string();
        assert!(text.contains("landmark 4, but the input has only 4,"), "{text}");
        assert!(crop(&options(0.0, 0), true).unwrap_err().to_string().contains("scale_y is 0"));
    }

    #[test]
    fn the_first_version_crops_relative_to_a_range() {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        map.push("subset", &[0, 1, 2, 3]);
        map.push("left_rotation_idx", 0);
        map.push("right_rotation_idx", 1);
        map.push("dimensions", 3);
        map.push("landmarks_range", 8);
        map.push("bbox_size_multiplier", 2.0f32);
        map.push("input_hw", &[9, 5]);
        map.push("output_hw", &[3, 3]);
        map.end_map();
        let got = run("Landmarks2TransformMatrix", 1, builder.view(), &[square(false)], matrix()).unwrap();
        // The box around the landmarks, scaled by two, is the whole map of 5 by 9 positions, to which the crop of 3 by
        // 3 maps.
        near(&got[..8], &[2.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
    }

    #[test]
    fn moves_landmarks() {
        let m = [1.0f32, 2.0, 0.0, 10.0, 0.0, -1.0, 0.0, 20.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let m = || Some(T::new(&[1, 4, 4], &m));
        let flat = T::new(&[1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
        let got = run("TransformLandmarks", 2, &[], &[Some(flat.clone()), m()], flat).unwrap();
        assert_eq!(got, [15.0, 18.0, 21.0, 16.0]);
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        map.push("dimensions", 3);
        map.push("scale", 2.0f32);
        map.end_map();
        let deep = T::new(&[1, 1, 1, 3], &[1.0f32, 2.0, 7.0]);
        let got = run("TransformLandmarks", 1, builder.view(), &[Some(deep.clone()), m()], deep).unwrap();
        assert_eq!(got, [25.0, 38.0, 7.0]);
        let odd = T::new(&[1, 1, 5], &[0.0f32; 5]);
        assert!(run("TransformLandmarks", 2, &[], &[Some(odd.clone()), m()], odd).is_err());
    }
}
