//! The reference kernels: short, plainly correct, and the oracle that everything else is judged by.

use delegraph_core::MutableOpResolver;

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Registers every reference kernel for the versions that it implements.
        pub fn register(resolver: &mut MutableOpResolver) {
            $($family::register(resolver);)*
        }

        /// The kernels of one family each, for resolvers that have no others: see `delegraph ops --resolver-for`.
        pub mod families {
            use delegraph_core::MutableOpResolver;

            $(
                #[doc = concat!("Registers the reference kernels of the family `", stringify!($family), "`.")]
                pub fn $family(resolver: &mut MutableOpResolver) {
                    super::$family::register(resolver);
                }
            )*

            /// All of them, by name.
            pub const ALL: &[(&str, fn(&mut MutableOpResolver))] = &[$((stringify!($family), $family)),*];
        }
    };
}

pub(in crate::kernels) mod binary_quantized;

pub(in crate::kernels) use reduce::{Reduction, mean_of, sum_of, write_means, write_sums};
pub(in crate::kernels) use resize::Nearest;
pub(in crate::kernels) use transpose_conv::{Scatter, scatter as transpose_conv_scatter};

families! {
    add_n,
    arg_min_max,
    batch_matmul,
    binary,
    bucketize,
    cast,
    comparison,
    complex,
    concatenation,
    control_flow,
    conv_2d,
    conv_3d,
    cumsum,
    densify,
    depth_to_space,
    depthwise_conv_2d,
    dynamic_update_slice,
    dilate,
    embedding_lookup,
    fill,
    fully_connected,
    gather,
    hashtable,
    hashtable_lookup,
    l2_normalization,
    local_response_normalization,
    lsh_projection,
    lstm,
    matrix_diag,
    non_max_suppression,
    one_hot,
    pack,
    pad,
    pool_2d,
    prelu,
    quantize,
    random,
    reduce,
    reduce_window,
    reshape,
    resize,
    reverse,
    rnn,
    scatter,
    segment,
    select,
    shape,
    skip_gram,
    slice,
    softmax,
    space_to_batch,
    sparse_to_dense,
    split,
    stablehlo_compute,
    stablehlo_elementwise,
    stablehlo_gather,
    stablehlo_movement,
    svdf,
    tile,
    topk,
    transpose,
    transpose_conv,
    unary,
    unique,
    variables,
    where_op,
}
