//! Optimized kernels. A node that they do not support, by op, type or operands, runs on its reference kernel.

use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use delegraph_core::kernel::{Charged, InvokeContext, Kernel, PrepareContext, TensorView};
use delegraph_core::ops::{Activation, Padding, TensorType, Window, pad_amount};
use delegraph_core::{BuiltinOp, MutableOpResolver, Op, OpResolver, Registration, Result};

use crate::common::prepared::{Invoke, writes_nothing};
use crate::common::quantized;
use crate::common::weights::{self, Requantize};
use crate::families::{declare_families, for_each_family};
use delegraph_compute::{ByteQuant, ChannelTies, Clamp, ConvGeometry, Multiplier, OutputQuant};
use delegraph_compute::{ComputeError, compute_error, within};

mod hybrid;
mod int16;
mod spread;
#[cfg(test)]
mod tests;

/// Selects the marked families.
macro_rules! optimized {
    ([$($taken:ident)*] $family:ident + optimized, $($rest:tt)*) => {
        optimized! { [$($taken)* $family] $($rest)* }
    };
    ([$($taken:ident)*] $family:ident, $($rest:tt)*) => {
        optimized! { [$($taken)*] $($rest)* }
    };
    ([$($taken:ident)*]) => {
        declare_families! {
            "optimized", " The reference kernels of the same ops must be registered already.", $($taken),*
        }
    };
    ($($all:tt)*) => {
        optimized! { [] $($all)* }
    };
}
for_each_family!(optimized);

/// Prepares a node; `None` leaves it to the reference kernel. A function that returns `None` must not have requested
/// temporaries.
type Prepare = fn(&mut PrepareContext<'_>) -> Result<Option<Invoke>>;

/// Registers an optimized kernel for the `versions` that have a reference kernel.
fn optimize(
    resolver: &mut MutableOpResolver,
    op: BuiltinOp,
    versions: RangeInclusive<u32>,
    prepare: Prepare,
) {
    add(resolver, op, versions, prepare, false);
}

fn add(
    resolver: &mut MutableOpResolver,
    op: BuiltinOp,
    versions: RangeInclusive<u32>,
    prepare: Prepare,
    packs: bool,
) {
    for version in versions {
        let Some(reference) = resolver.find(&Op::Builtin(op), version).cloned() else { continue };
        let registration = Registration::new(move |cx| {
            Ok(Optimized { packs, prepare, reference: reference.init(cx)?, invoke: None })
        });
        resolver.add_builtin(op, registration, version);
    }
}

/// Like [`optimize`], for kernels that pack all constants they need.
fn optimize_packed(
    resolver: &mut MutableOpResolver,
    op: BuiltinOp,
    versions: RangeInclusive<u32>,
    prepare: Prepare,
) {
    add(resolver, op, versions, prepare, true);
}

struct Optimized {
    packs: bool,
    prepare: Prepare,
    reference: Box<dyn Kernel>,
    invoke: Option<Invoke>,
}

impl Kernel for Optimized {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.invoke = (self.prepare)(cx)?;
        if self.invoke.is_none() {
            return self.reference.prepare(cx);
        }
        if self.packs {
            cx.done_with_constants();
        }
        if writes_nothing(cx) {
            self.invoke = Some(Box::new(|_| Ok(())));
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        match &mut self.invoke {
            Some(invoke) => invoke(cx),
            None => self.reference.invoke(cx),
        }
    }
}

/// Maximum number of windows of a row of outputs, and of vectors of `VECTOR` elements in them: some 50 ms.
const MAX_WINDOWS: usize = 1 << 21;
const MAX_VECTORS: usize = 1 << 24;
const VECTOR: usize = 16;

/// Returns whether a row of outputs takes long: kernels do not interrupt it, but the reference kernels do.
fn is_long_row(windows: usize, taps: usize, channels: usize) -> bool {
    let vectors = windows.saturating_mul(taps).saturating_mul(channels.div_ceil(VECTOR));
    windows > MAX_WINDOWS || vectors > MAX_VECTORS
}

/// Weights in the form that a kernel reads.
struct Packed<T> {
    weights: T,
    bytes: usize,
}

impl<T> Deref for Packed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.weights
    }
}

/// Returns the result of `pack`, [shared](PrepareContext::shared) with other interpreters.
fn pack_shared<T: Send + Sync + 'static>(
    cx: &PrepareContext<'_>,
    variant: &[usize],
    pack: impl FnOnce() -> Result<T, ComputeError>,
) -> Result<Arc<Packed<T>>> {
    let packed = cx.shared(variant, || within_budget(cx, pack))?;
    cx.add_packed_bytes(packed.bytes);
    Ok(packed)
}

/// Returns the result of `pack`, which this kernel alone uses.
fn pack_own<T>(cx: &PrepareContext<'_>, pack: impl FnOnce() -> Result<T, ComputeError>) -> Result<T> {
    let Packed { weights, bytes } = within_budget(cx, pack)?;
    cx.add_packed_bytes(bytes);
    Ok(weights)
}

/// Calls `pack` with the rest of the budget as its memory limit: packed weights may be many times as large as the
/// constants.
fn within_budget<T>(
    cx: &PrepareContext<'_>,
    pack: impl FnOnce() -> Result<T, ComputeError>,
) -> Result<Packed<T>> {
    let budget = cx.budget();
    let left = budget.memory().saturating_sub(budget.used());
    match within(left, pack) {
        (Ok(weights), bytes) => Ok(Packed { weights, bytes }),
        (Err(error), bytes) if bytes <= left => Err(compute_error(error)),
        // The error of the budget names the limit.
        (Err(error), bytes) => Err(budget.charge(bytes).err().unwrap_or_else(|| compute_error(error))),
    }
}

/// Bounds of an activation that is a clamp. TFLite always clamps, to the finite numbers at least.
fn clamp_of(activation: Activation) -> Option<Clamp> {
    activation.clamp().map(|(low, high)| Clamp { low: low.max(f32::MIN), high: high.min(f32::MAX) })
}

/// The quantization of an 8-bit tensor; `None` for other tensors, and for zero points outside of the type.
fn byte_quant(tensor: TensorView<'_>) -> Option<ByteQuant> {
    let (_, zero_point) = tensor.scale_zero_point().ok()?;
    let (signed, range) = match tensor.ty() {
        TensorType::Int8 => (true, -128..=127),
        TensorType::UInt8 => (false, 0..=255),
        _ => return None,
    };
    range.contains(&zero_point).then_some(ByteQuant { signed, zero_point })
}

fn compute_multiplier(m: quantized::Multiplier) -> Multiplier {
    Multiplier { multiplier: m.multiplier, shift: m.shift }
}

/// Windows of size `window` over images `[batch, height, width, channels]`. Strides and dilations are `[height,
/// width]`, as in the file.
fn geometry(
    input: TensorView<'_>,
    output: TensorView<'_>,
    window: [usize; 2],
    stride: [i32; 2],
    dilation: [i32; 2],
    padding: Padding,
) -> Option<ConvGeometry> {
    let (&[batch, in_h, in_w, in_channels], &[_, out_h, out_w, _]) =
        (&input.shape()[..], &output.shape()[..])
    else {
        return None;
    };
    let positive = |v: [i32; 2]| Some([usize::try_from(v[0]).ok()?, usize::try_from(v[1]).ok()?]);
    let (stride, dilation) = (positive(stride)?, positive(dilation)?);
    let (input, output) = ([in_h, in_w], [out_h, out_w]);
    let padding = match padding {
        Padding::Valid => [0, 0],
        Padding::Same => [0, 1].map(|a| {
            let window = Window { size: window[a], stride: stride[a], dilation: dilation[a] };
            pad_amount(input[a], output[a], window)
        }),
    };
    // A search for windows without taps looks at all windows if the dilation exceeds the input.
    if (0..2).any(|a| dilation[a] > input[a] && output[a] > MAX_WINDOWS) {
        return None;
    }
    let geometry = ConvGeometry { batch, input, in_channels, output, window, stride, dilation, padding };
    // The reference kernels have no bounds on strides, dilations and windows.
    geometry.check().is_ok().then_some(geometry)
}

/// Weights of a byte each.
enum ByteWeights<'a> {
    Stored(&'a [u8]),
    Unpacked(Charged<u8>),
}

impl Deref for ByteWeights<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ByteWeights::Stored(bytes) => bytes,
            ByteWeights::Unpacked(bytes) => bytes,
        }
    }
}

/// Operands of an 8-bit primitive for a node that multiplies input 0 with the constant weights of input 1.
struct Quantized<'a> {
    input: ByteQuant,
    weights: ByteWeights<'a>,
    weight_quant: ByteQuant,
    bias: Option<&'a [i32]>,
    multipliers: Vec<Multiplier>,
    zero_point: i32,
    bounds: [i32; 2],
}

impl<'a> Quantized<'a> {
    /// `None` if the weights are not constant, input, weights or output are not 8 bits wide (4 for the weights), the
    /// bias is not INT32, or the bounds exclude every value.
    fn new(cx: &'a PrepareContext<'_>, requantize: &Requantize) -> Result<Option<Self>> {
        let (input, weights, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
        let signed = input.ty() == TensorType::Int8;
        let types_fit = match weights.ty() {
            TensorType::Int8 | TensorType::Int4 => signed,
            TensorType::UInt8 => input.ty() == TensorType::UInt8,
            _ => false,
        };
        let bias = match cx.optional_input(2) {
            Some(bias) if bias.ty() == TensorType::Int32 => bias.constant::<i32>()?,
            Some(_) => return Ok(None),
            None => None,
        };
        let Some(bytes) = weights.constant_bytes() else { return Ok(None) };
        let (multipliers, zero_point, bounds) = requantize.parts();
        if !types_fit || output.ty() != input.ty() || bounds[0] > bounds[1] {
            return Ok(None);
        }
        let elements = weights.shape().elements();
        let zero = |t: TensorView<'_>| t.scale_zero_point().map_or(0, |(_, zero)| zero);
        Ok(Some(Quantized {
            input: ByteQuant { signed, zero_point: zero(input) },
            weights: match weights.ty() {
                TensorType::Int4 => {
                    ByteWeights::Unpacked(weights::unpacked(cx.budget(), 4, bytes, elements)?)
                }
                _ => ByteWeights::Stored(bytes),
            },
            weight_quant: ByteQuant { signed, zero_point: if signed { 0 } else { zero(weights) } },
            bias,
            multipliers: multipliers.iter().copied().map(compute_multiplier).collect(),
            zero_point,
            bounds,
        }))
    }

    /// Quantization of the output, with the given rounding of ties per channel.
    fn output(&self, ties: ChannelTies) -> OutputQuant<'_> {
        let [low, high] = self.bounds;
        OutputQuant { multipliers: &self.multipliers, zero_point: self.zero_point, low, high, ties }
    }
}
