//! Reads handwritten digits with the classifiers that are part of the repository.

use std::path::Path;

use npyz::NpyFile;

use crate::Result;
use crate::run::{self, Backend, Output};
use crate::verdict::Verdict;

const FILES: [&str; 4] = ["float32", "float16", "dynamic_range", "int8"];
/// Elements of a digit, `[8, 8, 1]`.
const PIXELS: usize = 64;

/// Classifies the test digits with every file on every backend, and prints the number of correct results.
pub(crate) fn read(backends: &[Backend], verdict: &mut Verdict) -> Result<()> {
    let assets = crate::root().join("assets/digits");
    let digits: Vec<f32> = NpyFile::new(&std::fs::read(assets.join("digits.npy"))?[..])?.into_vec()?;
    let labels: Vec<u8> = NpyFile::new(&std::fs::read(assets.join("labels.npy"))?[..])?.into_vec()?;
    println!("read digits: the embedded classifiers");
    for kind in FILES {
        let name = format!("digits_{kind}");
        let model = assets.join(format!("{name}.tflite"));
        print!("  {name:<22}");
        let mut outputs = Vec::new();
        for backend in backends {
            let ran = classify(&model, *backend, &digits)?;
            let right = ran.iter().zip(&labels).filter(|(o, l)| largest(&o.values) == usize::from(**l));
            let title = if *backend == Backend::Gpu { "GPU" } else { "CPU" };
            print!("  {title} {} of {} right", right.count(), labels.len());
            outputs.push(ran);
        }
        println!();
        if let [gpu, cpu] = &outputs[..] {
            verdict.hear(&name, run::compare(gpu, cpu));
        }
    }
    Ok(())
}

fn classify(model: &Path, backend: Backend, digits: &[f32]) -> Result<Vec<Output>> {
    let (mut interpreter, ..) = run::prepare(model, backend)?;
    let mut outputs = Vec::new();
    for digit in digits.chunks_exact(PIXELS) {
        run::set_input(&mut interpreter, digit)?;
        interpreter.invoke()?;
        outputs.push(run::output(&interpreter, 0)?);
    }
    Ok(outputs)
}

fn largest(values: &[f32]) -> usize {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_wins() {
        assert_eq!(largest(&[0.1, 0.7, 0.2]), 1);
        assert_eq!(largest(&[-3.0, -1.0]), 1);
    }
}
