//! Paddings on the adapter, against plain Rust.

use delegraph_shaders::pad::{Fill, Spec};
use delegraph_shaders::{Binding, Caps, Shader};

use crate::gpu::{count, flat, gpu, indices};

fn source(fill: Fill, i: i64, extent: i64) -> Option<u32> {
    let at = match fill {
        Fill::Value(_) => Some(i).filter(|i| (0..extent).contains(i))?,
        _ if i < 0 => -i - i64::from(fill == Fill::Symmetric),
        _ if i >= extent => 2 * extent - 2 - i + i64::from(fill == Fill::Symmetric),
        _ => i,
    };
    Some(at as u32)
}

#[track_caller]
fn check(input: &[u32], padding: &[[u32; 2]], fill: Fill) {
    let Some(gpu) = gpu() else { return };
    let spec = Spec { input: input.to_vec(), padding: padding.to_vec(), fill };
    let output: Vec<u32> = input.iter().zip(padding).map(|(n, [before, after])| n + before + after).collect();
    let values: Vec<u32> = (1..=count(input) as u32).collect();
    // A device whose invocations compute one item each, and one with several items per invocation.
    for caps in [Caps::WEBGPU, Caps::WEBGPU.with_software(true)] {
        let kernel = spec.kernel(&caps).unwrap();
        let actual: Vec<u32> =
            gpu.run(&kernel, &[(Binding::Input(0), bytemuck::cast_slice(&values))], count(&output));
        for (index, actual) in indices(&output).iter().zip(actual) {
            let from: Option<Vec<u32>> = index
                .iter()
                .zip(padding)
                .zip(input)
                .map(|((i, [before, _]), n)| source(fill, i64::from(*i) - i64::from(*before), i64::from(*n)))
                .collect();
            let expected = match (from, fill) {
                (Some(from), _) => values[flat(input, &from)],
                (None, Fill::Value(value)) => value,
                (None, _) => panic!("mirrors leave no gap"),
            };
            assert_eq!(
                actual, expected,
                "{} {input:?} {padding:?} {fill:?} at {index:?}",
                kernel.variant.key
            );
        }
    }
}

#[test]
fn pads_with_a_value() {
    let fill = Fill::Value(7.5_f32.to_bits());
    check(&[1, 3, 4, 8], &[[0, 0], [1, 2], [2, 1], [0, 0]], fill);
    check(&[1, 3, 4, 8], &[[0, 0], [0, 0], [0, 0], [0, 4]], fill);
    check(&[1, 3, 4, 8], &[[0, 0], [0, 0], [0, 0], [1, 4]], fill);
    check(&[2, 3, 5], &[[1, 0], [0, 1], [2, 0]], fill);
    check(&[2, 1, 2, 1, 2, 3], &[[1, 1], [1, 0], [0, 1], [1, 1], [0, 1], [1, 0]], fill);
    check(&[5], &[[0, 0]], fill);
    check(&[2, 29, 31, 3], &[[0, 0], [1, 2], [2, 1], [0, 2]], fill);
    check(&[1, 29, 31, 16], &[[0, 0], [1, 2], [2, 1], [0, 0]], fill);
}

#[test]
fn mirrors() {
    for fill in [Fill::Reflect, Fill::Symmetric] {
        check(&[1, 3, 4, 8], &[[0, 0], [1, 2], [3, 1], [0, 0]], fill);
        check(&[2, 3, 4], &[[0, 0], [0, 0], [3, 2]], fill);
        check(&[4, 3, 5], &[[3, 1], [2, 0], [0, 4]], fill);
    }
}

#[test]
fn mirrors_wider_than_the_input_are_errors() {
    let spec = |after, fill| Spec { input: vec![3], padding: vec![[0, after]], fill };
    assert!(spec(3, Fill::Reflect).kernel(&Caps::WEBGPU).is_err());
    assert!(spec(4, Fill::Symmetric).kernel(&Caps::WEBGPU).is_err());
    assert!(spec(u32::MAX, Fill::Value(0)).kernel(&Caps::WEBGPU).is_err());
}
