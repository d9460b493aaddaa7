//! The custom op `Resampler`: reads an image at a given position per output pixel.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{MutableOpResolver, Registration, Result};

use super::{check_floats, dims, invalid};
use crate::common::pace::Pace;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_custom("Resampler", Registration::new(|_| Ok(Resampler::default())), 1);
}

#[derive(Default)]
struct Resampler {
    input: [usize; 4],
}

/// Inputs: images `[batch, height, width, channels]`, and the source position `[x, y]` of each output pixel, `[batch,
/// height, width, 2]`. Interpolates bilinearly; pixels outside of the image are zero.
impl Kernel for Resampler {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 2, 1)?;
        self.input = dims(cx.input(0)?)?;
        let [batch, height, width, _] = self.input;
        if dims(cx.input(1)?)? != [batch, height, width, 2] {
            let text = format!("positions {} do not match images {:?}", cx.input(1)?.shape(), self.input);
            return Err(invalid(text));
        }
        cx.set_output_shape(0, self.input)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, positions, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        let [_, height, width, channels] = self.input;
        let pixels = output.chunks_exact_mut(channels.max(1)).zip(positions.as_chunks::<2>().0);
        let mut pace = Pace::new(cx);
        for (i, (pixel, &[x, y])) in pixels.enumerate() {
            pace.spend(16)?;
            let image = &input[i / (height * width) * height * width * channels..];
            let value = |y: f32, x: f32, channel: usize| {
                let inside = y >= 0.0 && x >= 0.0 && y < height as f32 && x < width as f32;
                if inside { image[(y as usize * width + x as usize) * channels + channel] } else { 0.0 }
            };
            let (top, left) = (y.floor(), x.floor());
            let (up, back) = (top + 1.0 - y, left + 1.0 - x);
            for (channel, o) in pixel.iter_mut().enumerate() {
                pace.spend(4)?;
                *o = back * up * value(top, left, channel)
                    + (1.0 - back) * (1.0 - up) * value(top + 1.0, left + 1.0, channel)
                    + back * (1.0 - up) * value(top + 1.0, left, channel)
                    + (1.0 - back) * up * value(top, left + 1.0, channel);
            }
            if !(x > -1.0 && y > -1.0 && x < width as f32 && y < height as f32) {
                pixel.fill(0.0);
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

    #[test]
    fn reads_at_positions() {
        let image = || Some(T::new(&[1, 2, 2, 1], &[1.0f32, 2.0, 3.0, 5.0]));
        let run = |shape: &[usize], positions: &[f32]| {
            let (op, output) = (Op::custom("Resampler"), T::new(&[1, 2, 2, 1], &[0.0f32; 4]));
            let inputs = [image(), Some(T::new(shape, positions))];
            run_custom(ReferenceOpResolver::new(), op, 1, Params::Custom, &[], &inputs, &[output])
        };
        let positions = [0.5, 0.5, 1.0, 1.0, -0.5, 0.0, f32::NAN, 9.0];
        let got = run(&[1, 2, 2, 2], &positions).unwrap();
        assert_eq!(got[0].1, [2.75f32, 5.0, 0.5, 0.0].map(f32::to_le_bytes).concat());
        let e = run(&[1, 1, 4, 2], &positions).unwrap_err().to_string();
        assert!(e.contains("positions [1, 1, 4, 2] do not match images [1, 2, 2, 1]"), "{e}");
    }
}
