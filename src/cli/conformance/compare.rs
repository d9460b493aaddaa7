//! `conformance --compare`: the changes between two runs.

use std::path::Path;

use delegraph_conformance::report::{Diff, Report};

use crate::cli::failure::{Exit, Failure};
use crate::cli::files::check_readable;
use crate::cli::output::{Document, Output};

pub(super) fn run(before: &Path, now: &Path, out: &Output) -> Result<Exit, Failure> {
    let read = |path: &Path| {
        check_readable("--compare", path)?;
        Report::read(path).map_err(|e| Failure::invalid(e.to_string()))
    };
    let diff = Diff::of(&read(before)?, &read(now)?);
    out.print(&diff)?;
    Ok(if diff.is_fine() { Exit::Fine } else { Exit::Failed })
}

impl Document for Diff {
    fn text(&self) -> String {
        Diff::text(self)
    }
}
