//! Inputs of depthwise convolutions that compute several output channels from each input channel.

use delegraph_core::kernel::{InvokeContext, PrepareContext, Temporary};
use delegraph_core::{Element, Result};

use super::compute_error;
use delegraph_compute::spread;

/// The input of a layer, with each channel repeated for the output channels that read it.
pub(super) struct Spread {
    multiplier: usize,
    repeated: Option<Temporary>,
    len: usize,
}

impl Spread {
    pub(super) fn new<T: Element>(cx: &mut PrepareContext<'_>, multiplier: usize) -> Result<Self> {
        let len = cx.input(0)?.shape().elements().saturating_mul(multiplier);
        let repeated = if multiplier == 1 { None } else { Some(cx.temporary_of::<T>(len)?) };
        Ok(Spread { multiplier, repeated, len })
    }

    /// For elements of one byte, signed or not.
    pub(super) fn bytes(cx: &mut PrepareContext<'_>, multiplier: usize) -> Result<Self> {
        Spread::new::<u8>(cx, multiplier)
    }

    pub(super) fn input_bytes<'a>(&self, cx: &mut InvokeContext<'a>) -> Result<&'a [u8]> {
        let input = cx.input_bytes(0)?;
        self.repeat(cx, input)
    }

    pub(super) fn input<'a, T: Element>(&self, cx: &mut InvokeContext<'a>) -> Result<&'a [T]> {
        let input = cx.input::<T>(0)?;
        self.repeat(cx, input)
    }

    fn repeat<'a, T: Element>(&self, cx: &mut InvokeContext<'a>, input: &'a [T]) -> Result<&'a [T]> {
        let Some(repeated) = self.repeated else { return Ok(input) };
        let repeated = &mut cx.temporary::<T>(repeated)?[..self.len];
        spread(self.multiplier, input, repeated, cx.parallel()).map_err(compute_error)?;
        Ok(repeated)
    }
}
