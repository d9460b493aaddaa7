//! PAD and PADV2: each element of the output is written once, on several threads.

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::pad::paddings;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::optimize;
use crate::common::pace::Polls;
use crate::common::prepared::{
    Invoke, check_same_quantization, copied_bytes, fill_elements, known, scale_zero_point,
};
use delegraph_compute::{Parts, chunk_len, threads_for};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::PAD, 1..=6, pad);
    optimize(resolver, BuiltinOp::PADV2, 1..=6, pad);
}

fn pad(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let paddings = known(paddings(&cx.infer_context())?)?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let Some(width) = copied_bytes(input) else { return Ok(None) };
    let has_value = cx.optional_input(2).is_some();
    if let Some(value) = cx.optional_input(2) {
        check_same_quantization(value, output)?;
    }
    // The padding value: the zero point of the integer types, zero bits for other types.
    let mut zero = [0; 16];
    if matches!(input.ty(), TensorType::UInt8 | TensorType::Int8 | TensorType::Int16) {
        zero[..4].copy_from_slice(&scale_zero_point(output).1.to_le_bytes());
    }
    let borders = Borders::new(input.shape(), &paddings, width);
    Ok(Some(Box::new(move |cx| {
        let output = cx.output_bytes(0)?;
        let value = if has_value { cx.input_bytes(2)? } else { &zero };
        borders.run(cx.input_bytes(0)?, output, &value[..width], cx.parallel());
        Ok(())
    })))
}

/// A dimension: sizes before, of and after the input, and bytes per step.
#[derive(Debug, Clone, Copy)]
struct Dimension {
    before: usize,
    size: usize,
    after: usize,
    /// Bytes of one step in the input and in the output.
    inner: [usize; 2],
}

impl Dimension {
    fn total(&self) -> usize {
        self.before + self.size + self.after
    }
}

/// Dimensions from the outermost one to the innermost one with padding, whose steps have the same layout in input and
/// output.
struct Borders(Vec<Dimension>);

impl Borders {
    fn new(shape: &[usize], paddings: &[[usize; 2]], width: usize) -> Self {
        let (mut list, mut inner) = (Vec::<Dimension>::new(), [width; 2]);
        for (&size, &[before, after]) in shape.iter().zip(paddings).rev() {
            let new = Dimension { before, size, after, inner };
            inner = [inner[0] * size, inner[1] * new.total()];
            // Dimensions inside the innermost one with padding are merged into its steps.
            if before + after > 0 || !list.is_empty() {
                list.push(new);
            }
        }
        // Skip dimensions of one step without padding.
        list.retain(|d| d.total() != 1 || d.before + d.after > 0);
        list.reverse();
        Borders(list)
    }

    fn run(&self, input: &[u8], output: &mut [u8], value: &[u8], par: &dyn Parallel) {
        let Some((outer, rest)) = self.0.split_first() else { return output.copy_from_slice(input) };
        let step = outer.inner[1];
        if step == 0 {
            return;
        }
        let par = threads_for(par, output.len() / 4);
        let piece = chunk_len(par, outer.total(), step.div_ceil(4));
        let parts = Parts::new(output, piece.saturating_mul(step));
        par.run(outer.total().div_ceil(piece), &|task| {
            // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let part = unsafe { parts.get(task) };
            steps(&mut Polls::new(par), outer, rest, task * piece, input, part, value);
        });
    }
}

/// Bytes that are written between two polls; a multiple of the size of every element.
const PIECE: usize = 4 << 20;

/// Steps of a poll for each call of [`steps`], beside its bytes.
const CALL_STEPS: usize = 16;

/// Bytes that are written in a step of a poll.
const STEP_BYTES: usize = 8;

/// Writes whole steps of a dimension, beginning with step `first`. Returns false if the work was interrupted.
fn steps(
    polls: &mut Polls<'_>,
    d: &Dimension,
    rest: &[Dimension],
    first: usize,
    input: &[u8],
    output: &mut [u8],
    value: &[u8],
) -> bool {
    if polls.interrupted_after(CALL_STEPS) {
        return false;
    }
    let [from, to] = d.inner;
    let last = first + output.len() / to;
    // The steps that are inside the input.
    let middle = first.clamp(d.before, d.before + d.size)..last.clamp(d.before, d.before + d.size);
    let (before, output) = output.split_at_mut((middle.start.clamp(first, last) - first) * to);
    let (inside, after) = output.split_at_mut(middle.len() * to);
    let mut fill = |to: &mut [u8]| {
        to.chunks_mut(PIECE).all(|piece| {
            fill_elements(piece, value);
            !polls.interrupted_after(piece.len() / STEP_BYTES)
        })
    };
    if !fill(before) || !fill(after) {
        return false;
    }
    let input = &input[(middle.start - d.before) * from..(middle.end - d.before) * from];
    match rest.split_first() {
        None => inside.chunks_mut(PIECE).zip(input.chunks(PIECE)).all(|(to, from)| {
            to.copy_from_slice(from);
            !polls.interrupted_after(to.len() / STEP_BYTES)
        }),
        Some((inner, rest)) => {
            let inputs = input.chunks_exact(from.max(1)).map(Some).chain(std::iter::repeat(None));
            let mut parts = inside.chunks_exact_mut(to).zip(inputs);
            parts.all(|(part, input)| steps(polls, inner, rest, 0, input.unwrap_or_default(), part, value))
        }
    }
}
