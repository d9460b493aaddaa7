//! Kernels made of one function that prepares the node and returns the closure that runs it.

use std::ops::{Deref, Range};
use std::sync::Arc;

use delegraph_core::error::InvalidData;
use delegraph_core::kernel::{InitContext, InvokeContext, Kernel, Parallel, PrepareContext, TensorView};
use delegraph_core::{Error, Registration, Result, TensorType};

use super::index::{StridedCopy, View, copied_bits, packed, set_packed};
use super::pace::{Pace, Polls, STRING_STEPS};

/// The body of `invoke`. It owns everything that `prepare` computed.
pub(crate) type Invoke = Box<dyn FnMut(&mut InvokeContext<'_>) -> Result<()> + Send>;

/// A function from a node to its [`Invoke`].
type Prepare = dyn Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Send + Sync;

/// A kernel made of one function from a node to its [`Invoke`].
///
/// The function is called through a pointer: hundreds of kernels share this type's code.
struct Prepared {
    prepare: Arc<Prepare>,
    invoke: Option<Invoke>,
    needs_shapes_only: bool,
}

/// Registers `prepare` as a kernel.
#[inline(always)]
pub(crate) fn prepared<P>(prepare: P) -> Registration
where
    P: Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Send + Sync + 'static,
{
    registration(Arc::new(prepare), false)
}

/// Registers `prepare` as a kernel. `prepare` also receives what `read` extracts from the node.
pub(crate) fn prepared_with<N: Send + Sync + 'static>(
    read: fn(&InitContext<'_>) -> Result<N>,
    prepare: fn(&N, &mut PrepareContext<'_>) -> Result<Invoke>,
) -> Registration {
    Registration::new(move |init| {
        let of_node = read(init)?;
        let prepare = Arc::new(move |cx: &mut PrepareContext<'_>| prepare(&of_node, cx));
        Ok(Prepared { prepare, invoke: None, needs_shapes_only: false })
    })
}

/// Registers `prepare` as a kernel whose outputs depend on the shapes of the inputs only.
#[inline(always)]
pub(crate) fn prepared_from_shapes<P>(prepare: P) -> Registration
where
    P: Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Send + Sync + 'static,
{
    registration(Arc::new(prepare), true)
}

fn registration(prepare: Arc<Prepare>, needs_shapes_only: bool) -> Registration {
    Registration::new(move |_| {
        Ok(Prepared { prepare: Arc::clone(&prepare), invoke: None, needs_shapes_only })
    })
}

impl Kernel for Prepared {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let invoke = (self.prepare)(cx)?;
        self.invoke = Some(if writes_nothing(cx) { Box::new(|_| Ok(())) } else { invoke });
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        match &mut self.invoke {
            Some(invoke) => invoke(cx),
            None => Err(Error::State("the kernel was not prepared".into())),
        }
    }

    fn needs_shapes_only(&self) -> bool {
        self.needs_shapes_only
    }
}

/// Returns whether all outputs are known to have no elements. Their other dimensions may be huge loop bounds.
pub(crate) fn writes_nothing(cx: &PrepareContext<'_>) -> bool {
    let is_empty = |i| {
        let output = cx.output(i);
        let empty = output.is_ok_and(|o| o.ty() != TensorType::String && o.shape().elements() == 0);
        empty && !cx.is_data_dependent(i)
    };
    cx.output_count() > 0 && (0..cx.output_count()).all(is_empty)
}

/// Returns the error for an operand of a type that the kernel does not support.
pub(crate) fn unsupported_type(operand: &str, tensor: TensorView<'_>) -> Error {
    Error::Unsupported(format!("{operand} \"{}\" of type {}", tensor.name(), tensor.ty()))
}

/// Returns the value of an operand that determines a shape. A kernel is prepared only once the value is known.
///
/// # Errors
/// [`Error::State`] if it is not.
pub(crate) fn known<T>(operand: Option<T>) -> Result<T> {
    operand.ok_or_else(|| Error::State("an operand that determines a shape has no value yet".into()))
}

/// Returns the bits per element of an operand whose elements are moved without being read.
pub(crate) fn moved_bits(operand: &str, tensor: TensorView<'_>) -> Result<usize> {
    copied_bits(tensor.ty()).ok_or_else(|| unsupported_type(operand, tensor))
}

/// Returns the bytes per element of an operand whose elements are moved without being read; `None` for strings,
/// variants and elements smaller than a byte.
pub(crate) fn copied_bytes(tensor: TensorView<'_>) -> Option<usize> {
    copied_bits(tensor.ty()).filter(|bits| bits % 8 == 0).map(|bits| bits / 8)
}

/// Scale and zero point; `(0.0, 0)` for a tensor that is not quantized per tensor.
pub(crate) fn scale_zero_point(tensor: TensorView<'_>) -> (f32, i32) {
    tensor.scale_zero_point().unwrap_or_default()
}

/// Checks that two tensors between which elements are moved have the same quantization.
pub(crate) fn check_same_quantization(a: TensorView<'_>, b: TensorView<'_>) -> Result<()> {
    if scale_zero_point(a) == scale_zero_point(b) {
        return Ok(());
    }
    let found = |tensor: TensorView<'_>| match tensor.scale_zero_point() {
        Ok((scale, zero_point)) => format!("{scale} and {zero_point}"),
        Err(_) if tensor.quantization().is_some() => "not per tensor".into(),
        Err(_) => "none".into(),
    };
    Err(Error::Unsupported(format!(
        "scale and zero point of \"{}\" ({}) and \"{}\" ({}) differ",
        a.name(),
        found(a),
        b.name(),
        found(b)
    )))
}

/// Runs copies from input `i` to output `o`, one after the other. A single copy of a whole tensor is skipped if input
/// and output share memory.
pub(crate) fn copies(
    cx: &PrepareContext<'_>,
    list: impl Deref<Target = [(usize, usize, StridedCopy)]> + Send + 'static,
) -> Result<Invoke> {
    if let [(i, 0, copy)] = &*list
        && cx.output_count() == 1
    {
        let (input, output) = (cx.input(*i)?.tensor(), cx.output(0)?.tensor());
        let elements = output.shape.elements();
        if copy.is_dense(elements) && input.shape.elements() == elements && input.ty == output.ty {
            cx.output_is_view_of(*i);
        }
    }
    Ok(Box::new(move |cx| {
        let (mut output, mut polls) = (None, Polls::new(cx.parallel()));
        for (i, o, copy) in list.iter() {
            if polls.interrupted_after(copy.steps()) {
                break;
            }
            let target = match &mut output {
                Some((index, bytes)) if index == o => bytes,
                _ => &mut output.insert((*o, cx.output_bytes(*o)?)).1,
            };
            copy.run_on(cx.input_bytes(*i)?, target, cx.parallel());
        }
        Ok(())
    }))
}

/// Fills `to` with one value of at least a byte.
pub(crate) fn fill_elements(to: &mut [u8], value: &[u8]) {
    fn fill<const W: usize>(to: &mut [u8], value: &[u8]) {
        if let Some(value) = value.first_chunk::<W>() {
            to.as_chunks_mut::<W>().0.fill(*value);
        }
    }
    match value {
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => to.fill(*first),
        [_, _] => fill::<2>(to, value),
        [_, _, _, _] => fill::<4>(to, value),
        _ => to.chunks_exact_mut(value.len().max(1)).for_each(|element| element.copy_from_slice(value)),
    }
}

/// Bytes that are filled or copied between two polls: less than 50 ms. A multiple of every element's size.
const MAX_PIECE: usize = 32 << 20;

/// Like [`fill_elements`]; skips the rest when the work is interrupted.
pub(crate) fn fill_polled(to: &mut [u8], value: &[u8], par: &dyn Parallel) {
    let pieces = to.chunks_mut(MAX_PIECE).take_while(|_| !par.is_interrupted());
    pieces.for_each(|piece| fill_elements(piece, value));
}

/// Copies bytes. Skips the rest when the work is interrupted.
pub(crate) fn copy_bytes(from: &[u8], to: &mut [u8], par: &dyn Parallel) {
    let pieces = from.chunks(MAX_PIECE).zip(to.chunks_mut(MAX_PIECE));
    pieces.take_while(|_| !par.is_interrupted()).for_each(|(from, to)| to.copy_from_slice(from));
}

/// Copies a view of input `i` to all of output 0, for elements of any type including strings.
pub(crate) fn copied_view(cx: &PrepareContext<'_>, i: usize, shape: &[usize], from: &View) -> Result<Invoke> {
    let (input, to) = (cx.input(i)?, View::dense(shape));
    if input.ty() == TensorType::String {
        let output = cx.output(0)?.shape().clone();
        let mut sources = cx.budget().reserved(output.elements())?;
        // The width does not affect which elements are copied.
        let mut pace = Pace::of(cx.budget());
        StridedCopy::new(shape, 8, from, &to).try_for_each(|i, _| {
            pace.spend(STRING_STEPS)?;
            sources.push(i)
        })?;
        return Ok(Box::new(move |cx| {
            let strings = cx.strings(i)?;
            cx.write_strings(0, output.clone(), sources.iter().map(|&i| strings.get(i)))
        }));
    }
    let bits = moved_bits("input", input)?;
    copies(cx, vec![(i, 0, StridedCopy::new(shape, bits, from, &to))])
}

/// Copies `count` elements of `bits` bits each, from element `i` of one dense tensor to element `o` of another.
pub(crate) fn copy_elements(bits: usize, from: &[u8], i: usize, to: &mut [u8], o: usize, count: usize) {
    if bits < 8 {
        return copy_packed(bits, from, i, to, o, count);
    }
    let width = bits / 8;
    to[o * width..][..count * width].copy_from_slice(&from[i * width..][..count * width]);
}

/// Maximum number of packed elements that are copied one by one.
const FEW: usize = 16;

/// As [`copy_elements`], for elements of 2 or 4 bits.
fn copy_packed(bits: usize, from: &[u8], i: usize, to: &mut [u8], o: usize, count: usize) {
    let each = |to: &mut [u8], range: Range<usize>| {
        range.for_each(|n| set_packed(to, bits, o + n, packed(from, bits, i + n)));
    };
    if count <= FEW {
        return each(to, 0..count);
    }
    // Whole bytes of the target, after the elements of its first byte.
    let per_byte = 8 / bits;
    let head = o.wrapping_neg() % per_byte;
    let whole = (count - head) / per_byte;
    each(to, 0..head);
    each(to, head + whole * per_byte..count);
    let (source, shift) = (&from[(i + head) / per_byte..], (i + head) % per_byte * bits);
    let target = &mut to[(o + head) / per_byte..][..whole];
    if shift == 0 {
        return target.copy_from_slice(&source[..whole]);
    }
    for (to, pair) in target.iter_mut().zip(source[..=whole].windows(2)) {
        *to = pair[0] >> shift | pair[1] << (8 - shift);
    }
}

/// The elements of an integer operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Integers<'a> {
    /// Elements of an INT16 tensor.
    I16(&'a [i16]),
    /// Elements of an INT32 tensor.
    I32(&'a [i32]),
    /// Elements of an INT64 tensor.
    I64(&'a [i64]),
}

impl<'a> Integers<'a> {
    /// Reads input `i`.
    pub(crate) fn input(cx: &mut InvokeContext<'a>, i: usize) -> Result<Self> {
        match cx.input_tensor(i)?.ty {
            TensorType::Int16 => cx.input(i).map(Integers::I16),
            TensorType::Int64 => cx.input(i).map(Integers::I64),
            _ => cx.input(i).map(Integers::I32),
        }
    }

    /// Returns element `i`.
    pub(crate) fn get(self, i: usize) -> i64 {
        match self {
            Integers::I16(values) => values[i].into(),
            Integers::I32(values) => values[i].into(),
            Integers::I64(values) => values[i],
        }
    }

    /// Returns the number of elements.
    pub(crate) fn len(self) -> usize {
        match self {
            Integers::I16(values) => values.len(),
            Integers::I32(values) => values.len(),
            Integers::I64(values) => values.len(),
        }
    }

    /// Returns element `i` as an index into a dimension of `size`.
    pub(crate) fn index(self, i: usize, size: usize) -> Result<usize> {
        let index = self.get(i);
        let inside = usize::try_from(index).ok().filter(|&index| index < size);
        Ok(inside.ok_or(InvalidData::Index { index, size })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_elements_are_copied_between_any_positions() {
        let from: Vec<u8> = (0..40u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
        for bits in [2, 4] {
            for (i, o) in (0..6).flat_map(|i| (0..6).map(move |o| (i, o))) {
                for count in 0..=75 {
                    let [mut got, mut want] = [[0xc3; 40]; 2];
                    copy_elements(bits, &from, i, &mut got, o, count);
                    (0..count).for_each(|n| set_packed(&mut want, bits, o + n, packed(&from, bits, i + n)));
                    assert_eq!(got, want, "{count} elements of {bits} bits from {i} to {o}");
                }
            }
        }
    }
}
