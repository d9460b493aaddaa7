//! Recorded events of a run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use delegraph::core::NodeId;
use delegraph::delegate_api::NodeTime;
use delegraph::interpreter::{Profiler, StepEvent};

/// A step of a run.
pub(super) struct StepTime {
    pub(super) subgraph: usize,
    pub(super) nodes: Vec<NodeId>,
    pub(super) delegate: Option<String>,
    pub(super) node_times: Vec<NodeTime>,
    pub(super) start: Instant,
    pub(super) duration: Duration,
}

/// Collects steps. Clones share the steps: the interpreter holds one clone, the reader another.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<StepTime>>>);

impl Recorder {
    /// Returns the steps since the last call.
    pub(super) fn take(&self) -> Vec<StepTime> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Profiler for Recorder {
    fn step(&mut self, event: &StepEvent<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(StepTime {
            subgraph: event.subgraph,
            nodes: event.nodes.to_vec(),
            delegate: event.delegate.map(str::to_owned),
            node_times: event.node_times.to_vec(),
            start: event.start,
            duration: event.duration,
        });
    }
}
