//! WGSL compute shaders of Delegraph and the template layer that specializes them.
//!
//! This crate has no models, graphs or devices. A module per op family has a `Spec` that describes one dispatch (shapes,
//! strides, epilogue) and implements [`Shader`]. [`Shader::kernel`] returns a [`Kernel`]: a [`Variant`], which a device
//! compiles once for all kernels with the same [`VariantKey`], and the uniform block and workgroups of the dispatch.
//!
//! **Layout.** Activations are dense and row-major (`[batch, height, width, channels]`, no channel padding). Where the
//! innermost extent is a multiple of four, kernels read the same bytes as `array<vec4<f32>>`, so a reshape never moves
//! data. Weights are laid out by `Spec::pack_weights`. Booleans and integers take one 32-bit word per element.
//!
//! **Few pipelines.** Shapes, strides and activation bounds are uniforms. A variant depends on a few properties such as
//! whether channels come in fours or the kind of epilogue, so all convolutions of a model share a handful of pipelines.
//! Where the properties depend on sizes, each decision is a [`Threshold`]; [`Shader::other_sizes`] declares the thresholds,
//! or the variants themselves, so that pipelines for other sizes can be compiled before they are needed.
//!
//! **Portability.** Every kernel runs within WebGPU's default limits; with [`Caps`] a kernel chooses other tile sizes where
//! a device offers more. Floats are always accumulated in `f32`.
//!
//! The crate is an implementation detail of `delegraph-delegate-wgpu`: its API may change in any release.

mod binding;
mod block_tile;
mod caps;
mod copy;
mod element;
mod epilogue;
mod error;
mod expression;
mod half_storage;
mod halves;
mod integers;
mod kernel;
mod matrix_tile;
mod outer_tile;
mod register_tile;
mod shader;
mod shape;
mod template;
mod threshold;
mod uniform;
mod variant;
mod walk;

pub mod arg_min_max;
pub mod batch_matmul;
pub mod batch_matmul_wide;
pub mod binary;
pub mod binary_quantized;
pub mod bitcast;
pub mod cast;
pub mod check;
pub mod complex;
pub mod concatenation;
pub mod conv_2d;
pub mod conv_3d;
pub mod cumsum;
pub mod depth_to_space;
pub mod depthwise_conv_2d;
pub mod dynamic_update_slice;
pub mod embedding_lookup;
pub mod fully_connected;
pub mod gather;
pub mod gather_nd;
pub mod l2_normalization;
pub mod landmarks;
pub mod local_response_normalization;
pub mod long;
pub mod lstm;
pub mod lstm_basic;
pub mod lstm_quantized;
pub mod max_pooling;
pub mod one_hot;
pub mod pad;
pub mod pool_2d;
pub mod quantize;
pub mod reduce;
pub mod reduce_ordered;
pub mod resample;
pub mod rescale;
pub mod resize;
pub mod rnn;
pub mod row_scales;
pub mod row_steps;
pub mod scatter;
pub mod select;
pub mod slice;
pub mod softmax;
pub mod softmax_quantized;
pub mod softmax_wide;
pub mod table;
pub mod texture;
pub mod tile;
pub mod topk;
pub mod transpose;
pub mod transpose_conv;
pub mod unary;

pub use binding::{Access, Binding};
pub use caps::{Caps, Features};
pub use element::Element;
pub use epilogue::{Activation, Epilogue};
pub use error::ShaderError;
pub use halves::{are_halves, halves};
pub use integers::{
    DoubleChannel, FixedChannel, IntegerResult, Integers, RealChannel, Scaling, Sums, Terms, WideChannel,
};
pub use kernel::Kernel;
pub use shader::{OtherSizes, Shader};
pub use threshold::Threshold;
pub use variant::{Variant, VariantKey};
