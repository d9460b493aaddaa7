//! WGSL compute kernels of Delegraph and the template layer that specialises them.
//!
//! This crate knows no models, graphs or devices: a module per op family holds a `Spec`, which says
//! what one dispatch has to compute (shapes, strides, epilogue), and `Spec::kernel` answers with a
//! [`Kernel`]: WGSL text, the bytes of its uniform block, the order of its bindings and the number
//! of workgroups. Whoever owns the device compiles one pipeline per [`Kernel::key`], binds and
//! dispatches.
//!
//! **Layout.** Activations are dense and row-major (`[batch, height, width, channels]`, no channel
//! padding). Where the innermost extent is a multiple of four, kernels see the same bytes as
//! `array<vec4<f32>>`, so a reshape never moves data. Weights are laid out by `Spec::pack_weights`.
//! Booleans and integers take one 32-bit word per element.
//!
//! **Few pipelines.** Shapes, strides and activation bounds travel in the uniform block. The text
//! depends only on things like "channels come in fours" or the kind of epilogue, so all
//! convolutions of a model share a handful of pipelines. Equal keys mean equal texts.
//!
//! **Portability.** Every kernel runs within WebGPU's default limits; [`Caps`] lets a kernel choose
//! other tile sizes where a device offers more. Accumulation is always in `f32`.

mod caps;
mod copy;
mod element;
mod epilogue;
mod error;
mod expression;
mod halves;
mod integers;
mod kernel;
mod register_tile;
mod shape;
mod template;
mod uniform;
mod walk;

pub mod arg_min_max;
pub mod batch_matmul;
pub mod batch_matmul_wide;
pub mod binary;
pub mod binary_quantized;
pub mod bitcast;
pub mod cast;
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

pub use caps::{Caps, Features};
pub use element::Element;
pub use epilogue::{Activation, Epilogue};
pub use error::ShaderError;
pub use halves::{are_halves, halves};
pub use integers::{
    DoubleChannel, FixedChannel, IntegerResult, Integers, RealChannel, Scaling, Sums, Terms, WideChannel,
};
pub use kernel::{Access, Binding, Kernel};
pub use template::forget_texts;
