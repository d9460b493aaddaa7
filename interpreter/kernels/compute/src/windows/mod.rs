//! Windows that slide over images: depthwise convolutions, poolings, resizing.

pub(super) mod depthwise;
pub(super) mod depthwise_i16;
pub(super) mod depthwise_i8;
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
    allow(dead_code, reason = "other targets have products of bytes")
)]
mod depthwise_i8_pairs;
#[cfg(target_arch = "x86_64")]
mod depthwise_i8_row;
#[cfg(target_arch = "x86_64")]
mod depthwise_i8_strip;
#[cfg(target_arch = "x86_64")]
mod depthwise_i8_wide;
#[cfg(target_arch = "x86_64")]
mod depthwise_i8_x86;
pub(super) mod pooling;
pub(super) mod pooling_i16;
pub(super) mod pooling_i8;
mod pooling_i8_parts;
pub(super) mod resize;
pub(super) mod scatter;
pub(super) mod spread;
#[cfg(target_arch = "x86_64")]
mod strip;
