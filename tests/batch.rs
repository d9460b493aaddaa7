//! `run --inputs`: many records, and one row per record.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Tiny, command, delegraph, digits, path};
use tempfile::TempDir;

/// A folder with the records `r00`, `r01`, …: copies of one digit.
fn records(count: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..count {
        fs::copy(digits("seven.npy"), folder.path().join(format!("r{i:02}.npy"))).unwrap();
    }
    folder
}

/// `run --inputs INPUTS --output-dir OUT` on the digits.
fn arguments<'a>(model: &'a Path, inputs: &'a str, out: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", path(model), "--inputs", inputs, "--output-dir", path(out)], more].concat()
}

fn rows(out: &Path) -> Vec<String> {
    let text = fs::read_to_string(out.join("results.csv")).unwrap();
    text.lines().skip(1).map(|line| line.split(',').take(2).collect::<Vec<_>>().join(" ")).collect()
}

fn model() -> PathBuf {
    digits("digits_float32.tflite")
}

#[test]
fn records_have_the_outputs_of_single_runs() {
    let (inputs, out, single) = (records(5), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (model, seven) = (model(), digits("seven.npy"));
    let one = ["run", path(&model), "--input", path(&seven), "--output-dir", path(single.path())];
    delegraph(&one).expect(0, "");
    let want = fs::read(single.path().join("output_0.npy")).unwrap();
    for delegate in ["cpu", "wgpu"] {
        let more = ["--jobs", "2", "--json", "--delegate", delegate];
        let ran = delegraph(&arguments(&model, path(inputs.path()), out.path(), &more));
        // A machine without any GPU driver.
        if delegate == "wgpu" && ran.code == 3 {
            eprintln!("left out: {}", ran.stderr);
            continue;
        }
        let ran = ran.expect(0, "").json();
        assert_eq!(
            (&ran["records"], &ran["ran"], &ran["failed"]),
            (&5.into(), &5.into(), &0.into()),
            "{ran}"
        );
        assert_eq!(rows(out.path()), (0..5).map(|i| format!("r{i:02} ok")).collect::<Vec<_>>());
        for i in 0..5 {
            let got = fs::read(out.path().join(format!("r{i:02}/output_0.npy"))).unwrap();
            assert!(delegate == "wgpu" || got == want);
            assert_eq!(got.len(), want.len());
        }
    }
}

#[test]
fn a_broken_record_is_a_row() {
    let (inputs, out) = (records(4), tempfile::tempdir().unwrap());
    fs::write(inputs.path().join("r01.npy"), "not an array").unwrap();
    fs::copy(digits("labels.npy"), inputs.path().join("r02.npy")).unwrap();
    let (model, inputs) = (model(), path(inputs.path()));
    let ran = delegraph(&arguments(&model, inputs, out.path(), &["--jobs", "1"])).expect(1, "");
    assert!(ran.stdout.contains("4 records: 2 ran, 2 failed"), "{}", ran.stdout);
    assert!(ran.stdout.contains("r01") && ran.stdout.contains("not a usable .npy file"), "{}", ran.stdout);
    assert_eq!(rows(out.path()), ["r00 ok", "r01 failed", "r02 failed", "r03 ok"]);
    let ran = delegraph(&arguments(&model, inputs, out.path(), &["--jobs", "1", "--resume"])).expect(1, "");
    let text = "4 records: 2 ran, 2 of them in an earlier run, 2 failed; ";
    assert!(ran.stdout.starts_with(text), "{}", ran.stdout);
    // After the repair, only these records run again.
    for record in ["r01", "r02"] {
        fs::copy(digits("seven.npy"), Path::new(inputs).join(format!("{record}.npy"))).unwrap();
    }
    let ran = delegraph(&arguments(&model, inputs, out.path(), &["--resume", "--json"])).expect(0, "").json();
    assert_eq!((&ran["resumed"], &ran["ran"]), (&2.into(), &4.into()), "{ran}");
    assert_eq!(rows(out.path()), ["r00 ok", "r01 ok", "r02 ok", "r03 ok"]);
    let other = ["--resume", "--delegate", "reference"];
    delegraph(&arguments(&model, inputs, out.path(), &other)).expect(1, "it contains another run");
}

#[test]
fn a_killed_batch_is_resumed() {
    let (inputs, out) = (records(60), tempfile::tempdir().unwrap());
    let list = inputs.path().join("list.txt");
    let lines: Vec<String> =
        (0..6000).map(|i| path(&inputs.path().join(format!("r{:02}.npy", i % 60))).to_owned()).collect();
    fs::write(&list, lines.join("\n")).unwrap();
    let (model, list) = (model(), path(&list).to_owned());
    let mut child = command(&arguments(&model, &list, out.path(), &["--jobs", "2"]));
    let mut child = child.stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let done = || fs::read_to_string(out.path().join("journal.jsonl")).map_or(0, |text| text.lines().count());
    while done() < 20 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = delegraph(&arguments(&model, &list, out.path(), &["--jobs", "2", "--resume", "--json"]))
        .expect(0, "");
    let ran = ran.json();
    assert!(ran["resumed"].as_u64().unwrap() >= 18, "{ran}");
    assert_eq!((&ran["records"], &ran["ran"]), (&6000.into(), &6000.into()), "{ran}");
    let rows = rows(out.path());
    assert_eq!((rows.len(), rows[0].as_str(), rows[60].as_str()), (6000, "r00 ok", "r00-2 ok"));
}

#[test]
fn what_is_wrong_with_all_records_is_an_error_of_the_command() {
    let (inputs, out) = (records(1), tempfile::tempdir().unwrap());
    let (model, folder) = (model(), path(inputs.path()).to_owned());
    let run = |inputs: &str, more: &[&str]| delegraph(&arguments(&model, inputs, out.path(), more));
    run(&folder, &["--signature", "none"]).expect(2, "--signature none: there is no such signature");
    run("nothing/*.npy", &[]).expect(4, "there are no .npy files");
    run("nothing", &[]).expect(4, "--inputs nothing: there is no such file or folder");
    run("nothing/[", &[]).expect(2, "--inputs nothing/[: Pattern syntax error");
    run(&folder, &["--input", path(&digits("seven.npy"))]).expect(2, "2 input files given");
    let two = Tiny::default().write(out.path());
    delegraph(&arguments(&two, &folder, out.path(), &[])).expect(4, "r00.npy: input 1 (\"b\") has no file");
    delegraph(&["run", path(&model), "--inputs", &folder]).expect(2, "--output-dir");
    delegraph(&["run", path(&model), "--jobs", "2"]).expect(2, "--inputs");
}
