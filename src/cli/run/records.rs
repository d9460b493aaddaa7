//! `--inputs`: the records of a batch.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use delegraph::core::printable;
use delegraph::core::types::read_regular;

use crate::cli::failure::{Exit, Failure};
use crate::cli::inputs::InputFile;
use crate::cli::text::printable_path;

/// One run of the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The path of its outputs below the folder of outputs; unique among the records.
    pub(super) name: String,
    pub(super) files: Vec<InputFile>,
}

/// Returns the records of `--inputs`: the files below a folder, of a pattern, or of a list. No record has one of the names
/// `reserved`.
pub(super) fn find(inputs: &str, reserved: &[&str]) -> Result<Vec<Record>, Failure> {
    let path = Path::new(inputs);
    let (base, found) = if path.is_dir() {
        let mut found = Vec::new();
        below(path, &mut found).map_err(|e| unreadable(path, &e.to_string()))?;
        (Some(absolute(path)), found)
    } else if path.exists() {
        (None, list(path)?)
    } else if inputs.contains(['*', '?', '[']) {
        (None, matching(inputs)?)
    } else {
        return Err(unreadable(path, "there is no such file or folder"));
    };
    if found.is_empty() {
        let inputs = printable(inputs);
        return Err(Failure::invalid(format!("--inputs {inputs}: there are no .npy files")));
    }
    Ok(named(found, base, reserved))
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::invalid(format!("--inputs {}: {why}", printable_path(path))).with_help("check the path")
}

/// Adds the arrays below a folder in the order of their names. A folder with an `input_0.npy` is one record.
fn below(folder: &Path, found: &mut Vec<Vec<InputFile>>) -> std::io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Links to folders are not followed: they may form a cycle.
        if entry.file_type()?.is_dir() {
            match numbered(&path) {
                files if files.is_empty() => below(&path, found)?,
                files => found.push(files),
            }
        } else if path.extension().is_some_and(|e| e == "npy") {
            found.push(vec![InputFile::unnamed(path)]);
        }
    }
    Ok(())
}

/// Returns the files `input_0.npy`, `input_1.npy`, … of a folder.
fn numbered(folder: &Path) -> Vec<InputFile> {
    let files = (0..).map(|i| folder.join(format!("input_{i}.npy")));
    files.take_while(|file| file.is_file()).map(InputFile::unnamed).collect()
}

/// Reads a list: one record per line, the files of its inputs separated by tabs.
fn list(path: &Path) -> Result<Vec<Vec<InputFile>>, Failure> {
    let bytes = read_regular(path).map_err(|e| unreadable(path, &e.to_string()))?;
    if bytes.starts_with(b"\x93NUMPY") {
        return Ok(vec![vec![InputFile::unnamed(path.into())]]);
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| unreadable(path, "neither a folder, nor a pattern, nor a list of files in UTF-8"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let record = |(i, line): (usize, &str)| {
        let files = line.split('\t').filter(|file| !file.is_empty()).map(str::parse);
        files
            .collect::<Result<Vec<InputFile>, _>>()
            .map_err(|e| unreadable(path, &format!("line {}: {e}", i + 1)))
    };
    lines.map(record).collect()
}

/// Returns the matches of a pattern, in the order of the names. As in a folder, links to folders are not followed where the
/// pattern has `**`.
fn matching(pattern: &str) -> Result<Vec<Vec<InputFile>>, Failure> {
    let wrong = |e: glob::PatternError| {
        Failure::new(Exit::Usage, format!("--inputs {}: {e}", printable(pattern)))
            .with_help("a pattern has `*`, `?`, `[a-z]`, and `**` for any number of folders")
    };
    let paths = glob::glob(pattern).map_err(wrong)?;
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|e| unreadable(e.path(), &e.error().to_string()))?;
        if is_behind_link(&path, pattern) {
            continue;
        }
        match path.is_dir() {
            true => found.extend(Some(numbered(&path)).filter(|files| !files.is_empty())),
            false => found.push(vec![InputFile::unnamed(path)]),
        }
    }
    Ok(found)
}

/// Returns whether a folder that `**` of the pattern matched is a link.
fn is_behind_link(path: &Path, pattern: &str) -> bool {
    let Some((before, _)) = pattern.split_once("**") else { return false };
    let before = Path::new(before).components().count();
    let folders = path.ancestors().skip(1).filter(|folder| folder.components().count() > before);
    folders.into_iter().any(Path::is_symlink)
}

/// Names records by the path of their first file below `base`, or below the folder that has all of them. Numbers follow
/// names that another record has, or that are `reserved`.
fn named(found: Vec<Vec<InputFile>>, base: Option<PathBuf>, reserved: &[&str]) -> Vec<Record> {
    let places: Vec<PathBuf> = found.iter().map(|files| place(files)).collect();
    let base = base.unwrap_or_else(|| common(&places));
    let mut taken: HashSet<String> = reserved.iter().map(|&name| name.into()).collect();
    let unique = |path: &Path| {
        // The folder that has all others can be a record itself, which is an error of that record.
        let below = path.strip_prefix(&base).ok().filter(|below| !below.as_os_str().is_empty());
        let own = || path.file_name().map_or(Path::new("record"), Path::new);
        let name = below.unwrap_or_else(own).to_string_lossy().into_owned();
        let mut names = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}-{n}") });
        // Terminates: there are infinitely many names and finitely many taken ones.
        names.find(|name| taken.insert(name.clone())).unwrap_or_default()
    };
    let names: Vec<String> = places.iter().map(PathBuf::as_path).map(unique).collect();
    names.into_iter().zip(found).map(|(name, files)| Record { name, files }).collect()
}

/// Returns the path of a record without extension: that of its file, or of the folder of its numbered files.
fn place(files: &[InputFile]) -> PathBuf {
    let path = absolute(files.first().map_or(Path::new(""), InputFile::path));
    match path.parent() {
        Some(folder) if path.ends_with("input_0.npy") => folder.into(),
        _ => match path.file_stem() {
            // The file "...npy" is ".." without its extension: another folder.
            Some(stem) if stem != "." && stem != ".." => path.with_file_name(stem),
            _ => path,
        },
    }
}

/// Returns the lowest folder that has all places.
fn common(places: &[PathBuf]) -> PathBuf {
    let parent = |path: &PathBuf| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut common = places.first().map(parent).unwrap_or_default();
    for place in places {
        while !place.starts_with(&common) && common.pop() {}
    }
    common
}

/// Returns an absolute path without `.` and `..`, so that names stay below the folder of outputs.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(inputs: &str) -> Vec<String> {
        find(inputs, &["results.csv"]).unwrap().into_iter().map(|record| record.name).collect()
    }

    #[test]
    fn folders_patterns_and_lists() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in ["b.npy", "a.npy", "notes.txt", "deep/c.npy", "pair/input_0.npy", "pair/input_1.npy"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        let at = |path: &str| root.join(path).to_str().unwrap().to_owned();
        assert_eq!(names(&at("")), ["a", "b", "deep/c", "pair"]);
        assert_eq!(find(&at(""), &[]).unwrap()[3].files.len(), 2);
        assert_eq!(names(&at("*.npy")), ["a", "b"]);
        assert_eq!(names(&at("**/c.npy")), ["c"]);
        let list = format!("{}\n\nx={}\ty={}\n{}\n", at("b.npy"), at("deep/c.npy"), at("a.npy"), at("b.npy"));
        fs::write(root.join("list"), list).unwrap();
        assert_eq!(names(&at("list")), ["b", "deep/c", "b-2"]);
        for (wrong, exit, text) in [
            ("nothing*.npy", Exit::Invalid, "there are no .npy files"),
            ("none", Exit::Invalid, "there is no such file or folder"),
            ("[", Exit::Usage, "Pattern syntax error"),
            ("notes.txt", Exit::Invalid, "there are no .npy files"),
        ] {
            let failure = find(&at(wrong), &[]).unwrap_err();
            assert_eq!(failure.exit(), exit, "{wrong}");
            assert!(failure.to_string().contains(text), "{wrong}: {failure}");
        }
    }

    #[test]
    fn names_stay_below_the_folder() {
        let record = |path: &str| vec![InputFile::unnamed(path.into())];
        let records = named(vec![record("/a/../../x/y.npy"), record("/x/./z.npy")], None, &[]);
        assert_eq!(records.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["y", "z"]);
        let records = named(vec![record("/x/y/z.npy"), record("/x")], None, &[]);
        assert_eq!(records.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["y/z", "x"]);
        for (path, name) in
            [("/x/...npy", "...npy"), ("/x/..npy", "..npy"), ("/x/....npy", "..."), ("/x/.npy", ".npy")]
        {
            assert_eq!(named(vec![record(path)], None, &[])[0].name, name);
            assert_eq!(named(vec![record(path)], Some("/x".into()), &[])[0].name, name);
        }
    }

    #[test]
    fn reserved_names_get_a_number() {
        let record = |path: &str| vec![InputFile::unnamed(path.into())];
        let names: Vec<String> = named(
            vec![
                record("/x/results.csv.npy"),
                record("/x/results.csv-2.npy"),
                record("/x/y/results.csv.npy"),
            ],
            None,
            &["results.csv"],
        )
        .into_iter()
        .map(|r| r.name)
        .collect();
        assert_eq!(names, ["results.csv-2", "results.csv-2-2", "y/results.csv"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_folders_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/a.npy"), "").unwrap();
        std::os::unix::fs::symlink(".", root.join("self")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let at = |path: &str| root.join(path).to_str().unwrap().to_owned();
        assert_eq!(names(&at("")), ["real/a"]);
        assert_eq!(names(&at("**/*.npy")), ["a"]);
        assert_eq!(names(&at("link/*.npy")), ["a"]);
        assert_eq!(names(&at("link/**/*.npy")), ["a"]);
    }
}
