//! `delegraph new-delegate`: the created crate builds and is a plugin; invalid arguments are errors.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::fs;
use std::path::Path;

use common::{Tiny, command, delegraph, nested_cargo, nested_target, path, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The platform that the compiler builds for.
fn host() -> String {
    let version = std::process::Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// The crate's tests run as `new_delegate_template.rs` and `new_delegate_conformance.rs`: built from the crate, they
/// would compile the interpreter again.
#[test]
fn the_crate_builds() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("deep/npu");
    let arguments = ["new-delegate", "my-npu", "--path", path(&made), "--delegraph", ROOT, "--json"];
    let document = delegraph(&arguments).expect(0, "").json();
    assert_eq!(document["files"].as_array().unwrap().len(), 5);
    let mut cargo = nested_cargo(&["build"], &made);
    let built = cargo.output().unwrap();
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && !stderr.contains("warning"), "{stderr}");
    // The dependencies of its tests are found, and Cargo knows the tests. Without the filter, Cargo would need packages
    // for other platforms, which are not fetched.
    let mut cargo = nested_cargo(&["metadata", "--format-version", "1", "--filter-platform", &host()], &made);
    let listed = cargo.output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let package = |name: &str| {
        let packages = metadata["packages"].as_array().unwrap();
        packages.iter().find(|package| package["name"] == name).unwrap()
    };
    assert!(package("delegraph-conformance")["manifest_path"].as_str().unwrap().starts_with(ROOT));
    let targets = package("my-npu")["targets"].as_array().unwrap();
    let tests = targets.iter().filter(|target| target["kind"][0] == "test").map(|target| &target["name"]);
    assert_eq!(tests.collect::<Vec<_>>(), ["conformance", "delegate"]);
    let conformance = fs::read_to_string(made.join("tests/conformance.rs")).unwrap();
    let end = "use my_npu::MyDelegate;\n\ndelegraph_conformance::main!(|| Simple(MyDelegate::new()));\n";
    assert!(conformance.ends_with(end), "{conformance}");
    // The crate is also a plugin.
    let library = format!("{}my_npu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let plugin = format!("plugin:{}", nested_target().join("debug/deps").join(library).display());
    let model = Tiny::default().write(folder.path());
    let explained =
        delegraph(&["explain", path(&model), "--delegate", &plugin, "--json"]).expect(0, "").json();
    assert_eq!(
        (&explained["delegated_nodes"], &explained["total_nodes"]),
        (&1.into(), &1.into()),
        "{explained}"
    );
    delegraph(&["run", path(&model), "--delegate", &plugin, "--policy", "require"]).expect(0, "");
}

#[test]
fn inside_a_checkout_its_crates_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    let from = Path::new(ROOT).join("docs");
    run(command(&["new-delegate", "npu", "--path", path(&inside)]).current_dir(from)).expect(0, "");
    let manifest = fs::read_to_string(inside.join("Cargo.toml")).unwrap();
    let core = Path::new(ROOT).join("core");
    assert!(manifest.contains(&format!("delegraph-core = {{ path = {:?} }}", core)), "{manifest}");
}

/// Outside of a checkout the crate needs released crates. The registry is a folder here, at first without them.
#[test]
fn outside_of_a_checkout_cargo_must_find_the_released_crates() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, made) = (folder.path().join("registry"), folder.path().join("npu"));
    fs::create_dir(&registry).unwrap();
    fs::create_dir(folder.path().join(".cargo")).unwrap();
    let config = format!(
        "[source.crates-io]\nreplace-with = \"stub\"\n[source.stub]\ndirectory = {:?}\n[net]\noffline = true\n",
        registry
    );
    fs::write(folder.path().join(".cargo/config.toml"), config).unwrap();
    let make = || {
        let arguments = ["new-delegate", "npu", "--path", path(&made)];
        run(command(&arguments).current_dir(folder.path()).env("CARGO", env!("CARGO")))
    };
    let ran = make().expect(2, "Cargo does not find Delegraph's crates");
    assert!(ran.stderr.contains("--delegraph PATH") && ran.stderr.contains("delegraph-"), "{}", ran.stderr);
    assert!(!made.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left");
    let mut without_cargo = command(&["new-delegate", "npu", "--path", path(&made)]);
    without_cargo.current_dir(folder.path()).env("CARGO", "/no/such/cargo");
    let ran = run(&mut without_cargo).expect(2, "cargo cannot be run");
    assert!(
        ran.stderr.contains("install Rust with Cargo") && ran.stderr.contains("--delegraph PATH"),
        "{}",
        ran.stderr
    );

    for name in ["delegraph-core", "delegraph-delegate-api", "delegraph-conformance"] {
        let stub = registry.join(name);
        fs::create_dir_all(stub.join("src")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let manifest = format!("[package]\nname = {name:?}\nversion = {version:?}\nedition = \"2024\"\n");
        fs::write(stub.join("Cargo.toml"), manifest).unwrap();
        fs::write(stub.join("src/lib.rs"), "").unwrap();
        fs::write(stub.join(".cargo-checksum.json"), "{\"files\":{}}").unwrap();
    }
    make().expect(0, "");
    let manifest = fs::read_to_string(made.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("delegraph-core = { version = "), "{manifest}");
    assert!(!made.join("Cargo.lock").exists());
}

#[test]
fn refusals() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    delegraph(&["new-delegate", "npu", "--path", path(&there)]).expect(2, "already exists");
    assert_eq!(fs::read_dir(&there).unwrap().count(), 0);
    let new = folder.path().join("new");
    delegraph(&["new-delegate", "1npu", "--path", path(&new)]).expect(2, "begins with a letter");
    for word in ["fn", "yield", "Self"] {
        delegraph(&["new-delegate", word, "--path", path(&new)]).expect(2, "a word of Rust");
    }
    let elsewhere = ["new-delegate", "npu", "--path", path(&new), "--delegraph", path(&there)];
    delegraph(&elsewhere).expect(2, "not a checkout of Delegraph");
    // A file in place of a folder.
    fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file/npu");
    delegraph(&["new-delegate", "npu", "--path", path(&below)]).expect(1, "cannot be made");
    let document = delegraph(&["new-delegate", "npu", "--path", path(&there), "--json"]).json();
    assert_eq!(document["error"]["exit_code"], 2);
    assert!(!new.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
