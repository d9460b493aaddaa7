//! Resizes, many concurrent interpreters, and many short-lived ones on one GPU device: memory must not grow, and
//! nothing may fail.
//!
//! ```sh
//! cargo run --release --example gpu_stress -- [MODEL] [AXES] [RESIZES] [INTERPRETERS] [CYCLES]
//! ```
//!
//! `AXES` are the dimensions of the first input to resize, for example `1,2`. The defaults are 200 resizes, 100
//! interpreters and 1,000 cycles. All results are compared with those of the CPU. Resident memory is read from `/proc`,
//! and is 0 on systems without it.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use delegraph::core::{Model, Shape};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::{Error, Interpreter, Result, load};

/// Tolerances of a result on the GPU: of each element, and relative to the largest.
const TOLERANCE: (f32, f32) = (1e-5, 1e-4);

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |i: usize, default: usize| -> Result<usize> {
        let wrong = |e| Error::InvalidInput(format!("argument {}: {e}", i + 1));
        arguments.get(i).map_or(Ok(default), |text| text.parse().map_err(wrong))
    };
    let digits = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/digits/digits_float32.tflite");
    let model = Arc::new(load(arguments.first().map_or_else(digits, PathBuf::from))?);
    let axes = arguments.get(1).map_or("0", String::as_str).split(',');
    let axes = axes.map(|axis| axis.parse().map_err(|e| Error::InvalidInput(format!("axis {axis}: {e}"))));
    let stress = Stress { model, delegate: WgpuDelegate::new(WgpuOptions::default())? };
    println!("{}: {}", stress.delegate.adapter_info().backend, stress.delegate.adapter_info().name);
    stress.resize(&axes.collect::<Result<Vec<usize>>>()?, number(2, 200)?)?;
    stress.crowd(number(3, 100)?)?;
    stress.come_and_go(number(4, 1000)?)
}

/// A model, and the delegate whose device all interpreters share.
pub(crate) struct Stress {
    pub(crate) model: Arc<Model>,
    pub(crate) delegate: WgpuDelegate,
}

/// Quantities that must not grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Held {
    /// Bytes of weights and parameters on the device.
    pub(crate) uploaded: u64,
    /// Bytes of all memory of wgpu on the device.
    pub(crate) device: u64,
    /// Compiled pipelines.
    pub(crate) pipelines: usize,
    /// Resident memory of the process in KiB.
    pub(crate) resident: u64,
}

impl Stress {
    fn interpreter(&self) -> Result<Interpreter> {
        Interpreter::builder(self.model.clone()).delegate(self.delegate.clone()).build()
    }

    /// Returns the current values, after pending releases are done.
    pub(crate) fn held(&self) -> Held {
        let (device, _) = self.delegate.device_and_queue();
        // The result only reports whether there was anything to wait for.
        let _ = device.poll(delegraph::delegate_wgpu::wgpu::PollType::wait_indefinitely());
        Held {
            uploaded: self.delegate.uploaded_bytes(),
            device: device.generate_allocator_report().map_or(0, |report| report.total_allocated_bytes),
            pipelines: self.delegate.compiled_pipelines(),
            resident: resident(),
        }
    }

    /// One run on the GPU and on the CPU.
    fn check(&self, interpreter: &mut Interpreter, seed: usize) -> Result<()> {
        if interpreter.report().delegated_nodes() == 0 {
            return Err(Error::State(format!("nothing is delegated: {:?}", interpreter.report().failures)));
        }
        let mut cpu = Interpreter::builder(self.model.clone()).build()?;
        for i in 0..interpreter.input_count() {
            let shape = interpreter.input_tensor(i)?.shape.clone();
            let data: Vec<f32> =
                (0..shape.elements()).map(|k| ((k * 31 + seed) % 17) as f32 / 17.0).collect();
            cpu.resize_input(i, shape.dims())?;
            cpu.input_mut::<f32>(i)?.copy_from_slice(&data);
            interpreter.input_mut::<f32>(i)?.copy_from_slice(&data);
        }
        cpu.invoke()?;
        interpreter.invoke()?;
        for i in 0..interpreter.output_count() {
            let (got, want) = (interpreter.output::<f32>(i)?, cpu.output::<f32>(i)?);
            let most = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            if !approx::abs_diff_eq!(got, want, epsilon = TOLERANCE.0 + TOLERANCE.1 * most) {
                return Err(Error::State(format!("output {i} differs from the CPU's, seed {seed}")));
            }
        }
        Ok(())
    }

    /// Resizes the first input in these dimensions, and back.
    pub(crate) fn resize(&self, axes: &[usize], count: usize) -> Result<()> {
        let mut interpreter = self.interpreter()?;
        let first = interpreter.input_tensor(0)?.shape.clone();
        self.check(&mut interpreter, 0)?;
        self.delegate.finish_compiling();
        let before = self.held();
        let mut compiled = Vec::new();
        for i in 1..=count {
            let pipelines = self.delegate.compiled_pipelines();
            let grown = first.dims().iter().enumerate().map(|(axis, &d)| match axes.contains(&axis) {
                true if d < 8 => 1 + i % 8,
                true => d + i * 7 % 48,
                false => d,
            });
            let shape = Shape::new(&grown.collect::<Vec<_>>());
            interpreter.resize_input(0, shape.dims())?;
            interpreter.prepare()?;
            // Comparing with the CPU each time would measure the CPU.
            match i % 20 {
                1 => self.check(&mut interpreter, i)?,
                _ => interpreter.invoke()?,
            }
            let more = self.delegate.compiled_pipelines() - pipelines;
            if more > 0 {
                compiled.push(format!("{shape}: {more}"));
            }
        }
        interpreter.resize_input(0, first.dims())?;
        self.check(&mut interpreter, 1)?;
        let last = self.held();
        println!(
            "{count} resizes of axes {axes:?} of {first}\n  {before}\n  {last}\n  compiled: {compiled:?}"
        );
        Ok(())
    }

    /// Many interpreters at a time.
    pub(crate) fn crowd(&self, count: usize) -> Result<()> {
        let one = self.interpreter()?;
        let before = self.held();
        let mut all = (0..count).map(|_| self.interpreter()).collect::<Result<Vec<_>>>()?;
        for (i, interpreter) in all.iter_mut().enumerate() {
            self.check(interpreter, i)?;
        }
        let most = self.held();
        drop(all);
        let after = self.held();
        drop(one);
        println!("{count} interpreters at a time\n  {before}\n  {most}\n  {after}");
        Ok(())
    }

    /// Interpreters one after the other.
    pub(crate) fn come_and_go(&self, count: usize) -> Result<()> {
        println!("{count} interpreters, one after the other");
        for i in 0..count {
            let mut interpreter = self.interpreter()?;
            match i % 20 {
                1 => self.check(&mut interpreter, i)?,
                _ => interpreter.invoke()?,
            }
            drop(interpreter);
            if i % (count / 5).max(1) == 0 || i + 1 == count {
                println!("  {} after {}", self.held(), i + 1);
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Held { uploaded, device, pipelines, resident } = self;
        write!(
            f,
            "{resident} KiB resident, {device} bytes on the device, {uploaded} uploaded, {pipelines} pipelines"
        )
    }
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or(0)
}
