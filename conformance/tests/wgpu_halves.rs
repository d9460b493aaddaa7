//! The GPU delegate with 16-bit storage through the conformance suite: a share of the cases, as in `wgpu.rs`.
//!
//! `DELEGRAPH_CONFORMANCE=all cargo test -p delegraph-conformance --test wgpu_halves` runs all of them;
//! `delegraph conformance --delegate 'wgpu?precision=f16' --report DIR` does so with each case isolated, and with a report.

use std::process::ExitCode;

use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::harness::Suite;
use delegraph_delegate_wgpu::wgpu::Features;
use delegraph_delegate_wgpu::{Precision, WgpuDelegate, WgpuOptions};

fn main() -> ExitCode {
    let delegate = match WgpuDelegate::new(WgpuOptions::default().with_precision(Precision::F16)) {
        Ok(delegate) => delegate,
        Err(e) => {
            eprintln!("left out: {e}");
            return ExitCode::SUCCESS;
        }
    };
    if !delegate.device_and_queue().0.features().contains(Features::SHADER_F16) {
        eprintln!("left out: {} has no 16-bit floats (SHADER_F16)", delegate.adapter_info().name);
        return ExitCode::SUCCESS;
    }
    // Clones share the device: opening one for each case would dominate the time.
    Suite::new(move || delegate.clone()).arithmetic(Arithmetic::GpuHalves).one_in(24).main()
}
