//! Errors of runs, and allocations in a run.

use std::sync::atomic::Ordering;

use super::*;
use crate::testing::{RUNS, allocations, delegate, run_altered};

#[test]
fn an_error_of_validation_names_the_node_and_its_op() {
    let Some(delegate) = delegate() else { return };
    let beyond_limits = |kernel: &mut WgpuKernel| kernel.dispatches[0].workgroups = [u32::MAX, 1, 1];
    let error = run_altered(delegate, beyond_limits).unwrap_err().to_string();
    assert!(error.contains("group size") && error.ends_with("while running node 0 (ABS)"), "{error}");
}

#[test]
fn a_kernel_without_its_buffer_is_an_error() {
    let Some(delegate) = delegate() else { return };
    let destroy = |kernel: &mut WgpuKernel| kernel.outputs[0].buffer.destroy();
    let error = run_altered(delegate, destroy).unwrap_err().to_string();
    assert!(error.contains("destroyed") && error.contains("node 0 (ABS)"), "{error}");
    // The device still works.
    run_altered(delegate, |_| {}).unwrap();
}

#[test]
fn out_of_memory_names_the_node() {
    let Some(delegate) = delegate() else { return };
    let (device, queue) = delegate.device_and_queue();
    let (device, queue, info) = (device.clone(), queue.clone(), delegate.adapter_info().clone());
    let delegate = crate::WgpuDelegate::with_device(device, queue, info, Default::default());
    delegate.gpu().full.store(true, Ordering::Relaxed);
    let error = run_altered(&delegate, |_| {}).unwrap_err().to_string();
    assert!(error.contains("node 0 (ABS): 32 bytes of device memory"), "{error}");
    delegate.gpu().full.store(false, Ordering::Relaxed);
    run_altered(&delegate, |_| {}).unwrap();
}

/// Returns the minimum number of allocations by the wgpu calls that a run of `kernel` requires.
fn bare(kernel: &WgpuKernel) -> usize {
    let (gpu, staging) = (&kernel.gpu, kernel.staging.as_ref().unwrap());
    let buffers = Buffers::new(&[], &[], &mut []);
    let once = || {
        let before = allocations();
        // Starting and finishing are checked separately, as in a run.
        let submit = || {
            gpu.queue.write_buffer(&kernel.inputs[0].buffer, 0, &[0; 32]);
            let submission = gpu.queue.submit(kernel.record(Some(staging), &buffers, true));
            kernel.map(staging);
            submission
        };
        let submission = gpu.checked(submit).unwrap();
        kernel.wait_for(submission).unwrap();
        let finish = || {
            drop(staging.get_mapped_range(..).unwrap());
            staging.unmap();
        };
        gpu.checked(finish).unwrap();
        allocations() - before
    };
    (0..RUNS).map(|_| once()).min().unwrap()
}

#[test]
fn only_wgpu_allocates_in_a_run() {
    if delegate().is_none() {
        return;
    }
    // A separate device, since wgpu's allocations for other tests would be counted.
    let delegate = &crate::WgpuDelegate::new(Default::default()).unwrap();
    let mut per_dispatch = Vec::new();
    for count in [1, 100] {
        let mut least = 0;
        let taken = run_altered(delegate, |kernel| {
            let one = &kernel.dispatches[0];
            let again = |_| Dispatch {
                pipeline: Arc::clone(&one.pipeline),
                group: one.group.clone(),
                nodes: Vec::new(),
                title: String::new(),
                ..*one
            };
            let more: Vec<_> = (1..count).map(again).collect();
            kernel.dispatches.extend(more);
            least = bare(kernel);
        });
        let taken = taken.unwrap();
        // Lists inside wgpu may grow once or twice.
        assert!(taken <= least + 2, "{count} dispatches: {taken} times, bare calls {least}");
        per_dispatch.push(least);
    }
    // wgpu's allocations grow with the number of dispatches, by at most two each.
    assert!(per_dispatch[1] <= per_dispatch[0] + 2 * 99, "{per_dispatch:?}");
    println!("1 and 100 dispatches: {per_dispatch:?}");
}
