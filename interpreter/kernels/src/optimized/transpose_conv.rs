//! TRANSPOSE_CONV in single precision, in 8 bits, and of floats with 8-bit weights: a matrix product whose columns are
//! the taps of all output channels, then for each output pixel the sum of the products that reach it.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::transpose_conv::TransposeConvParams;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result};

use super::{byte_quant, compute_error, optimize_packed, pack_own, pack_shared};
use crate::common::pace::{self, IMAGE_STEPS, Polls};
use crate::common::prepared::Invoke;
use crate::common::weights::{DynamicInput, Requantize, Weights, channel_scales, weight_scales};
use crate::reference::transpose_conv_scatter;
use delegraph_compute::{ByteQuant, Clamp, GemmF32, GemmI8, Isa, MatrixLayout, Parts, Scatter, add_bias};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize_packed(resolver, BuiltinOp::TRANSPOSE_CONV, 1..=5, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (weights, input) = (cx.input(1)?, cx.input(2)?);
    let bias_known = cx.optional_input(3).is_none_or(|bias| bias.is_known());
    if !weights.is_known() || !bias_known || cx.output(0)?.shape().elements() == 0 {
        return Ok(None);
    }
    match (input.ty(), weights.ty()) {
        (TensorType::Float32, TensorType::Float32) => float(cx),
        (TensorType::Int8, TensorType::Int8) => bytes(cx),
        (TensorType::Float32, TensorType::Int8) => hybrid(cx),
        _ => Ok(None),
    }
}

/// Number of elements of the products of the input rows that are multiplied at a time; exceeded if a kernel spans more
/// rows.
const PRODUCTS: usize = 1 << 19;

/// Maximum number of columns of the product, which are copied one by one: some 20 ms.
const MAX_COLUMNS: usize = 1 << 22;

/// Geometry: which input rows reach which output rows.
#[derive(Clone)]
struct Shape {
    batch: usize,
    input: [usize; 2],
    channels: usize,
    output: [usize; 2],
    filters: usize,
    kernel: [usize; 2],
    strides: [usize; 2],
    padding: [usize; 2],
    /// Maximum number of output rows of a band.
    band: usize,
    /// Maximum number of input rows that reach a band.
    rows: usize,
}

impl Shape {
    fn new(cx: &PrepareContext<'_>) -> Result<Option<Self>> {
        let scatter = transpose_conv_scatter(cx)?;
        let [batch, height, width, channels] = scatter.input;
        let [_, out_height, out_width, filters] = scatter.output;
        let (kernel, strides) = (scatter.kernel, scatter.strides);
        let columns = kernel[0].saturating_mul(kernel[1]).saturating_mul(filters);
        let row = width.saturating_mul(columns);
        if row == 0 || channels == 0 || height == 0 || columns > MAX_COLUMNS {
            return Ok(None);
        }
        // More input rows than the band's own contribute to a band of output rows.
        let border = kernel[0].div_ceil(strides[0]);
        let own = (PRODUCTS / row).max(2 * border).min(height);
        let band = own.saturating_mul(strides[0]);
        Ok(Some(Shape {
            batch,
            input: [height, width],
            channels,
            output: [out_height, out_width],
            filters,
            kernel,
            strides,
            padding: scatter.padding,
            band,
            rows: (own + border + 1).min(height),
        }))
    }

    /// Columns of the product.
    fn columns(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.filters
    }

    /// Weights `[filter, tap, channel]` as columns `[tap, filter]` of consecutive channels. Callers charge their memory.
    fn columns_of<T: Copy>(&self, weights: &[T]) -> Vec<T> {
        let taps = self.kernel[0] * self.kernel[1];
        let mut columns = Vec::with_capacity(weights.len());
        for tap in 0..taps {
            for filter in 0..self.filters {
                columns.extend_from_slice(&weights[(filter * taps + tap) * self.channels..][..self.channels]);
            }
        }
        columns
    }

    /// Computes output rows from products: calls `product(first pixel, pixels, sums)`, then `finish(sums of a row,
    /// row)` for each output row.
    fn run<S: Sum, O: Send>(
        &self,
        sums: &mut [S],
        rows: &mut [S],
        output: &mut [O],
        par: &dyn delegraph_core::kernel::Parallel,
        mut product: impl FnMut(usize, usize, &mut [S]) -> Result<()>,
        finish: impl Fn(&[S], &mut [O]) + Sync,
    ) -> Result<()> {
        let ([height, width], [out_height, out_width]) = (self.input, self.output);
        let row = out_width * self.filters;
        for image in 0..self.batch {
            for first in (0..out_height).step_by(self.band) {
                let band = first..(first + self.band).min(out_height);
                // Input row i reaches output rows from i · stride - padding on.
                let [stride, padding, kernel] = [self.strides[0], self.padding[0], self.kernel[0]];
                let low = (band.start + padding + 1).saturating_sub(kernel).div_ceil(stride).min(height);
                let high = ((band.end - 1 + padding) / stride + 1).clamp(low, height);
                let needed = &mut sums[..(high - low) * width * self.columns()];
                product((image * height + low) * width, (high - low) * width, needed)?;
                let needed = &*needed;
                let outputs = Parts::new(
                    &mut output[(image * out_height + band.start) * row..][..band.len() * row],
                    row,
                );
                let scratch = Parts::new(&mut rows[..band.len() * row], row);
                par.run(band.len(), &|i| {
                    // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
                    let (out, scratch) = unsafe { (outputs.get(i), scratch.get(i)) };
                    self.gather(needed, low..high, band.start + i, scratch);
                    finish(scratch, out);
                });
            }
        }
        Ok(())
    }

    /// Sums up the products of input rows that reach output row `y`.
    fn gather<S: Sum>(&self, sums: &[S], rows: std::ops::Range<usize>, y: usize, out: &mut [S]) {
        out.fill(S::default());
        let (columns, width) = (self.columns(), self.input[1]);
        // The taps of a row are adjacent, in products as in the output.
        let scatter = Scatter {
            len: self.kernel[1] * self.filters,
            stride: self.strides[1] * self.filters,
            padding: self.padding[1] * self.filters,
        };
        for ky in 0..self.kernel[0] {
            let Some(at) = (y + self.padding[0]).checked_sub(ky).filter(|at| at % self.strides[0] == 0)
            else {
                continue;
            };
            let iy = at / self.strides[0];
            if !rows.contains(&iy) {
                continue;
            }
            let row = &sums[(iy - rows.start) * width * columns..][..width * columns];
            S::add(&scatter, &row[ky * scatter.len..], columns, out);
        }
    }

    /// Elements of the sums and of a band of output rows.
    fn lengths(&self) -> Result<[usize; 2]> {
        let sums = self.rows.checked_mul(self.input[1]).and_then(|p| p.checked_mul(self.columns()));
        let band = self
            .band
            .min(self.output[0])
            .checked_mul(self.output[1])
            .and_then(|p| p.checked_mul(self.filters));
        match (sums, band) {
            (Some(sums), Some(band)) => Ok([sums, band]),
            _ => Err(Error::OutOfMemory("sums of a transposed convolution".into())),
        }
    }
}

/// A sum of products.
trait Sum: Element + Default {
    /// Adds parts of a row: see [`Scatter::add`].
    fn add(scatter: &Scatter, from: &[Self], step: usize, to: &mut [Self]);
}

impl Sum for f32 {
    fn add(scatter: &Scatter, from: &[f32], step: usize, to: &mut [f32]) {
        scatter.add(from, step, to);
    }
}

impl Sum for i32 {
    fn add(scatter: &Scatter, from: &[i32], step: usize, to: &mut [i32]) {
        scatter.add_wrapping(from, step, to);
    }
}

fn float(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let activation = cx.params::<TransposeConvParams>()?.fused_activation_function;
    let Some((low, high)) = activation.clamp() else { return Ok(None) };
    let bias = match cx.optional_input(3) {
        Some(bias) if bias.ty() == TensorType::Float32 => bias.constant::<f32>()?.map(<[f32]>::to_vec),
        Some(_) => return Ok(None),
        None => None,
    };
    let Some(shape) = Shape::new(cx)? else { return Ok(None) };
    let Some(weights) = cx.input(1)?.constant::<f32>()? else { return Ok(None) };
    let (columns, layout) = ((shape.channels, shape.columns()), MatrixLayout::ColumnsContiguous);
    let _copy = cx.budget().charge(size_of_val(weights))?;
    let pack = || GemmF32::pack(Isa::best(), columns, &shape.columns_of(weights), layout, None);
    let gemm = pack_shared(cx, &[columns.0, columns.1], pack)?;
    let most = shape.rows * shape.input[1];
    let scratch = cx.temporary(gemm.scratch_len(most, cx.threads()).map_err(compute_error)?);
    let [sums, rows] = shape.lengths()?;
    let (sums, rows) = (cx.temporary_of::<f32>(sums)?, cx.temporary_of::<f32>(rows)?);
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(2)?, cx.output::<f32>(0)?);
        let (sums, rows) = (cx.temporary::<f32>(sums)?, cx.temporary::<f32>(rows)?);
        let (scratch, par) = (cx.temporary::<u8>(scratch)?, cx.parallel());
        let product = |first: usize, pixels: usize, sums: &mut [f32]| {
            let input = &input[first * shape.channels..][..pixels * shape.channels];
            gemm.run(pixels, input, sums, Clamp::NONE, scratch, par).map_err(compute_error)
        };
        let bias = bias.as_deref().unwrap_or_default();
        shape
            .run(sums, rows, output, par, product, |sums, out| add_bias(sums, bias, Clamp { low, high }, out))
    })))
}

/// The 8-bit kernel. As in the reference kernel, the zero point of the weights counts as 0.
fn bytes(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let activation = cx.params::<TransposeConvParams>()?.fused_activation_function;
    let bias = match cx.optional_input(3) {
        Some(bias) if bias.ty() == TensorType::Int32 => bias.constant::<i32>()?.map(<[i32]>::to_vec),
        Some(_) => return Ok(None),
        None => None,
    };
    let (weights, input, output) = (cx.input(1)?, cx.input(2)?, cx.output(0)?);
    let Some(quant) = byte_quant(input).filter(|_| output.ty() == TensorType::Int8) else { return Ok(None) };
    let requantize = Requantize::new(cx.budget(), (input, weights), output, 0, activation, false)?;
    let Some(shape) = Shape::new(cx)? else { return Ok(None) };
    let Some(weights) = weights.constant_bytes() else { return Ok(None) };
    let columns = (shape.channels, shape.columns());
    let _copy = cx.budget().charge(size_of_val(weights))?;
    let steps = ByteQuant { signed: true, zero_point: 0 };
    let pack = || GemmI8::pack(Isa::best(), columns, &shape.columns_of(weights), steps, None, quant, None);
    let gemm = pack_own(cx, pack)?;
    let most = shape.rows * shape.input[1];
    let scratch = cx.temporary(gemm.scratch_len(most, cx.threads()).map_err(compute_error)?);
    let [sums, rows] = shape.lengths()?;
    let (sums, rows) = (cx.temporary_of::<i32>(sums)?, cx.temporary_of::<i32>(rows)?);
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(2)?, cx.output::<i8>(0)?);
        let (sums, rows) = (cx.temporary::<i32>(sums)?, cx.temporary::<i32>(rows)?);
        let (scratch, par) = (cx.temporary::<u8>(scratch)?, cx.parallel());
        let product = |first: usize, pixels: usize, sums: &mut [i32]| {
            let input = &input[first * shape.channels..][..pixels * shape.channels];
            gemm.run_sums(pixels, input, sums, scratch, par).map_err(compute_error)
        };
        shape.run(sums, rows, output, par, product, |sums, out| {
            for (out, sums) in out.chunks_exact_mut(shape.filters).zip(sums.chunks_exact(shape.filters)) {
                for (channel, (o, sum)) in out.iter_mut().zip(sums).enumerate() {
                    let sum = sum.wrapping_add(bias.as_ref().map_or(0, |bias| bias[channel]));
                    *o = requantize.apply(channel, sum) as i8;
                }
            }
        })
    })))
}

/// The kernel of float inputs and 8-bit weights. Each image is quantized separately.
fn hybrid(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let activation = cx.params::<TransposeConvParams>()?.fused_activation_function;
    let Some((low, high)) = activation.clamp() else { return Ok(None) };
    let bias = match cx.optional_input(3) {
        Some(bias) if bias.ty() == TensorType::Float32 => bias.constant::<f32>()?.map(<[f32]>::to_vec),
        Some(_) => return Ok(None),
        None => None,
    };
    let Some(Shape { batch, .. }) = Shape::new(cx)? else { return Ok(None) };
    let Some(shape) = Shape::new(cx)?.map(|shape| Shape { batch: 1, ..shape }) else { return Ok(None) };
    let Some(weights) = Weights::constant(cx, 1)?.filter(|weights| !weights.is_empty()) else {
        return Ok(None);
    };
    let scales = weight_scales(cx.input(1)?, 0)?;
    let scales = channel_scales(cx, scales, shape.filters)?;
    let _copy = cx.budget().charge(weights.len())?;
    let weights = shape.columns_of(&weights[..]);
    let total = |column: &[u8]| column.iter().map(|w| i32::from(w.cast_signed())).sum();
    let totals: Vec<i32> = weights.chunks_exact(shape.channels).map(total).collect();
    let (columns, steps) = ((shape.channels, shape.columns()), ByteQuant { signed: true, zero_point: 0 });
    let pack = || GemmI8::pack(Isa::best(), columns, &weights, steps, None, steps, None);
    let gemm = pack_own(cx, pack)?;
    let most = shape.rows * shape.input[1];
    let scratch = cx.temporary(gemm.scratch_len(most, cx.threads()).map_err(compute_error)?);
    let [sums, rows] = shape.lengths()?;
    let (sums, rows) = (cx.temporary_of::<i32>(sums)?, cx.temporary_of::<i32>(rows)?);
    let image = shape.input[0] * shape.input[1] * shape.channels;
    let out_image = shape.output[0] * shape.output[1] * shape.filters;
    let dynamic = DynamicInput::new(cx, batch, image, true)?;
    let products = image.saturating_mul(shape.columns().div_ceil(pace::PRODUCTS));
    let steps_per_image = out_image.saturating_add(products).saturating_add(IMAGE_STEPS);
    Ok(Some(Box::new(move |cx| {
        let input = cx.input::<f32>(2)?;
        let steps = dynamic.quantize(cx, input)?;
        let output = cx.output::<f32>(0)?;
        let (sums, rows) = (cx.temporary::<i32>(sums)?, cx.temporary::<i32>(rows)?);
        let (scratch, par) = (cx.temporary::<u8>(scratch)?, cx.parallel());
        let mut polls = Polls::new(par);
        for (i, output) in output.chunks_exact_mut(out_image).enumerate() {
            if polls.interrupted_after(steps_per_image) {
                break;
            }
            let (scale, zero) = (steps.scales[i], steps.zero_points[i]);
            let input: &[u8] = bytemuck::cast_slice(&steps.values[i * image..][..image]);
            let product = |first: usize, pixels: usize, sums: &mut [i32]| {
                let input = &input[first * shape.channels..][..pixels * shape.channels];
                gemm.run_sums(pixels, input, sums, scratch, par).map_err(compute_error)?;
                for pixel in sums.chunks_exact_mut(totals.len()) {
                    pixel
                        .iter_mut()
                        .zip(&totals)
                        .for_each(|(sum, total)| *sum = sum.wrapping_sub(zero * total));
                }
                Ok(())
            };
            shape.run(sums, rows, output, par, product, |sums, out| {
                for (out, sums) in out.chunks_exact_mut(shape.filters).zip(sums.chunks_exact(shape.filters)) {
                    for (o, (sum, of_weights)) in out.iter_mut().zip(sums.iter().zip(&scales)) {
                        *o = *sum as f32 * (scale * of_weights);
                    }
                    if let Some(bias) = &bias {
                        out.iter_mut().zip(bias).for_each(|(o, b)| *o += b);
                    }
                    out.iter_mut().for_each(|o| *o = o.clamp(low, high));
                }
            })?;
        }
        Ok(())
    })))
}
