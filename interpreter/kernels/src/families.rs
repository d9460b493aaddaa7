//! The families of builtin ops with kernels, and the macro that declares the families of a kernel folder.

/// Calls `$callback!` with the families of builtin ops, each of which has a file of this name in `reference`. A family
/// marked `+ optimized` also has one in `optimized`.
macro_rules! for_each_family {
    ($callback:ident) => {
        $callback! {
            add_n, arg_min_max, batch_matmul + optimized, binary + optimized, bucketize, cast, comparison,
            complex, concatenation, control_flow, conv_2d + optimized, conv_3d, cumsum, densify,
            depth_to_space, depthwise_conv_2d + optimized, dilate, dynamic_update_slice, embedding_lookup,
            fill, fully_connected + optimized, gather, hashtable, hashtable_lookup,
            l2_normalization + optimized, local_response_normalization, lsh_projection, lstm + optimized,
            matrix_diag, non_max_suppression, one_hot, pack, pad + optimized, pool_2d + optimized,
            prelu + optimized, quantize + optimized, random, reduce + optimized, reduce_window, reshape,
            resize + optimized, reverse, rnn, scatter, segment, select, shape, skip_gram, slice,
            softmax + optimized, space_to_batch, sparse_to_dense, split, stablehlo_compute,
            stablehlo_elementwise, stablehlo_gather, stablehlo_movement, svdf, tile, topk, transpose,
            transpose_conv + optimized, unary + optimized, unique, variables, where_op,
        }
    };
}
pub(crate) use for_each_family;

/// Declares a module for each family, a function that registers the kernels of all of them, and `families`, with a
/// function for each of them.
macro_rules! declare_families {
    ($kind:literal, $note:literal, $($family:ident),* $(,)?) => {
        $(mod $family;)*

        #[doc = concat!("Registers every ", $kind, " kernel for the versions that it implements.", $note)]
        pub fn register(resolver: &mut delegraph_core::MutableOpResolver) {
            $($family::register(resolver);)*
        }

        #[doc = concat!(
            "One function per family of ", $kind, " kernels, for resolvers with a subset of kernels: see ",
            "`delegraph ops --resolver-for`.", $note
        )]
        pub mod families {
            use delegraph_core::MutableOpResolver;

            $(
                #[doc = concat!("Registers the ", $kind, " kernels of the family `", stringify!($family), "`.")]
                pub fn $family(resolver: &mut MutableOpResolver) {
                    super::$family::register(resolver);
                }
            )*

            /// Name and function of each family.
            pub const ALL: &[(&str, fn(&mut MutableOpResolver))] = &[$((stringify!($family), $family)),*];
        }
    };
}
pub(crate) use declare_families;
