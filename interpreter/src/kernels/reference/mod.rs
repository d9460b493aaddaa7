//! The reference kernels: short, plainly correct, and the oracle that everything else is judged by.

use delegraph_core::MutableOpResolver;

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Registers every reference kernel for the versions that it implements.
        pub fn register(resolver: &mut MutableOpResolver) {
            $($family::register(resolver);)*
        }
    };
}

mod binary_quantized;

families! {
    batch_matmul,
    binary,
    comparison,
    concatenation,
    control_flow,
    conv_2d,
    densify,
    depth_to_space,
    depthwise_conv_2d,
    embedding_lookup,
    fully_connected,
    l2_normalization,
    local_response_normalization,
    pack,
    pad,
    pool_2d,
    prelu,
    quantize,
    reduce,
    reshape,
    resize,
    select,
    shape,
    slice,
    softmax,
    split,
    svdf,
    transpose,
    transpose_conv,
    transpose_conv_bias,
    unary,
    variables,
}
