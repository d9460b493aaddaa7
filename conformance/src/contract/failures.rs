//! A failure at each hook.

use std::sync::atomic::Ordering;

use delegraph_delegate_api::PartitionOptions;

use super::watch::{Fault, Hook, Watch};
use super::{Found, Outputs, Trial, differ, failed};
use crate::engine::{feed, outputs, prepare};

/// Injects an error or a panic at each hook. The CPU's results must be returned, and the delegate must remain usable.
pub(super) fn check(trial: &Trial<'_>) -> Found {
    let cpu = trial.run(&mut trial.interpreter(None)?)?;
    for fault in Fault::ALL {
        let (watch, log) = Watch::new(trial.make()?, Some(fault));
        let mut interpreter = trial.offered(Some(Box::new(watch)))?;
        let mut got = Outputs::new();
        for step in &trial.problem.steps {
            feed(&mut interpreter, &step.feeds)?;
            interpreter.invoke_with_fallback()?;
            got.push(outputs(&interpreter)?);
        }
        if !log.struck.load(Ordering::Relaxed) {
            continue;
        }
        let name = fault.name();
        if let Some(problem) = differ(trial.problem, &format!("after {name}"), &got, &cpu) {
            return Ok(Some(problem));
        }
        if interpreter.report().failures.is_empty() {
            return Ok(Some(format!("after {name}, the report does not name the failure")));
        }
        if fault.hook == Hook::Invoke {
            continue;
        }
        // The same delegate, without the fault.
        log.heal();
        for delegate in interpreter.remove_delegates() {
            interpreter.add_delegate(delegate, PartitionOptions::default());
        }
        interpreter.reset_variables()?;
        prepare(&mut interpreter, trial.problem)?;
        if let Some(error) = failed(&interpreter) {
            return Ok(Some(format!("used again after {name}: {error}")));
        }
        let got = trial.run(&mut interpreter)?;
        if let Some(problem) = differ(trial.problem, &format!("used again after {name}"), &got, trial.got) {
            return Ok(Some(problem));
        }
    }
    Ok(None)
}
