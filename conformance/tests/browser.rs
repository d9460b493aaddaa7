//! The rendered report: a headless browser draws it at the width of a desktop and of a phone.
//!
//! Without an installed Chromium the test prints a note and ends. `DELEGRAPH_BROWSER` names another browser. The
//! pictures stay in the target folder.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Only tests are here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use delegraph_conformance::engine::{BINS, Bad, CaseResult, ErrorStats, Outcome};
use delegraph_conformance::report::{Report, html};

/// The time limit of the browser for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(90);

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DELEGRAPH_BROWSER") {
        return Some(named.into());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|file| file.is_file())
}

/// A run with long names, many types, and failures with and without numbers.
fn report() -> Report {
    let ops = ["ADD", "CONV_2D", "UNIDIRECTIONAL_SEQUENCE_LSTM", "STABLEHLO_DYNAMIC_UPDATE_SLICE"];
    let types = ["float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool", "string"];
    let mut results = Vec::new();
    for (o, op) in ops.iter().enumerate() {
        for (t, ty) in types.iter().enumerate() {
            for version in 1..=3u32 {
                let outcome = match (o + t * 3 + version as usize) % 11 {
                    0 => Outcome::Mismatch,
                    1 => Outcome::Crash,
                    2..=4 => Outcome::Unsupported,
                    _ => Outcome::Pass,
                };
                let name = format!(
                    "family_{o}/{}_{ty}_with_a_name_that_is_rather_long_v{version}",
                    op.to_lowercase()
                );
                let detail = match outcome {
                    Outcome::Mismatch => {
                        "output 0 (FLOAT32 [1, 7, 5, 3]): largest difference 2.5e-1, 3 of 105 elements wrong"
                    }
                    Outcome::Crash => "the process ended: signal: 11 (SIGSEGV)",
                    Outcome::Unsupported => {
                        "node 0 ADD v1: UnsupportedType: input 0 has the unsupported type INT64"
                    }
                    _ => "",
                };
                let mut result = CaseResult::new(name, outcome, detail);
                (result.op, result.version, result.ty) = ((*op).into(), version, (*ty).into());
                (result.nodes, result.claimed) = (1, 1);
                result.op_claimed = outcome != Outcome::Unsupported;
                result.inputs = vec!["float32 [1, 7, 5, 3]".into(), "float32 [4, 3, 3, 3] constant".into()];
                result.outputs = vec!["float32 [1, 7, 5, 4]".into()];
                result.params =
                    format!("Conv2D(Conv2DParams {{ padding: Same, stride_w: {o}, stride_h: {t} }})");
                result.ops = vec![format!("{op}:{version}")];
                if matches!(outcome, Outcome::Pass | Outcome::Mismatch) {
                    let micros = |n: usize| Some(Duration::from_micros(n as u64));
                    (result.time, result.cpu_time) = (micros(30 + t * 40), micros(20 + o * 90));
                    let mut errors = ErrorStats::exact(140, (0, 0));
                    let wrong = if outcome == Outcome::Mismatch { 3 } else { 0 };
                    errors.histogram = vec![0; BINS];
                    (errors.histogram[0], errors.histogram[2 + t % 4]) = (90, 47);
                    errors.histogram[10] = wrong;
                    (errors.wrong, errors.off, errors.max_abs, errors.max_rel) = (wrong, 50, 0.25, 0.1);
                    errors.first = Some(Bad::new(vec![0, 6, 4, 1], 0.75, 1.0));
                    result.errors = Some(errors);
                }
                results.push(result);
            }
        }
    }
    results[0].known = Some("the driver is to blame".into());
    let library = "plugin:target/release/libsome_vendor_delegate.so?device=1";
    let mut report = Report::new(library, results);
    report.tool = "delegraph".into();
    report.device = "llvmpipe (LLVM 15.0.6, 256 bits), vulkan".into();
    report.baseline = "cpu".into();
    report.seed = Some(2026);
    report.elapsed = Duration::from_secs(61);
    report.problems =
        vec!["unused line: [[known]] case = \"a/long_name_of_a_case_that_is_not_there_any_more\"".into()];
    report.command = format!("delegraph conformance --delegate '{library}'");
    report.count();
    report
}

/// Runs the browser on a page, and returns its output. Panics if the browser does not end in time.
fn run(browser: &Path, arguments: &[String], page: &Path) -> String {
    let profile = page.with_extension("profile");
    let mut child: Child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut stdout).unwrap_or_default());
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PAGE_TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{} did not end", browser.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = fs::remove_dir_all(profile);
    reader.join().unwrap()
}

#[test]
fn the_report_is_drawn_on_a_desktop_and_on_a_phone() {
    let Some(browser) = browser() else {
        eprintln!("left out: no Chromium is installed (on Debian, `apt install chromium`)");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    fs::create_dir_all(&folder).unwrap();
    let page = html(&report());
    // A script writes the rendered sizes into the page, for `--dump-dom`.
    let measure = "<script>addEventListener('load', () => { [...document.querySelectorAll('details')].slice(0, 2).forEach(d => \
                   d.open = true); const e = document.documentElement; const shown = [...document.querySelectorAll('h1, h2, \
                   .tile, details.case')].every(x => x.getBoundingClientRect().width > 40); e.dataset.measured = \
                   [e.scrollWidth, innerWidth, shown, document.querySelectorAll('svg').length].join(' '); });</script>";
    let page = page.replace("</body>", &format!("{measure}</body>"));
    for (name, width, height) in [("desktop", 1280, 3000), ("phone", 500, 4200)] {
        let file = folder.join(format!("{name}.html"));
        fs::write(&file, &page).unwrap();
        let size = format!("--window-size={width},{height}");
        let dom = run(&browser, &[size.clone(), "--dump-dom".into()], &file);
        let measured = dom.split("data-measured=\"").nth(1).and_then(|rest| rest.split('"').next());
        let measured: Vec<&str> =
            measured.unwrap_or_else(|| panic!("{name}: nothing measured")).split(' ').collect();
        let number = |i: usize| measured[i].parse::<u32>().unwrap();
        assert!(
            number(0) <= number(1),
            "{name}: the page is {} wide in a window of {}",
            measured[0],
            measured[1]
        );
        assert_eq!(measured[2], "true", "{name}: something is not shown");
        assert!(number(3) > 20, "{name}: only {} plots", measured[3]);
        let picture = folder.join(format!("{name}.png"));
        run(&browser, &[size, format!("--screenshot={}", picture.display())], &file);
        let drawn = image::open(&picture).unwrap().to_rgb8();
        assert_eq!(drawn.width(), width);
        let colours: BTreeSet<[u8; 3]> = drawn.pixels().map(|p| p.0).collect();
        assert!(colours.len() > 100, "{name}: {} colours", colours.len());
        // The colours of failures and of cells that pass.
        for wanted in [[0xb3, 0x26, 0x1e], [0xd8, 0xef, 0xe2]] {
            assert!(colours.contains(&wanted), "{name}: {wanted:x?} is nowhere");
        }
    }
}
