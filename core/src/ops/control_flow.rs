//! CALL_ONCE, IF, WHILE, CALL, STABLEHLO_WHILE, STABLEHLO_CASE, STABLEHLO_COMPOSITE: ops that run other subgraphs.

use smallvec::smallvec;

use super::{
    BuiltinOp, CustomOptionsFormat, InferContext, InferResult, Inferred, OpDef, always_1, no_arithmetic,
    options,
};

/// `CALL_ONCE`.
pub static CALL_ONCE: OpDef = OpDef {
    op: BuiltinOp::CALL_ONCE,
    family: "control_flow",
    codec: CallOnceParams::CODEC,
    infer: infer_call_once,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "2.5.0")],
};

/// `IF`.
pub static IF: OpDef = OpDef {
    op: BuiltinOp::IF,
    family: "control_flow",
    codec: IfParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "1.15.0")],
};

/// `WHILE`.
pub static WHILE: OpDef = OpDef {
    op: BuiltinOp::WHILE,
    family: "control_flow",
    codec: WhileParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "1.15.0")],
};

/// `CALL`.
pub static CALL: OpDef = OpDef {
    op: BuiltinOp::CALL,
    family: "control_flow",
    codec: CallParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[],
};

/// `STABLEHLO_WHILE`.
pub static STABLEHLO_WHILE: OpDef = OpDef {
    op: BuiltinOp::STABLEHLO_WHILE,
    family: "control_flow",
    codec: StablehloWhileParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[],
};

/// `STABLEHLO_CASE`.
pub static STABLEHLO_CASE: OpDef = OpDef {
    op: BuiltinOp::STABLEHLO_CASE,
    family: "control_flow",
    codec: StablehloCaseParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "2.17.0")],
};

/// `STABLEHLO_COMPOSITE`.
pub static STABLEHLO_COMPOSITE: OpDef = OpDef {
    op: BuiltinOp::STABLEHLO_COMPOSITE,
    family: "control_flow",
    codec: StableHLOCompositeParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "2.17.0")],
};

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
        /// The subgraph that says whether to go on.
        cond_subgraph_index: i32;
        /// The subgraph that is run as long as it does.
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
        /// The subgraph that says whether to go on.
        cond_subgraph_index: i32;
        /// The subgraph that is run as long as it does.
        body_subgraph_index: i32;
    }
}

options! {
    /// Params of STABLEHLO_CASE.
    StablehloCase(StablehloCaseParams) in BuiltinOptions2::StablehloCaseOptions(builtin_options_2_as_stablehlo_case_options, StablehloCaseOptionsArgs) {
        /// The subgraphs of which input 0 selects one; an index out of range selects the last.
        branch_subgraph_indices: Vec<i32>;
    }
}

options! {
    /// Params of STABLEHLO_COMPOSITE.
    StableHLOComposite(StableHLOCompositeParams) in BuiltinOptions2::StableHLOCompositeOptions(builtin_options_2_as_stable_hlocomposite_options, StableHLOCompositeOptionsArgs) {
        /// The name of the operation that the node stands for.
        name: String;
        /// The subgraph that computes it out of other ops.
        decomposition_subgraph_index: i32;
        /// Params of the operation, as its name defines them.
        composite_attributes: Vec<u8>;
        /// How those are encoded.
        composite_attributes_format: CustomOptionsFormat;
        /// The version of the operation.
        version: i32;
    }
}

/// Runs a subgraph the first time, nothing after that.
fn infer_call_once(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 0)?;
    Ok(smallvec![])
}

/// What a called subgraph returns is known when it is prepared: the kernel asks the interpreter for it.
fn infer_call(cx: &InferContext<'_>) -> InferResult {
    for i in 0..cx.inputs.len() {
        cx.input(i)?;
    }
    Ok(cx.outputs.iter().map(|o| Inferred::from_kernel(o.ty)).collect())
}
