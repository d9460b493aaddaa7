//! The results of a run so far, so that an interrupted run can be resumed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use delegraph::core::types::open_regular;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::{Exit, Failure};
use super::files::create;
use super::text::printable_path;

/// A file of results, one per line, below a line that identifies the run.
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

/// A result with a unique name.
pub(crate) trait Named {
    fn name(&self) -> &str;
}

impl Journal {
    /// Begins a journal, or resumes the one at `path`; creates its folder. `run` identifies the run; the version of its
    /// model follows a tab, and is not part of messages. Returns the results so far, by name.
    ///
    /// # Errors
    /// Exit code 1 with the path.
    pub(crate) fn open<R: Named + Serialize + DeserializeOwned>(
        path: PathBuf,
        run: &str,
        resume: bool,
    ) -> Result<(Self, HashMap<String, R>), Failure> {
        let place = printable_path(&path);
        Journal::begin(path, run, resume).map_err(|e| Failure::new(Exit::Failed, format!("{place}: {e}")))
    }

    fn begin<R: Named + Serialize + DeserializeOwned>(
        path: PathBuf,
        run: &str,
        resume: bool,
    ) -> io::Result<(Self, HashMap<String, R>)> {
        let unwritable = |e: io::Error| io::Error::new(e.kind(), format!("cannot write: {e}"));
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(unwritable)?;
        let mut found = HashMap::new();
        let old = match resume.then(|| open_regular(&path)).transpose() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            old => old?,
        };
        if let Some(file) = old {
            let mut lines = BufReader::new(file).lines();
            match lines.next().transpose()? {
                Some(line) if line == run => {}
                Some(line) => {
                    let (old, new) = (shown(&line), shown(run));
                    let since = if old == new { ", and the model has changed since" } else { "" };
                    let text =
                        format!("it contains another run ({old}){since}; without --resume it is replaced");
                    return Err(io::Error::other(text));
                }
                None => {}
            }
            // The last line may have been cut off.
            let results = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            found.extend(results.map(|result: R| (result.name().to_owned(), result)));
        }
        // Written again, so that a truncated line does not become the beginning of the next one. The new file is
        // written beside the old one, so that an interruption loses nothing.
        let new = path.with_extension("new");
        let mut file = create(&new).map_err(unwritable)?;
        writeln!(file, "{run}").map_err(unwritable)?;
        let journal = Journal { path, file: Mutex::new(file) };
        for result in found.values() {
            journal.add(result)?;
        }
        fs::rename(&new, &journal.path)?;
        Ok((journal, found))
    }

    /// Adds a result.
    pub(crate) fn add(&self, result: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(result)?;
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }

    /// Removes the journal of a complete run.
    pub(crate) fn finish(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Returns the part of the identification of a run that messages contain.
fn shown(run: &str) -> &str {
    run.split_once('\t').map_or(run, |(shown, _)| shown)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Row {
        name: String,
        ms: f64,
    }

    impl Named for Row {
        fn name(&self) -> &str {
            &self.name
        }
    }

    fn row(name: &str) -> Row {
        Row { name: name.into(), ms: 0.5 }
    }

    fn open(folder: &Path, run: &str, resume: bool) -> Result<(Journal, HashMap<String, Row>), Failure> {
        Journal::open(folder.join("journal.jsonl"), run, resume)
    }

    #[test]
    fn an_interrupted_run_is_resumed() {
        let folder = std::env::temp_dir().join(format!("delegraph-journal-{}", std::process::id()));
        let (journal, found) = open(&folder, "run 1", true).unwrap();
        assert!(found.is_empty());
        journal.add(&row("a")).unwrap();
        // Interrupted in the middle of a line.
        journal.file.lock().unwrap().write_all(b"{\"name\":\"b\",\"m").unwrap();
        drop(journal);
        let (journal, found) = open(&folder, "run 1", true).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a"]);
        journal.add(&row("b")).unwrap();
        drop(journal);
        let refused = |run: &str, text: &str| {
            assert!(open(&folder, run, true).is_err_and(|e| e.to_string().contains(text)), "{run}");
        };
        refused("run 2\t5 bytes", "another run (run 1); without");
        refused("run 1\t5 bytes", "another run (run 1), and the model has changed since; without");
        let (journal, found) = open(&folder, "run 1", true).unwrap();
        assert_eq!(found.len(), 2);
        drop(journal);
        let (journal, found) = open(&folder, "run 1", false).unwrap();
        assert!(found.is_empty());
        journal.finish().unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
