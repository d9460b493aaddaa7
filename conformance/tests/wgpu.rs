//! The GPU delegate through the conformance suite: the first case of each op and type, and one in twenty-four of the others, as tests.
//!
//! `DELEGRAPH_CONFORMANCE=all cargo test -p delegraph-conformance --test wgpu` runs all of them;
//! `delegraph conformance --delegate wgpu --report DIR` does so with each case isolated, and with a report.

use std::process::ExitCode;

use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::harness::Suite;
use delegraph_delegate_wgpu::{WgpuDelegate, WgpuOptions};

fn main() -> ExitCode {
    let delegate = match WgpuDelegate::new(WgpuOptions::default()) {
        Ok(delegate) => delegate,
        Err(e) => {
            eprintln!("left out: {e}");
            return ExitCode::SUCCESS;
        }
    };
    let info = delegate.adapter_info();
    let device = format!("{}, {}, {} {}", info.name, info.backend, info.driver, info.driver_info);
    // Clones share the device: opening one for each case would dominate the time.
    let suite = Suite::new(move || delegate.clone()).arithmetic(Arithmetic::Gpu).device(device).one_in(24);
    suite.expectations("tests/wgpu.toml").main()
}
