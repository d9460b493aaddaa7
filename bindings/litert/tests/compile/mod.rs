//! Compiles the delegate in C.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The delegate in C; `None`, with the reason on standard output, where there is no C compiler.
pub(crate) fn library() -> Option<PathBuf> {
    static LIBRARY: LazyLock<Option<PathBuf>> = LazyLock::new(compile);
    LIBRARY.clone()
}

fn compile() -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("left out: there is no `cc`");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/delegate");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adder-{}.so", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"]);
    cc.arg("-I").arg(root.join("../c/include")).arg("-I").arg(&source);
    let output = cc.arg("-o").arg(&library).arg(source.join("adder.c")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}
