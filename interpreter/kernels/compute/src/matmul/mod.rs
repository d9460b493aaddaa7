//! Matrix products and convolutions as matrix products.

pub(super) mod conv;
pub(super) mod conv_i8;
mod copies;
pub(super) mod gemm;
pub(super) mod gemm_f32;
pub(super) mod gemm_i8;
pub(super) mod geometry;
pub(super) mod int16;
pub(super) mod row;
pub(super) mod sparse;
pub(super) mod tiles;
