//! The op definitions: one op, one definition, one file per family.
//!
//! A definition holds the op's typed params and how they are read, its shape and type inference, and its version
//! history. The same file name is used for the family in every other crate: its CPU kernels, its GPU lowering, its
//! shader and its conformance cases.

use std::fmt;

pub use crate::op::BuiltinOp;
use crate::schema;
pub use crate::types::TensorType;

mod codec;
pub mod custom_options;
mod infer;
pub mod landmarks;
pub mod max_pooling;
mod signature;
#[cfg(test)]
mod testing;
pub mod transform_tensor;
pub mod transpose_conv_bias;
mod value;
pub use codec::{Codec, FieldInfo, OptionsType};
use codec::{enums, options};
pub use infer::{
    Declared, InferContext, InferError, InferResult, InferTensor, Inferred, InferredShape, axis_in,
    expect_shape, pad_amount, size_from, windowed_output,
};

pub use signature::{Cost, OpSignature, Operand, cost, lowest_with, min_version, min_versions};
pub use value::ParamValue;

use signature::{always_1, no_arithmetic, per_input, per_output, per_weight, recurrent};

macro_rules! families {
    ($($family:ident: $($op:ident),+;)*) => {
        $(pub mod $family;)*
        /// Every op definition, in the order of families.
        pub static DEFS: &[&OpDef] = &[$($(&$family::$op),+),*];
    };
}

macro_rules! params {
    ($($variant:ident($path:path),)*; $($rare:ident($rare_path:path),)*) => {
        /// The typed parameters of a node. Kernels and delegates see only these, never FlatBuffers.
        ///
        /// The rare ones with many fields are boxed, so that the nodes of all others are small.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Params {
            /// The op has no parameters.
            None,
            /// A custom op: its options are the node's raw bytes.
            Custom,
            /// A builtin op that has no definition in this build; it cannot be resolved either.
            Undefined,
            $(#[doc = concat!("Params of the `", stringify!($variant), "` options table.")] $variant($path),)*
            $(#[doc = concat!("Params of the `", stringify!($rare), "` options table.")] $rare(Box<$rare_path>),)*
        }
        params!(@from $($variant($path),)* $($rare($rare_path),)*);
    };
    (@from $($variant:ident($path:path),)*) => {
        $(impl<'a> TryFrom<&'a Params> for &'a $path {
            type Error = WrongParams;
            fn try_from(params: &'a Params) -> Result<Self, WrongParams> {
                match params {
                    Params::$variant(p) => Ok(p),
                    _ => Err(WrongParams { wanted: stringify!($variant) }),
                }
            }
        })*
    };
}

/// A kernel asked a node for params that it does not have.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the node has no {wanted} params")]
pub struct WrongParams {
    wanted: &'static str,
}

families! {
    fully_connected: FULLY_CONNECTED;
    batch_matmul: BATCH_MATMUL;
    svdf: SVDF;
    l2_normalization: L2_NORMALIZATION;
    local_response_normalization: LOCAL_RESPONSE_NORMALIZATION;
    quantize: QUANTIZE, DEQUANTIZE, FAKE_QUANT;
    densify: DENSIFY;
    conv_2d: CONV_2D;
    depthwise_conv_2d: DEPTHWISE_CONV_2D;
    transpose_conv: TRANSPOSE_CONV;
    pool_2d: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D;
    lstm: LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM;
    embedding_lookup: EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE;
    unary: ABS, CEIL, COS, EXP, FLOOR, LOG, NEG, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE, LOGICAL_NOT, ZEROS_LIKE, RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, LOGISTIC, TANH, HARD_SWISH, ELU, GELU, LEAKY_RELU;
    binary: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ATAN2, BITWISE_XOR, RIGHT_SHIFT;
    prelu: PRELU;
    softmax: SOFTMAX, LOG_SOFTMAX;
    reshape: RESHAPE, SQUEEZE, EXPAND_DIMS;
    concatenation: CONCATENATION;
    pad: PAD, PADV2, MIRROR_PAD;
    shape: SHAPE, RANK;
    transpose: TRANSPOSE;
    slice: SLICE, STRIDED_SLICE;
    split: SPLIT, SPLIT_V;
    pack: PACK, UNPACK;
    depth_to_space: DEPTH_TO_SPACE, SPACE_TO_DEPTH;
    control_flow: CALL_ONCE, IF, WHILE, CALL, STABLEHLO_WHILE, STABLEHLO_CASE, STABLEHLO_COMPOSITE;
    where_op: WHERE;
    dynamic_update_slice: DYNAMIC_UPDATE_SLICE;
    scatter: SCATTER_ND;
    add_n: ADD_N;
    space_to_batch: SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND;
    reverse: REVERSE_V2, REVERSE_SEQUENCE;
    topk: TOPK_V2;
    cumsum: CUMSUM;
    one_hot: ONE_HOT;
    fill: FILL, RANGE;
    tile: TILE, BROADCAST_TO, BROADCAST_ARGS;
    arg_min_max: ARG_MAX, ARG_MIN;
    gather: GATHER, GATHER_ND;
    cast: CAST, BITCAST;
    variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE;
    select: SELECT, SELECT_V2;
    comparison: EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, LOGICAL_OR;
    reduce: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL;
    resize: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR;
    non_max_suppression: NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5;
    segment: SEGMENT_SUM, UNSORTED_SEGMENT_PROD, UNSORTED_SEGMENT_MAX, UNSORTED_SEGMENT_SUM, UNSORTED_SEGMENT_MIN;
    complex: RFFT2D, IMAG, REAL, COMPLEX_ABS;
    conv_3d: CONV_3D, CONV_3D_TRANSPOSE;
    matrix_diag: MATRIX_DIAG, MATRIX_SET_DIAG;
    unique: UNIQUE;
    bucketize: BUCKETIZE;
    sparse_to_dense: SPARSE_TO_DENSE;
    hashtable: HASHTABLE, HASHTABLE_FIND, HASHTABLE_IMPORT, HASHTABLE_SIZE;
    rnn: RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN;
    random: RANDOM_STANDARD_NORMAL, RANDOM_UNIFORM, MULTINOMIAL;
    hashtable_lookup: HASHTABLE_LOOKUP;
    lsh_projection: LSH_PROJECTION;
    skip_gram: SKIP_GRAM;
    concat_embeddings: CONCAT_EMBEDDINGS;
    special: CUSTOM, DELEGATE, PLACEHOLDER_FOR_GREATER_OP_CODES;
    dilate: DILATE;
    reduce_window: REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW;
    stablehlo_elementwise: STABLEHLO_LOGISTIC, STABLEHLO_ADD, STABLEHLO_DIVIDE, STABLEHLO_MULTIPLY, STABLEHLO_MAXIMUM, STABLEHLO_MINIMUM, STABLEHLO_ABS, STABLEHLO_AND, STABLEHLO_OR, STABLEHLO_COSINE, STABLEHLO_EXPONENTIAL, STABLEHLO_FLOOR, STABLEHLO_LOG, STABLEHLO_NEGATE, STABLEHLO_POWER, STABLEHLO_REMAINDER, STABLEHLO_RSQRT, STABLEHLO_SUBTRACT, STABLEHLO_TANH, STABLEHLO_SHIFT_LEFT, STABLEHLO_CBRT, STABLEHLO_SELECT, STABLEHLO_CLAMP, STABLEHLO_COMPARE, STABLEHLO_CONVERT;
    stablehlo_movement: STABLEHLO_RESHAPE, STABLEHLO_CONCATENATE, STABLEHLO_BROADCAST_IN_DIM, STABLEHLO_SLICE, STABLEHLO_DYNAMIC_SLICE, STABLEHLO_DYNAMIC_UPDATE_SLICE, STABLEHLO_PAD, STABLEHLO_IOTA, STABLEHLO_TRANSPOSE;
    stablehlo_gather: STABLEHLO_GATHER, STABLEHLO_SCATTER;
    stablehlo_compute: STABLEHLO_CONVOLUTION, STABLEHLO_DOT_GENERAL, STABLEHLO_REDUCE, STABLEHLO_SORT, STABLEHLO_RNG_BIT_GENERATOR, STABLEHLO_CUSTOM_CALL;
}

params! {
    FullyConnected(fully_connected::FullyConnectedParams),
    BatchMatMul(batch_matmul::BatchMatMulParams),
    SVDF(svdf::SVDFParams),
    L2Norm(l2_normalization::L2NormParams),
    LocalResponseNormalization(local_response_normalization::LocalResponseNormalizationParams),
    FakeQuant(quantize::FakeQuantParams),
    Conv2D(conv_2d::Conv2DParams),
    DepthwiseConv2D(depthwise_conv_2d::DepthwiseConv2DParams),
    TransposeConv(transpose_conv::TransposeConvParams),
    Pool2D(pool_2d::Pool2DParams),
    LSTM(lstm::LSTMParams),
    UnidirectionalSequenceLSTM(lstm::UnidirectionalSequenceLSTMParams),
    Gelu(unary::GeluParams),
    LeakyRelu(unary::LeakyReluParams),
    Add(binary::AddParams),
    Sub(binary::SubParams),
    Mul(binary::MulParams),
    Div(binary::DivParams),
    Softmax(softmax::SoftmaxParams),
    Reshape(reshape::ReshapeParams),
    Squeeze(reshape::SqueezeParams),
    Concatenation(concatenation::ConcatenationParams),
    MirrorPad(pad::MirrorPadParams),
    Shape(shape::ShapeParams),
    StridedSlice(slice::StridedSliceParams),
    Split(split::SplitParams),
    SplitV(split::SplitVParams),
    Pack(pack::PackParams),
    Unpack(pack::UnpackParams),
    DepthToSpace(depth_to_space::DepthToSpaceParams),
    SpaceToDepth(depth_to_space::SpaceToDepthParams),
    CallOnce(control_flow::CallOnceParams),
    If(control_flow::IfParams),
    While(control_flow::WhileParams),
    ReverseSequence(reverse::ReverseSequenceParams),
    Cumsum(cumsum::CumsumParams),
    OneHot(one_hot::OneHotParams),
    ArgMax(arg_min_max::ArgMaxParams),
    ArgMin(arg_min_max::ArgMinParams),
    Gather(gather::GatherParams),
    Cast(cast::CastParams),
    VarHandle(variables::VarHandleParams),
    Reducer(reduce::ReducerParams),
    ResizeNearestNeighbor(resize::ResizeNearestNeighborParams),
    ResizeBilinear(resize::ResizeBilinearParams),
    Conv3D(conv_3d::Conv3DParams),
    Unique(unique::UniqueParams),
    Bucketize(bucketize::BucketizeParams),
    SparseToDense(sparse_to_dense::SparseToDenseParams),
    Hashtable(hashtable::HashtableParams),
    BidirectionalSequenceLSTM(lstm::BidirectionalSequenceLSTMParams),
    RNN(rnn::RNNParams),
    SequenceRNN(rnn::SequenceRNNParams),
    BidirectionalSequenceRNN(rnn::BidirectionalSequenceRNNParams),
    Random(random::RandomParams),
    LSHProjection(lsh_projection::LSHProjectionParams),
    SkipGram(skip_gram::SkipGramParams),
    EmbeddingLookupSparse(embedding_lookup::EmbeddingLookupSparseParams),
    ConcatEmbeddings(concat_embeddings::ConcatEmbeddingsParams),
    Call(control_flow::CallParams),
    StablehloWhile(control_flow::StablehloWhileParams),
    StablehloCase(control_flow::StablehloCaseParams),
    StableHLOComposite(control_flow::StableHLOCompositeParams),
    ReduceWindow(reduce_window::ReduceWindowParams),
    StablehloCompare(stablehlo_elementwise::StablehloCompareParams),
    StablehloConcatenate(stablehlo_movement::StablehloConcatenateParams),
    StablehloBroadcastInDim(stablehlo_movement::StablehloBroadcastInDimParams),
    StablehloDynamicSlice(stablehlo_movement::StablehloDynamicSliceParams),
    StablehloIota(stablehlo_movement::StablehloIotaParams),
    StablehloTranspose(stablehlo_movement::StablehloTransposeParams),
    StablehloReduce(stablehlo_compute::StablehloReduceParams),
    StablehloSort(stablehlo_compute::StablehloSortParams),
    StablehloRngBitGenerator(stablehlo_compute::StablehloRngBitGeneratorParams),
    ;
    StablehloReduceWindow(reduce_window::StablehloReduceWindowParams),
    StablehloSlice(stablehlo_movement::StablehloSliceParams),
    StablehloPad(stablehlo_movement::StablehloPadParams),
    StablehloGather(stablehlo_gather::StablehloGatherParams),
    StablehloScatter(stablehlo_gather::StablehloScatterParams),
    StablehloConvolution(stablehlo_compute::StablehloConvolutionParams),
    StablehloDotGeneral(stablehlo_compute::StablehloDotGeneralParams),
    StablehloCustomCall(stablehlo_compute::StablehloCustomCallParams),
}

/// The definition of a builtin op.
pub struct OpDef {
    /// Which op.
    pub op: BuiltinOp,
    /// The family: the name of the file that holds the op in every crate.
    pub family: &'static str,
    /// How the params are stored in a file.
    pub codec: Codec,
    /// Validates the inputs of a node and infers type and shape of its outputs.
    pub infer: fn(&InferContext<'_>) -> InferResult,
    /// The lowest version that can express a use of the op.
    pub min_version: fn(&OpSignature<'_>) -> u32,
    /// Multiply-adds of one run; an elementwise operation counts as one.
    pub multiply_adds: fn(&OpSignature<'_>) -> u64,
    /// Each version of the op and the first TFLite release that had it; empty for ops that no release runs.
    pub history: &'static [(u32, &'static str)],
}

impl OpDef {
    /// The first TFLite release that runs `version` of this op.
    pub fn min_runtime(&self, version: u32) -> Option<&'static str> {
        self.history.iter().find(|(v, _)| *v == version).map(|(_, release)| *release)
    }
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpDef({})", Name(self.op))
    }
}

struct Name(BuiltinOp);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.variant_name().unwrap_or("?"))
    }
}

/// The definition of `op`; `None` for codes that have none in this build.
pub fn definition(op: BuiltinOp) -> Option<&'static OpDef> {
    use std::sync::OnceLock;
    // Not on the heap: a library that holds this crate may be unloaded.
    static BY_CODE: OnceLock<[Option<&'static OpDef>; 256]> = OnceLock::new();
    let table = BY_CODE.get_or_init(|| {
        let mut table = [None; 256];
        for def in DEFS {
            if let Some(slot) = usize::try_from(def.op.0).ok().and_then(|code| table.get_mut(code)) {
                *slot = Some(*def);
            }
        }
        table
    });
    usize::try_from(op.0).ok().and_then(|code| table.get(code).copied().flatten())
}

/// Why a node's params could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The node carries another op's options.
    #[error("it has {found}, but its op needs {wanted}")]
    WrongOptions {
        /// The options of the op.
        wanted: OptionsType,
        /// The union members present.
        found: String,
    },
    /// An enum field holds a value that this build does not know.
    #[error("its {field} has the unknown value {value}")]
    UnknownValue {
        /// The enum.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// The options are no table.
    #[error("damaged options: {0}")]
    Damaged(String),
}

pub(crate) fn read_params(def: Option<&OpDef>, operator: schema::Operator<'_>) -> Result<Params, ReadError> {
    match def {
        Some(def) => def.codec.read(operator),
        None => Ok(Params::Undefined),
    }
}

enums! {
    /// The activation that an op applies to its result before storing it.
    Activation from ActivationFunctionType {
        None = NONE, Relu = RELU, ReluN1To1 = RELU_N1_TO_1, Relu6 = RELU6, Tanh = TANH, SignBit = SIGN_BIT,
    }
    /// `Same` keeps `ceil(input / stride)` outputs, `Valid` only windows that lie inside.
    Padding from Padding { Same = SAME, Valid = VALID }
    /// Whether a mirrored border repeats the edge (`Symmetric`) or not (`Reflect`).
    MirrorPadMode from MirrorPadMode { Reflect = REFLECT, Symmetric = SYMMETRIC }
    /// How FULLY_CONNECTED stores its weights.
    WeightsFormat from FullyConnectedOptionsWeightsFormat { Default = DEFAULT, Shuffled4x16Int8 = SHUFFLED4x16INT8 }
    /// Full LSTM, or the old basic cell.
    LstmKernelType from LSTMKernelType { Full = FULL, Basic = BASIC }
    /// What a hashed projection gives.
    LshProjectionType from LSHProjectionType { Unknown = UNKNOWN, Sparse = SPARSE, Dense = DENSE }
    /// How EMBEDDING_LOOKUP_SPARSE combines rows.
    CombinerType from CombinerType { Sum = SUM, Mean = MEAN, SqrtN = SQRTN }
    /// How custom options, and the attributes of a composite, are encoded.
    CustomOptionsFormat from CustomOptionsFormat { FlexBuffers = FLEXBUFFERS }
    /// What REDUCE_WINDOW does with the elements of a window.
    ReduceWindowFunction from ReduceWindowFunction {
        Unsupported = UNSUPPORTED, Add = ADD, Mul = MUL, Minimum = MINIMUM, Maximum = MAXIMUM, All = ALL, Any = ANY,
    }
    /// How STABLEHLO_COMPARE compares.
    ComparisonDirection from StablehloComparisonDirection {
        Eq = STABLEHLO_COMPARISON_DIRECTION_EQ, Ne = STABLEHLO_COMPARISON_DIRECTION_NE,
        Ge = STABLEHLO_COMPARISON_DIRECTION_GE, Gt = STABLEHLO_COMPARISON_DIRECTION_GT,
        Le = STABLEHLO_COMPARISON_DIRECTION_LE, Lt = STABLEHLO_COMPARISON_DIRECTION_LT,
    }
    /// As what STABLEHLO_COMPARE compares.
    ComparisonType from StablehloComparisonType {
        NoType = STABLEHLO_COMPARISON_TYPE_NOTYPE, Float = STABLEHLO_COMPARISON_TYPE_FLOAT,
        FloatTotalOrder = STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER,
        Signed = STABLEHLO_COMPARISON_TYPE_SIGNED, Unsigned = STABLEHLO_COMPARISON_TYPE_UNSIGNED,
    }
    /// How exact a StableHLO op is asked to be.
    PrecisionConfig from StablehloPrecisionConfig { Default = DEFAULT, High = HIGH, Highest = HIGHEST }
    /// Which generator STABLEHLO_RNG_BIT_GENERATOR is.
    RngAlgorithm from RngAlgorithm { Default = DEFAULT, Philox = PHILOX, ThreeFry = THREEFRY }
}

impl Activation {
    /// The bounds of the activations that are plain clamps; `None` for `Tanh` and `SignBit`.
    pub fn clamp(self) -> Option<(f32, f32)> {
        match self {
            Activation::None => Some((f32::NEG_INFINITY, f32::INFINITY)),
            Activation::Relu => Some((0.0, f32::INFINITY)),
            Activation::ReluN1To1 => Some((-1.0, 1.0)),
            Activation::Relu6 => Some((0.0, 6.0)),
            Activation::Tanh | Activation::SignBit => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_are_small() {
        // Every node holds some.
        assert!(size_of::<Params>() <= 64, "{} bytes", size_of::<Params>());
    }

    #[test]
    fn definitions_are_unique_and_complete() {
        for def in DEFS {
            assert!(std::ptr::eq(definition(def.op).unwrap(), *def), "{def:?} is defined twice");
            assert!(def.history.windows(2).all(|w| w[0].0 < w[1].0), "{def:?}: versions out of order");
        }
    }
}
