//! The reasons for which a delegate does not run a node.

use delegraph_core::types::short_name;
use delegraph_core::{Op, TensorType, printable, printable_lines};

/// The reason for which a delegate does not run a node or a marked composite. States what was observed and what is
/// supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The node's version is newer than supported.
    #[error("{} version {version} is above the highest supported, {max}", op.in_short())]
    VersionTooHigh {
        /// The op.
        op: Op,
        /// The node's version.
        version: u32,
        /// The highest version supported.
        max: u32,
    },
    /// The node's version is supported, but the node uses features of a newer version, which is not.
    #[error("{} version {version} uses features of version {needed}; the highest supported is {max}", op.in_short())]
    UnderstatedVersion {
        /// The op.
        op: Op,
        /// The node's version.
        version: u32,
        /// The version that has the features.
        needed: u32,
        /// The highest version supported.
        max: u32,
    },
    /// The op is not supported.
    #[error("{} is not supported", op.in_short())]
    UnsupportedOp {
        /// The op.
        op: Op,
    },
    /// The marked composite is not supported.
    #[error("composite \"{}\" is not supported", short_name(name))]
    UnsupportedComposite {
        /// The name of the operation.
        name: String,
    },
    /// The composite's version is newer than supported.
    #[error("composite \"{}\" version {version} is above the highest supported, {max}", short_name(name))]
    CompositeVersionTooHigh {
        /// The name of the operation.
        name: String,
        /// The node's version.
        version: u32,
        /// The highest version supported.
        max: u32,
    },
    /// The composite's version is supported, but the composite uses features of a newer version, which is not.
    #[error(
        "composite \"{}\" version {version} uses features of version {needed}; the highest supported is {max}",
        short_name(name)
    )]
    UnderstatedCompositeVersion {
        /// The name of the operation.
        name: String,
        /// The node's version.
        version: u32,
        /// The version that has the features.
        needed: u32,
        /// The highest version supported.
        max: u32,
    },
    /// An operand has an unsupported element type.
    #[error("{} has the unsupported type {ty}", printable(operand))]
    UnsupportedType {
        /// The operand: `input 0`, `output 1`.
        operand: String,
        /// Its type.
        ty: TensorType,
    },
    /// An unsupported parameter, shape or combination of operands.
    #[error("{}", printable(.0))]
    UnsupportedParam(String),
    /// The shape of a tensor depends on data.
    #[error("the shape of tensor \"{}\" is known only at run time", short_name(tensor))]
    DynamicShape {
        /// The tensor's name.
        tensor: String,
    },
    /// A buffer or binding exceeds a limit of the device.
    #[error("device limit: {}", printable(.0))]
    DeviceLimit(String),
    /// The application replaced the builtin kernel, so that the op may compute something else.
    #[error("the application replaced the kernel of {}", op.in_short())]
    Overridden {
        /// The op.
        op: Op,
    },
    /// The node's partition has fewer nodes than the minimum.
    #[error("its partition has {nodes} node{}, fewer than the minimum of {min}", if *.nodes == 1 { "" } else { "s" })]
    PartitionTooSmall {
        /// Nodes in the partition.
        nodes: usize,
        /// The minimum.
        min: usize,
    },
    /// The limit on partitions is reached by partitions with more nodes.
    #[error("only the largest partitions are delegated, at most {max}")]
    TooManyPartitions {
        /// The maximum.
        max: usize,
    },
    /// The application excluded the node.
    #[error("{}", printable(.0))]
    Excluded(String),
    /// The CPU is estimated to be faster.
    #[error("not worth its copies: {}", printable(.0))]
    CostModel(String),
    /// The delegate failed and lost all its claims.
    #[error("the delegate failed: {}", printable_lines(.0))]
    DelegateFailed(String),
    /// The delegate neither claimed nor rejected the node, which it may claim.
    #[error("not claimed")]
    NotClaimed,
    /// Any other reason.
    #[error("{}", printable(.0))]
    Other(String),
}

impl Rejection {
    /// Returns a short, stable name of the variant, for JSON and tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Rejection::VersionTooHigh { .. } => "VersionTooHigh",
            Rejection::UnderstatedVersion { .. } => "UnderstatedVersion",
            Rejection::UnsupportedOp { .. } => "UnsupportedOp",
            Rejection::UnsupportedComposite { .. } => "UnsupportedComposite",
            Rejection::CompositeVersionTooHigh { .. } => "CompositeVersionTooHigh",
            Rejection::UnderstatedCompositeVersion { .. } => "UnderstatedCompositeVersion",
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
