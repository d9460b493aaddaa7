//! Valid models as seeds.

use std::path::Path;

use delegraph_conformance::cases::{DEFAULT_SEED, suite};

/// Files above this size are not mutated, since they are mostly weights.
const MAX_FILE: usize = 48 << 10;

/// Returns valid models: every case of the conformance suite whose file is not too large.
pub fn cases() -> Vec<Vec<u8>> {
    let models = suite(DEFAULT_SEED).into_iter().filter_map(|case| case.build().ok());
    models.map(|model| model.bytes().to_vec()).filter(|file| file.len() <= MAX_FILE).collect()
}

/// Returns the files of a folder that are not too large.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn files(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_file() && path.metadata()?.len() <= MAX_FILE as u64 {
            files.push(std::fs::read(path)?);
        }
    }
    Ok(files)
}
