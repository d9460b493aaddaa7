//! The custom ops `MaxPoolingWithArgmax2D` and `MaxUnpooling2D`.

use delegraph_core::ops::max_pooling::MaxPoolingParams;
use delegraph_core::ops::{Padding, Window, windowed_output};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::max_pooling::{Pool, Unpool, Windows};

use super::{CustomOp, GpuOp, expect_one_of, invalid, pad_front, positive};
use crate::device::time;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const POOL: CustomOp = CustomOp { name: "MaxPoolingWithArgmax2D", max_version: 1, lower: pool };
pub(super) const UNPOOL: CustomOp = CustomOp { name: "MaxUnpooling2D", max_version: 1, lower: unpool };

fn read(cx: &Lowering<'_, '_, '_>) -> Result<MaxPoolingParams, Rejection> {
    MaxPoolingParams::read(cx.node().custom_options()).map_err(|e| unsupported(e.to_string()))
}

/// The windows over `large`, one per pixel of `small`. Without padding, elements behind the last whole window are not
/// covered.
fn windows(p: &MaxPoolingParams, large: [u32; 4], small: [u32; 4]) -> Result<Windows, Rejection> {
    let mut windows = Windows { window: [0; 2], stride: [0; 2], padding: [0; 2] };
    for d in 0..2 {
        let (window, stride) = (p.window[d], positive(p.strides[d], "stride")?);
        let window = u32::try_from(window)
            .map_err(|_| unsupported(format!("a window of {window}; only positive sizes are supported")))?;
        (windows.window[d], windows.stride[d]) = (window, stride);
        windows.padding[d] = pad_front(Padding::Same, large[d + 1], small[d + 1], window, stride, 1)?;
    }
    Ok(windows)
}

fn pool(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p = read(cx)?;
    expect_one_of(cx, 0, GpuOp::FLOATS)?;
    let (input, outputs) = (cx.input(0)?, [cx.output(0)?, cx.output(1)?]);
    let shape = cx.shape4(input)?;
    let (small, indices) = (cx.shape4(outputs[0])?, cx.shape4(outputs[1])?);
    for d in 0..2 {
        let window = Window { size: p.window[d], stride: p.strides[d], dilation: 1 };
        let wanted = windowed_output(shape[d + 1] as usize, window, p.padding).map_err(invalid)?;
        if wanted != small[d + 1] as usize || indices != small {
            return Err(unsupported(format!(
                "outputs of shapes {small:?} and {indices:?}; \
                only equal shapes with {wanted} in dimension {} are supported",
                d + 1
            )));
        }
    }
    let windows = windows(&p, shape, small)?;
    let (low, high) = p.activation.clamp().ok_or_else(|| {
        unsupported(format!("fused activation {:?}; only activations that clamp are supported", p.activation))
    })?;
    let elements = small.iter().chain(&windows.window).map(|&n| u64::from(n));
    time::check_arithmetic(cx.caps(), elements.fold(1, u64::saturating_mul), false)?;
    for (output, bounds) in outputs.into_iter().zip([Some([low, high]), None]) {
        cx.push(Pool { input: shape, output: small, windows, bounds }, &[input], output)?;
    }
    Ok(())
}

/// An index outside of its window is ignored.
fn unpool(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p = read(cx)?;
    (0..2).try_for_each(|i| expect_one_of(cx, i, GpuOp::FLOATS))?;
    let (inputs, output) = ([cx.input(0)?, cx.input(1)?], cx.output(0)?);
    let (input, large) = (cx.shape4(inputs[0])?, cx.shape4(output)?);
    let whole = |d: usize| u64::from(input[d + 1]) * p.window[d] as u64 == u64::from(large[d + 1]);
    if cx.shape4(inputs[1])? != input || !whole(0) || !whole(1) {
        return Err(unsupported(format!(
            "an output of shape {large:?}; only whole windows of the input are supported"
        )));
    }
    let windows = windows(&p, large, input)?;
    // Each pixel of the output searches the windows that it is in.
    let searched = |d: usize| input[d + 1].min(windows.window[d] / windows.stride[d] + 1);
    let factors = large.into_iter().chain([searched(0), searched(1)]).map(u64::from);
    time::check_arithmetic(cx.caps(), factors.fold(1, u64::saturating_mul), false)?;
    cx.push(Unpool { input, output: large, windows }, &inputs, output)
}

#[cfg(test)]
mod tests {
    use crate::testing::{T, check_custom};
    use delegraph_core::{Op, Params};

    fn options(padding: i32, stride: i32, activation: i32) -> Vec<u8> {
        [padding, stride, stride, 2, 2, activation].iter().flat_map(|v: &i32| v.to_le_bytes()).collect()
    }

    #[test]
    fn pools_and_puts_back() {
        let pool = |options: &[u8], elements: &[f32], places: &[f32], width: usize| {
            let input = T::new(&[1, 2, 3, 1], &[1.0_f32, 5.0, -2.0, 3.0, 4.0, -1.0]);
            let shape = [1, elements.len() / width, width, 1];
            let expected = [T::new(&shape, elements), T::new(&shape, places)];
            let op = Op::custom("MaxPoolingWithArgmax2D");
            check_custom(op, 1, Params::Custom, options, &[Some(input)], &expected);
        };
        pool(&options(1, 2, 0), &[5.0, -1.0], &[1.1, 2.1], 2);
        pool(&options(1, 2, 1), &[5.0, 0.0], &[1.1, 2.1], 2);
        pool(&options(0, 1, 0), &[5.0, 5.0], &[1.1, 0.1], 2);
        let unpool = |options: &[u8], places: [f32; 2], expected: [f32; 8]| {
            let inputs =
                [Some(T::new(&[1, 1, 2, 1], &[5.0_f32, -1.0])), Some(T::new(&[1, 1, 2, 1], &places))];
            let op = Op::custom("MaxUnpooling2D");
            check_custom(op, 1, Params::Custom, options, &inputs, &[T::new(&[1, 2, 4, 1], &expected)]);
        };
        unpool(&options(0, 2, 0), [1.1, 2.1], [0.0, 5.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0]);
        // Overlapping windows: both elements have the same index.
        unpool(&options(0, 1, 0), [1.1, 0.1], [0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
