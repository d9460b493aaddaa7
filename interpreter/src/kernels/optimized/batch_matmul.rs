//! BATCH_MATMUL in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::compute::{BatchMatMulF32, Clamp, GemmF32, Isa, MatrixLayout, Parts, Serial};
use crate::kernels::index::Nest;
use crate::kernels::prepared::Invoke;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::BATCH_MATMUL, 1..=4, prepare);
}

/// The bounds that change nothing.
const ALL: Clamp = Clamp { low: f32::NEG_INFINITY, high: f32::INFINITY };

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let p: &BatchMatMulParams = cx.params()?;
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if [a.ty(), b.ty(), output.ty()] != [TensorType::Float32; 3] {
        return Ok(None);
    }
    let split = |shape: &[usize]| {
        let (batch, matrix) = shape.split_at_checked(shape.len().checked_sub(2)?)?;
        Some((batch.to_vec(), [*matrix.first()?, *matrix.get(1)?]))
    };
    let (Some((batch_a, matrix_a)), Some((batch_b, _)), Some((batch, [m, n]))) =
        (split(a.shape()), split(b.shape()), split(output.shape()))
    else {
        return Ok(None);
    };
    let k = matrix_a[usize::from(!p.adj_x)];
    let layout = if p.adj_y { MatrixLayout::ColumnsContiguous } else { MatrixLayout::RowsContiguous };
    let (isa, threads, adj_x) = (Isa::best(), cx.threads(), p.adj_x);
    if output.shape().elements() == 0 || k == 0 {
        return Ok(None);
    }
    if let Some(constant) = b.constant::<f32>()?
        && batch_b.iter().all(|&d| d == 1)
        && !adj_x
    {
        let rows = a.shape().elements() / k;
        let gemm = GemmF32::pack(isa, (k, n), constant, layout, None).map_err(compute_error)?;
        let scratch = cx.temporary(gemm.scratch_len(rows, threads).map_err(compute_error)?);
        return Ok(Some(Box::new(move |cx| {
            let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
            let scratch = cx.temporary::<u8>(scratch)?;
            gemm.run(rows, input, output, ALL, scratch, cx.parallel()).map_err(compute_error)
        })));
    }
    let product = BatchMatMulF32::new(isa, (m, k, n), adj_x, layout).map_err(compute_error)?;
    // Which matrices meet, in the order of the output.
    let mut pairs = Vec::new();
    Nest::broadcast(&batch_a, &batch_b, &batch).for_each([0; 2], |pair| pairs.push(pair));
    let (size_a, size_b) = (m * k, k * n);
    // Where there are enough pairs every thread takes some, else the threads share each product.
    let parts = if pairs.len() >= threads { threads.max(1) } else { 1 };
    let each = product.scratch_len(if parts > 1 { 1 } else { threads }).map_err(compute_error)?;
    let too_large = || Error::OutOfMemory("scratch of a product".into());
    let scratch = cx.temporary(each.checked_mul(parts).ok_or_else(too_large)?);
    Ok(Some(Box::new(move |cx| {
        let (a, b, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        let (scratch, par) = (cx.temporary::<u8>(scratch)?, cx.parallel());
        if parts == 1 {
            for ([i, j], out) in pairs.iter().zip(output.chunks_exact_mut(m * n)) {
                let (a, b) = (&a[i * size_a..][..size_a], &b[j * size_b..][..size_b]);
                product.run(a, b, out, ALL, scratch, par).map_err(compute_error)?;
            }
            return Ok(());
        }
        let per_part = pairs.len().div_ceil(parts);
        let (outputs, scratches) = (Parts::new(output, per_part * m * n), Parts::new(scratch, each));
        par.run(pairs.len().div_ceil(per_part), &|part| {
            // SAFETY: each task takes a part of its own.
            let (output, scratch) = unsafe { (outputs.get(part), scratches.get(part)) };
            for ([i, j], out) in pairs[part * per_part..].iter().zip(output.chunks_exact_mut(m * n)) {
                let (a, b) = (&a[i * size_a..][..size_a], &b[j * size_b..][..size_b]);
                // All lengths are what the product asks for.
                let _ = product.run(a, b, out, ALL, scratch, &Serial);
            }
        });
        Ok(())
    })))
}
