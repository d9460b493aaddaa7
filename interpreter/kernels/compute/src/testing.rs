//! Helpers for tests of the primitives.

use crate::matmul::geometry::ConvGeometry;
use crate::random::Rng;

/// Checks that sums of `terms` products of values in -1..1 agree.
pub(crate) fn close(got: &[f32], expected: &[f32], terms: usize, what: impl Fn() -> String) {
    assert_eq!(got.len(), expected.len(), "{}", what());
    let tolerance = 1e-6 * (terms as f32 + 8.0).sqrt() * 4.0;
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!(
            approx::abs_diff_eq!(*g, *e, epsilon = tolerance),
            "{}: element {i} is {g}, expected {e}",
            what()
        );
    }
}

/// All pairs below two bounds.
pub(crate) fn pairs(a: usize, b: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..a).flat_map(move |i| (0..b).map(move |j| (i, j)))
}

/// A window over an input of random size, with any padding on all four sides.
pub(crate) fn random_geometry(rng: &mut Rng, in_channels: usize, window: [usize; 2]) -> ConvGeometry {
    let stride = [rng.range(1, 3), rng.range(1, 3)];
    let dilation = [rng.range(1, 3), rng.range(1, 3)];
    let dilation = if rng.range(0, 1) == 0 { [1, 1] } else { dilation };
    let (input, padding) = ([rng.range(1, 23), rng.range(1, 23)], [rng.range(0, 3), rng.range(0, 3)]);
    let output = std::array::from_fn(|a| {
        let reach = (window[a] - 1) * dilation[a] + 1;
        (input[a] + padding[a] + rng.range(0, 3)).saturating_sub(reach) / stride[a] + 1
    });
    ConvGeometry { batch: rng.range(1, 2), input, in_channels, output, window, stride, dilation, padding }
}
