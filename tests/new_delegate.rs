//! `delegraph new-delegate`: what it makes builds and passes its own tests, and what it refuses.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy knows only `#[test]` functions as tests.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Tiny, command, delegraph, path, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_crate_builds_and_passes_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("deep/npu");
    let arguments = ["new-delegate", "my-npu", "--path", path(&made), "--delegraph", ROOT, "--json"];
    let document = delegraph(&arguments).expect(0, "").json();
    assert_eq!(document["files"].as_array().unwrap().len(), 5);
    // The versions that are here already, and what was built for the last run of this test.
    fs::copy(Path::new(ROOT).join("Cargo.lock"), made.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-delegate");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline", "--quiet"]).current_dir(&made);
    cargo.env("CARGO_TARGET_DIR", &target);
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "0").env_remove("RUSTFLAGS");
    let tested = cargo.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("3 passed"), "{stdout}");
    // The conformance suite, with the cases of its op.
    let suites =
        stdout.lines().filter_map(|l| l.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    assert!(suites.max().is_some_and(|most: usize| most > 100), "{stdout}");
    assert!(!stderr.contains("warning"), "{stderr}");
    // It is a plugin, too.
    let library = format!("{}my_npu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let plugin = format!("plugin:{}", target.join("debug/deps").join(library).display());
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
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    let make = |made: &Path, from: &Path| {
        run(command(&["new-delegate", "npu", "--path", path(made)]).current_dir(from)).expect(0, "");
        fs::read_to_string(made.join("Cargo.toml")).unwrap()
    };
    let manifest = make(&inside, &Path::new(ROOT).join("docs"));
    let core = Path::new(ROOT).join("core");
    assert!(manifest.contains(&format!("delegraph-core = {{ path = {:?} }}", core)), "{manifest}");
    let manifest = make(&outside, folder.path());
    assert!(manifest.contains("delegraph-core = { version = "), "{manifest}");
}

#[test]
fn refusals() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    delegraph(&["new-delegate", "npu", "--path", path(&there)]).expect(2, "there is something already");
    assert_eq!(fs::read_dir(&there).unwrap().count(), 0);
    let new = folder.path().join("new");
    delegraph(&["new-delegate", "1npu", "--path", path(&new)]).expect(2, "begins with a letter");
    delegraph(&["new-delegate", "fn", "--path", path(&new)]).expect(2, "a word of Rust");
    let elsewhere = ["new-delegate", "npu", "--path", path(&new), "--delegraph", path(&there)];
    delegraph(&elsewhere).expect(2, "no checkout of Delegraph");
    // A file where a folder has to be.
    fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file/npu");
    delegraph(&["new-delegate", "npu", "--path", path(&below)]).expect(1, "cannot be made");
    let document = delegraph(&["new-delegate", "npu", "--path", path(&there), "--json"]).json();
    assert_eq!(document["error"]["exit_code"], 2);
    assert!(!new.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
