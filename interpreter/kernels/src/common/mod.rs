//! Helpers that several families share: iteration over tensors, quantized arithmetic, windows, weights.

pub(crate) mod elementwise;
pub(crate) mod float8;
pub(crate) mod fourier;
pub(crate) mod index;
pub(crate) mod number;
pub(crate) mod pace;
pub(crate) mod prepared;
pub(crate) mod quantized;
pub(crate) mod recurrent;
pub(crate) mod region;
pub(crate) mod weights;
pub(crate) mod windows;
