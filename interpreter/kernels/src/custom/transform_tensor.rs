//! The custom op `TransformTensorBilinear`: an affine crop of a feature map.

use delegraph_core::error::counted;
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::transform_tensor::TransformTensorParams;
use delegraph_core::{MutableOpResolver, Registration, Result};

use super::{check_floats, dims, invalid};
use crate::common::pace::Pace;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let registration = Registration::new(|cx| {
        let params = TransformTensorParams::read(cx.custom_options, cx.node.version())?;
        Ok(Transform { params, input: [0; 4] })
    });
    resolver.add_custom("TransformTensorBilinear", registration, 1..=2);
}

struct Transform {
    params: TransformTensorParams,
    input: [usize; 4],
}

/// Inputs: the map `[1, height, width, channels]`, and a matrix `[…, 4, 4]` from positions in the output to positions
/// in the map. Positions outside of the map read zero.
impl Kernel for Transform {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 2, 1)?;
        self.input = dims(cx.input(0)?)?;
        let ([batch, .., channels], matrix) = (self.input, cx.input(1)?.shape());
        if batch != 1 || matrix.elements() != 16 {
            return Err(invalid(format!(
                "{} and a matrix of shape {matrix}; expected 1 map and a matrix of 16 elements",
                counted(batch, "map")
            )));
        }
        let [height, width] = self.params.size;
        cx.set_output_shape(0, [1, height, width, channels])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, matrix, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        let [_, height, width, channels] = self.input;
        let row = |r: usize| {
            let [a, b, shift] = [matrix[4 * r], matrix[4 * r + 1], matrix[4 * r + 3]];
            // Positions are those of pixel centers.
            [a, b, if self.params.centered { shift + (a * 0.5 + b * 0.5 - 0.5) } else { shift }]
        };
        let rows = [row(1), row(0)];
        let pixels = output.chunks_exact_mut(channels.max(1));
        let mut pace = Pace::new(cx);
        for (o, pixel) in pixels.enumerate() {
            pace.spend(16)?;
            let (y, x) = ((o / self.params.size[1]) as f32, (o % self.params.size[1]) as f32);
            let [y, x] = rows.map(|[a, b, shift]| a * x + b * y + shift);
            let inside = |at: f32, size: usize| at >= 0.0 && at <= size as f32 - 1.0;
            if !inside(y, height) || !inside(x, width) {
                pace.spend(channels)?;
                pixel.fill(0.0);
                continue;
            }
            let (top, left) = (y as usize, x as usize);
            let (down, right) = (y - y.floor(), x - x.floor());
            for (c, o) in pixel.iter_mut().enumerate() {
                pace.spend(4)?;
                let value = |y: usize, x: usize| match y < height && x < width {
                    true => input[(y * width + x) * channels + c],
                    false => 0.0,
                };
                let across = |y: usize| (1.0 - right) * value(y, left) + right * value(y, left + 1);
                *o = down * across(top + 1) + (1.0 - down) * across(top);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::{Op, Params};

    use crate::ReferenceOpResolver;
    use crate::testing::{T, run_custom};

    fn options(version: u32) -> Vec<u8> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        if version == 2 {
            map.push("output_height", 1);
            map.push("output_width", 2);
        } else {
            map.push("mode", "bilinear");
            map.push("output_size", &[1, 2]);
        }
        map.end_map();
        builder.view().to_vec()
    }

    #[test]
    fn crops() {
        let map = || Some(T::new(&[1, 2, 2, 1], &[1.0f32, 2.0, 3.0, 5.0]));
        let matrix = |a: f32, x: f32, y: f32| {
            let m = [a, 0.0, 0.0, x, 0.0, a, 0.0, y, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
            Some(T::new(&[1, 4, 4], &m))
        };
        let check = |version: u32, matrix: Option<T>, want: [f32; 2]| {
            let (op, options) = (Op::custom("TransformTensorBilinear"), options(version));
            let output = T::new(&[1, 1, 2, 1], &want);
            let inputs = [map(), matrix];
            let got = run_custom(
                ReferenceOpResolver::new(),
                op,
                version,
                Params::Custom,
                &options,
                &inputs,
                &[output],
            );
            let (shape, bytes) = &got.unwrap()[0];
            assert_eq!(shape.dims(), [1, 1, 2, 1]);
            assert_eq!(*bytes, want.map(f32::to_le_bytes).concat());
        };
        check(1, matrix(1.0, 0.0, 0.5), [2.0, 3.5]);
        check(1, matrix(1.0, 0.5, 0.0), [1.5, 0.0]);
        check(2, matrix(1.0, 0.0, 1.0), [3.0, 5.0]);
        check(2, matrix(2.0, -0.5, 0.0), [2.0, 0.0]);
    }
}
