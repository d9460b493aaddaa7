//! The steps of the last run.

use std::sync::{Arc, Mutex, PoisonError};

use delegraph::interpreter::{Profiler, StepEvent};
use serde::Serialize;

/// One step.
#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    subgraph: usize,
    nodes: Vec<usize>,
    delegate: Option<String>,
    milliseconds: f64,
}

/// Steps, shared with the interpreter's profiler.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<Vec<Step>>>);

impl Steps {
    /// Clears the steps of the last run.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the steps.
    pub(crate) fn list(&self) -> Vec<Step> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Profiler for Steps {
    fn step(&mut self, event: &StepEvent<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Step {
            subgraph: event.subgraph,
            nodes: event.nodes.iter().map(|id| id.0).collect(),
            delegate: event.delegate.map(str::to_owned),
            milliseconds: event.duration.as_nanos() as f64 / 1e6,
        });
    }
}
