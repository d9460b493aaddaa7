//! Compute primitives: what the optimized kernels are made of.
//!
//! Everything here works on plain slices in the layouts of the format (activations `[batch, height, width,
//! channels]`, filters `[out_channels, height, width, in_channels]`) and knows nothing of models, ops or
//! tensors. A primitive has two halves: `pack`, called once, which lays constant operands out for the
//! machine at hand and may allocate; and `run`, which never allocates. What `run` needs beyond its operands
//! it takes from a scratch slice whose size the primitive tells in advance.
//!
//! Inner loops are written once, generically over [`simd::Simd`], and compiled for every instruction set of
//! [`Isa`]; the choice is made at run time.

mod attention;
mod broadcast;
mod buffer;
mod conv;
mod conv_i8;
mod depthwise;
mod depthwise_i8;
#[cfg(target_arch = "x86_64")]
mod depthwise_i8_x86;
mod dynamic;
mod elementwise;
mod elementwise_i16;
mod elementwise_i8;
mod error;
mod gemm;
mod gemm_f32;
mod gemm_i8;
mod int16;
mod isa;
mod math;
mod normalize;
mod pool;
mod pooling;
mod pooling_i8;
mod reduce;
mod requant;
mod resize;
mod share;
mod simd;
mod simd_i8;
mod softmax;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests_f32;
#[cfg(test)]
mod tests_i8;
mod tiles;

pub use attention::{AttentionF32, AttentionSizes};
pub use broadcast::Broadcast;
pub(crate) use buffer::SharedMut;
pub use buffer::{AlignedVec, Parts};
pub use conv::{ConvF32, ConvGeometry, Filter};

pub use conv_i8::{ByteQuant, ConvI8, GemmI8};
pub use delegraph_core::kernel::{Parallel, Serial};
pub use depthwise::DepthwiseF32;
pub use depthwise_i8::{DepthwiseFilter, DepthwiseI8};
pub use dynamic::{SumScales, extent, to_steps};
pub use elementwise::{Binary, Unary, unary};
pub use elementwise_i8::{ByteBinary, ByteBinaryOp, dequantize, lookup, quantize, requantize};
pub use elementwise_i16::{map_groups, zip_i16};
pub use error::{ComputeError, Result};
pub use gemm::{BatchMatMulF32, GemmF32, MatrixLayout};
pub use int16::{DepthwiseI16, LOW_OF_ZERO, Scale, WideSums, halves};
pub use isa::Isa;
pub use normalize::{Normalize, unit_length};
pub use pool::ThreadPool;
pub use pooling::{Pool, pool_2d};
pub use pooling_i8::pool_2d_bytes;
pub use reduce::{Reduce, fold, stack};
pub use requant::{Multiplier, OutputQuant, Ties};

pub use resize::{Bilinear, Interpolate, Tap};
pub(crate) use share::{bundle, crew};
pub use softmax::{Softmax, SoftmaxBytes, softmax, softmax_in_place};

/// The bounds of a fused activation: results are `min(max(x, low), high)`; NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    /// Lower bound.
    pub low: f32,
    /// Upper bound.
    pub high: f32,
}

impl Clamp {
    /// No activation.
    pub const NONE: Self = Self { low: f32::NEG_INFINITY, high: f32::INFINITY };
    /// `RELU`.
    pub const RELU: Self = Self { low: 0.0, high: f32::INFINITY };
    /// `RELU6`.
    pub const RELU6: Self = Self { low: 0.0, high: 6.0 };
    /// `RELU_N1_TO_1`.
    pub const RELU_N1_TO_1: Self = Self { low: -1.0, high: 1.0 };
}
