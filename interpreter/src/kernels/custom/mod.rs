//! Kernels of custom ops that well-known models ask for by name. An application's own registrations win over them.

use delegraph_core::MutableOpResolver;
use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::{Error, Result, TensorType};

use crate::kernels::prepared::unsupported_type;

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Registers every kernel of a custom op.
        pub(crate) fn register(resolver: &mut MutableOpResolver) {
            $($family::register(resolver);)*
        }

        /// The kernels of one family each, for resolvers that have no others: see `delegraph ops --resolver-for`.
        pub mod families {
            use delegraph_core::MutableOpResolver;

            $(
                #[doc = concat!("Registers the kernels of the custom ops in `", stringify!($family), "`.")]
                pub fn $family(resolver: &mut MutableOpResolver) {
                    super::$family::register(resolver);
                }
            )*

            /// All of them, by name.
            pub const ALL: &[(&str, fn(&mut MutableOpResolver))] = &[$((stringify!($family), $family)),*];
        }
    };
}

families! {
    audio,
    detection_postprocess,
    fused,
    hadamard,
    landmarks,
    max_pooling,
    resampler,
    transform_tensor,
    transpose_conv_bias,
}

/// An error in the node's options or shapes: custom ops have no inference that would find it.
fn invalid(text: impl Into<String>) -> Error {
    Error::InvalidNode(text.into())
}

/// Checks how many operands there are, and that all are of FLOAT32.
fn check_floats(cx: &PrepareContext<'_>, inputs: usize, outputs: usize) -> Result<()> {
    cx.ensure_counts(inputs, outputs)?;
    let check = |what: &str, i: usize, tensor: TensorView<'_>| match tensor.ty() {
        TensorType::Float32 => Ok(()),
        _ => Err(unsupported_type(&format!("{what} {i}"), tensor)),
    };
    (0..inputs).try_for_each(|i| check("input", i, cx.input(i)?))?;
    (0..outputs).try_for_each(|i| check("output", i, cx.output(i)?))
}

/// The shape of a tensor that must have this rank.
fn dims<const R: usize>(tensor: TensorView<'_>) -> Result<[usize; R]> {
    let shape = tensor.shape();
    shape
        .dims()
        .try_into()
        .map_err(|_| invalid(format!("\"{}\" must have rank {R}, got {shape}", tensor.name())))
}
