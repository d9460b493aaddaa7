//! `delegraph conformance`: plugins that crash, hang and print; interrupted runs; expectations; written cases; compared
//! runs.

#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;
#[path = "../interpreter/tests/libraries/mod.rs"]
mod libraries;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Ran, command, delegraph, path};
use serde_json::Value;

/// A case that the faulty plugin claims, and two that it does not.
const THREE: &str = "^binary/(add_float32_shapes0|add_int32_shapes0|mul_float32_shapes0)$";

fn faulty(options: &str) -> String {
    format!("plugin:{}{options}", libraries::library("faulty_plugin").display())
}

fn conformance(delegate: &str, filter: &str, more: &[&str]) -> Ran {
    let mut arguments =
        vec!["conformance", "--delegate", delegate, "--filter", filter, "--jobs", "1", "--json"];
    arguments.extend(more);
    delegraph(&arguments)
}

/// The outcome and detail of a case.
fn of(report: &Value, case: &str) -> (String, String) {
    let results = report["results"].as_array().unwrap();
    let result = results.iter().find(|r| r["case"] == case).unwrap_or_else(|| panic!("{case}: {report}"));
    let text = |key: &str| result[key].as_str().unwrap().to_owned();
    (text("outcome"), text("detail"))
}

#[test]
fn a_case_that_ends_the_process_is_a_result_and_the_run_continues() {
    let check = |how: &str, outcome: &str, part: &str| {
        let delegate = faulty(&format!("?at=invoke&how={how}"));
        let timeout = if how == "hang" { "2" } else { "60" };
        let report = conformance(&delegate, THREE, &["--timeout", timeout]).expect(1, "").json();
        let (found, detail) = of(&report, "binary/add_float32_shapes0");
        assert_eq!(found, outcome, "{how}: {detail}");
        assert!(detail.contains(part), "{how}: {detail}");
        for other in ["binary/add_int32_shapes0", "binary/mul_float32_shapes0"] {
            assert_eq!(of(&report, other).0, "unsupported", "{how}: {report}");
        }
        assert_eq!(report["total"], 3);
    };
    check("abort", "crash", "signal: 6");
    check("overflow", "crash", "signal: ");
    check("hang", "timeout", "no result after 2 s");
    check("panic", "error", "the test wants a panic in invoke");
    check("error", "error", "the test wants an error in invoke");
}

#[test]
fn output_of_a_plugin_is_not_a_result() {
    let report =
        conformance(&faulty("?prints={\"case\":1}"), THREE, &["--checks", "none"]).expect(0, "").json();
    assert_eq!(of(&report, "binary/add_float32_shapes0"), ("pass".into(), String::new()));
    assert!(report["results"][0]["checks"].as_array().unwrap().is_empty());
}

#[test]
fn an_impossible_request_is_one_error() {
    conformance("plugin:nowhere.so", THREE, &[]).expect(4, "nowhere.so");
    conformance(&faulty("?no=1"), THREE, &[]).expect(2, "no");
    conformance("cpu", "no such case", &[]).expect(2, "--filter no such case: no case has such a name");
    delegraph(&["conformance", "--write-case", "no/case", "x"]).expect(2, "there is no such case");
}

#[test]
fn an_interrupted_run_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let delegate = faulty("?at=invoke&how=hang");
    let filter = "^(arg_min_max/arg_max_float32.*|binary/add_float32_shapes0)$";
    let arguments = |timeout: &'static str, more: &[&'static str]| {
        let mut arguments: Vec<String> =
            ["conformance", "--delegate", &delegate, "--filter", filter, "--jobs", "1"]
                .into_iter()
                .chain(["--json", "--report", path(&report), "--timeout", timeout])
                .map(str::to_owned)
                .collect();
        arguments.extend(more.iter().map(|&s| s.to_owned()));
        arguments
    };
    let strings = arguments("600", &[]);
    let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
    let mut first = command(&strings).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Waits until the run has results and hangs.
    let start = Instant::now();
    let written = || fs::read_to_string(report.join("partial.jsonl")).map_or(0, |text| text.lines().count());
    while written() < 2 && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = fs::read_to_string(report.join("partial.jsonl")).unwrap();
    let kept = before.lines().nth(1).unwrap();
    // Only the first run can have made this mark.
    let mut marked: Value = serde_json::from_str(kept).unwrap();
    marked["ms"] = 123_456.0.into();
    let marked = before.replace(kept, &marked.to_string());
    fs::write(report.join("partial.jsonl"), marked).unwrap();
    let strings = arguments("1", &["--resume"]);
    let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
    let found = delegraph(&strings).expect(1, "").json();
    assert_eq!(of(&found, "binary/add_float32_shapes0").0, "timeout");
    assert_eq!(found["results"][0]["ms"], 123_456.0);
    assert!(found["total"].as_u64().unwrap() > 2);
    assert!(!report.join("partial.jsonl").exists() && report.join("index.html").exists());
}

#[test]
fn expectations_decide_how_a_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expectations.toml");
    let check = |how: &str, text: &str, code: i32, part: &str| {
        fs::write(&file, text).unwrap();
        let more = ["--expectations", path(&file), "--checks", "none"];
        let ran = conformance(&faulty(how), THREE, &more).expect(code, "");
        assert!(ran.json()["problems"].to_string().contains(part), "{}", ran.stdout);
    };
    let known = "[[known]]\ncase = 'add_float32_shapes0'\nreason = 'a test wants it'\n";
    check("?at=invoke&how=error", known, 0, "[]");
    check("", known, 1, "passes, but is known to fail (a test wants it)");
    check("?at=invoke&how=error", &format!("{known}outcome = 'crash'\n"), 1, "[]");
    check("", "[[must]]\nop = 'MUL'\nreason = 'a test wants it'\n", 1, "must be delegated");
    fs::write(&file, "[[known]]\n").unwrap();
    conformance("cpu", THREE, &["--expectations", path(&file)]).expect(4, "reason");
}

#[test]
fn a_case_that_is_written_out_runs_as_a_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("corpus/sent");
    delegraph(&["conformance", "--write-case", "binary/add_float32_shapes1", path(&case)]).expect(0, "");
    let mut files: Vec<_> = fs::read_dir(&case).unwrap().map(|e| e.unwrap().file_name()).collect();
    files.sort();
    let wanted = ["case.json", "expected_0.npy", "input_0.npy", "input_1.npy", "model.tflite", "step_1"];
    assert_eq!(files, wanted);
    let corpus = folder.path().join("corpus");
    for delegate in ["cpu", &faulty("")] {
        let arguments = ["conformance", "--corpus", path(&corpus), "--delegate", delegate, "--json"];
        let report = delegraph(&arguments).json();
        // The faulty plugin claims nodes that it does not support: shapes that are broadcast.
        let wanted = if delegate == "cpu" { "pass" } else { "mismatch" };
        assert_eq!(of(&report, "sent").0, wanted, "{report}");
        assert_eq!(report["results"][0]["op"], "ADD");
    }
}

/// A pipe has no end: reading one would block.
#[test]
fn cases_that_cannot_be_read_are_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    delegraph(&["conformance", "--write-case", "binary/add_float32_shapes1", path(&whole)]).expect(0, "");
    let copy = |name: &str| {
        let case = folder.path().join(name);
        fs::create_dir(&case).unwrap();
        for file in ["case.json", "model.tflite", "input_0.npy", "input_1.npy", "expected_0.npy"] {
            fs::copy(whole.join(file), case.join(file)).unwrap();
        }
        case
    };
    let pipes = [("a", "model.tflite"), ("b", "input_0.npy"), ("c", "expected_0.npy"), ("d", "case.json")];
    for (name, file) in pipes {
        let file = copy(name).join(file);
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    }
    fs::remove_file(copy("e").join("input_1.npy")).unwrap();
    let arguments = ["conformance", "--corpus", path(folder.path()), "--timeout", "20", "--json"];
    let report = delegraph(&arguments).expect(1, "").json();
    assert_eq!(report["total"], 6, "{report}");
    assert_eq!(of(&report, "whole"), ("pass".into(), String::new()));
    for (name, file) in pipes {
        let detail = format!("{file}: it is a pipe, a socket or a device, not a file");
        assert_eq!(of(&report, name), ("invalid".into(), detail));
    }
    let detail = "input_1.npy: there is no such file; a case with expected outputs needs all inputs";
    assert_eq!(of(&report, "e"), ("invalid".into(), detail.into()));
}

#[test]
fn runs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    conformance(&faulty(""), THREE, &["--checks", "none", "--report", path(&good)]).expect(0, "");
    let broken = faulty("?at=invoke&how=error");
    conformance(&broken, THREE, &["--checks", "none", "--report", path(&bad)]).expect(1, "");
    let (good, bad) = (good.join("results.json"), bad.join("results.json"));
    let ran = delegraph(&["conformance", "--compare", path(&good), path(&bad)]).expect(1, "");
    assert!(ran.stdout.contains("new failure   binary/add_float32_shapes0  pass → error"), "{}", ran.stdout);
    let ran =
        delegraph(&["conformance", "--compare", path(&bad), path(&good), "--json"]).expect(0, "").json();
    assert_eq!(
        (ran["fixed"][0]["case"].as_str(), &ran["gone"]),
        (Some("binary/add_float32_shapes0"), &0.into())
    );
    delegraph(&["conformance", "--compare", path(&good), "nowhere"]).expect(4, "nowhere");
    let ran = conformance("cpu", THREE, &["--markdown"]).expect(0, "");
    assert!(ran.json()["counts"]["pass"] == 3);
    let markdown = delegraph(&["conformance", "--filter", THREE, "--markdown"]).expect(0, "");
    assert!(markdown.stdout.contains("| ADD | 1 | ✓ | ✓ |"), "{}", markdown.stdout);
}

/// `docs/conformance.md` lists exactly the options of the command.
#[test]
fn the_page_lists_the_options() {
    let page = include_str!("../docs/conformance.md");
    let help = delegraph(&["conformance", "--help"]).expect(0, "").stdout;
    let options =
        page.lines().filter(|l| l.starts_with("| `--")).flat_map(|l| l.split('`').skip(1).step_by(2));
    let options: Vec<&str> =
        options.filter_map(|o| o.split(' ').next().filter(|o| o.starts_with("--"))).collect();
    assert!(options.len() > 10, "{options:?}");
    for option in options {
        assert!(help.contains(option), "{option}");
    }
}
