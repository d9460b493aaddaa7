//! Builds the plugins that tests load.

#![allow(unreachable_pub)] // a module of each test
#![allow(clippy::expect_used)] // Only tests call this.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Returns the library of the crate `delegraph-NAME`, with underscores, built into a folder of its own.
pub fn library(name: &str) -> PathBuf {
    /// One build at a time, of the tests in this program.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--frozen", "--quiet", "--release", "--target-dir"]).arg(&target);
    build.args(["-p", &format!("delegraph-{}", name.replace('_', "-"))]);
    // Plugins of tests compute little: optimizing them takes longer than it saves.
    let profile = [
        "opt-level=0",
        "overflow-checks=true",
        "lto='off'",
        "debug=false",
        "incremental=false",
        "panic='unwind'",
    ];
    for config in profile {
        build.arg("--config").arg(format!("profile.release.{config}"));
    }
    // Flags that differ from those of this program.
    build.env("RUSTFLAGS", "-C force-frame-pointers=yes -C metadata=apart");
    build.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
    assert!(status.success(), "the library {name} does not build");
    let (before, after) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    target.join("release").join(format!("{before}delegraph_{name}{after}"))
}

/// The messages of an error and of its sources, separated by colons.
#[allow(dead_code)] // Some of the tests that share this module do not use it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
