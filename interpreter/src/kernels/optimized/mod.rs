//! The optimized kernels: what users run. Each family that is not here falls back to its reference kernel, and so
//! does a node of a family that is here but in types or with operands that its optimized kernel leaves alone.

use std::ops::RangeInclusive;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, TensorView};
use delegraph_core::ops::{Activation, Padding, pad_amount};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Op, OpResolver, Registration, Result};

use super::prepared::Invoke;
use crate::compute::{Clamp, ComputeError, ConvGeometry};

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Registers every optimized kernel for the versions that it implements, on top of the reference kernels.
        pub fn register(resolver: &mut MutableOpResolver) {
            $($family::register(resolver);)*
        }
    };
}

families! {
    binary, conv_2d,
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
    for version in versions {
        let Some(reference) = resolver.find(&Op::Builtin(op), version).cloned() else { continue };
        let registration = Registration::new(move |cx| {
            Ok(Optimized { prepare, reference: reference.init(cx)?, invoke: None })
        });
        resolver.add_builtin(op, registration, version);
    }
}

struct Optimized {
    prepare: Prepare,
    reference: Box<dyn Kernel>,
    invoke: Option<Invoke>,
}

impl Kernel for Optimized {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.invoke = (self.prepare)(cx)?;
        match self.invoke {
            Some(_) => Ok(()),
            None => self.reference.prepare(cx),
        }
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        match &mut self.invoke {
            Some(invoke) => invoke(cx),
            None => self.reference.invoke(cx),
        }
    }
}

/// The primitives' errors are about sizes that inference has checked already.
fn compute_error(error: ComputeError) -> Error {
    match error {
        ComputeError::TooLarge { .. } => Error::OutOfMemory(error.to_string()),
        _ => Error::Kernel(error.to_string()),
    }
}

/// Bounds of an activation that is a clamp. In the field there is always one, to the finite numbers at least.
fn clamp_of(activation: Activation) -> Option<Clamp> {
    activation.clamp().map(|(low, high)| Clamp { low: low.max(f32::MIN), high: high.min(f32::MAX) })
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
