//! `new-delegate`: a template crate for a new delegate.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use delegraph::core::printable;
use delegraph_conformance::report::shell;
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::output::{Document, Output};
use super::text::{printable_path, shown};

mod released;

/// The files of the crate; `the-delegate` and `the_delegate` are replaced by its name. Their Rust code is formatted
/// with rustfmt's defaults, unlike this repository.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.in")),
    (".gitignore", include_str!("template/gitignore")),
    ("src/lib.rs", include_str!("template/lib.rs.in")),
    ("tests/conformance.rs", include_str!("template/conformance.rs.in")),
    ("tests/delegate.rs", include_str!("template/delegate.rs.in")),
];

/// The dependencies of the crate: their folders in Delegraph's repository.
const CRATES: [&str; 3] = ["core", "delegate-api", "conformance"];

/// The crates of Delegraph on which these depend.
const INDIRECT: [&str; 4] = ["schema", "interpreter", "kernels", "compute"];

/// Make a crate with a delegate that builds, runs one op and passes its tests
///
/// The crate depends on the crates of the checkout that --delegraph names or that contains the current folder; otherwise on
/// Delegraph's released crates, which Cargo must find.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The name of the crate, and of the delegate
    #[arg(value_parser = package_name)]
    name: String,
    /// The crate's folder, which must not exist yet [default: NAME]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// A checkout of Delegraph whose crates to use
    #[arg(long, value_name = "PATH")]
    delegraph: Option<PathBuf>,
}

#[derive(Serialize)]
struct Made {
    name: String,
    path: String,
    files: Vec<&'static str>,
    /// The checkout on which it depends; `null` for released crates.
    delegraph: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let name = &arguments.name;
    let folder = arguments.path.clone().unwrap_or_else(|| name.into());
    // A dangling link also counts as existing.
    if folder.symlink_metadata().is_ok() {
        let message = format!("{}: already exists", printable_path(&folder));
        return Err(Failure::new(Exit::Usage, message)
            .with_help("choose another folder with `--path DIR`, or remove it first"));
    }
    let checkout = checkout(arguments.delegraph.as_deref())?;
    write(&folder, name, checkout.as_deref(), |made| match checkout {
        Some(_) => Ok(()),
        None => released::check(made),
    })?;
    let files = FILES.iter().map(|(file, _)| *file).collect();
    let delegraph = checkout.as_deref().map(shown);
    out.print(&Made { name: name.clone(), path: shown(&folder), files, delegraph })?;
    Ok(Exit::Fine)
}

/// The checkout to depend on, if any.
fn checkout(given: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let is_checkout = |folder: &Path| {
        CRATES.iter().all(|c| folder.join(c).join("Cargo.toml").is_file())
            && fs::read_to_string(folder.join("core/Cargo.toml"))
                .is_ok_and(|t| t.contains("\"delegraph-core\""))
    };
    match given {
        Some(path) => match path.canonicalize() {
            Ok(path) if is_checkout(&path) => Ok(Some(path)),
            _ => {
                let text = format!("{}: not a checkout of Delegraph", printable_path(path));
                Err(Failure::new(Exit::Usage, text)
                    .with_help("pass the folder with Delegraph's `core`, `delegate-api` and `conformance`"))
            }
        },
        None => {
            let here = std::env::current_dir().unwrap_or_default();
            Ok(here.ancestors().find(|folder| is_checkout(folder)).map(Path::to_path_buf))
        }
    }
}

/// Writes the crate to a temporary folder next to the target, and renames it when it is complete and `check` accepts it.
fn write(
    folder: &Path,
    name: &str,
    checkout: Option<&Path>,
    check: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(Exit::Failed, format!("{}: cannot be made: {error}", printable_path(folder)))
    };
    let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = parent.ancestors().take_while(is_missing).collect();
    let partial = parent.join(format!(".{name}.{}", std::process::id()));
    let written = fs::create_dir_all(parent)
        .and_then(|()| write_files(&partial, name, checkout))
        .map_err(failed)
        .and_then(|()| check(&partial))
        .and_then(|()| fs::rename(&partial, folder).map_err(failed));
    if written.is_err() {
        let _ = fs::remove_dir_all(&partial);
        // The innermost one first; one that is not empty is another program's by now.
        for folder in missing {
            let _ = fs::remove_dir(folder);
        }
    }
    written
}

fn write_files(folder: &Path, name: &str, checkout: Option<&Path>) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (file, template) in FILES {
        let mut text =
            template.replace("the-delegate", name).replace("the_delegate", &name.replace('-', "_"));
        for c in CRATES {
            let dependency = match checkout {
                // A JSON string is also a TOML string.
                Some(root) => format!("path = {}", serde_json::Value::from(&*root.join(c).to_string_lossy())),
                None => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
            };
            text = text.replace(&format!("@{c}@"), &dependency);
        }
        let path = folder.join(file);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// A name that Cargo accepts for a library.
fn package_name(name: &str) -> Result<String, String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !begins || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Err("a name begins with a letter and consists of letters, digits, `-` and `_`".into());
    }
    if name.len() > 64 {
        return Err("a name has at most 64 characters".into());
    }
    let ident = name.replace('-', "_");
    if RESERVED.contains(&&*ident) {
        return Err("that is a word of Rust, or a crate that comes with it".into());
    }
    let depends_on = |name: &str| CRATES.iter().chain(&INDIRECT).any(|c| name == c.replace('-', "_"));
    if ident.strip_prefix("delegraph_").is_some_and(depends_on) {
        return Err("that is a crate that the new one depends on".into());
    }
    Ok(name.into())
}

/// Names that a crate cannot have: keywords, and the standard libraries.
const RESERVED: [&str; 57] = [
    "Self",
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "std",
    "static",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

impl Document for Made {
    fn text(&self) -> String {
        let from = match &self.delegraph {
            Some(path) => format!("the checkout at {path}"),
            None => "released crates".into(),
        };
        let (path, folder) = (printable(&self.path), shell(&self.path));
        format!("{path}: a delegate that runs ADD, on {from}\nnext: cd {folder} && cargo test\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["a", "my-npu", "Npu2", "my_npu", "testing"] {
            assert_eq!(package_name(name).as_deref(), Ok(name));
        }
        let long = "a".repeat(65);
        let wrong = [
            "",
            "-a",
            "_a",
            "2d",
            "my npu",
            "a/b",
            "..",
            "ä",
            "fn",
            "proc-macro",
            "test",
            "delegraph-core",
            "delegraph_kernels",
            &long,
        ];
        for name in wrong {
            assert!(package_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_next_command_is_for_a_shell() {
        let made = |path: &str| {
            Made { name: "npu".into(), path: path.into(), files: Vec::new(), delegraph: None }.text()
        };
        assert!(made("a/npu").ends_with("\nnext: cd a/npu && cargo test\n"));
        assert!(made("sp ace/q\"uo").ends_with("\nnext: cd 'sp ace/q\"uo' && cargo test\n"));
    }

    #[test]
    fn nothing_is_left_where_it_fails() {
        let folder = std::env::temp_dir().join(format!("delegraph-new-delegate-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        // A file blocks the rename.
        let target = folder.join("crate");
        fs::write(&target, "").unwrap();
        assert!(write(&target, "npu", None, |_| Ok(())).is_err());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["crate"]);
        let refuse = |_: &Path| Err(Failure::invalid("no"));
        assert!(write(&folder.join("a/b/crate"), "npu", None, refuse).is_err());
        assert!(!folder.join("a").exists());
        let long = folder.join("b").join("x".repeat(300)).join("crate");
        assert!(write(&long, "npu", None, |_| Ok(())).is_err());
        assert!(!folder.join("b").exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn released_crates_are_named_by_version() {
        let folder = std::env::temp_dir().join(format!("delegraph-released-{}", std::process::id()));
        write(&folder, "my-npu", None, |_| Ok(())).unwrap();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("name = \"my-npu\""), "{manifest}");
        let dependency =
            format!("delegraph-delegate-api = {{ version = \"{}\" }}", env!("CARGO_PKG_VERSION"));
        assert!(manifest.contains(&dependency), "{manifest}");
        let tests = fs::read_to_string(folder.join("tests/conformance.rs")).unwrap();
        assert!(tests.contains("use my_npu::MyDelegate;"), "{tests}");
        for (file, _) in FILES {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert!(
                !text.contains("the-delegate") && !text.contains("the_delegate") && !text.contains('@'),
                "{file}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
