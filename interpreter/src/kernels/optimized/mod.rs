//! The optimized kernels: what users run. Each family that is not here falls back to its reference kernel, and so
//! does a node of a family that is here but in types or with operands that its optimized kernel leaves alone.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, TensorView};
use delegraph_core::ops::{Activation, Padding, TensorType, pad_amount};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Op, OpResolver, Registration, Result};

use super::index::packed;
use super::prepared::Invoke;
use super::quantized;
use super::weights::{self, Requantize};
use crate::compute::{ByteQuant, Clamp, ComputeError, ConvGeometry, Multiplier, OutputQuant};

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Registers every optimized kernel for the versions that it implements, on top of the reference kernels.
        pub fn register(resolver: &mut MutableOpResolver) {
            $($family::register(resolver);)*
        }

        /// The kernels of one family each, for resolvers that have no others: see `delegraph ops --resolver-for`. The
        /// reference kernels of the same ops must be registered already.
        pub mod families {
            use delegraph_core::MutableOpResolver;

            $(
                #[doc = concat!("Registers the optimized kernels of the family `", stringify!($family), "`.")]
                pub fn $family(resolver: &mut MutableOpResolver) {
                    super::$family::register(resolver);
                }
            )*

            /// All of them, by name.
            pub const ALL: &[(&str, fn(&mut MutableOpResolver))] = &[$((stringify!($family), $family)),*];
        }
    };
}

mod hybrid;
mod int16;
#[cfg(test)]
mod tests;

families! {
    batch_matmul, binary, conv_2d, depthwise_conv_2d, fully_connected, l2_normalization, lstm, pad, pool_2d, prelu, quantize, reduce, resize, softmax,
    transpose_conv, unary,
}

/// Prepares a node; `None` leaves it to the reference kernel. Temporaries may only be asked for once it is clear
/// that the node is taken.
type Prepare = fn(&mut PrepareContext<'_>) -> Result<Option<Invoke>>;

/// Registers an optimized kernel for those of `versions` that have a reference kernel.
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

/// Like [`optimize`], for kernels that keep a packed copy of all constants that they need.
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
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        match &mut self.invoke {
            Some(invoke) => invoke(cx),
            None => self.reference.invoke(cx),
        }
    }
}

/// The primitives' errors are about sizes that inference has checked already.
pub(in crate::kernels) fn compute_error(error: ComputeError) -> Error {
    match error {
        ComputeError::TooLarge { .. } => Error::OutOfMemory(error.to_string()),
        _ => Error::Kernel(error.to_string()),
    }
}

/// Bounds of an activation that is a clamp. In the field there is always one, to the finite numbers at least.
fn clamp_of(activation: Activation) -> Option<Clamp> {
    activation.clamp().map(|(low, high)| Clamp { low: low.max(f32::MIN), high: high.min(f32::MAX) })
}

/// A tensor of bytes; `None` for other tensors, and where the zero point is not among the type's values.
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

/// Windows of `window` over images `[batch, height, width, channels]`. Strides and dilations, height first, are as
/// the file has them.
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
        Padding::Same => [0, 1].map(|a| pad_amount(input[a], output[a], window[a], stride[a], dilation[a])),
    };
    Some(ConvGeometry { batch, input, in_channels, output, window, stride, dilation, padding })
}

/// What the 8-bit primitives need of a node whose input 0 meets the constant weights of input 1.
struct Quantized<'a> {
    input: ByteQuant,
    weights: Cow<'a, [u8]>,
    weight_quant: ByteQuant,
    bias: Option<&'a [i32]>,
    multipliers: Vec<Multiplier>,
    zero_point: i32,
    bounds: [i32; 2],
}

impl<'a> Quantized<'a> {
    /// `None` for what isn't 8 bits throughout (4 for the weights), and for bounds that leave no value.
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
        let unpacked = |i| weights::signed(packed(bytes, 4, i), 4).cast_unsigned();
        let elements = weights.shape().elements();
        let zero = |t: TensorView<'_>| t.scale_zero_point().map_or(0, |(_, zero)| zero);
        Ok(Some(Quantized {
            input: ByteQuant { signed, zero_point: zero(input) },
            weights: match weights.ty() {
                TensorType::Int4 => Cow::Owned((0..elements).map(unpacked).collect()),
                _ => Cow::Borrowed(bytes),
            },
            weight_quant: ByteQuant { signed, zero_point: if signed { 0 } else { zero(weights) } },
            bias,
            multipliers: multipliers.iter().copied().map(compute_multiplier).collect(),
            zero_point,
            bounds,
        }))
    }

    /// Ties of output channels from `away_from` on are rounded away from zero.
    fn output(&self, away_from: usize) -> OutputQuant<'_> {
        let [low, high] = self.bounds;
        OutputQuant { multipliers: &self.multipliers, zero_point: self.zero_point, low, high, away_from }
    }
}
