//! Kernels that are one function: it prepares, and returns what `invoke` does.

use delegraph_core::kernel::{InitContext, InvokeContext, Kernel, PrepareContext, TensorView};
use delegraph_core::{Error, Registration, Result, TensorType};

use super::index::{StridedCopy, View, copied_bits, packed, set_packed};

/// What `invoke` does. It owns whatever `prepare` worked out.
pub(crate) type Invoke = Box<dyn FnMut(&mut InvokeContext<'_>) -> Result<()> + Send>;

/// A kernel that is one function from a node to what `invoke` does.
pub(crate) struct Prepared<P> {
    prepare: P,
    invoke: Option<Invoke>,
    needs_shapes_only: bool,
}

/// Registers kernels made of `prepare`.
pub(crate) fn prepared<P>(prepare: P) -> Registration
where
    P: Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Clone + Send + Sync + 'static,
{
    Registration::new(move |_| {
        Ok(Prepared { prepare: prepare.clone(), invoke: None, needs_shapes_only: false })
    })
}

/// Registers kernels made of `prepare`, which also sees what `read` takes from the node itself.
pub(crate) fn prepared_with<N: Send + 'static>(
    read: fn(&InitContext<'_>) -> Result<N>,
    prepare: fn(&N, &mut PrepareContext<'_>) -> Result<Invoke>,
) -> Registration {
    Registration::new(move |init| {
        let of_node = read(init)?;
        let prepare = move |cx: &mut PrepareContext<'_>| prepare(&of_node, cx);
        Ok(Prepared { prepare, invoke: None, needs_shapes_only: false })
    })
}

/// Registers kernels made of `prepare` whose outputs depend on the shapes of the inputs alone.
pub(crate) fn prepared_from_shapes<P>(prepare: P) -> Registration
where
    P: Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Clone + Send + Sync + 'static,
{
    Registration::new(move |_| {
        Ok(Prepared { prepare: prepare.clone(), invoke: None, needs_shapes_only: true })
    })
}

impl<P> Kernel for Prepared<P>
where
    P: Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Send,
{
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.invoke = Some((self.prepare)(cx)?);
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

/// The error for an operand of a type that the kernel does not take.
pub(crate) fn unsupported_type(operand: &str, tensor: TensorView<'_>) -> Error {
    Error::Unsupported(format!("{operand} \"{}\" of type {}", tensor.name(), tensor.ty()))
}

/// An operand that decides about shapes. It always has its value when a kernel prepares.
pub(crate) fn known<T>(operand: Option<T>) -> Result<T> {
    operand.ok_or_else(|| Error::State("an operand that decides about shapes has no value yet".into()))
}

/// Bits per element of an operand whose elements are only moved.
pub(crate) fn moved_bits(operand: &str, tensor: TensorView<'_>) -> Result<usize> {
    copied_bits(tensor.ty()).ok_or_else(|| unsupported_type(operand, tensor))
}

/// Bytes per element of an operand whose elements are only moved; `None` where they are less than a byte, or strings.
pub(crate) fn copied_bytes(tensor: TensorView<'_>) -> Option<usize> {
    copied_bits(tensor.ty()).filter(|bits| bits % 8 == 0).map(|bits| bits / 8)
}

/// Scale and zero point, `(0, 0)` without quantization.
pub(crate) fn scale_zero_point(tensor: TensorView<'_>) -> (f32, i32) {
    tensor.scale_zero_point().unwrap_or_default()
}

/// Checks that a tensor whose elements are only moved means the same real values before and after.
pub(crate) fn check_same_quantization(a: TensorView<'_>, b: TensorView<'_>) -> Result<()> {
    let (of_a, of_b) = (scale_zero_point(a), scale_zero_point(b));
    if of_a == of_b {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "scale and zero point of \"{}\" and \"{}\" differ: {of_a:?} and {of_b:?}",
        a.name(),
        b.name()
    )))
}

/// Copies from input `i` to output `o`, one after the other. A single copy of a whole tensor need not be made where the
/// two can share memory.
pub(crate) fn copies(cx: &PrepareContext<'_>, list: Vec<(usize, usize, StridedCopy)>) -> Result<Invoke> {
    if let [(i, 0, copy)] = list.as_slice()
        && cx.num_outputs() == 1
    {
        let (input, output) = (cx.input(*i)?.tensor(), cx.output(0)?.tensor());
        let elements = output.shape.elements();
        if copy.is_dense(elements) && input.shape.elements() == elements && input.ty == output.ty {
            cx.output_is_view_of(*i);
        }
    }
    Ok(Box::new(move |cx| {
        let mut output = None;
        for (i, o, copy) in &list {
            let target = match &mut output {
                Some((index, bytes)) if index == o => bytes,
                _ => &mut output.insert((*o, cx.output_bytes(*o)?)).1,
            };
            copy.run_on(cx.input_bytes(*i)?, target, cx.parallel());
        }
        Ok(())
    }))
}

/// Fills `to` with elements of one value, of at least a byte each.
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

/// Copies a view of input `i` to all of output 0: elements of any type, strings too.
pub(crate) fn copied_view(cx: &PrepareContext<'_>, i: usize, shape: &[usize], from: &View) -> Result<Invoke> {
    let (input, to) = (cx.input(i)?, View::dense(shape));
    if input.ty() == TensorType::String {
        let (mut sources, output) = (Vec::new(), cx.output(0)?.shape().clone());
        // The width makes no difference to which elements are copied.
        StridedCopy::new(shape, 8, from, &to).for_each(|i, _| sources.push(i));
        return Ok(Box::new(move |cx| {
            let strings = cx.strings(i)?;
            cx.write_strings(0, output.clone(), sources.iter().map(|&i| strings.get(i)))
        }));
    }
    let bits = moved_bits("input", input)?;
    copies(cx, vec![(i, 0, StridedCopy::new(shape, bits, from, &to))])
}

/// Copies `count` elements of `bits` bits between the bytes of two dense tensors.
pub(crate) fn copy_elements(bits: usize, from: &[u8], i: usize, to: &mut [u8], o: usize, count: usize) {
    if bits < 8 {
        return (0..count).for_each(|n| set_packed(to, bits, o + n, packed(from, bits, i + n)));
    }
    let width = bits / 8;
    to[o * width..][..count * width].copy_from_slice(&from[i * width..][..count * width]);
}

/// The elements of an integer operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Integers<'a> {
    /// INT16.
    I16(&'a [i16]),
    /// INT32.
    I32(&'a [i32]),
    /// INT64.
    I64(&'a [i64]),
}

impl<'a> Integers<'a> {
    /// Those of input `i`.
    pub(crate) fn input(cx: &mut InvokeContext<'a>, i: usize) -> Result<Self> {
        match cx.input_tensor(i)?.ty {
            TensorType::Int16 => cx.input(i).map(Integers::I16),
            TensorType::Int64 => cx.input(i).map(Integers::I64),
            _ => cx.input(i).map(Integers::I32),
        }
    }

    /// Element `i`.
    pub(crate) fn get(self, i: usize) -> i64 {
        match self {
            Integers::I16(values) => values[i].into(),
            Integers::I32(values) => values[i].into(),
            Integers::I64(values) => values[i],
        }
    }

    /// How many.
    pub(crate) fn len(self) -> usize {
        match self {
            Integers::I16(values) => values.len(),
            Integers::I32(values) => values.len(),
            Integers::I64(values) => values.len(),
        }
    }

    /// Element `i` as an index into a dimension of `size`.
    pub(crate) fn index(self, i: usize, size: usize) -> Result<usize> {
        let index = self.get(i);
        let inside = usize::try_from(index).ok().filter(|&index| index < size);
        inside
            .ok_or_else(|| Error::Kernel(format!("index {index} is out of range for a dimension of {size}")))
    }
}
