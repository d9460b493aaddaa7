//! Runs the inputs of earlier findings and a few mutants without a fuzzer.

use std::path::Path;

use delegraph_fuzz::mutate::{Dice, damaged, mutant};
use delegraph_fuzz::{TARGETS, seeds};

/// Runs the target on every file of `fuzz/corpus/TARGET/`.
#[test]
fn findings_stay_fixed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for folder in std::fs::read_dir(&corpus).unwrap() {
        let folder = folder.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
            let left_out = cfg!(not(feature = "wgpu")) && name == "wgpu";
            assert!(left_out, "there is no target {name}");
            continue;
        };
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
        }
    }
}

/// A few mutants of a few cases, so that mutations and targets keep working.
#[test]
fn mutants_run() {
    let cases = seeds::cases();
    let (mut valid, count) = (0, 150);
    for index in 0..count {
        let mut dice = Dice::new(1, index);
        let (base, other) = (dice.below(cases.len()), dice.below(cases.len()));
        let file = mutant(&cases[base], Some(&cases[other]), &mut dice);
        let bytes = delegraph_core::ModelBytes::new(file.clone());
        valid += usize::from(delegraph_core::Model::from_bytes(bytes).is_ok());
        for target in TARGETS.iter().filter(|t| ["loader", "model", "fusion"].contains(&t.name)) {
            (target.run)(&file);
        }
    }
    assert!((count as usize / 10..count as usize).contains(&valid), "{valid} of {count} mutants are valid");
}

/// Scripts, options and shaders of random bytes.
#[test]
fn random_bytes_run() {
    let seed = "@group(0) @binding(0) var<storage, read_write> y: array<f32>; \
                @compute @workgroup_size(1) fn main() { y[0] = 1.0; }";
    for index in 0..300 {
        let mut dice = Dice::new(2, index);
        let bytes: Vec<u8> = (0..dice.below(400)).map(|_| dice.below(256) as u8).collect();
        for target in TARGETS.iter().filter(|t| ["flex", "plugin", "litert"].contains(&t.name)) {
            (target.run)(&bytes);
        }
        for target in TARGETS.iter().filter(|t| t.name == "shader") {
            (target.run)(&damaged(seed.as_bytes(), &mut dice));
        }
    }
}
