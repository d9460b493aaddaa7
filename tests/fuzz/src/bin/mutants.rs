//! `mutants --seed S --count N [--first I] [--on cpu,reference,wgpu] [--plain] [--keep DIR] [FOLDER…]` makes mutants of
//! the cases of the conformance suite and of the models in the folders. It prepares, explains, resizes and runs each
//! mutant on every backend, within 1 GiB and 8 seconds.
//!
//! Mutants run in a separate process (`worker`), which is restarted after a mutant that ended it. A panic, an abort,
//! no end within 90 seconds, more than 10 seconds of processor time or more than 2 GiB of resident memory are findings,
//! which `--keep` writes.
//!
//! With `--plain`, mutants run with the defaults of the interpreter and of the delegate, on all threads. Processor time
//! and memory are not findings, and a mutant is cancelled after 8 seconds of processor time.
//!
//! With `--on none`, `--keep DIR` writes all mutants, for running the command on them.

use std::io::{BufRead as _, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use delegraph_core::{Error, Model, ModelBytes};
#[cfg(feature = "wgpu")]
use delegraph_delegate_wgpu::{PipelineCache, WgpuDelegate, WgpuOptions};
use delegraph_fuzz::measure;
use delegraph_fuzz::models::run_watched;
use delegraph_fuzz::mutate::{Dice, mutant};
use delegraph_fuzz::seeds;
use delegraph_interpreter::{
    BuiltinOpResolver, CancellationToken, Interpreter, ReferenceOpResolver, ResourceLimits,
};

const MEMORY: usize = 1 << 30;
const TIME: Duration = Duration::from_secs(8);
const MAX_RESIDENT: usize = 2 << 30;
const MAX_PROCESSOR_TIME: Duration = Duration::from_secs(10);
/// A worker that is silent for longer is killed.
const MAX_SILENCE: Duration = Duration::from_secs(90);
/// Mutants per worker: a device keeps the pipelines of all models that ran on it, which are not a mutant's memory.
const MAX_MUTANTS: u64 = 1000;

struct Options {
    seed: u64,
    first: u64,
    count: u64,
    on: Vec<String>,
    plain: bool,
    keep: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let on = ["cpu", "reference"].map(str::to_owned).to_vec();
        let mut options =
            Options { seed: 1, first: 0, count: 1000, on, plain: false, keep: None, folders: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} takes a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
            match word.as_str() {
                "--seed" => options.seed = number(value()?)?,
                "--first" => options.first = number(value()?)?,
                "--count" => options.count = number(value()?)?,
                "--on" => options.on = value()?.split(',').map(str::to_owned).collect(),
                "--plain" => options.plain = true,
                "--keep" => options.keep = Some(value()?.into()),
                folder if !folder.starts_with('-') => options.folders.push(folder.into()),
                _ => return Err(format!("{word} is not an option")),
            }
        }
        let known: &[_] = match cfg!(feature = "wgpu") {
            true => &["cpu", "reference", "wgpu", "none"],
            false => &["cpu", "reference", "none"],
        };
        match options.on.iter().find(|on| !known.contains(&on.as_str())) {
            Some(other) => Err(format!("--on {other}: there are {}", known.join(", "))),
            None => Ok(options),
        }
    }

    fn bases(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut bases = seeds::cases();
        for folder in &self.folders {
            let files = seeds::files(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            // The files are repeated, so that together they are about a quarter as many as the cases.
            let times = (bases.len() / 4 / files.len().max(1)).max(1);
            bases.extend(std::iter::repeat_n(files, times).flatten());
        }
        Ok(bases)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_worker = words.first().is_some_and(|word| word == "worker");
    let options = Options::parse(if is_worker { &words[1..] } else { &words });
    let result = match (options, is_worker) {
        (Err(error), _) => Err(error),
        (Ok(options), true) => work(&options).map(|()| 0),
        (Ok(options), false) => supervise(&options),
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(findings) => {
            eprintln!("findings: {findings}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The message of the last panic, even if it was caught.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Runs mutants, and prints `> INDEX BACKEND` for each run, `! INDEX BACKEND: TEXT` for a finding and `? INDEX BACKEND`
/// for a run that was cancelled.
fn work(options: &Options) -> Result<(), String> {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        PANIC.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(text);
    }));
    let bases = options.bases()?;
    #[cfg(feature = "wgpu")]
    if options.on.iter().any(|on| on == "wgpu") {
        device(options.plain)?;
    }
    let mut out = std::io::stdout();
    for index in options.first..options.first + options.count {
        let file = make(&bases, options.seed, index);
        for on in &options.on {
            let say = |out: &mut dyn std::io::Write, text: String| {
                writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| e.to_string())
            };
            say(&mut out, format!("> {index} {on}"))?;
            let start = measure::processor_time();
            measure::reset_peak();
            let ended = catch_unwind(AssertUnwindSafe(|| attempt(on, options.plain, &file)));
            let (time, peak) = (measure::processor_time().saturating_sub(start), measure::peak());
            let panicked = PANIC.lock().unwrap_or_else(|e| e.into_inner()).take();
            if ended.is_err() || panicked.is_some() {
                say(&mut out, format!("! {index} {on}: {}", panicked.unwrap_or_default()))?;
            }
            if options.plain {
                if ended.is_ok_and(|cancelled| cancelled) {
                    say(&mut out, format!("? {index} {on}"))?;
                }
                continue;
            }
            if time > MAX_PROCESSOR_TIME {
                say(&mut out, format!("! {index} {on}: {time:.1?} of processor time"))?;
            }
            if peak > MAX_RESIDENT {
                say(&mut out, format!("! {index} {on}: {peak} bytes of resident memory"))?;
            }
        }
    }
    Ok(())
}

/// Returns mutant `index`.
fn make(bases: &[Vec<u8>], seed: u64, index: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed, index);
    let (base, other) = (dice.below(bases.len()), dice.below(bases.len()));
    let of = |i: usize| bases.get(i).map_or(&[][..], Vec::as_slice);
    mutant(of(base), Some(of(other)), &mut dice)
}

/// Runs a mutant; returns whether it was cancelled.
fn attempt(on: &str, plain: bool, file: &[u8]) -> bool {
    let Ok(model) = Model::from_bytes(ModelBytes::new(file.to_vec())) else { return false };
    let mut builder = Interpreter::builder(model);
    if !plain {
        let limits = ResourceLimits::default().with_memory(MEMORY).with_total_time(TIME);
        builder = builder.limits(limits).threads(1);
    }
    let builder = match on {
        "reference" => builder.resolver(ReferenceOpResolver::new()),
        #[cfg(feature = "wgpu")]
        "wgpu" => match device(plain) {
            Ok(delegate) => builder.delegate(delegate),
            // The worker would have ended before its first mutant.
            Err(_) => return false,
        },
        _ => builder.resolver(BuiltinOpResolver::new()),
    };
    let attempt = Arc::new(());
    let ended = run_watched(builder, |token| watch(token, Arc::downgrade(&attempt)));
    matches!(ended, Err(Error::Cancelled))
}

/// Returns a delegate on the device that all mutants of a worker share.
#[cfg(feature = "wgpu")]
fn device(plain: bool) -> Result<WgpuDelegate, String> {
    static DELEGATE: std::sync::OnceLock<Result<WgpuDelegate, String>> = std::sync::OnceLock::new();
    let open = || {
        if plain {
            let options = WgpuOptions::default().with_pipeline_cache(PipelineCache::Off);
            return WgpuDelegate::new(options).map_err(|e| e.to_string());
        }
        delegraph_fuzz::models::delegate().ok_or_else(|| "there is no adapter".to_owned())
    };
    DELEGATE.get_or_init(open).clone()
}

/// Cancels an attempt once the process has used [`TIME`] of processor time on all of its threads together. A software
/// device runs on several threads.
fn watch(token: CancellationToken, attempt: Weak<()>) {
    let start = measure::processor_time();
    std::thread::spawn(move || {
        while attempt.strong_count() > 0 {
            if measure::processor_time().saturating_sub(start) > TIME {
                token.cancel();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

/// Runs workers until all mutants ran; returns the number of findings.
fn supervise(options: &Options) -> Result<usize, String> {
    let end = options.first + options.count;
    let (mut next, mut findings, mut cancelled) = (options.first, 0, 0);
    let start = Instant::now();
    let mut bases = None;
    let mut keep = |index: u64, text: &str| -> Result<(), String> {
        println!("{text}");
        let Some(folder) = &options.keep else { return Ok(()) };
        let bases = match &mut bases {
            Some(bases) => bases,
            empty => empty.insert(options.bases()?),
        };
        let path = folder.join(format!("mutant_{}_{index}.tflite", options.seed));
        let write = || {
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&path, make(bases, options.seed, index)))
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    };
    if options.on == ["none"] {
        return (next..end).try_for_each(|index| keep(index, &index.to_string())).map(|()| 0);
    }
    while next < end {
        let stop = end.min(next + MAX_MUTANTS);
        let (mut worker, lines) = spawn(options, next, stop - next)?;
        let mut current = (next, String::new());
        let killed = loop {
            match lines.recv_timeout(MAX_SILENCE) {
                Ok(line) => match line.split_once(' ') {
                    Some((">", at)) => {
                        let (index, on) = at.split_once(' ').unwrap_or((at, ""));
                        current = (index.parse().map_err(|_| line.clone())?, on.to_owned());
                    }
                    Some(("!", _)) => {
                        findings += 1;
                        keep(current.0, &line)?;
                    }
                    Some(("?", _)) => cancelled += 1,
                    _ => return Err(format!("a worker wrote {line}")),
                },
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => {
                    worker.kill().map_err(|e| e.to_string())?;
                    break true;
                }
            }
        };
        let status = worker.wait().map_err(|e| e.to_string())?;
        if status.success() {
            next = stop;
            eprintln!("{next} of {end}, {findings} findings, {:.0?}", start.elapsed());
            continue;
        }
        findings += 1;
        let (index, on) = &current;
        let reason = if killed { format!("no end after {MAX_SILENCE:?}") } else { status.to_string() };
        keep(*index, &format!("! {index} {on}: {reason}"))?;
        next = index + 1;
    }
    let time = start.elapsed();
    println!("{} mutants in {time:.0?}: {findings} findings, {cancelled} runs cancelled", options.count);
    Ok(findings)
}

fn spawn(options: &Options, first: u64, count: u64) -> Result<(Child, Receiver<String>), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.arg("worker").args(["--seed".into(), options.seed.to_string()]);
    command.args(["--first".into(), first.to_string(), "--count".into(), count.to_string()]);
    command
        .args(["--on", &options.on.join(",")])
        .args(options.plain.then_some("--plain"))
        .args(options.folders.iter().map(|folder| folder.as_os_str()));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let stdout = child.stdout.take().ok_or("the worker has no output")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.map(|line| sender.send(line)).find(Result::is_err)
    });
    Ok((child, receiver))
}
