//! Fusions of a library, and their results, on both sides of the interface.

/// The nodes that a fusion of a library replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FusionKind {
    /// Marked composites of its name.
    Composite,
    /// Patterns of nodes.
    Pattern,
}

/// A fusion of a library.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LibraryFusion {
    /// The name of the composites that it replaces, or a name for reports.
    pub name: String,
    /// The nodes that it replaces.
    pub kind: FusionKind,
    /// The factor by which outputs may differ more than usual, at least 1.
    pub tolerance: f64,
}

impl LibraryFusion {
    /// Creates the description of a fusion with the usual tolerance.
    pub fn new(name: impl Into<String>, kind: FusionKind) -> Self {
        LibraryFusion { name: name.into(), kind, tolerance: 1.0 }
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
#[non_exhaustive]
pub struct FusionResult {
    /// The rewritten model as a file, if it changed. Not checked.
    pub model: Option<Vec<u8>>,
    /// The changes.
    pub changes: Vec<FusionChange>,
    /// Composites that were not replaced.
    pub unchanged: Vec<FusionUnchanged>,
}

impl FusionResult {
    /// Creates the result of a fusion that changed nothing.
    pub fn unchanged() -> Self {
        FusionResult::default()
    }

    /// Creates a result with a rewritten model, the bytes of a file.
    pub fn with_model(model: Vec<u8>) -> Self {
        FusionResult { model: Some(model), ..FusionResult::default() }
    }

    /// Adds [`FusionResult::changes`].
    #[must_use]
    pub fn with_changes(mut self, changes: impl IntoIterator<Item = FusionChange>) -> Self {
        self.changes.extend(changes);
        self
    }

    /// Adds [`FusionResult::unchanged`].
    #[must_use]
    pub fn with_unchanged(mut self, unchanged: impl IntoIterator<Item = FusionUnchanged>) -> Self {
        self.unchanged.extend(unchanged);
        self
    }
}

/// A change of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

impl FusionChange {
    /// Creates a change of the nodes that compute `tensor`, without ops.
    pub fn new(subgraph: usize, tensor: impl Into<String>) -> Self {
        FusionChange { subgraph, tensor: tensor.into(), from: Vec::new(), to: Vec::new() }
    }

    /// Sets [`FusionChange::from`].
    #[must_use]
    pub fn with_from(mut self, from: Vec<String>) -> Self {
        self.from = from;
        self
    }

    /// Sets [`FusionChange::to`].
    #[must_use]
    pub fn with_to(mut self, to: Vec<String>) -> Self {
        self.to = to;
        self
    }
}

/// A composite that a fusion did not replace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FusionUnchanged {
    /// The index of the subgraph.
    pub subgraph: usize,
    /// The name of the composite's first output.
    pub tensor: String,
    /// The reason.
    pub reason: String,
}

impl FusionUnchanged {
    /// Creates the record of a composite whose first output is `tensor`.
    pub fn new(subgraph: usize, tensor: impl Into<String>, reason: impl Into<String>) -> Self {
        FusionUnchanged { subgraph, tensor: tensor.into(), reason: reason.into() }
    }
}
