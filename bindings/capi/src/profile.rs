//! The steps of the last run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delegraph::interpreter::{Profiler, StepEvent};
use serde::Serialize;

use crate::error::Failure;

/// One step.
#[derive(Serialize)]
struct Step {
    subgraph: usize,
    nodes: Vec<usize>,
    /// `null` for a CPU kernel.
    delegate: Option<String>,
    nanoseconds: u64,
    /// The time of each node of a partition, if the delegate measures it.
    node_times: Vec<NodeTime>,
}

#[derive(Serialize)]
struct NodeTime {
    node: usize,
    nanoseconds: u64,
}

/// Steps, shared with the interpreter's profiler.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<Vec<Step>>>);

impl Steps {
    /// Removes the steps of the last run.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the steps as JSON.
    ///
    /// # Errors
    /// [`crate::error::dg_status::DG_INTERNAL`] if they cannot be serialized.
    pub(crate) fn json(&self) -> Result<String, Failure> {
        crate::text::json(&*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Profiler for Steps {
    fn step(&mut self, event: &StepEvent<'_>) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let node_time = |time: &delegraph::delegate_api::NodeTime| NodeTime {
            node: time.node.0,
            nanoseconds: nanoseconds(time.time),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Step {
            subgraph: event.subgraph,
            nodes: event.nodes.iter().map(|id| id.0).collect(),
            delegate: event.delegate.map(str::to_owned),
            nanoseconds: nanoseconds(event.duration),
            node_times: event.node_times.iter().map(node_time).collect(),
        });
    }
}
