//! Loading the model that a verb is about.

use std::path::{Path, PathBuf};

use delegraph::Model;

use super::failure::Failure;

/// The model file.
#[derive(clap::Args)]
pub(crate) struct ModelArgument {
    /// The model, a .tflite file
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
}

impl ModelArgument {
    pub(crate) fn load(&self) -> Result<Model, Failure> {
        load(&self.path)
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

pub(crate) fn load(path: &Path) -> Result<Model, Failure> {
    readable(path)?;
    Ok(delegraph::load(path)?)
}

/// A file that is not there is no damaged file.
fn readable(path: &Path) -> Result<(), Failure> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(e) => Err(Failure::invalid(format!("{}: {e}", path.display())).with_help("check the path")),
    }
}
