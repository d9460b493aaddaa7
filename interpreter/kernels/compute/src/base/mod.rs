//! Errors, instruction sets, buffers and quantization, which all primitives use.

pub(super) mod buffer;
pub(super) mod clamp;
pub(super) mod error;
pub(super) mod isa;
pub(super) mod requant;
pub(super) mod requant_i16;
