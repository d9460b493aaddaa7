use std::time::Duration;

use super::*;
use crate::engine::{BINS, Bad, ContractCheck, ErrorStats};

/// A run with one case of each outcome, and names that contain tags.
pub(crate) fn sample() -> Report {
    let mut results = Vec::new();
    let errors = |wrong: usize| {
        let mut errors = ErrorStats::exact(24, (0, 1));
        (errors.wrong, errors.off, errors.max_abs, errors.max_rel) = (wrong, 5, 0.5, 0.25);
        errors.histogram = vec![0; BINS];
        (errors.histogram[0], errors.histogram[5], errors.histogram[10]) = (19, 5 - wrong, wrong);
        errors.allowed = Some(1e-5);
        errors.first = Some(Bad { index: vec![1, 2], got: 1.5, expected: f64::NAN });
        Some(errors)
    };
    for (i, outcome) in Outcome::ALL.iter().copied().enumerate() {
        for version in 1..=2 {
            let op = ["ADD", "CONV_2D", "<b>EVIL</b>", "MUL"][i % 4];
            let ty = ["float32", "int8", "int64"][i % 3];
            let mut result = CaseResult::new(
                format!(
                    "family/{}_{ty}_{}_v{version}<script>alert(1)</script>\"'&",
                    op.to_lowercase(),
                    outcome.name()
                ),
                outcome,
                if outcome == Outcome::Pass {
                    ""
                } else {
                    "node 0 ADD v1: UnsupportedType: input 0 has the unsupported type <i>"
                },
            );
            (result.op, result.version, result.ty) = (op.into(), version, ty.into());
            (result.nodes, result.claimed, result.op_claimed) = (1, 1, outcome != Outcome::Unsupported);
            (result.inputs, result.outputs) = (vec!["float32 [2, 3]".into()], vec!["float32 [2, 3]".into()]);
            result.params = "AddParams { fused_activation_function: None } </dd><script>".into();
            result.ops = vec!["ADD:1".into()];
            let micros = Duration::from_micros;
            (result.time, result.cpu_time) = (Some(micros(120 + i as u64)), Some(micros(10)));
            result.elapsed = micros(3500);
            result.errors = errors(usize::from(outcome == Outcome::Mismatch) * 2);
            if outcome == Outcome::Violation {
                result.checks.push(ContractCheck {
                    name: "bounds".into(),
                    problem: "it wrote outside of <its> memory".into(),
                });
            }
            if outcome == Outcome::Crash && version == 1 {
                result.known = Some("the driver's fault".into());
            }
            results.push(result);
        }
    }
    let mut report = Report {
        tool: "delegraph 0.1.0".into(),
        delegate: "plugin:/a/lib<x>.so".into(),
        device: "llvmpipe & co".into(),
        baseline: "cpu".into(),
        corpus: None,
        seed: Some(7),
        elapsed: Duration::from_millis(12_500),
        total: 0,
        counts: BTreeMap::new(),
        known: 0,
        problems: vec!["unused line: [[known]] case = \"a<b\"".into()],
        command: "delegraph conformance --delegate 'plugin:/a/lib<x>.so' --seed 7".into(),
        results,
    };
    report.count();
    report
}

/// The tags of a page or a document, without those in comments and text.
fn tags(text: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    for piece in text.split('<').skip(1) {
        let end = piece.find(|c: char| c == '>' || c.is_whitespace()).unwrap_or(piece.len());
        tags.push(piece[..end].trim_end_matches('/'));
    }
    tags
}

#[test]
fn the_page_is_complete_and_escapes_text_of_files() {
    let report = sample();
    let page = html(&report);
    for part in
        ["Conformance of", "llvmpipe &amp; co", "cases fail.", "first wrong", "index [1, 2]", "expected NaN"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("--filter &#39;^family/conv_2d_int8"), "the command that runs a case again");
    assert!(!page.contains("<script>alert") && !page.contains("<b>EVIL") && !page.contains("<its>"));
    // The only script and style are the page's own, and nothing is fetched.
    let tags = tags(&page);
    assert_eq!(tags.iter().filter(|t| **t == "script").count(), 1);
    assert!(tags.iter().all(|t| !["link", "img", "iframe", "i>"].contains(t)));
    assert!(!page.contains("http://") && !page.contains("https://"));
    for tag in ["section", "table", "details", "div", "svg", "dl", "ul"] {
        let close = format!("/{tag}");
        let (opened, closed) = (tags.iter().filter(|t| **t == tag), tags.iter().filter(|t| **t == close));
        assert_eq!(opened.count(), closed.count(), "{tag}");
    }
}

#[test]
fn junit_counts_what_it_has() {
    let report = sample();
    let text = junit(&report);
    let count = |tag: &str| tags(&text).iter().filter(|t| **t == tag).count();
    assert_eq!(count("testcase"), report.total + 1);
    // Two mismatches, two violations, the expectation.
    assert_eq!(count("failure"), 5);
    // Two errors, two crashes, two timeouts and two invalid cases; one of each is known.
    assert_eq!((count("error"), count("skipped")), (7, 3));
    assert!(text.contains("tests=\"17\" failures=\"5\" errors=\"7\" skipped=\"3\""), "{text}");
    assert!(!text.contains("<script>"));
}

#[test]
fn results_are_read_as_they_were_written() {
    let folder = std::env::temp_dir().join(format!("delegraph-report-{}", std::process::id()));
    let mut report = sample();
    report.results[0].case.push_str("\u{1b}\u{7f}\u{9b}31m");
    report.write(&folder).unwrap();
    let text = fs::read_to_string(folder.join("results.json")).unwrap();
    assert!(text.contains("\\u001b\\u007f\\u009b31m"), "{text}");
    let again = Report::read(&folder.join("results.json")).unwrap();
    assert_eq!(again.counts, report.counts);
    // NaN is not equal to itself.
    let plain =
        |r: &Report| r.results.iter().map(|r| (r.case.clone(), r.outcome, r.time)).collect::<Vec<_>>();
    assert_eq!(plain(&again), plain(&report));
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(
        files,
        ["badge.svg", "cases", "index.html", "junit.xml", "results.csv", "results.json", "support.md"]
    );
    assert!(Report::read(&folder.join("badge.svg")).unwrap_err().to_string().contains("no results"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn names_have_one_line() {
    let mut report = sample();
    report.results[0].case = "a\nb/c\nd".into();
    let csv = csv(&report);
    assert_eq!(csv.lines().count(), report.total + 1, "{csv}");
    assert!(csv.lines().any(|line| line.starts_with(r"a\nb/c\nd,") && line.contains(",0.5,")), "{csv}");
    let junit = junit(&report);
    assert!(junit.contains(r#"<testsuite name="a\nb""#) && junit.contains(r#"name="c\nd""#), "{junit}");
    assert!(report.reproduce("a\nb").ends_with(r" --filter '^a\nb$'"), "{}", report.reproduce("a\nb"));
}

#[test]
fn each_failing_case_has_a_page() {
    let folder = std::env::temp_dir().join(format!("delegraph-pages-{}", std::process::id()));
    let report = sample();
    report.write(&folder).unwrap();
    let cases = folder.join("cases");
    let files = || -> Vec<String> {
        let names = fs::read_dir(&cases).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect()
    };
    let failing = report.results.iter().filter(|r| !r.outcome.is_fine()).count();
    assert_eq!(files().len(), failing);
    let index = fs::read_to_string(folder.join("index.html")).unwrap();
    for file in files() {
        assert!(file.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{file}");
        assert!(index.contains(&format!("href=\"cases/{file}\">a page of its own")), "{file}");
        let page = fs::read_to_string(cases.join(&file)).unwrap();
        for part in ["float32 [2, 3]", "AddParams", "--filter", "../index.html"] {
            assert!(page.contains(part), "{file}: {part}");
        }
        assert!(!tags(&page).contains(&"script") && !page.contains("://"), "{file}");
    }
    // Links from the matrix to the first failure of a cell, and from there to the next one.
    assert!(
        index.contains("class=\"bad-cell\" title=") && index.contains("href=\"cases/family.conv_2d_int8")
    );
    let mismatch = files().into_iter().find(|f| f.contains("mismatch_v1")).unwrap();
    let page = fs::read_to_string(cases.join(mismatch)).unwrap();
    assert!(page.contains("index [1, 2]: got 1.5, expected NaN"), "{page}");
    // Pages of an earlier run are removed; other files remain.
    fs::write(cases.join("mine.html"), "notes").unwrap();
    let mut better = sample();
    better.results.retain(|r| r.outcome.is_fine() || r.case.contains("crash"));
    better.count();
    better.write(&folder).unwrap();
    let mut left = files();
    left.sort();
    assert!(left.len() == 3 && left.contains(&"mine.html".into()), "{left:?}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_number_of_pages_is_limited() {
    let mut report = sample();
    let failing = report.results.iter().find(|r| !r.outcome.is_fine()).unwrap().clone();
    // Names that differ only in case share a file on some systems.
    report.results = vec![failing; 1100];
    report.results.iter_mut().enumerate().for_each(|(i, r)| {
        r.case = format!("{}/{}", if i % 2 == 0 { "A" } else { "a" }, i / 2);
    });
    report.count();
    let pages = html::pages(&report);
    let names: std::collections::BTreeSet<_> = pages.iter().map(|(name, _)| name.to_lowercase()).collect();
    assert_eq!((pages.len(), names.len()), (1000, 1000));
    assert!(html(&report).contains("The first 400 of 1100 are here, the first 1000 have pages"));
}

#[test]
fn the_summary_is_one_line() {
    let report = sample();
    assert_eq!(
        report.summary(),
        "2 of 16 cases pass · 11 failures · 1 known · 2 not supported · 14 claimed · 1 expectation not met"
    );
    assert!(!report.is_fine());
    assert!(badge(&report).contains("12 failures"));
    assert!(badge(&report).contains("lib&lt;x&gt;.so"));
}

#[test]
fn differences_between_two_runs() {
    let (before, mut now) = (sample(), sample());
    let set = |now: &mut Report, from: Outcome, to: Outcome| {
        let result = now.results.iter_mut().find(|r| r.outcome == from).unwrap();
        result.outcome = to;
    };
    set(&mut now, Outcome::Pass, Outcome::Timeout);
    set(&mut now, Outcome::Mismatch, Outcome::Pass);
    set(&mut now, Outcome::Unsupported, Outcome::Pass);
    now.results.last_mut().unwrap().time = Some(Duration::from_millis(10));
    now.results.push(CaseResult::new("new/one", Outcome::Crash, "boom"));
    let diff = Diff::of(&before, &now);
    assert_eq!(diff.summary(), "2 new failures · 1 fixed · 1 supported now · 1 slower · 1 case added");
    assert!(!diff.is_fine());
    assert!(diff.text().contains("new → crash: boom"), "{}", diff.text());
    let same = Diff::of(&before, &before);
    assert!(same.is_fine() && same.summary() == "0 new failures", "{}", same.summary());
    // Twice the time on a machine that is twice as slow is not slower.
    let mut slow = sample();
    for result in &mut slow.results {
        (result.time, result.cpu_time) = (result.time.map(|t| t * 20), result.cpu_time.map(|t| t * 20));
    }
    assert!(Diff::of(&before, &slow).slower.is_empty());
}

#[test]
fn the_support_matrix_is_markdown() {
    let text = markdown(&sample());
    assert!(text.contains("| op | versions | float32 | int8 | int64 |"), "{text}");
    assert!(text.contains("\\<b\\>EVIL"), "{text}");
    let columns =
        text.lines().filter(|l| l.starts_with('|')).map(|l| l.replace("\\|", "").matches('|').count());
    assert!(columns.clone().all(|n| n == 6), "{text}");
    assert_eq!(columns.count(), 6);
}

#[test]
fn words_of_a_shell() {
    assert_eq!(shell("a/b.c"), "a/b.c");
    assert_eq!(shell("it's"), r"'it'\''s'");
    assert_eq!(shell(""), "''");
}
