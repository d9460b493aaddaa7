//! Real models and the embedded ones, compared with LiteRT's results, on every delegate.
//!
//! Each case is a separate test, `MODEL::CASE::DELEGATE`. Models that are not in the cache (`make models` fetches them)
//! are reported as ignored, as are GPU tests without a GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use delegraph_conformance::goldens::{Case, Goldens, Inputs, ModelEntry, Photo};
use delegraph_core::{Model, ModelBytes};
use delegraph_delegate_api::Runner;
use delegraph_delegate_wgpu::{WgpuDelegate, WgpuOptions, adapters};
use delegraph_interpreter::{Interpreter, InterpreterBuilder, ReferenceOpResolver};
use libtest_mimic::{Arguments, Failed, Trial};
use sha2::{Digest, Sha256};

const DELEGATES: [&str; 3] = ["cpu", "reference", "wgpu"];

/// Models whose nodes all run on the GPU.
const WHOLLY_ON_GPU: [&str; 7] = [
    "selfie_segmentation.tflite",
    "face_detection_short_range.tflite",
    "hand_landmark_full.tflite",
    "palm_detection_full.tflite",
    "pose_detection.tflite",
    "iris_landmark.tflite",
    "deeplabv3.tflite",
];

fn main() -> Result<(), String> {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the crate is in a workspace")?;
    let goldens: &'static Goldens = Box::leak(Box::new(Goldens::read(root).map_err(|e| e.to_string())?));
    let files = Arc::new(Files { cache: cache(), root: root.into(), photo: OnceLock::new() });
    let mut left_out: Vec<String> = Vec::new();
    if adapters().is_empty() {
        left_out.push("wgpu (no GPU adapter)".into());
    }
    let mut trials = Vec::new();
    for model in &goldens.index.models {
        let path = files.path(model);
        if !path.is_file() {
            left_out.push(model.model.clone());
        }
        let stem = model.model.trim_end_matches(".tflite");
        for (case, delegate) in model.cases.iter().flat_map(|c| DELEGATES.map(|d| (c, d))) {
            let photo_is_missing =
                matches!(case.inputs, Inputs::Photo { .. }) && !files.photo_path(goldens).is_file();
            let no_adapter = delegate == "wgpu" && left_out.iter().any(|l| l.starts_with("wgpu"));
            let files = Arc::clone(&files);
            let name = format!("{stem}::{}::{delegate}", case.inputs.name());
            let test = move || check(goldens, model, case, delegate, &files).map_err(Failed::from);
            trials.push(
                Trial::test(name, test).with_ignored_flag(!path.is_file() || photo_is_missing || no_adapter),
            );
        }
    }
    if !left_out.is_empty() {
        eprintln!("goldens: left out, not on this machine: {}", left_out.join(", "));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn check(
    goldens: &Goldens,
    model: &ModelEntry,
    case: &Case,
    delegate: &str,
    files: &Files,
) -> Result<(), String> {
    let bytes = read_checked(&files.path(model), &model.sha256)?;
    let photo = match case.inputs {
        Inputs::Photo { .. } => Some(files.photo(goldens)?),
        _ => None,
    };
    let loaded =
        Model::from_bytes_named(ModelBytes::new(bytes), files.path(model)).map_err(|e| e.to_string())?;
    let builder = with_delegate(Interpreter::builder(loaded), delegate)?;
    let mut interpreter = builder.build().map_err(|e| e.to_string())?;
    if let Some(delegraph_delegate_api::DelegateFailure { delegate, message: why, .. }) =
        interpreter.report().failures.first()
    {
        return Err(format!("delegate {delegate} failed: {why}"));
    }
    if delegate == "wgpu" && WHOLLY_ON_GPU.contains(&model.model.as_str()) {
        let left = interpreter.report().nodes.iter().find(|n| n.runner == Runner::Cpu);
        if let Some(node) = left {
            return Err(format!("node {} ({}) is on the CPU: {:?}", node.node.0, node.op, node.rejections));
        }
    }
    goldens.check(case, &mut interpreter, photo).map_err(|e| e.to_string())
}

fn with_delegate(builder: InterpreterBuilder, delegate: &str) -> Result<InterpreterBuilder, String> {
    Ok(match delegate {
        "reference" => builder.resolver(ReferenceOpResolver::new()),
        "wgpu" => {
            let delegate = WgpuDelegate::new(WgpuOptions::default()).map_err(|e| e.to_string())?;
            builder.delegate(delegate)
        }
        _ => builder.threads(2),
    })
}

/// The folder of models and the photo.
struct Files {
    cache: PathBuf,
    root: PathBuf,
    photo: OnceLock<Result<Photo, String>>,
}

impl Files {
    fn path(&self, model: &ModelEntry) -> PathBuf {
        match model.embedded {
            true => self.root.join("assets/digits").join(&model.model),
            false => self.cache.join(&model.model),
        }
    }

    fn photo_path(&self, goldens: &Goldens) -> PathBuf {
        self.cache.join(&goldens.index.photo.file)
    }

    fn photo(&self, goldens: &Goldens) -> Result<&Photo, String> {
        let read = || {
            let bytes = read_checked(&self.photo_path(goldens), &goldens.index.photo.sha256)?;
            let rgb = image::load_from_memory(&bytes).map_err(|e| e.to_string())?.to_rgb8();
            Ok(Photo::new(rgb.width() as usize, rgb.into_raw()))
        };
        self.photo.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}

/// `${DELEGRAPH_CACHE:-~/.cache/delegraph}/models`, as in `scripts/fetch_models.py`.
fn cache() -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache/delegraph");
    let cache = std::env::var_os("DELEGRAPH_CACHE").filter(|c| !c.is_empty());
    cache.map_or_else(home, PathBuf::from).join("models")
}

/// A file that must be identical to the one used for the goldens.
fn read_checked(path: &Path, sha256: &str) -> Result<Vec<u8>, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    match found == sha256 {
        true => Ok(bytes),
        false => Err(format!("{} is another file: SHA-256 {found}, expected {sha256}", path.display())),
    }
}
