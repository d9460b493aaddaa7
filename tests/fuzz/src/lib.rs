//! The functions of the fuzz targets in `fuzz/`, so that a test can replay findings without a fuzzer, and mutants of
//! models.
//!
//! Each target is a function of bytes that returns normally for any input. A panic, an abort, a hang or an excessive
//! allocation is a finding. `fuzz/corpus/TARGET/` has the inputs of earlier findings.

// A panic ends a test or a fuzzer; trees are only read from files that were verified.
#![allow(clippy::unwrap_used, clippy::panic)]

pub mod litert;
pub mod measure;
pub mod models;
pub mod mutate;
pub mod plugin;
mod script;
pub mod seeds;
pub mod texts;
pub mod tree;

/// A target: its name, which is also the name of its corpus, and its function.
pub struct Target {
    /// The name of the target.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "loader", run: models::loader },
    Target { name: "model", run: models::cpu },
    Target { name: "fusion", run: models::fusion },
    #[cfg(feature = "wgpu")]
    Target { name: "wgpu", run: models::wgpu },
    Target { name: "flex", run: texts::flex },
    #[cfg(feature = "wgpu")]
    Target { name: "shader", run: texts::shader },
    Target { name: "plugin", run: plugin::run },
    Target { name: "litert", run: litert::run },
];
