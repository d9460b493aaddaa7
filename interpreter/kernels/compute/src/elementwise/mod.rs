//! Elementwise functions, and conversions between floats and integers.

pub(super) mod broadcast;
pub(super) mod byte_pairs;
pub(super) mod dynamic;
pub(super) mod int16;
pub(super) mod int8;
pub(super) mod single;
