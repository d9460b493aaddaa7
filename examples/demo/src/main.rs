//! `make demo`: segments a portrait and finds its face, on the GPU and on the CPU, and reads a few digits.
//!
//! ```text
//! cargo run --profile demo -p delegraph-demo [-- PHOTO.png]
//! ```
//!
//! Writes `target/demo/segmented.png` and `target/demo/face.png`. Without the fetched models it only reads digits, with
//! the classifier in the repository, and prints the skipped parts. Fails if the GPU's outputs differ from the CPU's.

mod digits;
mod draw;
mod face;
mod photo;
mod run;
mod segment;
mod verdict;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use image::RgbImage;

use photo::Fit;
use run::{Backend, Ran};
use verdict::Verdict;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut backends = vec![Backend::Cpu(threads)];
    match WgpuDelegate::new(WgpuOptions::default()) {
        Ok(delegate) => {
            let info = delegate.adapter_info();
            println!("GPU  {} ({}, {:?}, {})", info.name, info.backend, info.device_type, info.driver_info);
            backends.insert(0, Backend::Gpu);
        }
        Err(error) => println!("GPU  left out: {error}"),
    }
    println!("CPU  {} threads, {}", threads, std::env::consts::ARCH);
    println!(
        "times of `make demo`: only the CPU's kernels are optimized; a release build loads, prepares and submits faster\n"
    );

    let mut verdict = Verdict::default();
    let photo_path = std::env::args_os().nth(1).map_or_else(|| fetched("astronaut.png"), PathBuf::from);
    if let Some(photo) = open_photo(&photo_path)? {
        let out = root().join("target/demo");
        std::fs::create_dir_all(&out)?;
        segment_portrait(&photo, &backends, &mut verdict, &out.join("segmented.png"))?;
        find_face(&photo, &backends, &mut verdict, &out.join("face.png"))?;
    }
    digits::read(&backends, &mut verdict)?;
    Ok(verdict.pronounce()?)
}

/// The path of a file that `scripts/fetch_models.py` fetches.
fn fetched(name: &str) -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache/delegraph");
    let cache =
        std::env::var_os("DELEGRAPH_CACHE").filter(|c| !c.is_empty()).map_or_else(home, PathBuf::from);
    cache.join("models").join(name)
}

/// Prints a message if a fetched file is missing.
fn is_there(path: &Path) -> bool {
    let there = path.is_file();
    if !there {
        println!("left out: {} is not there; `make models` fetches it\n", path.display());
    }
    there
}

fn open_photo(path: &Path) -> Result<Option<RgbImage>> {
    if !is_there(path) {
        return Ok(None);
    }
    let photo = image::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some(photo.to_rgb8()))
}

fn segment_portrait(photo: &RgbImage, backends: &[Backend], verdict: &mut Verdict, to: &Path) -> Result<()> {
    let model = fetched("selfie_segmentation.tflite");
    if !is_there(&model) {
        return Ok(());
    }
    let fit = Fit::new(photo.width(), photo.height(), segment::SIZE);
    let runs =
        compare("segment the portrait", &model, &fit.tensor(photo, segment::value), backends, verdict)?;
    let mask = output(&runs, 0)?;
    let person = mask.iter().filter(|v| **v > 0.5).count() as f32 / mask.len().max(1) as f32;
    println!("  {:.0} % of the picture are a person", person * 100.0);
    save(&segment::replace_background(photo, mask, fit), to)
}

fn find_face(photo: &RgbImage, backends: &[Backend], verdict: &mut Verdict, to: &Path) -> Result<()> {
    let model = fetched("face_detection_short_range.tflite");
    if !is_there(&model) {
        return Ok(());
    }
    let fit = Fit::new(photo.width(), photo.height(), face::SIZE);
    let runs = compare("find the face", &model, &fit.tensor(photo, face::value), backends, verdict)?;
    let faces = face::find(output(&runs, 0)?, output(&runs, 1)?);
    for face in &faces {
        let [[left, top], [right, bottom]] = [face.min, face.max].map(|p| fit.to_photo(p));
        let score = face.score * 100.0;
        println!("  a face, {score:.1} % sure: x {left:.0} to {right:.0}, y {top:.0} to {bottom:.0}");
    }
    if faces.is_empty() {
        println!("  no face found");
    }
    let mut drawn = photo.clone();
    face::draw(&mut drawn, &faces, fit);
    save(&drawn, to)
}

/// Runs a model on every backend and prints the times. Returns the results in the order of the backends.
fn compare(
    task: &str,
    model: &Path,
    input: &[f32],
    backends: &[Backend],
    verdict: &mut Verdict,
) -> Result<Vec<Ran>> {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    println!("{task}: {name}");
    let runs = backends.iter().map(|b| run::run(model, input, *b)).collect::<delegraph::Result<Vec<_>>>()?;
    if let (Some(Backend::Gpu), Some(ran)) = (backends.first(), runs.first()) {
        print!("{}", run::explain(&ran.report));
    }
    println!("  {:<5}{:>12}{:>12}{:>12}{:>12}", "", "load", "prepare", "first", "median");
    for (backend, ran) in backends.iter().zip(&runs) {
        let title = if *backend == Backend::Gpu { "GPU" } else { "CPU" };
        let [load, prepare, first, median] = [ran.load, ran.prepare, ran.first, ran.median].map(milliseconds);
        println!("  {title:<5}{load:>12}{prepare:>12}{first:>12}{median:>12}");
    }
    if let [gpu, cpu] = &runs[..] {
        let comparison = run::compare(&gpu.outputs, &cpu.outputs);
        if let Some(c) = comparison {
            println!(
                "  largest difference between GPU and CPU: {:.1e}, allowed {:.1e}",
                c.max_abs, c.allowed
            );
        }
        verdict.hear(&name, comparison);
    }
    Ok(runs)
}

fn output(runs: &[Ran], i: usize) -> Result<&[f32]> {
    let output = runs.first().and_then(|ran| ran.outputs.get(i));
    output.map(|o| o.values.as_slice()).ok_or_else(|| format!("the model has no output {i}").into())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn save(picture: &RgbImage, to: &Path) -> Result<()> {
    picture.save(to).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("  wrote {}\n", to.display());
    Ok(())
}
