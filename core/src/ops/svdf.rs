//! SVDF.

use smallvec::smallvec;

use super::conv_2d::check_bias;
use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with,
    options, recurrent,
};
use crate::error::counted;

ops! {
    SVDF {
        codec: SvdfParams::CODEC,
        infer,
        min_version,
        multiply_adds: recurrent,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.2.0"), (4, "2.3.0")],
    }
}

options! {
    /// Params of SVDF.
    Svdf(SvdfParams) in BuiltinOptions::SVDFOptions(builtin_options_as_svdfoptions, SVDFOptionsArgs) as TfLiteSVDFParams {
        /// The number of filters that are summed to one unit.
        rank: i32;
        /// Applied to the result.
        fused_activation_function: Activation;
        /// Whether float inputs with integer weights are quantized with a zero point. Since version 4; false before.
        asymmetric_quantize_inputs: bool, since 4;
    }
}

/// Input `[batch, inputs]`, feature weights `[filters, inputs]`, time weights `[filters, memory]`, bias
/// `[filters / rank]`, state `[batch, memory · filters]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 1)?;
    let p: &SvdfParams = cx.params()?;
    let [batch, inputs] = cx.shape_of_rank(0, "the input")?;
    let [filters, depth] = cx.shape_of_rank(1, "the feature weights")?;
    let [time_filters, memory] = cx.shape_of_rank(2, "the time weights")?;
    let state = cx.shape_of_rank::<2>(4, "the state")?;
    let rank = usize::try_from(p.rank).ok().filter(|&rank| rank > 0 && filters % rank == 0);
    let Some(rank) = rank else {
        let verb = if filters == 1 { "does" } else { "do" };
        let filters = counted(filters, "filter");
        return Err(InferError::new(format!("{filters} {verb} not have rank {}", p.rank)));
    };
    if inputs != depth
        || time_filters != filters
        || Some(state[1]) != memory.checked_mul(filters)
        || state[0] != batch
    {
        return Err(InferError::new(format!(
            "weights of {filters}x{depth} and {time_filters}x{memory} and a state of {}x{} do not fit an input of {batch}x{inputs}",
            state[0], state[1]
        )));
    }
    check_bias(cx, 3, filters / rank)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [batch, filters / rank])])
}

/// Versions added 8-bit weights, integers, and activations quantized with a zero point, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    let p = s.params::<SvdfParams>();
    lowest_with(&[
        (2, s.hybrid(0, 1)),
        (3, s.input_is(0, &[Int8])),
        (4, s.hybrid(0, 1) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
    ])
}
