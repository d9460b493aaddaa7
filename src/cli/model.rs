//! Loading the model of a verb.

use std::path::{Path, PathBuf};

use delegraph::Model;

use super::budgets::Budgets;
use super::failure::{self, Failure};

/// The model file.
#[derive(clap::Args)]
pub(crate) struct ModelArgument {
    /// The model, a .tflite file
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    budgets: Budgets,
}

impl ModelArgument {
    /// Loads the model. The limits apply from here on.
    pub(crate) fn load(&self) -> Result<Model, Failure> {
        self.budgets.start();
        failure::set_model(&self.path);
        load(&self.path)
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

pub(crate) fn load(path: &Path) -> Result<Model, Failure> {
    Ok(delegraph::load(path)?)
}
