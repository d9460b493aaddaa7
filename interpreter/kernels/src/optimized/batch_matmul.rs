//! BATCH_MATMUL in single precision, and of 8 bits where single precision holds the sums exactly.

use delegraph_core::kernel::{Charged, Parallel, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use super::{byte_quant, compute_error, compute_multiplier, optimize, pack_shared};
use crate::common::index::Nest;
use crate::common::pace::{PRODUCTS, Polls};
use crate::common::prepared::Invoke;
use crate::common::quantized::Multiplier;
use crate::common::weights::scale_zero_point;
use delegraph_compute::{
    BatchMatMulF32, ByteQuant, Clamp, GemmF32, Isa, MatrixLayout, OneThread, Parts, dequantize, requantize,
};

/// Steps of a poll per pair of matrices, beside their products and elements.
const PAIR_STEPS: usize = 128;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::BATCH_MATMUL, 1..=4, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if a.shape().rank() < 2 || b.shape().rank() < 2 || output.shape().elements() == 0 {
        return Ok(None);
    }
    match (a.ty(), b.ty(), output.ty()) {
        (TensorType::Float32, TensorType::Float32, TensorType::Float32) => float(cx),
        (TensorType::Int8, TensorType::Int8, TensorType::Int8) => bytes(cx),
        _ => Ok(None),
    }
}

fn float(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let p: &BatchMatMulParams = cx.params()?;
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let k = a.shape()[a.shape().rank() - if p.adj_x { 2 } else { 1 }];
    let n = output.shape()[output.shape().rank() - 1];
    let layout = layout(p);
    if k == 0 {
        return Ok(None);
    }
    if let Some(constant) = b.constant::<f32>()?
        && b.shape().elements() == k * n
        && !p.adj_x
    {
        let rows = a.shape().elements() / k;
        let pack = || GemmF32::pack(Isa::best(), (k, n), constant, layout, None);
        let gemm = pack_shared(cx, &[], pack)?;
        let scratch = cx.temporary(gemm.scratch_len(rows, cx.threads()).map_err(compute_error)?);
        cx.done_with_constants();
        return Ok(Some(Box::new(move |cx| {
            let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
            let scratch = cx.temporary::<u8>(scratch)?;
            gemm.run(rows, input, output, Clamp::NONE, scratch, cx.parallel()).map_err(compute_error)
        })));
    }
    let Some(products) = Products::new(cx)? else { return Ok(None) };
    let scratch = cx.temporary(products.scratch_len()?);
    Ok(Some(Box::new(move |cx| {
        let (a, b, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        products.run(a, b, output, cx.temporary::<u8>(scratch)?, cx.parallel())
    })))
}

/// Products of 8-bit integers, computed in single precision where its sums are exact.
fn bytes(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let (Some(quant_a), Some(quant_b)) = (byte_quant(a), byte_quant(b)) else { return Ok(None) };
    let ((scale_a, _), (scale_b, _)) = (scale_zero_point(a)?, scale_zero_point(b)?);
    let (scale, zero_point) = scale_zero_point(output)?;
    // TFLite multiplies the scales in single precision, too.
    let factor = compute_multiplier(Multiplier::new(f64::from(scale_a * scale_b) / f64::from(scale))?);
    let Some(products) = Products::new(cx)? else { return Ok(None) };
    let most = |q: ByteQuant| (127 - q.zero_point).max(q.zero_point + 128) as usize;
    if products.depth.saturating_mul(most(quant_a) * most(quant_b)) > 1 << 24 {
        return Ok(None);
    }
    let (len_a, len_b, len) = (a.shape().elements(), b.shape().elements(), output.shape().elements());
    let scratch = cx.temporary(products.scratch_len()?);
    let (whole_a, whole_b) = (cx.temporary_of::<f32>(len_a)?, cx.temporary_of::<f32>(len_b)?);
    let sums = cx.temporary_of::<f32>(len)?;
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (a, b, output) = (cx.input_bytes(0)?, cx.input_bytes(1)?, cx.output_bytes(0)?);
        let (whole_a, whole_b) = (cx.temporary::<f32>(whole_a)?, cx.temporary::<f32>(whole_b)?);
        let sums = &mut cx.temporary::<f32>(sums)?[..len];
        let (scratch, par) = (cx.temporary::<u8>(scratch)?, cx.parallel());
        dequantize(isa, 1.0, quant_a, a, &mut whole_a[..len_a], par).map_err(compute_error)?;
        dequantize(isa, 1.0, quant_b, b, &mut whole_b[..len_b], par).map_err(compute_error)?;
        products.run(&whole_a[..len_a], &whole_b[..len_b], sums, scratch, par)?;
        requantize(isa, factor, zero_point, [-128, 127], sums, output, par).map_err(compute_error)
    })))
}

fn layout(p: &BatchMatMulParams) -> MatrixLayout {
    if p.adj_y { MatrixLayout::ColumnsContiguous } else { MatrixLayout::RowsContiguous }
}

/// All products of a node.
struct Products {
    product: BatchMatMulF32,
    /// Pairs of matrices, in the order of the output.
    pairs: Charged<[usize; 2]>,
    depth: usize,
    /// Number of elements of each matrix of input 0, of input 1 and of the output.
    sizes: [usize; 3],
    /// With enough pairs every thread computes its own; otherwise the threads share each product.
    parts: usize,
    threads: usize,
}

impl Products {
    fn new(cx: &PrepareContext<'_>) -> Result<Option<Self>> {
        let p: &BatchMatMulParams = cx.params()?;
        let (a, b, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
        let batch = |shape: &[usize]| shape[..shape.len() - 2].to_vec();
        let [m, n] = [2, 1].map(|i| output[output.rank() - i]);
        let k = a[a.rank() - if p.adj_x { 2 } else { 1 }];
        if k == 0 {
            return Ok(None);
        }
        let product =
            BatchMatMulF32::new(Isa::best(), (m, k, n), p.adj_x, layout(p)).map_err(compute_error)?;
        let batches = batch(output);
        let mut pairs = cx.budget().reserved(batches.iter().product())?;
        Nest::broadcast(&batch(a), &batch(b), &batches).try_for_each([0; 2], |pair| pairs.push(pair))?;
        let threads = cx.threads().max(1);
        let parts = if pairs.len() >= threads { threads } else { 1 };
        Ok(Some(Products { product, pairs, depth: k, sizes: [m * k, k * n, m * n], parts, threads }))
    }

    /// Scratch size of one part, in bytes.
    fn part_len(&self) -> Result<usize> {
        self.product.scratch_len(if self.parts > 1 { 1 } else { self.threads }).map_err(compute_error)
    }

    fn scratch_len(&self) -> Result<usize> {
        let too_large = || Error::OutOfMemory("scratch of a product".into());
        self.part_len()?.checked_mul(self.parts).ok_or_else(too_large)
    }

    fn run(
        &self,
        a: &[f32],
        b: &[f32],
        output: &mut [f32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let [size_a, size_b, size] = self.sizes;
        let product = |[i, j]: [usize; 2], out: &mut [f32], scratch: &mut [u8], par: &dyn Parallel| {
            let (a, b) = (&a[i * size_a..][..size_a], &b[j * size_b..][..size_b]);
            self.product.run(a, b, out, Clamp::NONE, scratch, par)
        };
        // Products of many small matrices are not interrupted by themselves.
        let products = size.saturating_mul(self.depth) / PRODUCTS;
        let steps = products.saturating_add(size_a + size_b + size).saturating_add(PAIR_STEPS);
        if self.parts == 1 {
            let mut polls = Polls::new(par);
            for (pair, out) in self.pairs.iter().zip(output.chunks_exact_mut(size)) {
                if polls.interrupted_after(steps) {
                    break;
                }
                product(*pair, out, scratch, par).map_err(compute_error)?;
            }
            return Ok(());
        }
        let per_part = self.pairs.len().div_ceil(self.parts);
        let (outputs, scratches) =
            (Parts::new(output, per_part * size), Parts::new(scratch, self.part_len()?));
        par.run(self.pairs.len().div_ceil(per_part), &|part| {
            // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let (output, scratch) = unsafe { (outputs.get(part), scratches.get(part)) };
            let mut polls = Polls::new(par);
            for (pair, out) in self.pairs[part * per_part..].iter().zip(output.chunks_exact_mut(size)) {
                if polls.interrupted_after(steps) {
                    return;
                }
                // Cannot fail: all lengths are those of the product.
                let _ = product(*pair, out, scratch, &OneThread(par));
            }
        });
        Ok(())
    }
}
