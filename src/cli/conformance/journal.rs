//! The results of a run so far, so that an interrupted run can be resumed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use delegraph_conformance::engine::CaseResult;

/// A file of results, one per line, below a line that identifies the run.
pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Begins a journal in `folder`, or resumes the one there. `run` identifies the run. Returns the results so far.
    pub(super) fn open(
        folder: &Path,
        run: &str,
        resume: bool,
    ) -> io::Result<(Self, HashMap<String, CaseResult>)> {
        fs::create_dir_all(folder)?;
        let path = folder.join("partial.jsonl");
        let mut found = HashMap::new();
        if resume && let Ok(file) = File::open(&path) {
            let mut lines = BufReader::new(file).lines();
            match lines.next().transpose()? {
                Some(line) if line == run => {}
                Some(line) => {
                    let text = format!(
                        "{}: that was another run ({line}); without --resume it is replaced",
                        path.display()
                    );
                    return Err(io::Error::other(text));
                }
                None => {}
            }
            // The last line may have been cut off.
            let results = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            found.extend(results.map(|result: CaseResult| (result.case.clone(), result)));
        }
        // Written again, so that a truncated line does not become the beginning of the next.
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&path)?;
        writeln!(file, "{run}")?;
        let journal = Journal { path, file: Mutex::new(file) };
        for result in found.values() {
            journal.add(result)?;
        }
        Ok((journal, found))
    }

    /// Adds a result.
    pub(super) fn add(&self, result: &CaseResult) -> io::Result<()> {
        let mut line = serde_json::to_vec(result)?;
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }

    /// The run is complete.
    pub(super) fn finish(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use delegraph_conformance::engine::Outcome;

    use super::*;

    #[test]
    fn an_interrupted_run_is_resumed() {
        let folder = std::env::temp_dir().join(format!("delegraph-journal-{}", std::process::id()));
        let (journal, found) = Journal::open(&folder, "run 1", true).unwrap();
        assert!(found.is_empty());
        journal.add(&CaseResult::new("a", Outcome::Pass, "")).unwrap();
        // Interrupted in the middle of a line.
        journal.file.lock().unwrap().write_all(b"{\"case\":\"b\",\"outc").unwrap();
        drop(journal);
        let (journal, found) = Journal::open(&folder, "run 1", true).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a"]);
        journal.add(&CaseResult::new("b", Outcome::Pass, "")).unwrap();
        drop(journal);
        assert!(Journal::open(&folder, "run 2", true).is_err_and(|e| e.to_string().contains("another run")));
        let (journal, found) = Journal::open(&folder, "run 1", true).unwrap();
        assert_eq!(found.len(), 2);
        drop(journal);
        let (journal, found) = Journal::open(&folder, "run 1", false).unwrap();
        assert!(found.is_empty());
        journal.finish().unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
