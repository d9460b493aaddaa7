//! `seeds DIR` writes valid models to DIR, for fuzz targets to start from.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: seeds DIR");
        return ExitCode::from(2);
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (i, file) in delegraph_fuzz::seeds::cases().into_iter().enumerate() {
        std::fs::write(folder.join(format!("case_{i}.tflite")), file)?;
    }
    Ok(())
}
