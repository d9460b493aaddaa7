//! Compute primitives of the CPU kernels.
//!
//! Primitives work on slices in TFLite's layouts (activations `[batch, height, width, channels]`, filters
//! `[out_channels, height, width, in_channels]`), without models, ops or tensors. Most have two halves: `pack` or
//! `new`, called once, lays out constant operands for the instruction set and may allocate; `run` never allocates.
//! Scratch memory for `run` is a slice, whose length the primitive reports in advance.
//!
//! Inner loops are generic over `simd::Simd` and compiled for every instruction set of [`Isa`], which is chosen at
//! run time.
//!
//! The modules, each of which uses only those before it in this list: `base`, `threads`, `simd`, `matmul`, `windows`,
//! `elementwise`, `rows`, and `attention`.

mod attention;
mod base;
mod elementwise;
mod matmul;
#[doc(hidden)]
pub mod random;
mod rows;
mod simd;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests_f32;
#[cfg(test)]
mod tests_i16;
#[cfg(test)]
mod tests_i8;
mod threads;
mod windows;

pub use attention::{AttentionF32, AttentionSizes};
pub use base::buffer::{AlignedVec, Parts};
pub use base::buffer::{SharedMut, within};
pub use base::clamp::Clamp;
pub use base::error::compute_error;
pub use base::error::{ComputeError, Result};
pub use base::isa::{ISA_VARIABLE, Isa};
pub use base::requant::{ByteQuant, ChannelTies, Factor, Multiplier, OutputQuant, Ties};
pub use base::requant_i16::Scale;
pub use delegraph_core::kernel::{Parallel, Serial};
pub use elementwise::broadcast::Broadcast;
pub use elementwise::byte_pairs::{ByteBinary, ByteBinaryOp, ByteBinaryQuant};
pub use elementwise::dynamic::{
    Pixels, Quantizing, SumScales, extent, quantize_pixels, quantize_rows, to_steps,
};
pub use elementwise::int8::{dequantize, lookup, quantize, requantize};
pub use elementwise::int16::{map, map_groups, zip_i16};
pub use elementwise::single::{Binary, Unary, unary};
pub use matmul::conv::{ConvF32, ConvPlan};
pub use matmul::conv_i8::{ConvI8, FloatOutput, GemmI8, RowScales};
pub use matmul::gemm::{BatchMatMulF32, GemmF32, GemmPlan, MatrixLayout};
pub use matmul::geometry::{Checked, ConvGeometry, DepthwiseFilter, Filter};
pub use matmul::int16::{LOW_OF_ZERO, WideSums, halves};
pub use matmul::row::{row_product, row_product_pays, row_product_scratch};
pub use matmul::sparse::SparseF32;
pub use rows::normalize::{Normalize, unit_length};
pub use rows::reduce::{Each, Fold, Reduce, Sums, fold, stack};
pub use rows::softmax::{Softmax, SoftmaxBytes, softmax, softmax_in_place};
pub use threads::pool::ThreadPool;
pub use threads::share::{OneThread, chunk_len, threads_for};
pub use windows::depthwise::DepthwiseF32;
pub use windows::depthwise_i8::DepthwiseI8;
pub use windows::depthwise_i16::DepthwiseI16;
pub use windows::pooling::{Pool, pool_2d};
pub use windows::pooling_i8::pool_2d_bytes;
pub use windows::pooling_i16::pool_2d_int16;
pub use windows::resize::{Bilinear, Interpolate, Tap};
pub use windows::scatter::{Scatter, add_bias};
pub use windows::spread::spread;
