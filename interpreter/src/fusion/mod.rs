//! Op fusion: rewriting a model so that it does the same with fewer, larger ops.
//!
//! A [`Pipeline`] takes a model through these passes: marked composites are replaced by fused ops, variables that nobody
//! changes become constants, what is left of composites and functions is inlined, nodes over constants are computed,
//! patterns of ops are replaced by fused ones, and every op gets the lowest version that is enough. After each pass the
//! model is checked and inferred as if it was loaded. `docs/fusion.md` is the guide.
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
//! let conv = Conv2DParams { padding: Padding::Same, stride_w: 1, stride_h: 1, dilation_w_factor: 1,
//!     dilation_h_factor: 1, ..Default::default() };
//! let y = graph.node(BuiltinOp::CONV_2D, conv).optional_inputs([Some(x), Some(filter)]).output("conv");
//! let bias = graph.constant("bias", [2], &[1f32, -1.0]);
//! let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([y, bias]).output("sum");
//! let y = graph.node(BuiltinOp::RELU, Params::None).inputs([y]).output("y");
//! graph.outputs([y]);
//! let model = ModelBuilder::new().subgraph(graph).build()?;
//!
//! let fused = Pipeline::new().run(&model)?;
//! assert_eq!((fused.report.before.nodes, fused.report.after.nodes), (3, 1));
//! let Params::Conv2D(params) = &fused.model.subgraphs[0].nodes[0].params else { panic!() };
//! assert_eq!(params.fused_activation_function, Activation::Relu);
//! # Ok(()) }
//! ```

mod clean;
mod composite;
pub mod composites;
mod fold;
pub(crate) mod inline;
mod known;
pub mod patterns;
mod pipeline;
mod proof;
mod report;
mod rewriter;
mod store;
mod variables;

pub use composite::{Call, CompositeFusion, Outcome};
pub use pipeline::{Fused, PatternFusion, Pipeline};
pub use proof::{Difference, compare};
pub use report::{Change, FusionReport, Left, Size};
pub use rewriter::Rewriter;

#[cfg(test)]
mod tests;
