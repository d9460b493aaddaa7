//! The op definitions: one op, one definition, one file per family.
//!
//! A definition holds the op's typed params and how they are read, its shape and type inference, and its version
//! history. Every other crate uses the same file name for the family: its CPU kernels, its GPU lowering, its shader and
//! its conformance cases.

use std::fmt;

use crate::schema;
pub use crate::types::BuiltinOp;
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
pub(crate) use codec::OptionsType;
pub use codec::{Codec, FieldInfo};
use codec::{enums, options};
pub use infer::{
    Declared, InferContext, InferError, InferResult, InferTensor, Inferred, InferredShape, MAX_INTEGERS,
    Window, axis_in, expect_shape, pad_amount, size_from, windowed_output,
};

pub use signature::{Cost, OpSignature, Operand, lowest_with};
pub use value::{FieldKind, InvalidParam, ParamValue};

use signature::{always_1, no_arithmetic, per_input, per_output, per_weight, recurrent};

/// Declares the families, in the order of [`DEFS`]. Each file lists its ops itself, with [`ops!`].
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(pub mod $family;)*
        const FAMILIES: &[&[&OpDef]] = &[$($family::DEFS),*];
    };
}

const OP_COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

static ALL: [&OpDef; OP_COUNT] = {
    let mut all = [FAMILIES[0][0]; OP_COUNT];
    let (mut next, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut op = 0;
        while op < FAMILIES[family].len() {
            all[next] = FAMILIES[family][op];
            (next, op) = (next + 1, op + 1);
        }
        family += 1;
    }
    all
};

/// Every op definition, in the order of families.
pub static DEFS: &[&OpDef] = &ALL;

/// Declares the ops of a family: a constant of [`BuiltinOp`] and a static [`OpDef`] for each, and the list of them that
/// `families!` collects.
macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident { $($definition:tt)* })+) => {
        $(
            #[doc = concat!("`", stringify!($op), "`.")]
            $(#[$doc])*
            pub static $op: $crate::ops::OpDef = $crate::ops::OpDef {
                op: $crate::ops::BuiltinOp::$op,
                family: $crate::ops::last_segment(module_path!()),
                $($definition)*
            };

            impl $crate::ops::BuiltinOp {
                #[doc = concat!("`", stringify!($op), "`.")]
                pub const $op: Self = Self($crate::schema::BuiltinOperator::$op.0);
            }
        )+
        pub(super) const DEFS: &[&$crate::ops::OpDef] = &[$(&$op),+];
    };
}

/// The name of the innermost module of a path: `unary` of `delegraph_core::ops::unary`.
const fn last_segment(path: &'static str) -> &'static str {
    let bytes = path.as_bytes();
    let mut start = bytes.len();
    while start > 0 && bytes[start - 1] != b':' {
        start -= 1;
    }
    path.split_at(start).1
}

macro_rules! params {
    ($($variant:ident($path:path),)*; $($rare:ident($rare_path:path),)*) => {
        /// The typed parameters of a node. Kernels and delegates see only these, never FlatBuffers.
        ///
        /// Rare params with many fields are boxed, so that all other nodes are small.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Params {
            /// The op has no parameters.
            None,
            /// A custom op: its options are the node's raw bytes.
            Custom,
            /// A builtin op without a definition in this build, or a newer version of one with options that this build
            /// cannot read.
            Undefined,
            $(#[doc = concat!("[`", stringify!($path), "`].")] $variant($path),)*
            $(#[doc = concat!("[`", stringify!($rare_path), "`].")] $rare(Box<$rare_path>),)*
        }
        params!(@from $($variant($path),)* $($rare($rare_path),)*);

        impl Params {
            fn named(&self) -> Option<&dyn value::Named> {
                match self {
                    Params::None | Params::Custom | Params::Undefined => None,
                    $(Params::$variant(params) => Some(params),)*
                    $(Params::$rare(params) => Some(&**params),)*
                }
            }

            fn named_mut(&mut self) -> Option<&mut dyn value::Named> {
                match self {
                    Params::None | Params::Custom | Params::Undefined => None,
                    $(Params::$variant(params) => Some(params),)*
                    $(Params::$rare(params) => Some(&mut **params),)*
                }
            }
        }
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

/// A kernel requested params that the node does not have.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the node has no {wanted} params")]
pub struct WrongParams {
    wanted: &'static str,
}

impl From<WrongParams> for crate::error::Error {
    fn from(error: WrongParams) -> Self {
        crate::error::Error::InvalidNode(error.to_string())
    }
}

families! {
    fully_connected, batch_matmul, svdf, l2_normalization, local_response_normalization, quantize, densify,
    conv_2d, depthwise_conv_2d, transpose_conv, pool_2d, lstm, embedding_lookup, unary, binary, prelu,
    softmax, reshape, concatenation, pad, shape, transpose, slice, split, pack, depth_to_space,
    control_flow, where_op, dynamic_update_slice, scatter, add_n, space_to_batch, reverse, topk, cumsum,
    one_hot, fill, tile, arg_min_max, gather, cast, variables, select, comparison, reduce, resize,
    non_max_suppression, segment, complex, conv_3d, matrix_diag, unique, bucketize, sparse_to_dense,
    hashtable, rnn, random, hashtable_lookup, lsh_projection, skip_gram, concat_embeddings, special, dilate,
    reduce_window, stablehlo_elementwise, stablehlo_movement, stablehlo_gather, stablehlo_compute,
}

params! {
    FullyConnected(fully_connected::FullyConnectedParams),
    BatchMatMul(batch_matmul::BatchMatMulParams),
    Svdf(svdf::SvdfParams),
    L2Norm(l2_normalization::L2NormParams),
    LocalResponseNormalization(local_response_normalization::LocalResponseNormalizationParams),
    FakeQuant(quantize::FakeQuantParams),
    Conv2D(conv_2d::Conv2DParams),
    DepthwiseConv2D(depthwise_conv_2d::DepthwiseConv2DParams),
    TransposeConv(transpose_conv::TransposeConvParams),
    Pool2D(pool_2d::Pool2DParams),
    Lstm(lstm::LstmParams),
    UnidirectionalSequenceLstm(lstm::UnidirectionalSequenceLstmParams),
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
    BidirectionalSequenceLstm(lstm::BidirectionalSequenceLstmParams),
    Rnn(rnn::RnnParams),
    SequenceRnn(rnn::SequenceRnnParams),
    BidirectionalSequenceRnn(rnn::BidirectionalSequenceRnnParams),
    Random(random::RandomParams),
    LshProjection(lsh_projection::LshProjectionParams),
    SkipGram(skip_gram::SkipGramParams),
    EmbeddingLookupSparse(embedding_lookup::EmbeddingLookupSparseParams),
    ConcatEmbeddings(concat_embeddings::ConcatEmbeddingsParams),
    Call(control_flow::CallParams),
    StablehloWhile(control_flow::StablehloWhileParams),
    StablehloCase(control_flow::StablehloCaseParams),
    StableHloComposite(control_flow::StableHloCompositeParams),
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
#[non_exhaustive]
pub struct OpDef {
    /// The op.
    pub op: BuiltinOp,
    /// The family: the name of the file that holds the op in every crate.
    pub family: &'static str,
    /// The storage of the params in a file.
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
    /// Returns the first TFLite release that runs `version` of this op.
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

/// Returns the definition of `op`; `None` for codes that have none in this build.
pub fn definition(op: BuiltinOp) -> Option<&'static OpDef> {
    use std::sync::OnceLock;
    // A static: a library that contains this crate may be unloaded, and must not leave memory on the heap.
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
pub(crate) enum ReadError {
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
        /// The options table and its field.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// The options are not a valid table.
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
    /// `Same` keeps `ceil(input / stride)` outputs, `Valid` only windows inside the input.
    Padding from Padding { Same = SAME, Valid = VALID }
    /// Whether a mirrored border repeats the edge (`Symmetric`) or not (`Reflect`).
    MirrorPadMode from MirrorPadMode { Reflect = REFLECT, Symmetric = SYMMETRIC }
    /// The storage of FULLY_CONNECTED's weights.
    WeightsFormat from FullyConnectedOptionsWeightsFormat { Default = DEFAULT, Shuffled4x16Int8 = SHUFFLED4x16INT8 }
    /// Full LSTM, or the old basic cell.
    LstmKernelType from LSTMKernelType { Full = FULL, Basic = BASIC }
    /// The output of a hashed projection.
    LshProjectionType from LSHProjectionType { Unknown = UNKNOWN, Sparse = SPARSE, Dense = DENSE }
    /// The combination of rows in EMBEDDING_LOOKUP_SPARSE.
    CombinerType from CombinerType { Sum = SUM, Mean = MEAN, SqrtN = SQRTN }
    /// The encoding of custom options, and of the attributes of a composite.
    CustomOptionsFormat from CustomOptionsFormat { FlexBuffers = FLEXBUFFERS }
    /// The reduction of the elements of a window in REDUCE_WINDOW.
    ReduceWindowFunction from ReduceWindowFunction {
        Unsupported = UNSUPPORTED, Add = ADD, Mul = MUL, Minimum = MINIMUM, Maximum = MAXIMUM, All = ALL, Any = ANY,
    }
    /// The comparison of STABLEHLO_COMPARE.
    ComparisonDirection from StablehloComparisonDirection {
        Eq = STABLEHLO_COMPARISON_DIRECTION_EQ, Ne = STABLEHLO_COMPARISON_DIRECTION_NE,
        Ge = STABLEHLO_COMPARISON_DIRECTION_GE, Gt = STABLEHLO_COMPARISON_DIRECTION_GT,
        Le = STABLEHLO_COMPARISON_DIRECTION_LE, Lt = STABLEHLO_COMPARISON_DIRECTION_LT,
    }
    /// The type as which STABLEHLO_COMPARE compares elements.
    ComparisonType from StablehloComparisonType {
        NoType = STABLEHLO_COMPARISON_TYPE_NOTYPE, Float = STABLEHLO_COMPARISON_TYPE_FLOAT,
        FloatTotalOrder = STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER,
        Signed = STABLEHLO_COMPARISON_TYPE_SIGNED, Unsigned = STABLEHLO_COMPARISON_TYPE_UNSIGNED,
    }
    /// The requested precision of a StableHLO op.
    PrecisionConfig from StablehloPrecisionConfig { Default = DEFAULT, High = HIGH, Highest = HIGHEST }
    /// The generator of STABLEHLO_RNG_BIT_GENERATOR.
    RngAlgorithm from RngAlgorithm { Default = DEFAULT, Philox = PHILOX, ThreeFry = THREEFRY }
}

impl Activation {
    /// Returns the bounds of the activations that are plain clamps; `None` for `Tanh` and `SignBit`.
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
        // Every node holds params.
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
