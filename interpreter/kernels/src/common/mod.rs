//! Helpers that several families share: iteration over tensors, quantized arithmetic, windows, weights.

pub(crate) mod elementwise;
pub mod float8;
pub(crate) mod fourier;
pub mod index;
pub(crate) mod number;
pub(crate) mod pace;
pub(crate) mod prepared;
pub mod quantized;
pub mod recurrent;
pub(crate) mod region;
pub mod weights;
pub mod windows;
