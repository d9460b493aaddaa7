//! `delegraph ops --resolver-for`: the written resolver builds, and runs its models.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::fs;
use std::path::Path;

use common::{Tiny, delegraph, nested_cargo, nested_target, path};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Writes a program with two modules of resolvers, and a replacement for the facade: the GPU delegate of the real one
/// takes long to build.
fn write_crate(folder: &Path, digits: &str, sin: &str) {
    let write = |file: &str, text: &str| {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let dependency =
        |name: &str| format!("delegraph-{name} = {{ path = {:?} }}\n", Path::new(ROOT).join(name));
    write(
        "facade/Cargo.toml",
        &format!(
            "[package]\nname = \"delegraph\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{}{}",
            dependency("core"),
            dependency("interpreter")
        ),
    );
    write(
        "facade/src/lib.rs",
        "pub use delegraph_core as core;\npub use delegraph_interpreter as interpreter;\n",
    );
    write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         delegraph = { path = \"facade\" }\n",
    );
    write("src/digits.rs", digits);
    write("src/sin.rs", sin);
    write(
        "src/main.rs",
        r#"
mod digits;
mod sin;

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::{Model, ModelBytes, MutableOpResolver, Registration, Result};
use delegraph::interpreter::Interpreter;

struct Sin;

impl Kernel for Sin {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = x.sin());
        Ok(())
    }
}

struct Mine;

impl sin::CustomKernels for Mine {
    fn kernel_sin(&self) -> Registration {
        Registration::new(|_| Ok(Sin))
    }
}

fn run(file: &str, resolver: MutableOpResolver) -> Result<Vec<f32>> {
    let model = Model::from_bytes(ModelBytes::new(std::fs::read(file).unwrap()))?;
    let mut interpreter = Interpreter::builder_with_resolver(model, resolver).build()?;
    interpreter.input_mut::<f32>(0)?.fill(0.5);
    interpreter.invoke()?;
    Ok(interpreter.output::<f32>(0)?.to_vec())
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    println!("{:?}", run(&files[0], digits::resolver()).unwrap());
    println!("{:?}", run(&files[1], sin::resolver(&Mine)).unwrap());
    // Each resolver has only the kernels of its model.
    println!("{}", run(&files[1], digits::resolver()).unwrap_err());
}
"#,
    );
    fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
}

#[test]
fn the_source_builds_and_runs_its_models() {
    let folder = tempfile::tempdir().unwrap();
    let (digits, sin) =
        (format!("{ROOT}/assets/digits/digits_float32.tflite"), format!("{ROOT}/assets/custom/sin.tflite"));
    let source =
        |models: &[&str]| delegraph(&[&["ops", "--resolver-for"], models].concat()).expect(0, "").stdout;
    write_crate(folder.path(), &source(&[&digits]), &source(&[&sin]));
    let mut cargo = nested_cargo(&["run"], folder.path());
    cargo.args(["--", &digits, &sin]);
    let ran = cargo.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{stdout}\n{stderr}");
    assert!(!stderr.contains("warning"), "{stderr}");
    let mut lines = stdout.lines();
    assert_eq!(lines.next().unwrap().split(',').count(), 10, "{stdout}");
    assert_eq!(lines.next().unwrap(), format!("{:?}", [1.5f32.sin(); 5]));
    assert_eq!(lines.next().unwrap(), "2 ops have no kernel:");
    // By the names of functions, the program contains no kernels of other ops.
    let program = fs::read(nested_target().join("debug/app")).unwrap();
    let holds = |family: &str| {
        let name = format!("9reference{}{family}", family.len());
        program.windows(name.len()).any(|bytes| bytes == name.as_bytes())
    };
    assert!(holds("conv_2d"));
    assert!(!holds("non_max_suppression") && !holds("lstm") && !holds("unary"));
}

#[test]
fn only_what_is_used_is_named() {
    let (digits, sin) =
        (format!("{ROOT}/assets/digits/digits_int8.tflite"), format!("{ROOT}/assets/custom/sin.tflite"));
    let document = delegraph(&["ops", "--resolver-for", &digits, &sin, "--json"]).expect(0, "").json();
    let source = document["source"].as_str().unwrap();
    assert_eq!(document["ops"]["ADD"], serde_json::json!([1]));
    assert_eq!(document["custom_ops"], serde_json::json!(["custom op \"Sin\" version 1"]));
    for wanted in ["optimized::families::conv_2d", "BuiltinOp::SOFTMAX, 2", "custom.kernel_sin(), 1"] {
        assert!(source.contains(wanted), "{source}");
    }
    assert!(!source.contains("lstm") && !source.contains("families::stablehlo"), "{source}");

    // Builtin ops without a kernel, and invalid files.
    let folder = tempfile::tempdir().unwrap();
    let unknown = Tiny { code: 300, ..Tiny::default() }.write(folder.path());
    delegraph(&["ops", "--resolver-for", path(&unknown)]).expect(3, "builtin operator 300");
    delegraph(&["ops", "--resolver-for", "absent.tflite"]).expect(4, "absent.tflite");
    delegraph(&["ops", "--resolver-for", &sin, "--delegate", "cpu"]).expect(2, "cannot be used with");
}
