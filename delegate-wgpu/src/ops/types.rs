//! The types of data on which each op runs, as the support table shows them. Lowering itself decides; a test holds the
//! two together.

use delegraph_core::{BuiltinOp, TensorType};

/// None for ops that are claimed only where they were computed already.
pub(super) fn types(op: BuiltinOp) -> &'static [TensorType] {
    use TensorType::{
        BFloat16, Bool, Complex64, Float16, Float32, Float64, Int2, Int4, Int8, Int16, Int32, Int64, UInt4,
        UInt8, UInt16, UInt32,
    };
    match op {
        BuiltinOp::ABS | BuiltinOp::FLOOR_DIV | BuiltinOp::FLOOR_MOD => &[Float32, Int32, Int16, Int8],
        BuiltinOp::ADD | BuiltinOp::GREATER_EQUAL | BuiltinOp::LESS_EQUAL => {
            &[Float32, Float16, Int32, UInt8, Int16, Int8]
        }
        BuiltinOp::ADD_N | BuiltinOp::CUMSUM | BuiltinOp::POW | BuiltinOp::SIGN | BuiltinOp::ZEROS_LIKE => {
            &[Float32, Int32]
        }
        BuiltinOp::ARG_MAX | BuiltinOp::ARG_MIN | BuiltinOp::ONE_HOT | BuiltinOp::SCATTER_ND => {
            &[Float32, Int32, UInt8, Bool, Int8]
        }
        BuiltinOp::ATAN2 | BuiltinOp::FLOOR | BuiltinOp::ROUND => &[Float32, Float16, BFloat16],
        BuiltinOp::HARD_SWISH
        | BuiltinOp::L2_NORMALIZATION
        | BuiltinOp::LOG_SOFTMAX
        | BuiltinOp::LSTM
        | BuiltinOp::RELU_0_TO_1
        | BuiltinOp::RELU_N1_TO_1 => &[Float32, UInt8, Int8],
        BuiltinOp::ELU | BuiltinOp::SVDF | BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM => &[Float32, Int8],
        BuiltinOp::BATCH_MATMUL | BuiltinOp::EXP | BuiltinOp::LOG | BuiltinOp::RSQRT | BuiltinOp::SQRT => {
            &[Float32, Int16, Int8]
        }
        BuiltinOp::BATCH_TO_SPACE_ND
        | BuiltinOp::BROADCAST_TO
        | BuiltinOp::DYNAMIC_UPDATE_SLICE
        | BuiltinOp::FILL
        | BuiltinOp::MIRROR_PAD
        | BuiltinOp::RESIZE_NEAREST_NEIGHBOR
        | BuiltinOp::SELECT
        | BuiltinOp::SELECT_V2
        | BuiltinOp::SLICE
        | BuiltinOp::SPACE_TO_BATCH_ND
        | BuiltinOp::STABLEHLO_PAD
        | BuiltinOp::STRIDED_SLICE
        | BuiltinOp::TILE => &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16, BFloat16],
        BuiltinOp::EMBEDDING_LOOKUP => {
            &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16, Int4, BFloat16, Int2]
        }
        BuiltinOp::TRANSPOSE => {
            &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16, Int4, BFloat16]
        }
        BuiltinOp::EXPAND_DIMS | BuiltinOp::RESHAPE | BuiltinOp::SQUEEZE => {
            &[Float32, Float16, Int32, UInt8, Bool, Int16, Complex64, Int8, UInt32, UInt16, BFloat16]
        }
        BuiltinOp::BITCAST => &[Float32, Int32, UInt8, Int16, Int8, UInt32, UInt16],
        BuiltinOp::BITWISE_XOR | BuiltinOp::RIGHT_SHIFT => &[Int32, UInt8, Int16, Int8, UInt32, UInt16],
        BuiltinOp::CAST => &[
            Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Complex64, Int8, Float64, UInt32, UInt16,
            Int4, BFloat16, Int2, UInt4,
        ],
        BuiltinOp::COMPLEX_ABS | BuiltinOp::IMAG | BuiltinOp::REAL => &[Complex64],
        BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM
        | BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN
        | BuiltinOp::CEIL
        | BuiltinOp::CONV_3D
        | BuiltinOp::CONV_3D_TRANSPOSE
        | BuiltinOp::LOCAL_RESPONSE_NORMALIZATION
        | BuiltinOp::RFFT2D
        | BuiltinOp::RNN
        | BuiltinOp::SQUARE
        | BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN => &[Float32],
        BuiltinOp::CONCATENATION => {
            &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, Int4, BFloat16]
        }
        BuiltinOp::AVERAGE_POOL_2D
        | BuiltinOp::CONV_2D
        | BuiltinOp::DEPTHWISE_CONV_2D
        | BuiltinOp::FULLY_CONNECTED
        | BuiltinOp::LEAKY_RELU
        | BuiltinOp::MAX_POOL_2D
        | BuiltinOp::PRELU
        | BuiltinOp::QUANTIZE
        | BuiltinOp::RELU
        | BuiltinOp::RELU6
        | BuiltinOp::RESIZE_BILINEAR
        | BuiltinOp::TRANSPOSE_CONV => &[Float32, UInt8, Int16, Int8],
        BuiltinOp::COS | BuiltinOp::SIN => &[Float32, Float16],
        BuiltinOp::DEPTH_TO_SPACE | BuiltinOp::SPACE_TO_DEPTH => &[Float32, Int32, UInt8, Int8],
        BuiltinOp::DEQUANTIZE => &[Float16, UInt8, Int16, Int8, Int4, Int2, UInt4],
        BuiltinOp::DIV
        | BuiltinOp::MEAN
        | BuiltinOp::REDUCE_MAX
        | BuiltinOp::REDUCE_MIN
        | BuiltinOp::REDUCE_PROD
        | BuiltinOp::SPLIT
        | BuiltinOp::SPLIT_V
        | BuiltinOp::SUB
        | BuiltinOp::SUM
        | BuiltinOp::TOPK_V2 => &[Float32, Int32, UInt8, Int16, Int8],
        BuiltinOp::EQUAL | BuiltinOp::NOT_EQUAL => &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8],
        BuiltinOp::GATHER => &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, Int4, BFloat16],
        BuiltinOp::GATHER_ND
        | BuiltinOp::PAD
        | BuiltinOp::PADV2
        | BuiltinOp::REVERSE_V2
        | BuiltinOp::UNPACK => &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, BFloat16],
        BuiltinOp::GELU | BuiltinOp::SOFTMAX => &[Float32, Float16, UInt8, Int16, Int8],
        BuiltinOp::GREATER | BuiltinOp::LESS | BuiltinOp::MAXIMUM | BuiltinOp::MINIMUM => {
            &[Float32, Float16, Int32, UInt8, Int16, Int8, BFloat16]
        }
        BuiltinOp::LOGICAL_AND
        | BuiltinOp::LOGICAL_NOT
        | BuiltinOp::LOGICAL_OR
        | BuiltinOp::REDUCE_ALL
        | BuiltinOp::REDUCE_ANY => &[Bool],
        BuiltinOp::LOGISTIC | BuiltinOp::TANH => &[Float32, Float16, UInt8, Int16, Int8, BFloat16],
        BuiltinOp::MUL => &[Float32, Float16, Int32, UInt8, Int16, Int8, UInt32],
        BuiltinOp::NEG => &[Float32, Float16, Int32, Int16, Int8, BFloat16],
        BuiltinOp::PACK => &[Float32, Int32, UInt8, Int16, Int8, UInt32],
        BuiltinOp::SQUARED_DIFFERENCE => &[Float32, Int32, Int8],
        BuiltinOp::STABLEHLO_ADD
        | BuiltinOp::STABLEHLO_MAXIMUM
        | BuiltinOp::STABLEHLO_MINIMUM
        | BuiltinOp::STABLEHLO_MULTIPLY => {
            &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16]
        }
        BuiltinOp::STABLEHLO_AND => &[Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16],
        BuiltinOp::STABLEHLO_SHIFT_LEFT => &[Int32, Int16, Int8],
        _ => &[],
    }
}
