//! `seeds DIR [COUNT]` writes valid models to DIR as seeds for fuzz targets: all cases of the suite, or COUNT of them,
//! spread evenly. A fuzzer runs each seed first.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let count = std::env::args().nth(2).map_or(Ok(usize::MAX), |count| count.parse());
    let (Some(folder), Ok(count)) = (std::env::args_os().nth(1), count) else {
        eprintln!("usage: seeds DIR [COUNT]");
        return ExitCode::from(2);
    };
    match write(Path::new(&folder), count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path, count: usize) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let cases = delegraph_fuzz::seeds::cases();
    let step = cases.len().div_ceil(count.max(1)).max(1);
    for (i, file) in cases.into_iter().enumerate().step_by(step) {
        std::fs::write(folder.join(format!("case_{i}.tflite")), file)?;
    }
    Ok(())
}
