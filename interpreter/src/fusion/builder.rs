//! Fusion as an option of [`InterpreterBuilder`].

use std::any::Any;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::{Composite, Model, OpResolver};

use super::pipeline::{Fused, Pipeline};
use super::report::FusionReport;
use crate::runtime::{Interpreter, InterpreterBuilder, ModelRewrite, ResourceLimits};

/// A pipeline, and the report of its run.
struct FusionRewrite {
    pipeline: Pipeline,
    report: FusionReport,
}

impl ModelRewrite for FusionRewrite {
    fn rewrite(
        &mut self,
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        keep: &dyn Fn(&Composite<'_>) -> bool,
        limits: &ResourceLimits,
    ) -> Result<Arc<Model>> {
        let Fused { model, report } =
            self.pipeline.clone().limits(limits.clone()).run_keeping(model, resolver, keep)?;
        self.report = report;
        Ok(Arc::new(model))
    }
}

impl InterpreterBuilder {
    /// Rewrites the model with fewer, larger ops before delegates are applied: see [`crate::fusion`]. Composites that a
    /// delegate declares, or for which the resolver has a kernel, are kept.
    pub fn fusion(self, pipeline: Pipeline) -> Self {
        self.rewrite(Box::new(FusionRewrite { pipeline, report: FusionReport::default() }))
    }
}

impl Interpreter {
    /// Returns the report of the pipeline that [`InterpreterBuilder::fusion`] set; `None` if no pipeline is set.
    pub fn fusion_report(&self) -> Option<&FusionReport> {
        let rewrite: &dyn Any = self.model_rewrite()?;
        rewrite.downcast_ref::<FusionRewrite>().map(|fusion| &fusion.report)
    }
}
