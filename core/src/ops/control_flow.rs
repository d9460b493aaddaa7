//! CALL_ONCE, IF, WHILE, CALL, STABLEHLO_WHILE, STABLEHLO_CASE, STABLEHLO_COMPOSITE: ops that run other subgraphs.

use smallvec::smallvec;

use super::{CustomOptionsFormat, InferContext, InferResult, Inferred, always_1, no_arithmetic, options};

ops! {
    CALL_ONCE {
        codec: CallOnceParams::CODEC,
        infer: infer_call_once,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.5.0")],
    }

    IF {
        codec: IfParams::CODEC,
        infer: infer_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.15.0")],
    }

    WHILE {
        codec: WhileParams::CODEC,
        infer: infer_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.15.0")],
    }

    CALL {
        codec: CallParams::CODEC,
        infer: infer_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    STABLEHLO_WHILE {
        codec: StablehloWhileParams::CODEC,
        infer: infer_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    STABLEHLO_CASE {
        codec: StablehloCaseParams::CODEC,
        infer: infer_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.17.0")],
    }

    STABLEHLO_COMPOSITE {
        codec: StableHloCompositeParams::CODEC,
        infer: infer_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.17.0")],
    }
}

options! {
    /// Params of CALL_ONCE.
    CallOnce(CallOnceParams) in BuiltinOptions::CallOnceOptions(builtin_options_as_call_once_options, CallOnceOptionsArgs) {
        /// The subgraph that is run.
        init_subgraph_index: i32;
    }
}

options! {
    /// Params of IF.
    If(IfParams) in BuiltinOptions::IfOptions(builtin_options_as_if_options, IfOptionsArgs) {
        /// The subgraph that is run where the condition is true.
        then_subgraph_index: i32;
        /// The subgraph that is run where it is false.
        else_subgraph_index: i32;
    }
}

options! {
    /// Params of WHILE.
    While(WhileParams) in BuiltinOptions::WhileOptions(builtin_options_as_while_options, WhileOptionsArgs) {
        /// The subgraph that computes the condition.
        cond_subgraph_index: i32;
        /// The subgraph that is run while the condition is true.
        body_subgraph_index: i32;
    }
}

options! {
    /// Params of CALL.
    Call(CallParams) in BuiltinOptions::CallOptions(builtin_options_as_call_options, CallOptionsArgs) {
        /// The subgraph that is run.
        subgraph: u32;
    }
}

options! {
    /// Params of STABLEHLO_WHILE.
    StablehloWhile(StablehloWhileParams) in BuiltinOptions2::StablehloWhileOptions(builtin_options_2_as_stablehlo_while_options, StablehloWhileOptionsArgs) {
        /// The subgraph that computes the condition.
        cond_subgraph_index: i32;
        /// The subgraph that is run while the condition is true.
        body_subgraph_index: i32;
    }
}

options! {
    /// Params of STABLEHLO_CASE.
    StablehloCase(StablehloCaseParams) in BuiltinOptions2::StablehloCaseOptions(builtin_options_2_as_stablehlo_case_options, StablehloCaseOptionsArgs) {
        /// The subgraphs that input 0 selects from; an index out of range selects the last one.
        branch_subgraph_indices: Vec<i32>;
    }
}

options! {
    /// Params of STABLEHLO_COMPOSITE.
    StableHloComposite(StableHloCompositeParams) in BuiltinOptions2::StableHLOCompositeOptions(builtin_options_2_as_stable_hlocomposite_options, StableHLOCompositeOptionsArgs) {
        /// The name of the composite operation.
        name: String;
        /// The subgraph that computes it with other ops.
        decomposition_subgraph_index: i32;
        /// Params of the operation, as its name defines them.
        composite_attributes: Vec<u8>;
        /// The encoding of the attributes.
        composite_attributes_format: CustomOptionsFormat;
        /// The version of the operation.
        version: i32;
    }
}

/// Infers a call of a subgraph that runs only once.
fn infer_call_once(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 0)?;
    Ok(smallvec![])
}

/// The outputs of a called subgraph are known when it is prepared: the kernel requests them from the interpreter.
fn infer_call(cx: &InferContext<'_>) -> InferResult {
    for i in 0..cx.inputs.len() {
        cx.input(i)?;
    }
    Ok(cx.outputs.iter().map(|o| Inferred::from_kernel(o.ty)).collect())
}

impl StableHloCompositeParams {
    /// Returns the version of the operation. The format's default, 0, is the first version.
    pub fn op_version(&self) -> u32 {
        u32::try_from(self.version).unwrap_or(0).max(1)
    }
}
