#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| delegraph_fuzz::models::wgpu(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    delegraph_fuzz::mutate::in_place(data, size, max_size, seed)
        .unwrap_or_else(|| libfuzzer_sys::fuzzer_mutate(data, size, max_size))
});
