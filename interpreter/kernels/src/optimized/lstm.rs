//! LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM for plain cells: four gates with biases, without peepholes, normalization or
//! projection, with float or quantized weights. One matrix product covers the inputs of all steps, and each step has
//! one for the previous outputs.

use delegraph_core::kernel::{InvokeContext, Parallel, PrepareContext, Serial, Temporary};
use delegraph_core::ops::lstm::inputs::{CELL, INPUT};
use delegraph_core::ops::lstm::{LstmParams, UnidirectionalSequenceLstmParams};
use delegraph_core::ops::{Activation, LstmKernelType, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize_packed, pack_own};
use crate::common::pace::{PRODUCTS, Polls};
use crate::common::prepared::Invoke;
use crate::common::weights::{Weights, scale_zero_point};
use delegraph_compute::{
    ByteQuant, Clamp, GemmF32, GemmI8, Isa, MatrixLayout, Quantizing, SumScales, Unary, quantize_rows, unary,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize_packed(resolver, BuiltinOp::LSTM, 1..=4, |cx| {
        let p = cx.params::<LstmParams>()?;
        if p.kernel_type == LstmKernelType::Basic || cx.input(INPUT)?.shape().rank() != 2 {
            return Ok(None);
        }
        let batch = cx.input(INPUT)?.shape()[0];
        let order = Order { batch, steps: 1, time_major: true };
        prepare(cx, order, p.fused_activation_function, p.cell_clip, p.asymmetric_quantize_inputs)
    });
    optimize_packed(resolver, BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, 1..=4, |cx| {
        let p = cx.params::<UnidirectionalSequenceLstmParams>()?;
        let &[first, second, _] = &cx.input(INPUT)?.shape()[..] else { return Ok(None) };
        let (batch, steps) = if p.time_major { (second, first) } else { (first, second) };
        let order = Order { batch, steps, time_major: p.time_major };
        prepare(cx, order, p.fused_activation_function, p.cell_clip, p.asymmetric_quantize_inputs)
    });
}

/// Order of the vectors of all sequences and steps in a tensor.
#[derive(Clone, Copy)]
struct Order {
    batch: usize,
    steps: usize,
    time_major: bool,
}

impl Order {
    fn at(&self, batch: usize, step: usize) -> usize {
        if self.time_major { step * self.batch + batch } else { batch * self.steps + step }
    }
}

/// Minimum number of multiply-adds of a product that is divided over threads: smaller ones take less time than waking
/// threads.
const WORTH_THREADS: usize = 1 << 19;
/// Steps of a poll per step of the sequence and per row of a batch, beside their elements.
const STEP_STEPS: usize = 256;

/// Bounds without effect.
const ALL: Clamp = Clamp::NONE;

/// The matrices of all four gates, stacked by rows.
enum Matrix {
    Float(GemmF32),
    Steps(Box<Steps>),
}

/// Quantized weights.
struct Steps {
    gemm: GemmI8,
    columns: SumScales,
    asymmetric: bool,
}

/// Temporaries of products.
struct Scratch<'a> {
    gemm: &'a mut [u8],
    steps: &'a mut [i8],
    scales: &'a mut [f32],
    zero_points: &'a mut [i32],
    sums: &'a mut [i32],
}

impl Matrix {
    /// Weights of the inputs `indices`; `None` if they are not all constant, dense, of one kind and of this shape.
    fn new(
        cx: &PrepareContext<'_>,
        indices: [usize; 4],
        [cells, depth]: [usize; 2],
        bias: Option<&[f32]>,
        asymmetric: bool,
    ) -> Result<Option<Self>> {
        let isa = Isa::best();
        let (mut floats, mut steps, mut scales) = (Vec::<f32>::new(), Vec::<u8>::new(), Vec::<f32>::new());
        for i in indices {
            let Some(weights) = cx.optional_input(i) else { return Ok(None) };
            if weights.shape().dims() != [cells, depth] || weights.tensor().sparsity.is_some() {
                return Ok(None);
            }
            match weights.ty() {
                TensorType::Float32 => match weights.constant::<f32>()? {
                    Some(values) => floats.extend_from_slice(values),
                    None => return Ok(None),
                },
                TensorType::Int8 | TensorType::UInt8 => match Weights::constant(cx, i)? {
                    Some(values) => {
                        steps.extend_from_slice(&values);
                        scales.extend(std::iter::repeat_n(scale_zero_point(weights)?.0, cells));
                    }
                    None => return Ok(None),
                },
                _ => return Ok(None),
            }
        }
        let shape = (depth, 4 * cells);
        match (floats.len(), steps.len()) {
            (_, 0) if !floats.is_empty() => {
                let pack = || GemmF32::pack(isa, shape, &floats, MatrixLayout::ColumnsContiguous, bias);
                Ok(Some(Matrix::Float(pack_own(cx, pack)?)))
            }
            (0, _) if !steps.is_empty() => {
                let total = |row: &[u8]| row.iter().map(|w| i32::from(w.cast_signed())).sum();
                let totals = steps.chunks_exact(depth).map(total).collect();
                let columns = SumScales::new(&scales, totals, bias).map_err(compute_error)?;
                let quant = ByteQuant { signed: true, zero_point: 0 };
                let gemm = pack_own(cx, || GemmI8::pack(isa, shape, &steps, quant, None, quant, None))?;
                Ok(Some(Matrix::Steps(Box::new(Steps { gemm, columns, asymmetric }))))
            }
            _ => Ok(None),
        }
    }

    fn scratch_len(&self, rows: usize, threads: usize) -> Result<usize> {
        match self {
            Matrix::Float(gemm) => gemm.scratch_len(rows, threads),
            Matrix::Steps(steps) => steps.gemm.scratch_len(rows, threads),
        }
        .map_err(compute_error)
    }

    /// Whether vectors are quantized.
    fn quantizes(&self) -> bool {
        matches!(self, Matrix::Steps(_))
    }

    /// Multiplies `rows` vectors.
    fn run(
        &self,
        rows: usize,
        input: &[f32],
        out: &mut [f32],
        scratch: &mut Scratch<'_>,
        par: &dyn Parallel,
    ) -> Result<()> {
        match self {
            Matrix::Float(gemm) => gemm.run(rows, input, out, ALL, scratch.gemm, par).map_err(compute_error),
            Matrix::Steps(matrix) => {
                let Steps { gemm, columns, asymmetric } = &**matrix;
                let depth = (input.len() / rows.max(1)).max(1);
                let (scales, zeros) = (&mut scratch.scales[..rows], &mut scratch.zero_points[..rows]);
                let steps = &mut scratch.steps[..input.len()];
                let quantizing = Quantizing::new(*asymmetric);
                quantize_rows(Isa::best(), quantizing, depth, input, steps, scales, zeros, par)
                    .map_err(compute_error)?;
                let sums = &mut scratch.sums[..out.len()];
                gemm.run_sums(rows, bytemuck::cast_slice(steps), sums, scratch.gemm, par)
                    .map_err(compute_error)?;
                columns.run(Isa::best(), 1, (scales, zeros), sums, out, ALL, par).map_err(compute_error)
            }
        }
    }
}

/// Handles of the temporaries.
struct Temporaries {
    gates: Temporary,
    sums: Temporary,
    activated: Temporary,
    gemm: Temporary,
    steps: Temporary,
    scales: Temporary,
    zero_points: Temporary,
    products: Temporary,
}

fn prepare(
    cx: &mut PrepareContext<'_>,
    order: Order,
    activation: Activation,
    clip: f32,
    asymmetric: bool,
) -> Result<Option<Invoke>> {
    let Order { batch, steps, .. } = order;
    let optional = CELL.peephole.iter().chain(&CELL.norm).flatten().chain([&CELL.projection]);
    // The node is done with its constants once they are packed (`optimize_packed`), so that `invoke` could not read a
    // constant input.
    if cx.input(INPUT)?.tensor().is_constant() {
        return Ok(None);
    }
    let plain = optional.into_iter().all(|&i| cx.optional_input(i).is_none());
    if !plain || activation != Activation::Tanh || cx.input(INPUT)?.ty() != TensorType::Float32 {
        return Ok(None);
    }
    let (Some(cells), Some(features)) =
        (cx.input(CELL.cell_state)?.shape().get(1).copied(), cx.input(INPUT)?.shape().last().copied())
    else {
        return Ok(None);
    };
    let rows = batch * steps;
    if rows == 0 || cells == 0 || features == 0 {
        return Ok(None);
    }
    let mut bias = Vec::new();
    for i in CELL.bias {
        // The input gate has no bias if it is coupled to the forget gate.
        let Some(of_gate) = cx.optional_input(i) else { return Ok(None) };
        match of_gate.constant::<f32>()? {
            Some(values) if values.len() == cells => bias.extend_from_slice(values),
            _ => return Ok(None),
        }
    }
    let Some(inputs) = Matrix::new(cx, CELL.weights, [cells, features], Some(&bias), asymmetric)? else {
        return Ok(None);
    };
    let Some(recurrent) = Matrix::new(cx, CELL.recurrent, [cells, cells], None, asymmetric)? else {
        return Ok(None);
    };
    let (threads, quantizes) = (cx.threads(), inputs.quantizes() || recurrent.quantizes());
    let of_steps = recurrent.scratch_len(batch, threads)?.max(recurrent.scratch_len(batch, 1)?);
    let scratch = inputs.scratch_len(rows, threads)?.max(of_steps);
    let only = |n: usize| if quantizes { n } else { 0 };
    let gates = (4 * cells).saturating_mul(rows);
    let temporaries = Temporaries {
        gates: cx.temporary_of::<f32>(gates)?,
        sums: cx.temporary_of::<f32>(4 * cells * batch)?,
        activated: cx.temporary_of::<f32>(4 * cells)?,
        gemm: cx.temporary(scratch),
        steps: cx.temporary_of::<i8>(only((rows * features).max(batch * cells)))?,
        scales: cx.temporary_of::<f32>(only(rows))?,
        zero_points: cx.temporary_of::<i32>(only(rows))?,
        products: cx.temporary_of::<i32>(only(gates))?,
    };
    let mut lstm = Lstm { order, cells, clip, inputs, recurrent, temporaries };
    Ok(Some(Box::new(move |cx| lstm.invoke(cx))))
}

struct Lstm {
    order: Order,
    cells: usize,
    clip: f32,
    inputs: Matrix,
    recurrent: Matrix,
    temporaries: Temporaries,
}

impl Lstm {
    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Order { batch, steps, .. } = self.order;
        let (cells, t) = (self.cells, &self.temporaries);
        let width = 4 * cells;
        let gates = &mut cx.temporary::<f32>(t.gates)?[..width * batch * steps];
        let sums = &mut cx.temporary::<f32>(t.sums)?[..width * batch];
        let activated = &mut cx.temporary::<f32>(t.activated)?[..width];
        let mut scratch = Scratch {
            gemm: cx.temporary(t.gemm)?,
            steps: cx.temporary(t.steps)?,
            scales: cx.temporary(t.scales)?,
            zero_points: cx.temporary(t.zero_points)?,
            sums: cx.temporary(t.products)?,
        };
        let (input, output) = (cx.input::<f32>(INPUT)?, cx.output::<f32>(0)?);
        let (last, state) = (cx.variable::<f32>(CELL.output_state)?, cx.variable::<f32>(CELL.cell_state)?);
        let (isa, par) = (Isa::best(), cx.parallel());
        self.inputs.run(batch * steps, input, gates, &mut scratch, par)?;
        let small = batch * cells * width < WORTH_THREADS;
        let step_par: &dyn Parallel = if small { &Serial } else { par };
        let (mut polls, products) = (Polls::new(par), batch.saturating_mul(cells).saturating_mul(width));
        for step in 0..steps {
            // The product of few rows is not interrupted by itself.
            if polls.interrupted_after(products / PRODUCTS + STEP_STEPS) {
                return Ok(());
            }
            self.recurrent.run(batch, last, sums, &mut scratch, step_par)?;
            for b in 0..batch {
                if polls.interrupted_after(width + STEP_STEPS) {
                    return Ok(());
                }
                let at = self.order.at(b, step);
                let sums = &mut sums[b * width..][..width];
                sums.iter_mut().zip(&gates[at * width..]).for_each(|(s, g)| *s += g);
                // In the order of the weights: input, forget, cell, output.
                for (gate, function) in
                    [Unary::Logistic, Unary::Logistic, Unary::Tanh, Unary::Logistic].into_iter().enumerate()
                {
                    let range = gate * cells..(gate + 1) * cells;
                    unary(isa, function, Some(&sums[range.clone()]), &mut activated[range], &Serial)
                        .map_err(compute_error)?;
                }
                let (input_gate, rest) = activated.split_at(cells);
                let (forget, rest) = rest.split_at(cells);
                let (cell, output_gate) = rest.split_at(cells);
                let state = &mut state[b * cells..][..cells];
                for (i, s) in state.iter_mut().enumerate() {
                    let x = forget[i] * *s + cell[i] * input_gate[i];
                    *s = if self.clip > 0.0 { x.max(-self.clip).min(self.clip) } else { x };
                }
                let hidden = &mut sums[..cells];
                unary(isa, Unary::Tanh, Some(state), hidden, &Serial).map_err(compute_error)?;
                hidden.iter_mut().zip(output_gate).for_each(|(h, o)| *h *= o);
                last[b * cells..][..cells].copy_from_slice(hidden);
                output[at * cells..][..cells].copy_from_slice(hidden);
            }
        }
        Ok(())
    }
}
