//! Marked composites: nodes that represent a named operation.

use crate::error::Result;
use crate::flex::Map;
use crate::graph::{Model, Node};
use crate::ops::Params;
use crate::types::Op;

/// An empty FlexBuffer map.
const NONE: &[u8] = &[0, 0, 1, 0, 0, 36, 1];

/// The operation that a node represents.
///
/// Files mark an operation in two ways. `STABLEHLO_COMPOSITE` has a name, attributes, a version and a subgraph that
/// computes the operation with other ops. A custom op, into which TensorFlow's converter turns a function with
/// `experimental_implements` and `tfl_fusable_op`, has a name and attributes but no subgraph: it needs a kernel of its
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Composite<'m> {
    /// The name of the operation.
    pub name: &'m str,
    /// The version, at least 1.
    pub version: u32,
    /// The attributes as stored in the file; [`Composite::attributes`] reads them.
    pub bytes: &'m [u8],
    /// The subgraph that computes it with other ops, if there is one.
    pub body: Option<usize>,
}

impl<'m> Composite<'m> {
    /// Creates an operation of this name and version, without attributes and body.
    pub fn new(name: &'m str, version: u32) -> Self {
        Composite { name, version, bytes: &[], body: None }
    }

    /// Sets [`Composite::bytes`].
    #[must_use]
    pub fn with_bytes(mut self, bytes: &'m [u8]) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets [`Composite::body`].
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Option<usize>>) -> Self {
        self.body = body.into();
        self
    }

    /// Returns the operation that `node` of `model` represents; `None` for a builtin op other than
    /// `STABLEHLO_COMPOSITE`.
    ///
    /// ```
    /// use delegraph_core::ops::binary::MulParams;
    /// use delegraph_core::{Attributes, BuiltinOp, Composite, ModelBuilder, SubgraphBuilder, TensorType};
    ///
    /// # fn main() -> delegraph_core::Result<()> {
    /// let mut body = SubgraphBuilder::new("square.impl");
    /// let x = body.input("x", TensorType::Float32, [4]);
    /// let y = body.node(BuiltinOp::MUL, MulParams::default()).inputs([x, x]).output("y");
    /// body.outputs([y]);
    ///
    /// let mut graph = SubgraphBuilder::new("main");
    /// let x = graph.input("x", TensorType::Float32, [4]);
    /// let attributes = Attributes::new().with("exponent", 2);
    /// let y = graph.composite("my.square", body).attributes(&attributes).inputs([x]).output("y");
    /// graph.outputs([y]);
    /// let model = ModelBuilder::new().subgraph(graph).build()?;
    ///
    /// let composite = Composite::of(&model, &model.subgraphs()[0].nodes()[0]).unwrap();
    /// assert_eq!((composite.name, composite.version, composite.body), ("my.square", 1, Some(1)));
    /// assert_eq!(composite.attributes()?.get::<i64>("exponent")?, 2);
    /// # Ok(()) }
    /// ```
    pub fn of(model: &'m Model, node: &'m Node) -> Option<Self> {
        match (node.op(), node.params()) {
            (_, Params::StableHloComposite(p)) => Some(Composite {
                name: &p.name,
                version: p.op_version(),
                bytes: &p.composite_attributes,
                body: usize::try_from(p.decomposition_subgraph_index).ok(),
            }),
            (Op::Custom(name), _) => Some(Composite {
                name,
                version: node.version(),
                bytes: model.bytes().get(node.custom_options()).unwrap_or_default(),
                body: None,
            }),
            _ => None,
        }
    }

    /// As [`Composite::of`], but for `STABLEHLO_COMPOSITE` alone.
    pub fn of_builtin(model: &'m Model, node: &'m Node) -> Option<Self> {
        Composite::of(model, node).filter(|_| node.op().builtin().is_some())
    }

    /// Returns the attributes as a map; an empty map if there are no bytes.
    ///
    /// # Errors
    /// [`Error::InvalidNode`](crate::Error::InvalidNode) where they are not a FlexBuffer map.
    pub fn attributes(&self) -> Result<Map<'m>> {
        Map::parse(if self.bytes.is_empty() { NONE } else { self.bytes })
    }
}
