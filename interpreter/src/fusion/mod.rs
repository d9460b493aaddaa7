//! Op fusion: rewriting a model to compute the same with fewer, larger ops.
//!
//! A [`Pipeline`] runs these passes: marked composites are replaced by fused ops, variables that are never changed
//! become constants, remaining composites and functions are inlined, nodes over constants are computed, patterns of ops
//! are replaced by fused ones, and every op gets the lowest sufficient version. After each pass the model is verified
//! and inferred like a loaded one. `docs/fusion.md` is the guide.
//!
//! ```
//! use delegraph_core::ops::binary::AddParams;
//! use delegraph_core::ops::{Activation, Padding, conv_2d::Conv2DParams};
//! use delegraph_core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder, TensorType};
//! use delegraph_interpreter::fusion::Pipeline;
//!
//! # fn main() -> delegraph_core::Result<()> {
//! let mut graph = SubgraphBuilder::new("main");
//! let x = graph.input("x", TensorType::Float32, [1, 4, 4, 1]);
//! let filter = graph.constant("filter", [2, 3, 3, 1], &[0.5f32; 18]);
//! let conv = Conv2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
//! let y = graph.node(BuiltinOp::CONV_2D, conv).optional_inputs([Some(x), Some(filter)]).output("conv");
//! let bias = graph.constant("bias", [2], &[1f32, -1.0]);
//! let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([y, bias]).output("sum");
//! let y = graph.node(BuiltinOp::RELU, Params::None).inputs([y]).output("y");
//! graph.outputs([y]);
//! let model = ModelBuilder::new().subgraph(graph).build()?;
//!
//! let fused = Pipeline::new().run(&model)?;
//! assert_eq!((fused.report.before.nodes, fused.report.after.nodes), (3, 1));
//! let Params::Conv2D(params) = fused.model.subgraphs()[0].nodes()[0].params() else { panic!() };
//! assert_eq!(params.fused_activation_function, Activation::Relu);
//! # Ok(()) }
//! ```

mod builder;
mod calls;
mod clean;
mod composite;
pub mod composites;
mod export;
mod fold;
mod interface;
mod known;
mod library;
mod pattern;
pub mod patterns;
mod pipeline;
mod proof;
mod report;
mod rewriter;
mod state;
mod store;
mod variables;

pub use composite::{Call, CompositeFusion, Outcome};
pub use export::Fusions;
pub use pattern::PatternFusion;
pub use pipeline::{Fused, Pipeline};
pub use proof::{Comparison, Difference, ModelPair, compare, compare_with_limits};
pub use report::{Change, FusionReport, Size, Unchanged};
pub use rewriter::{Redirect, Rewriter};

/// Items that [`export_fusions!`](crate::export_fusions) refers to.
#[doc(hidden)]
pub mod plugin {
    pub use delegraph_delegate_api::plugin::abi::{DelegraphError, DelegraphHost};
    pub use delegraph_delegate_api::plugin::export::fusions::{open, table};
    pub use delegraph_delegate_api::plugin::fusions_abi::DelegraphFusionLibrary;
}

/// Exports fusions from a library (`crate-type = ["cdylib"]`), once per library, for `delegraph fuse --fusion
/// plugin:PATH` and [`Pipeline::library`](crate::fusion::Pipeline::library).
///
/// Takes the function that adds them, `Fn(&mut Fusions)`. Panics in it, and in the fusions, are caught and become
/// errors.
///
/// ```
/// use delegraph_core::{BuiltinOp, Node, NodeId, Params, Result};
/// use delegraph_interpreter::fusion::{Fusions, PatternFusion, Rewriter};
///
/// /// `|-x|` is `|x|`.
/// struct AbsOfNeg;
///
/// impl PatternFusion for AbsOfNeg {
///     fn name(&self) -> &str {
///         "abs-of-neg"
///     }
///
///     fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
///         let Some(abs) = graph.node_of(id, BuiltinOp::ABS).cloned() else { return Ok(false) };
///         let Some(negative) = abs.input(0) else { return Ok(false) };
///         let Some((neg, x)) = graph.made_by(negative, BuiltinOp::NEG).map(|(id, n)| (id, n.input(0))) else {
///             return Ok(false);
///         };
///         if !graph.is_private(negative) {
///             return Ok(false);
///         }
///         let fused = Node::new(BuiltinOp::ABS, 1, Params::None, [x], abs.outputs().to_vec());
///         graph.replace(id, &[id, neg], fused);
///         Ok(true)
///     }
/// }
///
/// pub fn register(fusions: &mut Fusions) {
///     fusions.pattern(AbsOfNeg);
/// }
///
/// delegraph_interpreter::export_fusions!(register);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_fusions {
    ($register:expr) => {
        #[cfg(not(panic = "unwind"))]
        compile_error!(
            "a library of fusions must be built with panic = \"unwind\": a panic must not end the application"
        );

        /// Returns the entry of the library.
        #[unsafe(no_mangle)]
        pub extern "C" fn delegraph_fusion_library() -> *const $crate::fusion::plugin::DelegraphFusionLibrary
        {
            unsafe extern "C" fn open_exported(
                host: *const $crate::fusion::plugin::DelegraphHost,
                library: *mut *mut ::core::ffi::c_void,
                error: *mut $crate::fusion::plugin::DelegraphError,
            ) -> i32 {
                let fusions = || {
                    let mut fusions = $crate::fusion::Fusions::default();
                    $register(&mut fusions);
                    fusions.boxed()
                };
                // SAFETY: the application calls this function through the table, with pointers that are valid as
                // `DelegraphFusionLibrary::open` requires.
                unsafe { $crate::fusion::plugin::open(host, library, error, fusions) }
            }
            static TABLE: $crate::fusion::plugin::DelegraphFusionLibrary =
                $crate::fusion::plugin::table(open_exported);
            &raw const TABLE
        }
    };
}

#[cfg(test)]
mod tests;
