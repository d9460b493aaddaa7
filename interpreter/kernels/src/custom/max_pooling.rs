//! The custom ops `MaxPoolingWithArgmax2D` and `MaxUnpooling2D`.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::max_pooling::MaxPoolingParams;
use delegraph_core::ops::{Padding, Window, windowed_output};
use delegraph_core::{Error, MutableOpResolver, Registration, Result};

use super::{check_floats, dims, invalid};
use crate::common::pace::Pace;
use crate::common::prepared::fill_polled;
use crate::common::weights::clamp_bounds;
use crate::common::windows::Axis;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let pool = Registration::new(|cx| Ok(Pool { params: Params::read(cx.custom_options)?, axes: None }));
    let unpool = Registration::new(|cx| Ok(Unpool { params: Params::read(cx.custom_options)?, axes: None }));
    resolver.add_custom("MaxPoolingWithArgmax2D", pool, 1).add_custom("MaxUnpooling2D", unpool, 1);
}

/// Geometry of the windows, and the bounds of the activation.
#[derive(Clone, Copy)]
struct Params {
    read: MaxPoolingParams,
    bounds: (f32, f32),
}

impl Params {
    fn read(options: &[u8]) -> Result<Self> {
        let read = MaxPoolingParams::read(options)?;
        Ok(Params { read, bounds: clamp_bounds(read.activation)? })
    }

    /// The windows along height and width of `large`; `small` is their number.
    fn axes(&self, large: [usize; 2], small: [usize; 2]) -> [Axis; 2] {
        let axis = |d: usize| {
            Axis::new([large[d], self.read.window[d], small[d]], self.read.strides[d], 1, Padding::Same)
        };
        [axis(0), axis(1)]
    }
}

struct Pool {
    params: Params,
    axes: Option<[Axis; 2]>,
}

/// Input `[batch, height, width, channels]`. Outputs: the maxima, and the position of each in its window plus 0.1, as
/// floats.
impl Kernel for Pool {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 1, 2)?;
        let [batch, height, width, channels] = dims(cx.input(0)?)?;
        let (params, p) = (self.params, self.params.read);
        let along = |d: usize, input| {
            let window = Window { size: p.window[d], stride: p.strides[d], dilation: 1 };
            let output = windowed_output(input, window, p.padding);
            output.map_err(|error| invalid(error.to_string()))
        };
        let (out_h, out_w) = (along(0, height)?, along(1, width)?);
        self.axes = Some(params.axes([height, width], [out_h, out_w]));
        (0..2).try_for_each(|i| cx.set_output_shape(i, [batch, out_h, out_w, channels]))
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Some([y, x]) = self.axes else { return Err(Error::State("the kernel was not prepared".into())) };
        let channels = cx.input_shape(0)?.last().copied().unwrap_or(0).max(1);
        let (input, greatest, places) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?, cx.output::<f32>(1)?);
        let (low, high) = self.params.bounds;
        let pixels = greatest.chunks_exact_mut(channels).zip(places.chunks_exact_mut(channels));
        let mut pace = Pace::new(cx);
        for (o, (greatest, places)) in pixels.enumerate() {
            pace.spend(channels.saturating_add(16))?;
            let (row, ox) = (o / x.output, o % x.output);
            let (batch, oy) = (row / y.output, row % y.output);
            greatest.fill(f32::MIN);
            places.fill(0.1);
            for (ky, iy) in y.taps(oy) {
                pace.spend(8)?;
                for (kx, ix) in x.taps(ox) {
                    pace.spend(channels)?;
                    let pixel = &input[((batch * y.input + iy) * x.input + ix) * channels..][..channels];
                    for ((&value, max), place) in pixel.iter().zip(greatest.iter_mut()).zip(places.iter_mut())
                    {
                        if value > *max {
                            // Consumers truncate the position; the addend protects it from rounding.
                            (*max, *place) = (value, (ky * x.window + kx) as f32 + 0.1);
                        }
                    }
                }
            }
            greatest.iter_mut().for_each(|max| *max = max.max(low).min(high));
        }
        Ok(())
    }
}

struct Unpool {
    params: Params,
    axes: Option<[Axis; 2]>,
}

/// Inputs: elements, and the position of each in its window. All other elements of the output are zero.
impl Kernel for Unpool {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 2, 1)?;
        let [batch, height, width, channels] = dims(cx.input(0)?)?;
        if cx.input(1)?.shape() != cx.input(0)?.shape() {
            let (elements, places) = (cx.input(0)?.shape(), cx.input(1)?.shape());
            return Err(invalid(format!("positions {places} and elements {elements} must have one shape")));
        }
        let large = |d: usize, size: usize| size.checked_mul(self.params.read.window[d]);
        let (Some(out_h), Some(out_w)) = (large(0, height), large(1, width)) else {
            return Err(invalid("the output's size overflows"));
        };
        self.axes = Some(self.params.axes([out_h, out_w], [height, width]));
        cx.set_output_shape(0, [batch, out_h, out_w, channels])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Some([y, x]) = self.axes else { return Err(Error::State("the kernel was not prepared".into())) };
        let channels = cx.input_shape(0)?.last().copied().unwrap_or(0).max(1);
        let (input, places, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        fill_polled(bytemuck::cast_slice_mut(output), &[0], cx.parallel());
        let mut pace = Pace::new(cx);
        for (i, (&value, &place)) in input.iter().zip(places).enumerate() {
            pace.spend(16)?;
            let (pixel, channel) = (i / channels, i % channels);
            let (row, ix) = (pixel / x.output, pixel % x.output);
            let (batch, iy) = (row / y.output, row % y.output);
            let outside = || Error::Kernel(format!("position {place} is outside of the output"));
            if !(0.0..(y.window * x.window) as f32).contains(&place) {
                return Err(outside());
            }
            let k = place as usize;
            let along = |axis: Axis, i: usize, k: usize| {
                (i * axis.stride + k).checked_sub(axis.pad).filter(|&at| at < axis.input).ok_or_else(outside)
            };
            let (oy, ox) = (along(y, iy, k / x.window)?, along(x, ix, k % x.window)?);
            output[((batch * y.input + oy) * x.input + ox) * channels + channel] = value;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::{Op, Params as NodeParams};

    use crate::ReferenceOpResolver;
    use crate::testing::{T, run_custom};

    fn options(activation: i32) -> Vec<u8> {
        [1, 2, 2, 2, 2, activation].iter().flat_map(|v: &i32| v.to_le_bytes()).collect()
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect()
    }

    #[test]
    fn pools_and_puts_back() {
        let x = T::new(&[1, 2, 3, 1], &[1.0f32, 5.0, -2.0, 3.0, 4.0, -1.0]);
        let empty = || T::new(&[1, 1, 2, 1], &[0.0f32; 2]);
        let run = |op: &str, options: &[u8], inputs: &[Option<T>], outputs: &[T]| {
            run_custom(
                ReferenceOpResolver::new(),
                Op::custom(op),
                1,
                NodeParams::Custom,
                options,
                inputs,
                outputs,
            )
        };
        let pooled =
            run("MaxPoolingWithArgmax2D", &options(0), &[Some(x.clone())], &[empty(), empty()]).unwrap();
        assert_eq!(floats(&pooled[0].1), [5.0, -1.0]);
        assert_eq!(floats(&pooled[1].1), [1.1, 2.1]);
        let clamped = run("MaxPoolingWithArgmax2D", &options(1), &[Some(x)], &[empty(), empty()]).unwrap();
        assert_eq!(floats(&clamped[0].1), [5.0, 0.0]);

        let elements = || Some(T::new(&[1, 1, 2, 1], &[5.0f32, -1.0]));
        let places = |p: [f32; 2]| Some(T::new(&[1, 1, 2, 1], &p));
        let want = T::new(&[1, 2, 4, 1], &[0.0f32; 8]);
        let put = run(
            "MaxUnpooling2D",
            &options(0),
            &[elements(), places([1.1, 2.1])],
            std::slice::from_ref(&want),
        );
        assert_eq!(floats(&put.unwrap()[0].1), [0.0, 5.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0]);
        for place in [4.0, -1.0, f32::NAN] {
            let outside = run(
                "MaxUnpooling2D",
                &options(0),
                &[elements(), places([0.0, place])],
                std::slice::from_ref(&want),
            );
            assert!(outside.unwrap_err().to_string().contains("is outside of the output"));
        }
        let short = run("MaxUnpooling2D", &options(0)[..20], &[elements(), places([0.0, 0.0])], &[want]);
        assert!(short.unwrap_err().to_string().contains("20 bytes of options"));
    }
}
