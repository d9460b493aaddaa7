//! Why a delegate does not run a node.

use delegraph_core::{Op, TensorType};

/// Why a delegate does not run a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The model asks for a newer version of the op.
    #[error("{op} version {version} is above the highest supported, {max}")]
    VersionTooHigh {
        /// The op.
        op: Op,
        /// The version wanted.
        version: u32,
        /// The highest version supported.
        max: u32,
    },
    /// The delegate does not have the op.
    #[error("{op} is not supported")]
    UnsupportedOp {
        /// The op.
        op: Op,
    },
    /// The delegate does not have the marked composite.
    #[error("composite \"{name}\" is not supported")]
    UnsupportedComposite {
        /// The operation that it stands for.
        name: String,
    },
    /// The model asks for a newer version of the marked composite.
    #[error("composite \"{name}\" version {version} is above the highest supported, {max}")]
    CompositeVersionTooHigh {
        /// The operation that it stands for.
        name: String,
        /// The version wanted.
        version: u32,
        /// The highest version supported.
        max: u32,
    },
    /// An operand's element type.
    #[error("{operand} has type {ty}")]
    UnsupportedType {
        /// Which operand: `input 0`, `output 1`.
        operand: String,
        /// Its type.
        ty: TensorType,
    },
    /// A parameter, shape or combination of operands.
    #[error("{0}")]
    UnsupportedParam(String),
    /// The shape of a tensor is known only while running.
    #[error("the shape of tensor \"{tensor}\" is known only at run time")]
    DynamicShape {
        /// The tensor's name.
        tensor: String,
    },
    /// The device cannot hold or bind something this large.
    #[error("device limit: {0}")]
    DeviceLimit(String),
    /// The application replaced the builtin kernel, so the op may mean something else.
    #[error("{op} was overridden by the application's own kernel")]
    Overridden {
        /// The op.
        op: Op,
    },
    /// The partition that the node would be in has fewer nodes than are worth delegating.
    #[error("its partition has {nodes} nodes, fewer than the minimum of {min}")]
    PartitionTooSmall {
        /// Nodes in the partition.
        nodes: usize,
        /// The minimum.
        min: usize,
    },
    /// Larger partitions already use up the number allowed.
    #[error("only the {max} largest partitions are delegated")]
    TooManyPartitions {
        /// The number allowed.
        max: usize,
    },
    /// The application does not want it delegated.
    #[error("{0}")]
    Excluded(String),
    /// Running it on the CPU costs less.
    #[error("not worth its copies: {0}")]
    CostModel(String),
    /// The delegate failed and everything that it claimed was given back.
    #[error("the delegate failed: {0}")]
    DelegateFailed(String),
    /// The node was not claimed, and the delegate did not say why.
    #[error("not claimed")]
    NotClaimed,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Rejection {
    /// A short, stable name of the kind of reason, for JSON and tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Rejection::VersionTooHigh { .. } => "VersionTooHigh",
            Rejection::UnsupportedOp { .. } => "UnsupportedOp",
            Rejection::UnsupportedComposite { .. } => "UnsupportedComposite",
            Rejection::CompositeVersionTooHigh { .. } => "CompositeVersionTooHigh",
            Rejection::UnsupportedType { .. } => "UnsupportedType",
            Rejection::UnsupportedParam(_) => "UnsupportedParam",
            Rejection::DynamicShape { .. } => "DynamicShape",
            Rejection::DeviceLimit(_) => "DeviceLimit",
            Rejection::Overridden { .. } => "Overridden",
            Rejection::PartitionTooSmall { .. } => "PartitionTooSmall",
            Rejection::TooManyPartitions { .. } => "TooManyPartitions",
            Rejection::Excluded(_) => "Excluded",
            Rejection::CostModel(_) => "CostModel",
            Rejection::DelegateFailed(_) => "DelegateFailed",
            Rejection::NotClaimed => "NotClaimed",
            Rejection::Other(_) => "Other",
        }
    }
}
