//! Typed params from the C structures that a runtime parses options into.
//!
//! A field that a later version of an op brought is read only where the node asks for that version, or the runtime is
//! known to have it: an older runtime's structure may end before it, but such a runtime does not take the node either.

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::offset_of;

use delegraph_core::ops::{
    Activation, CombinerType, LshProjectionType, LstmKernelType, MirrorPadMode, Padding, Params,
    ReduceWindowFunction, RngAlgorithm, WeightsFormat, arg_min_max::*, batch_matmul::*, binary::*,
    bucketize::*, cast::*, concatenation::*, conv_2d::*, conv_3d::*, cumsum::*, definition,
    depth_to_space::*, depthwise_conv_2d::*, embedding_lookup::*, fully_connected::*, gather::*,
    hashtable::*, l2_normalization::*, local_response_normalization::*, lsh_projection::*, lstm::*,
    one_hot::*, pack::*, pad::*, pool_2d::*, quantize::*, random::*, reduce::*, reduce_window::*, reshape::*,
    resize::*, reverse::*, rnn::*, shape::*, skip_gram::*, slice::*, softmax::*, sparse_to_dense::*,
    split::*, stablehlo_compute::*, stablehlo_gather::*, stablehlo_movement::*, svdf::*, transpose_conv::*,
    unary::*, unique::*, variables::*,
};
use delegraph_core::{BuiltinOp, TensorType, TensorType::Float32};

use crate::raw::{self, Result};

/// A structure of the runtime's, read field by field: it need not be there as a whole.
struct View<T>(*const u8, PhantomData<T>);

macro_rules! structures {
    ($($name:ident { $($field:ident: $ty:ty),+ $(,)? })+) => {$(
        #[repr(C)]
        struct $name { $($field: $ty),+ }
        impl View<$name> {
            $(fn $field(&self) -> $ty {
                // SAFETY: whoever made the view says that the fields which are read are there (see `read`); integers
                // and floats may hold anything.
                unsafe { self.0.add(offset_of!($name, $field)).cast::<$ty>().read_unaligned() }
            })+
        }
    )+};
}

structures! {
    Conv { padding: c_int, stride_w: c_int, stride_h: c_int, activation: c_int, dilation_w: c_int, dilation_h: c_int,
        bias_type: c_int }
    Conv3d { padding: c_int, stride_w: c_int, stride_h: c_int, stride_d: c_int, dilation_w: c_int, dilation_h: c_int,
        dilation_d: c_int, activation: c_int }
    Pool { padding: c_int, stride_w: c_int, stride_h: c_int, filter_w: c_int, filter_h: c_int, activation: c_int }
    Depthwise { padding: c_int, stride_w: c_int, stride_h: c_int, multiplier: c_int, activation: c_int,
        dilation_w: c_int, dilation_h: c_int }
    TransposedConv { padding: c_int, stride_w: c_int, stride_h: c_int, activation: c_int, bias_type: c_int }
    Svdf { rank: c_int, activation: c_int, asymmetric: u8 }
    Rnn { activation: c_int, asymmetric: u8 }
    SequenceRnn { time_major: u8, activation: c_int, asymmetric: u8 }
    BidirectionalRnn { time_major: u8, activation: c_int, merge: u8, asymmetric: u8 }
    Dense { activation: c_int, weights_format: c_int, keep_num_dims: u8, asymmetric: u8, bias_type: c_int }
    Int { value: c_int }
    Ints { first: c_int, second: c_int }
    IntAndActivation { value: c_int, activation: c_int }
    Float { value: f32 }
    Flags { first: u8, second: u8, third: u8 }
    Binary { activation: c_int, pot_scale: u8 }
    Normalization { radius: c_int, bias: f32, alpha: f32, beta: f32 }
    Lstm { activation: c_int, cell_clip: f32, proj_clip: f32, kernel_type: c_int, asymmetric: u8 }
    SequenceLstm { activation: c_int, cell_clip: f32, proj_clip: f32, time_major: u8, asymmetric: u8, diagonal: u8 }
    BidirectionalLstm { activation: c_int, cell_clip: f32, proj_clip: f32, merge: u8, time_major: u8, asymmetric: u8 }
    Dims { items: [i32; 8], count: c_int }
    Skip { ngram: c_int, max_skip: c_int, all: u8 }
    Strided { begin: c_int, end: c_int, ellipsis: c_int, new_axis: c_int, shrink_axis: c_int, offset: u8 }
    Fake { min: f32, max: f32, bits: c_int, narrow: u8 }
    Table { id: c_int, key: c_int, value: c_int }
    Handle { container: *const c_char, shared_name: *const c_char }
    Boundaries { count: c_int, items: *const f32 }
    Dimension { value: i64 }
    HloGather { offset: [i64; 8], offset_count: c_int, collapsed: [i64; 8], collapsed_count: c_int,
        start: [i64; 8], start_count: c_int, index_vector_dim: i64, slices: [i64; 8], slices_count: c_int, sorted: u8 }
    HloPad { low: [i64; 8], high: [i64; 8], interior: [i64; 8] }
}

/// The params of a node of the builtin op `op`, from what the runtime parsed its options into. `version` is how far the
/// structure is known to reach, `rank` that of the first input. [`Params::Undefined`] for an op that calls other
/// subgraphs, which a delegate is not shown, and for one that no runtime has a structure for.
///
/// # Safety
/// `data` is null, or points at the structure that a runtime has for this op at this version.
pub(crate) unsafe fn read(op: BuiltinOp, version: u32, data: *const c_void, rank: usize) -> Result<Params> {
    let without = definition(op).is_some_and(|d| d.codec.fields.is_empty());
    if without {
        return Ok(Params::None);
    }
    if data.is_null() {
        return Err("it has no params".into());
    }
    let data = Data(data.cast());
    Ok(match op {
        BuiltinOp::CONV_2D => {
            let p = data.view::<Conv>();
            Params::Conv2D(Conv2DParams {
                padding: padding(p.padding())?,
                stride_w: p.stride_w(),
                stride_h: p.stride_h(),
                fused_activation_function: activation(p.activation())?,
                dilation_w_factor: p.dilation_w(),
                dilation_h_factor: p.dilation_h(),
                quantized_bias_type: if version >= 8 { type_or_float(p.bias_type())? } else { Float32 },
            })
        }
        BuiltinOp::CONV_3D | BuiltinOp::CONV_3D_TRANSPOSE => {
            let p = data.view::<Conv3d>();
            Params::Conv3D(Conv3DParams {
                padding: padding(p.padding())?,
                stride_d: p.stride_d(),
                stride_w: p.stride_w(),
                stride_h: p.stride_h(),
                fused_activation_function: activation(p.activation())?,
                dilation_d_factor: p.dilation_d(),
                dilation_w_factor: p.dilation_w(),
                dilation_h_factor: p.dilation_h(),
            })
        }
        BuiltinOp::AVERAGE_POOL_2D | BuiltinOp::MAX_POOL_2D | BuiltinOp::L2_POOL_2D => {
            let p = data.view::<Pool>();
            Params::Pool2D(Pool2DParams {
                padding: padding(p.padding())?,
                stride_w: p.stride_w(),
                stride_h: p.stride_h(),
                filter_width: p.filter_w(),
                filter_height: p.filter_h(),
                fused_activation_function: activation(p.activation())?,
            })
        }
        BuiltinOp::DEPTHWISE_CONV_2D => {
            let p = data.view::<Depthwise>();
            Params::DepthwiseConv2D(DepthwiseConv2DParams {
                padding: padding(p.padding())?,
                stride_w: p.stride_w(),
                stride_h: p.stride_h(),
                depth_multiplier: p.multiplier(),
                fused_activation_function: activation(p.activation())?,
                dilation_w_factor: p.dilation_w(),
                dilation_h_factor: p.dilation_h(),
            })
        }
        BuiltinOp::TRANSPOSE_CONV => {
            let p = data.view::<TransposedConv>();
            Params::TransposeConv(TransposeConvParams {
                padding: padding(p.padding())?,
                stride_w: p.stride_w(),
                stride_h: p.stride_h(),
                fused_activation_function: if version >= 4 {
                    activation(p.activation())?
                } else {
                    Activation::None
                },
                quantized_bias_type: if version >= 5 { type_or_float(p.bias_type())? } else { Float32 },
            })
        }
        BuiltinOp::FULLY_CONNECTED => {
            let p = data.view::<Dense>();
            Params::FullyConnected(FullyConnectedParams {
                fused_activation_function: activation(p.activation())?,
                weights_format: match p.weights_format() {
                    0 => WeightsFormat::Default,
                    1 => WeightsFormat::Shuffled4x16Int8,
                    other => return unknown("weights format", other),
                },
                keep_num_dims: flag(p.keep_num_dims()),
                asymmetric_quantize_inputs: flag(p.asymmetric()),
                quantized_bias_type: if version >= 11 { type_or_float(p.bias_type())? } else { Float32 },
            })
        }
        BuiltinOp::BATCH_MATMUL => {
            let p = data.view::<Flags>();
            Params::BatchMatMul(BatchMatMulParams {
                adj_x: flag(p.first()),
                adj_y: flag(p.second()),
                asymmetric_quantize_inputs: flag(p.third()),
            })
        }
        BuiltinOp::ADD => Params::Add(AddParams {
            fused_activation_function: activation(data.view::<Binary>().activation())?,
            pot_scale_int16: flag(data.view::<Binary>().pot_scale()),
        }),
        BuiltinOp::SUB => Params::Sub(SubParams {
            fused_activation_function: activation(data.view::<Binary>().activation())?,
            pot_scale_int16: flag(data.view::<Binary>().pot_scale()),
        }),
        BuiltinOp::MUL => {
            Params::Mul(MulParams { fused_activation_function: activation(data.view::<Int>().value())? })
        }
        BuiltinOp::DIV => {
            Params::Div(DivParams { fused_activation_function: activation(data.view::<Int>().value())? })
        }
        BuiltinOp::L2_NORMALIZATION => Params::L2Norm(L2NormParams {
            fused_activation_function: activation(data.view::<Int>().value())?,
        }),
        BuiltinOp::LOCAL_RESPONSE_NORMALIZATION => {
            let p = data.view::<Normalization>();
            let (radius, bias, alpha, beta) = (p.radius(), p.bias(), p.alpha(), p.beta());
            Params::LocalResponseNormalization(LocalResponseNormalizationParams { radius, bias, alpha, beta })
        }
        BuiltinOp::SVDF => {
            let p = data.view::<Svdf>();
            Params::SVDF(SVDFParams {
                rank: p.rank(),
                fused_activation_function: activation(p.activation())?,
                asymmetric_quantize_inputs: flag(p.asymmetric()),
            })
        }
        BuiltinOp::RNN
        | BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN
        | BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN
        | BuiltinOp::LSTM
        | BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM
        | BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM => recurrent(op, version, &data)?,
        BuiltinOp::SOFTMAX => Params::Softmax(SoftmaxParams { beta: data.view::<Float>().value() }),
        BuiltinOp::LEAKY_RELU => Params::LeakyRelu(LeakyReluParams { alpha: data.view::<Float>().value() }),
        BuiltinOp::GELU => Params::Gelu(GeluParams { approximate: flag(data.view::<Flags>().first()) }),
        BuiltinOp::CONCATENATION => {
            let p = data.view::<IntAndActivation>();
            let fused_activation_function = activation(p.activation())?;
            Params::Concatenation(ConcatenationParams { axis: p.value(), fused_activation_function })
        }
        BuiltinOp::RESIZE_BILINEAR => {
            let p = data.view::<Flags>();
            let (align_corners, half_pixel_centers) = (flag(p.first()), flag(p.second()));
            Params::ResizeBilinear(ResizeBilinearParams { align_corners, half_pixel_centers })
        }
        BuiltinOp::RESIZE_NEAREST_NEIGHBOR => {
            let p = data.view::<Flags>();
            let (align_corners, half_pixel_centers) = (flag(p.first()), flag(p.second()));
            Params::ResizeNearestNeighbor(ResizeNearestNeighborParams { align_corners, half_pixel_centers })
        }
        BuiltinOp::RESHAPE => Params::Reshape(ReshapeParams { new_shape: dims(&data)? }),
        BuiltinOp::SQUEEZE => Params::Squeeze(SqueezeParams { squeeze_dims: dims(&data)? }),
        BuiltinOp::SPACE_TO_DEPTH => {
            Params::SpaceToDepth(SpaceToDepthParams { block_size: data.view::<Int>().value() })
        }
        BuiltinOp::DEPTH_TO_SPACE => {
            Params::DepthToSpace(DepthToSpaceParams { block_size: data.view::<Int>().value() })
        }
        BuiltinOp::CAST => {
            let p = data.view::<Ints>();
            let (in_data_type, out_data_type) = (type_or_float(p.first())?, type_or_float(p.second())?);
            Params::Cast(CastParams { in_data_type, out_data_type })
        }
        BuiltinOp::GATHER => {
            let p = data.view::<Ints>();
            Params::Gather(GatherParams { axis: p.first(), batch_dims: p.second() })
        }
        BuiltinOp::MEAN
        | BuiltinOp::SUM
        | BuiltinOp::REDUCE_PROD
        | BuiltinOp::REDUCE_MAX
        | BuiltinOp::REDUCE_MIN
        | BuiltinOp::REDUCE_ANY
        | BuiltinOp::REDUCE_ALL => {
            Params::Reducer(ReducerParams { keep_dims: flag(data.view::<Flags>().first()) })
        }
        BuiltinOp::SPLIT => Params::Split(SplitParams { num_splits: data.view::<Int>().value() }),
        BuiltinOp::SPLIT_V => Params::SplitV(SplitVParams { num_splits: data.view::<Int>().value() }),
        BuiltinOp::STRIDED_SLICE => {
            let p = data.view::<Strided>();
            Params::StridedSlice(StridedSliceParams {
                begin_mask: p.begin(),
                end_mask: p.end(),
                ellipsis_mask: p.ellipsis(),
                new_axis_mask: p.new_axis(),
                shrink_axis_mask: p.shrink_axis(),
                offset: version >= 8 && flag(p.offset()),
            })
        }
        BuiltinOp::ARG_MAX => Params::ArgMax(ArgMaxParams { output_type: ty(data.view::<Int>().value())? }),
        BuiltinOp::ARG_MIN => Params::ArgMin(ArgMinParams { output_type: ty(data.view::<Int>().value())? }),
        BuiltinOp::SHAPE => Params::Shape(ShapeParams { out_type: ty(data.view::<Int>().value())? }),
        BuiltinOp::UNIQUE => Params::Unique(UniqueParams { idx_out_type: ty(data.view::<Int>().value())? }),
        BuiltinOp::FAKE_QUANT => {
            let p = data.view::<Fake>();
            let (min, max, num_bits, narrow_range) = (p.min(), p.max(), p.bits(), flag(p.narrow()));
            Params::FakeQuant(FakeQuantParams { min, max, num_bits, narrow_range })
        }
        BuiltinOp::PACK => {
            let p = data.view::<Ints>();
            Params::Pack(PackParams { values_count: p.first(), axis: p.second() })
        }
        BuiltinOp::UNPACK => {
            let p = data.view::<Ints>();
            Params::Unpack(UnpackParams { num: p.first(), axis: p.second() })
        }
        BuiltinOp::ONE_HOT => Params::OneHot(OneHotParams { axis: data.view::<Int>().value() }),
        BuiltinOp::CUMSUM => {
            let p = data.view::<Flags>();
            Params::Cumsum(CumsumParams { exclusive: flag(p.first()), reverse: flag(p.second()) })
        }
        BuiltinOp::REVERSE_SEQUENCE => {
            let p = data.view::<Ints>();
            Params::ReverseSequence(ReverseSequenceParams { seq_dim: p.first(), batch_dim: p.second() })
        }
        BuiltinOp::MIRROR_PAD => Params::MirrorPad(MirrorPadParams {
            mode: match data.view::<Int>().value() {
                1 => MirrorPadMode::Reflect,
                2 => MirrorPadMode::Symmetric,
                other => return unknown("mode", other),
            },
        }),
        BuiltinOp::SPARSE_TO_DENSE => {
            let validate_indices = flag(data.view::<Flags>().first());
            Params::SparseToDense(SparseToDenseParams { validate_indices })
        }
        BuiltinOp::SKIP_GRAM => {
            let p = data.view::<Skip>();
            Params::SkipGram(SkipGramParams {
                ngram_size: p.ngram(),
                max_skip_size: p.max_skip(),
                include_all_ngrams: flag(p.all()),
            })
        }
        BuiltinOp::LSH_PROJECTION => Params::LSHProjection(LSHProjectionParams {
            type_: match data.view::<Int>().value() {
                0 => LshProjectionType::Unknown,
                1 => LshProjectionType::Sparse,
                2 => LshProjectionType::Dense,
                other => return unknown("type", other),
            },
        }),
        BuiltinOp::EMBEDDING_LOOKUP_SPARSE => Params::EmbeddingLookupSparse(EmbeddingLookupSparseParams {
            combiner: match data.view::<Int>().value() {
                0 => CombinerType::Sum,
                1 => CombinerType::Mean,
                2 => CombinerType::SqrtN,
                other => return unknown("combiner", other),
            },
        }),
        BuiltinOp::HASHTABLE => {
            let p = data.view::<Table>();
            let (key_dtype, value_dtype) = (ty(p.key())?, ty(p.value())?);
            Params::Hashtable(HashtableParams { table_id: p.id(), key_dtype, value_dtype })
        }
        BuiltinOp::VAR_HANDLE => {
            let p = data.view::<Handle>();
            // SAFETY: the runtime's texts, which end with a zero byte.
            let (container, shared_name) = unsafe { (raw::text(p.container()), raw::text(p.shared_name())) };
            Params::VarHandle(VarHandleParams { container, shared_name })
        }
        BuiltinOp::RANDOM_UNIFORM | BuiltinOp::RANDOM_STANDARD_NORMAL | BuiltinOp::MULTINOMIAL => {
            let p = data.view::<Ints>();
            Params::Random(RandomParams { seed: p.first().into(), seed2: p.second().into() })
        }
        BuiltinOp::BUCKETIZE => {
            let p = data.view::<Boundaries>();
            let count = raw::length(p.count(), "the list of boundaries")?;
            let bytes = count.saturating_mul(size_of::<f32>());
            // SAFETY: the runtime's list has this length.
            let bytes = unsafe { raw::bytes(p.items().cast(), bytes, "the list of boundaries") }?;
            let boundaries = bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
            Params::Bucketize(BucketizeParams { boundaries })
        }
        BuiltinOp::REDUCE_WINDOW => Params::ReduceWindow(ReduceWindowParams {
            reduce_function: match data.view::<Int>().value() {
                1 => ReduceWindowFunction::Add,
                2 => ReduceWindowFunction::Mul,
                3 => ReduceWindowFunction::Minimum,
                4 => ReduceWindowFunction::Maximum,
                5 => ReduceWindowFunction::All,
                6 => ReduceWindowFunction::Any,
                other => return unknown("function", other),
            },
        }),
        BuiltinOp::STABLEHLO_CONCATENATE => {
            let dimension = data.view::<Dimension>().value();
            Params::StablehloConcatenate(StablehloConcatenateParams { dimension })
        }
        BuiltinOp::STABLEHLO_RNG_BIT_GENERATOR => {
            Params::StablehloRngBitGenerator(StablehloRngBitGeneratorParams {
                algorithm: match data.view::<Int>().value() {
                    1 => RngAlgorithm::Default,
                    2 => RngAlgorithm::Philox,
                    3 => RngAlgorithm::ThreeFry,
                    other => return unknown("algorithm", other),
                },
            })
        }
        BuiltinOp::STABLEHLO_PAD => {
            let p = data.view::<HloPad>();
            let take =
                |items: [i64; 8]| items.get(..rank).map(<[i64]>::to_vec).ok_or("more than 8 dimensions");
            Params::from(StablehloPadParams {
                edge_padding_low: take(p.low())?,
                edge_padding_high: take(p.high())?,
                interior_padding: take(p.interior())?,
            })
        }
        BuiltinOp::STABLEHLO_GATHER => {
            let p = data.view::<HloGather>();
            Params::from(StablehloGatherParams {
                offset_dims: some(p.offset(), p.offset_count())?,
                collapsed_slice_dims: some(p.collapsed(), p.collapsed_count())?,
                start_index_map: some(p.start(), p.start_count())?,
                index_vector_dim: p.index_vector_dim(),
                slice_sizes: some(p.slices(), p.slices_count())?,
                indices_are_sorted: flag(p.sorted()),
            })
        }
        _ => Params::Undefined,
    })
}

fn recurrent(op: BuiltinOp, version: u32, data: &Data) -> Result<Params> {
    Ok(match op {
        BuiltinOp::RNN => {
            let p = data.view::<Rnn>();
            Params::RNN(RNNParams {
                fused_activation_function: activation(p.activation())?,
                asymmetric_quantize_inputs: flag(p.asymmetric()),
            })
        }
        BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN => {
            let p = data.view::<SequenceRnn>();
            Params::SequenceRNN(SequenceRNNParams {
                time_major: flag(p.time_major()),
                fused_activation_function: activation(p.activation())?,
                asymmetric_quantize_inputs: flag(p.asymmetric()),
            })
        }
        BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN => {
            let p = data.view::<BidirectionalRnn>();
            Params::BidirectionalSequenceRNN(BidirectionalSequenceRNNParams {
                time_major: flag(p.time_major()),
                fused_activation_function: activation(p.activation())?,
                merge_outputs: flag(p.merge()),
                asymmetric_quantize_inputs: flag(p.asymmetric()),
            })
        }
        BuiltinOp::LSTM => {
            let p = data.view::<Lstm>();
            Params::LSTM(LSTMParams {
                fused_activation_function: activation(p.activation())?,
                cell_clip: p.cell_clip(),
                proj_clip: p.proj_clip(),
                kernel_type: match p.kernel_type() {
                    0 => LstmKernelType::Full,
                    1 => LstmKernelType::Basic,
                    other => return unknown("kernel type", other),
                },
                asymmetric_quantize_inputs: flag(p.asymmetric()),
            })
        }
        BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM => {
            let p = data.view::<SequenceLstm>();
            Params::UnidirectionalSequenceLSTM(UnidirectionalSequenceLSTMParams {
                fused_activation_function: activation(p.activation())?,
                cell_clip: p.cell_clip(),
                proj_clip: p.proj_clip(),
                time_major: flag(p.time_major()),
                asymmetric_quantize_inputs: flag(p.asymmetric()),
                diagonal_recurrent_tensors: version >= 4 && flag(p.diagonal()),
            })
        }
        _ => {
            let p = data.view::<BidirectionalLstm>();
            Params::BidirectionalSequenceLSTM(BidirectionalSequenceLSTMParams {
                fused_activation_function: activation(p.activation())?,
                cell_clip: p.cell_clip(),
                proj_clip: p.proj_clip(),
                merge_outputs: flag(p.merge()),
                time_major: flag(p.time_major()),
                asymmetric_quantize_inputs: flag(p.asymmetric()),
            })
        }
    })
}

struct Data(*const u8);

impl Data {
    fn view<T>(&self) -> View<T> {
        View(self.0, PhantomData)
    }
}

fn unknown<T>(what: &str, value: c_int) -> Result<T> {
    Err(format!("its {what} has the unknown value {value}"))
}

fn flag(byte: u8) -> bool {
    byte != 0
}

fn ty(code: c_int) -> Result<TensorType> {
    raw::tensor_type(code)
}

/// A type that is left out is the format's default.
fn type_or_float(code: c_int) -> Result<TensorType> {
    if code == 0 { Ok(Float32) } else { ty(code) }
}

fn padding(code: c_int) -> Result<Padding> {
    match code {
        1 => Ok(Padding::Same),
        2 => Ok(Padding::Valid),
        other => unknown("padding", other),
    }
}

fn activation(code: c_int) -> Result<Activation> {
    use Activation::*;
    const BY_CODE: [Activation; 6] = [None, Relu, ReluN1To1, Relu6, Tanh, SignBit];
    match usize::try_from(code).ok().and_then(|code| BY_CODE.get(code)) {
        Some(activation) => Ok(*activation),
        Option::None => unknown("activation", code),
    }
}

/// The first `count` of a list of at most eight.
fn some<T: Clone>(items: [T; 8], count: c_int) -> Result<Vec<T>> {
    let items = usize::try_from(count).ok().and_then(|count| items.get(..count));
    items.map(<[T]>::to_vec).ok_or_else(|| format!("a list of {count} dimensions"))
}

fn dims(data: &Data) -> Result<Vec<i32>> {
    let p = data.view::<Dims>();
    some(p.items(), p.count())
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::DEFS;

    use super::*;

    /// Integers as the runtime's structures have them, with room for the largest.
    fn structure(ints: &[c_int]) -> Vec<c_int> {
        let mut all = ints.to_vec();
        all.resize(256, 0);
        all
    }

    fn read_ints(op: BuiltinOp, version: u32, ints: &[c_int]) -> Result<Params> {
        let data = structure(ints);
        // SAFETY: as large as the largest structure; none of those tested holds pointers.
        unsafe { read(op, version, data.as_ptr().cast(), 2) }
    }

    #[test]
    fn fields_are_read_from_their_places() {
        let conv = read_ints(BuiltinOp::CONV_2D, 8, &[1, 2, 3, 3, 4, 5, 2]).unwrap();
        let expected = Conv2DParams {
            padding: Padding::Same,
            stride_w: 2,
            stride_h: 3,
            fused_activation_function: Activation::Relu6,
            dilation_w_factor: 4,
            dilation_h_factor: 5,
            quantized_bias_type: TensorType::Int32,
        };
        assert_eq!(conv, expected.clone().into());
        // What came with version 8 is not read for version 7.
        let older = read_ints(BuiltinOp::CONV_2D, 7, &[1, 2, 3, 3, 4, 5, 2]).unwrap();
        assert_eq!(older, Conv2DParams { quantized_bias_type: Float32, ..expected }.into());
        let dense = read_ints(BuiltinOp::FULLY_CONNECTED, 11, &[1, 0, 0x0101, 4]).unwrap();
        let expected = FullyConnectedParams {
            fused_activation_function: Activation::Relu,
            weights_format: WeightsFormat::Default,
            keep_num_dims: true,
            asymmetric_quantize_inputs: true,
            quantized_bias_type: TensorType::Int64,
        };
        assert_eq!(dense, expected.into());
        let shape = read_ints(BuiltinOp::RESHAPE, 1, &[2, -1, 7, 7, 7, 7, 7, 7, 2]).unwrap();
        assert_eq!(shape, ReshapeParams { new_shape: vec![2, -1] }.into());
        let one = 1.0_f32.to_bits() as c_int;
        let lstm = read_ints(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, 4, &[4, one, 0, 0x01_0001]).unwrap();
        let Params::UnidirectionalSequenceLSTM(lstm) = lstm else { panic!("{lstm:?}") };
        assert_eq!((lstm.fused_activation_function, lstm.cell_clip), (Activation::Tanh, 1.0));
        assert!(lstm.time_major && !lstm.asymmetric_quantize_inputs && lstm.diagonal_recurrent_tensors);
    }

    #[test]
    fn values_that_nobody_knows_are_errors() {
        let error = |op, ints: &[c_int]| read_ints(op, 1, ints).unwrap_err();
        assert_eq!(error(BuiltinOp::CONV_2D, &[3]), "its padding has the unknown value 3");
        assert_eq!(error(BuiltinOp::ADD, &[6]), "its activation has the unknown value 6");
        assert_eq!(error(BuiltinOp::RESHAPE, &[0, 0, 0, 0, 0, 0, 0, 0, 9]), "a list of 9 dimensions");
        // SAFETY: null is allowed.
        let without = unsafe { read(BuiltinOp::SOFTMAX, 1, std::ptr::null(), 0) };
        assert_eq!(without.unwrap_err(), "it has no params");
        // SAFETY: as above.
        assert_eq!(unsafe { read(BuiltinOp::ABS, 1, std::ptr::null(), 0) }, Ok(Params::None));
    }

    /// Ops that call subgraphs, and such that runtimes have no structure for because they do not run them.
    #[test]
    fn all_other_ops_are_read() {
        let unread: Vec<&str> = DEFS
            .iter()
            .filter(|def| matches!(read_ints(def.op, u32::MAX, &[]), Ok(Params::Undefined)))
            .filter_map(|def| def.op.variant_name())
            .collect();
        let (hlo, other): (Vec<&str>, Vec<&str>) =
            unread.into_iter().partition(|name| name.starts_with("STABLEHLO_"));
        assert_eq!(other, ["CALL_ONCE", "IF", "WHILE", "CALL", "CONCAT_EMBEDDINGS"]);
        let read =
            ["STABLEHLO_PAD", "STABLEHLO_GATHER", "STABLEHLO_CONCATENATE", "STABLEHLO_RNG_BIT_GENERATOR"];
        assert!(read.iter().all(|name| !hlo.contains(name)), "{hlo:?}");
    }
}
