//! SPIR-V through the validator of the Khronos Group, `spirv-val` (Debian: spirv-tools), beyond naga's own validation.
//!
//! Each module is checked by a process of its own. One kernel in eight is checked; all of them with
//! `DELEGRAPH_SPIRV=all`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The message of a validator that does not know `CooperativeMatrixKHR`.
const UNKNOWN_MATRICES: &str = "Invalid capability operand: 6022";

fn validator() -> Command {
    Command::new("spirv-val")
}

fn is_installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let version = validator().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let installed = version.is_ok_and(|status| status.success());
        if !installed {
            eprintln!("left out: spirv-val is not installed (Debian: apt install spirv-tools)");
        }
        installed
    })
}

/// Returns whether the kernel with this key is among those that are checked.
pub(super) fn is_checked(key: &str) -> bool {
    key.bytes().fold(0_u8, u8::wrapping_add).is_multiple_of(8)
        || std::env::var("DELEGRAPH_SPIRV").is_ok_and(|which| which == "all")
}

/// Returns the validator's message for a module that Vulkan 1.1 does not accept.
pub(super) fn check(words: &[u32]) -> Result<(), String> {
    if !is_installed() {
        return Ok(());
    }
    let mut child = validator()
        .args(["--target-env", "vulkan1.1", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // A validator that ends early reports the reason.
        let _ = input.write_all(bytemuck::cast_slice(words));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let message = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.success() {
        true => Ok(()),
        false if message.contains(UNKNOWN_MATRICES) => {
            eprintln!("left out: spirv-val is older than cooperative matrices");
            Ok(())
        }
        false => Err(message),
    }
}

#[test]
fn damaged_modules_are_noticed() {
    if is_installed() {
        // The header of an empty module, and an instruction that does not exist.
        let header = [0x0723_0203, 0x0001_0300, 0, 1, 0];
        assert!(check(&[&header[..], &[0x0001_ffff]].concat()).is_err());
    }
}
