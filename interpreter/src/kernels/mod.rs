//! CPU kernels. `reference` is short and plainly correct; `optimized` is what users run. One file per op family,
//! named like the family's definition in `delegraph_core::ops`.

pub mod custom;
pub mod float8;
mod fourier;
pub mod index;
pub mod optimized;
mod prepared;
pub mod quantized;
pub mod recurrent;
pub mod reference;
mod region;
pub mod weights;
pub mod windows;

#[cfg(test)]
pub(crate) mod testing;
