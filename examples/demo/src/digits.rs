//! Reads handwritten digits with the classifiers that are part of the repository.

use std::path::Path;

use crate::Result;
use crate::run::{self, Backend, Output};
use crate::verdict::Verdict;

const FILES: [&str; 4] = ["float32", "float16", "dynamic_range", "int8"];
/// Elements of a digit, `[8, 8, 1]`.
const PIXELS: usize = 64;

/// Classifies the test digits with every file on every backend, and prints the number of correct results.
pub(crate) fn read(backends: &[Backend], verdict: &mut Verdict) -> Result<()> {
    let assets = crate::root().join("assets/digits");
    let [digits, labels] = ["digits.npy", "labels.npy"].map(|name| std::fs::read(assets.join(name)));
    let (digits, labels) = (digits?, labels?);
    let digits = data(&digits)?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let (digits, labels): (Vec<f32>, _) = (digits.collect(), data(&labels)?);
    println!("read digits: the embedded classifiers");
    for kind in FILES {
        let name = format!("digits_{kind}");
        let model = assets.join(format!("{name}.tflite"));
        print!("  {name:<22}");
        let mut outputs = Vec::new();
        for backend in backends {
            let ran = classify(&model, *backend, &digits)?;
            let right = ran.iter().zip(labels).filter(|(o, l)| largest(&o.values) == usize::from(**l));
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

/// Returns the data after the header of a `.npy` file of version 1. The two files here are known to have float32 and uint8; a
/// crate that parses headers takes longer to compile than the rest of this program.
fn data(file: &[u8]) -> Result<&[u8]> {
    let length = file.get(8..10).and_then(|length| <[u8; 2]>::try_from(length).ok());
    let start = length.map(|length| 10 + usize::from(u16::from_le_bytes(length)));
    let data = start.and_then(|start| file.get(start..)).filter(|_| file.starts_with(b"\x93NUMPY\x01"));
    data.ok_or_else(|| "not a .npy file of version 1".into())
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
