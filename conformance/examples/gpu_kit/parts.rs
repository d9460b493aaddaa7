//! The parts of the kit, and its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use delegraph_conformance::engine::CaseResult;
use delegraph_conformance::report::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::process::{self, Ended, Finished};

/// The result of a run: `kit.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kit {
    /// The version of this format.
    pub(crate) format: u32,
    /// The version of Delegraph.
    pub(crate) version: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) host: Host,
    /// The adapter that was measured.
    pub(crate) adapter: String,
    /// Whether the adapter is the processor.
    pub(crate) software: bool,
    /// Everything that `delegraph devices` lists, with limits and features.
    pub(crate) devices: Value,
    /// The parts in the order in which they ran.
    pub(crate) parts: Vec<Part>,
    pub(crate) shaders: Shaders,
    /// Per precision.
    pub(crate) conformance: BTreeMap<String, Conformance>,
    pub(crate) latencies: Vec<Latency>,
    pub(crate) roofline: Roofline,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

/// A program that the kit ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// The time limit, in seconds.
    pub(crate) limit: f64,
    pub(crate) ended: Ended,
    /// The end of its error messages, unless it succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// The tests of kernels against plain Rust.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shaders {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
}

/// The conformance suite in one precision.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Conformance {
    pub(crate) device: String,
    /// Cases with a result.
    pub(crate) ran: usize,
    /// All cases of the suite.
    pub(crate) of: usize,
    /// Per outcome.
    pub(crate) counts: BTreeMap<String, usize>,
    /// The first failed cases, with details.
    pub(crate) failures: Vec<Failure>,
    /// The number of failed cases.
    pub(crate) failed: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) case: String,
    pub(crate) outcome: String,
    pub(crate) detail: String,
}

/// The times of a model in milliseconds, per delegate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) model: String,
    pub(crate) times: BTreeMap<String, Times>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Times {
    pub(crate) prepare_ms: f64,
    pub(crate) first_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) min_ms: f64,
    pub(crate) runs: usize,
    pub(crate) gpu_ms: Option<f64>,
    pub(crate) partitions: usize,
    pub(crate) delegated_nodes: usize,
    pub(crate) total_nodes: usize,
    /// Delegates that failed, with reasons; their nodes ran on the CPU.
    pub(crate) failures: Vec<String>,
}

/// Rates of kernels, and the measured limits of the device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Roofline {
    pub(crate) adapter: String,
    pub(crate) rows: Vec<Rate>,
    pub(crate) left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rate {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) ty: String,
    pub(crate) unit: String,
    /// In 10^9 bytes or operations per second.
    pub(crate) rate: f64,
    /// The share of the limit; missing for a limit.
    pub(crate) share: Option<f64>,
    pub(crate) microseconds: f64,
}

/// The delegates that models run on, with their names in results.
const DELEGATES: [(&str, &str); 3] =
    [("cpu", "cpu"), ("wgpu", "wgpu f32"), ("wgpu?precision=f16", "wgpu f16")];
/// The maximum number of failures that the result lists.
const MAX_FAILURES: usize = 200;
/// The longest error message of a part in the result, in bytes.
const MAX_MESSAGE: usize = 2000;

struct Runner<'k> {
    kit: &'k Path,
    out: &'k Path,
    started: Instant,
    seconds: f64,
    parts: Vec<Part>,
}

impl Runner<'_> {
    fn left(&self) -> f64 {
        self.seconds - self.started.elapsed().as_secs_f64()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.kit.join("bin").join(name));
        command.current_dir(self.out);
        // Nothing is written outside of the folder of results, and no cache of an earlier run is read.
        command.env("DELEGRAPH_CACHE", self.out.join("cache"));
        if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
            // Without a desktop session, Mesa's device-selection layer writes a warning whenever adapters are listed.
            command.env("NODEVICE_SELECT", "1");
        }
        command
    }

    fn run(&mut self, name: &str, command: Command, limit: f64) -> Finished {
        let limit = limit.min(self.left());
        let finished = process::run(command, self.out, name, limit);
        let Finished { ended, seconds, stderr, .. } = &finished;
        let state = match ended {
            Ended::Code(0) => "done".into(),
            Ended::Code(code) => format!("ended with code {code}"),
            Ended::Signal => "ended by a signal".into(),
            Ended::Cut => format!("ended at its limit of {limit:.0} s"),
            Ended::NotRun(why) => format!("not run: {why}"),
        };
        println!("{name:40} {seconds:7.1} s  {state}");
        let message = if *ended == Ended::Code(0) { "" } else { tail(stderr, MAX_MESSAGE) };
        let (ended, message) = (ended.clone(), message.to_owned());
        self.parts.push(Part { name: name.into(), seconds: *seconds, limit, ended, message });
        finished
    }

    fn delegraph(&self, words: &[&str]) -> Command {
        let mut command = self.program("delegraph");
        command.args(words);
        command
    }
}

/// Runs all parts in at most `seconds`. `adapter`: a part of the adapter's name; the fastest kind is used without it.
pub(crate) fn run(kit: &Path, out: &Path, adapter: Option<&str>, seconds: f64) -> Result<Kit, String> {
    let mut runner = Runner { kit, out, started: Instant::now(), seconds, parts: Vec::new() };
    let listed = runner.delegraph(&["--json", "devices"]);
    let listed = runner.run("devices", listed, 60.0);
    let devices: Value = serde_json::from_str(&listed.stdout)
        .map_err(|e| format!("adapters cannot be listed: {e}\n{}", tail(&listed.stderr, MAX_MESSAGE)))?;
    let (name, software) = choose(&devices, adapter)?;
    println!("adapter: {name}");
    // Programs take a part of an adapter's name. The delegate's own options need a name only to override its order.
    let suffix = adapter.map_or(String::new(), |_| format!("adapter={name}"));
    let with = |delegate: &str| match (delegate.contains('?'), suffix.is_empty() || delegate == "cpu") {
        (_, true) => delegate.to_owned(),
        (true, false) => format!("{delegate}&{suffix}"),
        (false, false) => format!("{delegate}?{suffix}"),
    };

    let mut tests = runner.program("shader-tests");
    tests.env("DELEGRAPH_ADAPTER", &name);
    let share = seconds / 600.0;
    let shaders = shaders(&runner.run("shader-tests", tests, 90.0 * share).stdout);

    let mut latencies = Vec::new();
    let models = models(&out.join("models"));
    // The time reserved for the parts after the latencies.
    let reserved = runner.left() - 180.0 * share;
    for model in models {
        let title = model.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut times = BTreeMap::new();
        for (delegate, label) in DELEGATES {
            let mut bench = runner.delegraph(&["--json", "bench", "--seconds", "0.5", "--warmup", "1"]);
            bench.arg(&model).arg("--delegate").arg(with(delegate));
            let limit = (30.0 * share).min(runner.left() - reserved);
            let result = runner.run(&format!("latency-{title}-{}", label.replace(' ', "-")), bench, limit);
            if let Ok(found) = serde_json::from_str::<Times>(&result.stdout) {
                times.insert(label.to_owned(), found);
            }
        }
        latencies.push(Latency { model: title, times });
    }

    let limit = 100.0 * share;
    let mut roofline = runner.program("shader-tests");
    roofline.args(["roofline::rates", "--exact", "--nocapture", "--test-threads=1"]);
    roofline.env("DELEGRAPH_ADAPTER", &name).env("DELEGRAPH_ROOFLINE", format!("{:.0}", limit * 0.7));
    let roofline = roofline_of(&runner.run("roofline", roofline, limit).stdout);

    let list = runner.delegraph(&["--json", "conformance", "--list"]);
    let list = runner.run("conformance-list", list, 30.0);
    let of = serde_json::from_str::<Vec<String>>(&list.stdout).map_or(0, |names| names.len());
    let mut conformance = BTreeMap::new();
    for (left, (delegate, precision)) in
        [("wgpu", "f32"), ("wgpu?precision=f16", "f16")].into_iter().enumerate()
    {
        let folder = out.join(format!("conformance-{precision}"));
        let mut suite = runner.delegraph(&["--quiet", "conformance", "--checks", "none"]);
        suite.arg("--delegate").arg(with(delegate)).arg("--report").arg(&folder);
        // A few seconds are reserved for writing the result.
        let limit = (runner.left() - 4.0) / (2 - left) as f64;
        runner.run(&format!("conformance-{precision}"), suite, limit);
        conformance.insert(precision.to_owned(), conformance_of(&folder, of));
    }
    Ok(Kit {
        format: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        host: host(),
        adapter: name,
        software,
        devices,
        parts: runner.parts,
        shaders,
        conformance,
        latencies,
        roofline,
    })
}

/// Returns the name of the adapter to measure, and whether it is the processor.
fn choose(devices: &Value, wanted: Option<&str>) -> Result<(String, bool), String> {
    let adapters = devices["adapters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rank = |kind: &str| match kind {
        "DiscreteGpu" => 0,
        "IntegratedGpu" => 1,
        "VirtualGpu" => 2,
        "Cpu" => 4,
        _ => 3,
    };
    let text = |adapter: &Value, key: &str| adapter[key].as_str().unwrap_or_default().to_owned();
    let known = adapters.iter().map(|adapter| (text(adapter, "name"), text(adapter, "type")));
    let matches = |name: &str| wanted.is_none_or(|w| name.to_lowercase().contains(&w.to_lowercase()));
    let chosen = known.clone().filter(|(name, _)| matches(name)).min_by_key(|(_, kind)| rank(kind));
    match (chosen, wanted) {
        (Some((name, kind)), _) => Ok((name, kind == "Cpu")),
        (None, Some(wanted)) => {
            let names: Vec<String> = known.map(|(name, _)| name).collect();
            Err(format!("no adapter is named {wanted:?}; available: {}", names.join("; ")))
        }
        (None, None) => Err("no adapter found: install a Vulkan driver".into()),
    }
}

/// Returns the models that `run.sh` unpacked, in the order of their names; the digit classifiers, which are the smallest,
/// come last.
fn models(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut models: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "tflite")).collect();
    let is_small =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("digits"));
    models.sort_by_key(|path| (is_small(path), path.clone()));
    models
}

/// Reads the output of the test program so far.
fn shaders(text: &str) -> Shaders {
    let results = text.lines().filter_map(|line| line.strip_prefix("test ")?.rsplit_once(" ... "));
    let mut shaders = Shaders::default();
    for (name, result) in results {
        match result {
            "ok" => shaders.passed += 1,
            "FAILED" => shaders.failed.push(name.into()),
            _ => {}
        }
    }
    shaders
}

/// Reads the lines of JSON printed so far.
fn roofline_of(text: &str) -> Roofline {
    let mut roofline = Roofline::default();
    for line in text.lines() {
        if let Ok(rate) = serde_json::from_str::<Rate>(line) {
            roofline.rows.push(rate);
        } else if let Ok(Value::Object(line)) = serde_json::from_str(line) {
            let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
            roofline.left_out.extend(text("left_out"));
            roofline.adapter = text("adapter").unwrap_or(roofline.adapter);
        }
    }
    roofline
}

/// Reads the report, or the journal of a run that was ended.
fn conformance_of(folder: &Path, of: usize) -> Conformance {
    let report = Report::read(&folder.join("results.json")).unwrap_or_else(|_| {
        let journal = std::fs::read_to_string(folder.join("partial.jsonl")).unwrap_or_default();
        // The first line identifies the run; the last one may be incomplete.
        let results =
            journal.lines().skip(1).filter_map(|line| serde_json::from_str::<CaseResult>(line).ok());
        let mut report = Report::new("wgpu", results.collect());
        report.device =
            journal.lines().next().and_then(|run| run.split_once(" on ")).map_or("", |(_, d)| d).into();
        report.count();
        report
    });
    let failure = |r: &CaseResult| Failure {
        case: r.case.clone(),
        outcome: r.outcome.name().into(),
        detail: r.detail.lines().next().unwrap_or_default().into(),
    };
    Conformance {
        ran: report.total,
        of: of.max(report.total),
        failures: report.failures().take(MAX_FAILURES).map(failure).collect(),
        failed: report.failures().count(),
        device: report.device,
        counts: report.counts,
    }
}

fn host() -> Host {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| {
        line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
    });
    Host {
        processor: processor.unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
    }
}

/// Returns the last `most` bytes of a text, or fewer.
fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use delegraph_conformance::engine::Outcome;
    use serde_json::json;

    use super::*;

    #[test]
    fn hardware_comes_before_software_unless_it_is_named() {
        let devices = json!({"adapters": [
            {"name": "llvmpipe (LLVM 15)", "type": "Cpu"},
            {"name": "Iris", "type": "IntegratedGpu"},
            {"name": "Radeon", "type": "DiscreteGpu"},
        ]});
        assert_eq!(choose(&devices, None), Ok(("Radeon".into(), false)));
        assert_eq!(choose(&devices, Some("LLVMPIPE")), Ok(("llvmpipe (LLVM 15)".into(), true)));
        assert!(choose(&devices, Some("Arc")).is_err_and(|e| e.contains("Iris; Radeon")));
        assert!(choose(&json!({"adapters": []}), None).is_err());
    }

    #[test]
    fn real_models_come_before_small_ones() {
        let folder = std::env::temp_dir().join(format!("delegraph-kit-{}-models", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{e}"));
        for name in ["digits_int8.tflite", "pose.tflite", "notes.txt", "deeplab.tflite"] {
            std::fs::write(folder.join(name), "").unwrap_or_else(|e| panic!("{e}"));
        }
        let names = models(&folder);
        let names: Vec<_> = names.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
        assert_eq!(names, ["deeplab", "pose", "digits_int8"]);
        let _ = std::fs::remove_dir_all(folder);
    }

    #[test]
    fn tests_that_ran_are_counted_even_if_others_were_cut() {
        let text = "running 3 tests\ntest conv_2d::groups ... ok\ntest pad::all ... FAILED\ntest unary::ta";
        let expected = Shaders { passed: 1, failed: vec!["pad::all".into()] };
        assert_eq!(shaders(text), expected);
    }

    #[test]
    fn rates_that_were_printed_count_even_if_the_program_was_cut() {
        let text = "\nrunning 1 test\ntest roofline::rates ... \n{\"adapter\":\"A\"}\n\
            {\"name\":\"limit: copies\",\"type\":\"f32\",\"unit\":\"GB/s\",\"rate\":9.5,\"share\":null,\"microseconds\":2.0}\n\
            {\"left_out\":\"add f16: no time left\"}\n{\"name\":\"cu";
        let roofline = roofline_of(text);
        assert_eq!((roofline.adapter.as_str(), roofline.rows.len()), ("A", 1));
        assert_eq!((roofline.rows[0].rate, roofline.rows[0].share), (9.5, None));
        assert_eq!(roofline.left_out, ["add f16: no time left"]);
    }

    #[test]
    fn a_journal_stands_for_a_report_that_was_not_written() {
        let folder = std::env::temp_dir().join(format!("delegraph-kit-{}-journal", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{e}"));
        let pass = CaseResult::new("add/float", Outcome::Pass, "");
        let bad = CaseResult::new("mul/float", Outcome::Mismatch, "1 of 4 elements\nmore");
        let line = |r: &CaseResult| serde_json::to_string(r).unwrap_or_default();
        let journal = format!(
            "delegraph conformance None on some device\n{}\n{}\n{{\"case\":",
            line(&pass),
            line(&bad)
        );
        std::fs::write(folder.join("partial.jsonl"), journal).unwrap_or_else(|e| panic!("{e}"));
        let cut = conformance_of(&folder, 9);
        assert_eq!((cut.ran, cut.of, cut.failed, cut.device.as_str()), (2, 9, 1, "some device"));
        assert_eq!(cut.counts, BTreeMap::from([("mismatch".into(), 1), ("pass".into(), 1)]));
        assert_eq!(
            (cut.failures[0].case.as_str(), cut.failures[0].detail.as_str()),
            ("mul/float", "1 of 4 elements")
        );
        // The report itself.
        let mut report = Report::new("wgpu", vec![pass]);
        report.count();
        report.write(&folder).unwrap_or_else(|e| panic!("{e}"));
        let whole = conformance_of(&folder, 1);
        assert_eq!((whole.ran, whole.of, whole.failed), (1, 1, 0));
        let _ = std::fs::remove_dir_all(folder);
    }

    #[test]
    fn messages_are_cut_between_characters() {
        assert_eq!(tail("a ä", 1), "");
        assert_eq!(tail("error: ä", 2), "ä");
        assert_eq!(tail("short", 100), "short");
    }
}
