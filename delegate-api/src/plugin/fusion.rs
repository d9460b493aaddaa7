//! Fusions of a library, and their results, on both sides of the interface.

/// A fusion of a library.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LibraryFusion {
    /// The name of the composites that it replaces, or a name for reports.
    pub name: String,
    /// Whether it replaces marked composites; otherwise patterns of nodes.
    pub composites: bool,
    /// The factor by which outputs may differ more than usual, at least 1.
    pub tolerance: f64,
}

impl LibraryFusion {
    /// Creates the description of a fusion with the usual tolerance.
    pub fn new(name: impl Into<String>, composites: bool) -> Self {
        LibraryFusion { name: name.into(), composites, tolerance: 1.0 }
    }

    /// Sets [`LibraryFusion::tolerance`].
    #[must_use]
    pub fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }
}

/// The result of a fusion of a library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FusionResult {
    /// The rewritten model as a file, if it changed. Not checked.
    pub model: Option<Vec<u8>>,
    /// The changes.
    pub changes: Vec<FusionChange>,
    /// Composites that were not replaced.
    pub left: Vec<FusionLeft>,
}

/// A change of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FusionChange {
    /// The index of the subgraph.
    pub subgraph: usize,
    /// The tensor that the nodes compute.
    pub tensor: String,
    /// The removed ops.
    pub from: Vec<String>,
    /// The new ops.
    pub to: Vec<String>,
}

/// A composite that a fusion did not replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FusionLeft {
    /// The index of the subgraph.
    pub subgraph: usize,
    /// Its first output.
    pub tensor: String,
    /// The reason.
    pub reason: String,
}
