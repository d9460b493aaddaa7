//! Builds the plugins that tests load.

#![allow(unreachable_pub)] // a module of each test
#![allow(clippy::expect_used)] // Only tests call this.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The libraries of the plugin crates, built into a folder of their own.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--frozen", "--quiet", "--release", "--target-dir"]).arg(&target);
        build.args([
            "-p",
            "delegraph-example-plugin",
            "-p",
            "delegraph-example-kernels",
            "-p",
            "delegraph-faulty-plugin",
        ]);
        for config in ["opt-level=1", "lto='off'", "debug=false", "incremental=false", "panic='unwind'"] {
            build.arg("--config").arg(format!("profile.release.{config}"));
        }
        // Other flags than this program was built with.
        build.env("RUSTFLAGS", "-C overflow-checks=on -C force-frame-pointers=yes -C metadata=apart");
        build.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(status.success(), "the plugins do not build");
        target.join("release")
    })
}

/// The library of the crate `delegraph-NAME`, with underscores.
pub fn library(name: &str) -> PathBuf {
    let (before, after) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    libraries().join(format!("{before}delegraph_{name}{after}"))
}
