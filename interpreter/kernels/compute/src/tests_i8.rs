//! 8-bit products and convolutions compared with plain loops, bit by bit, on every instruction set of the processor.

use super::*;
use crate::random::Rng;
use crate::testing::{pairs, random_geometry};

/// A layer with random operands.
struct Layer {
    geo: ConvGeometry,
    filter: Filter,
    input: Vec<u8>,
    weights: Vec<u8>,
    bias: Vec<i32>,
    input_quant: ByteQuant,
    weight_quant: ByteQuant,
    multipliers: Vec<Multiplier>,
    zero_point: i32,
    low: i32,
    high: i32,
    ties: ChannelTies,
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

fn byte_quant(rng: &mut Rng, signed: bool) -> ByteQuant {
    let low = if signed { -128 } else { 0 };
    ByteQuant { signed, zero_point: low + rng.range(0, 255) as i32 }
}

impl Layer {
    fn random(rng: &mut Rng, geo: ConvGeometry, filter: Filter) -> Self {
        let k = filter.height * filter.width * filter.in_channels;
        let signed = rng.range(0, 1) == 0;
        let symmetric = rng.range(0, 1) == 0;
        let count = if rng.range(0, 1) == 0 { 1 } else { filter.out_channels };
        let low = if signed { -128 } else { 0 };
        // Scales sums of k products of about 70 · 70 to the range of a byte.
        let typical = 1.0 / (60.0 * (k.max(1) as f64).sqrt());
        let multipliers = (0..count).map(|_| {
            let spread = f64::from(rng.float().abs()) + 0.02;
            // Powers of two make ties.
            Multiplier::from_real(if rng.range(0, 2) == 0 {
                (typical * spread).log2().round().exp2()
            } else {
                typical * spread
            })
        });
        let multipliers = multipliers.collect();
        let weight_signed = signed || rng.range(0, 1) == 0;
        Self {
            geo,
            filter,
            input: bytes(rng, geo.input_len().unwrap()),
            weights: bytes(rng, filter.out_channels * k),
            bias: (0..filter.out_channels).map(|_| rng.range(0, 20_000) as i32 - 10_000).collect(),
            input_quant: byte_quant(rng, signed),
            weight_quant: if symmetric {
                ByteQuant { signed: weight_signed, zero_point: if weight_signed { 0 } else { 128 } }
            } else {
                byte_quant(rng, weight_signed)
            },
            multipliers,
            zero_point: low + rng.range(0, 255) as i32,
            low: low + rng.range(0, 60) as i32,
            high: low + 255 - rng.range(0, 60) as i32,
            ties: match rng.range(0, 2) {
                0 => ChannelTies::Up,
                1 => ChannelTies::Away,
                _ => ChannelTies::AwayFrom(rng.range(0, filter.out_channels)),
            },
        }
    }

    fn output(&self) -> OutputQuant<'_> {
        let Self { zero_point, low, high, ties, .. } = *self;
        OutputQuant { multipliers: &self.multipliers, zero_point, low, high, ties }
    }

    /// The sums by their definition.
    fn sums(&self) -> Vec<i32> {
        let value =
            |q: ByteQuant, b: u8| (if q.signed { i32::from(b as i8) } else { i32::from(b) }) - q.zero_point;
        let (geo, f) = (&self.geo, &self.filter);
        let per_group = f.out_channels / f.groups;
        let mut sums = Vec::new();
        for (b, (y, x)) in
            (0..geo.batch).flat_map(|b| pairs(geo.output[0], geo.output[1]).map(move |p| (b, p)))
        {
            for oc in 0..f.out_channels {
                let mut sum = self.bias[oc];
                for (ky, kx) in pairs(f.height, f.width) {
                    let iy = (y * geo.stride[0] + ky * geo.dilation[0]) as isize - geo.padding[0] as isize;
                    let ix = (x * geo.stride[1] + kx * geo.dilation[1]) as isize - geo.padding[1] as isize;
                    if iy < 0 || ix < 0 || iy >= geo.input[0] as isize || ix >= geo.input[1] as isize {
                        continue;
                    }
                    for ic in 0..f.in_channels {
                        let at =
                            ((b * geo.input[0] + iy as usize) * geo.input[1] + ix as usize) * geo.in_channels;
                        let x = self.input[at + oc / per_group * f.in_channels + ic];
                        let w = self.weights[((oc * f.height + ky) * f.width + kx) * f.in_channels + ic];
                        sum += value(self.input_quant, x) * value(self.weight_quant, w);
                    }
                }
                sums.push(sum);
            }
        }
        sums
    }

    fn scale(&self, sums: &[i32]) -> Vec<u8> {
        let channels = self.filter.out_channels;
        let scale = |(i, &s): (usize, &i32)| {
            let c = i % channels;
            let m = self.multipliers[if self.multipliers.len() == 1 { 0 } else { c }];
            (m.apply(s, self.ties.of(c)) + self.zero_point).clamp(self.low, self.high) as u8
        };
        sums.iter().enumerate().map(scale).collect()
    }
}

fn same<T: PartialEq + std::fmt::Debug>(got: &[T], expected: &[T], what: impl Fn() -> String) {
    assert_eq!(got.len(), expected.len());
    if let Some(i) = (0..got.len()).find(|&i| got[i] != expected[i]) {
        panic!("{}: element {i} is {:?}, expected {:?}", what(), got[i], expected[i]);
    }
}

/// Checks sums that are scaled to floats, bit by bit.
fn check_floats(conv: &ConvI8, l: &Layer, sums: &[i32], par: &dyn Parallel, what: impl Fn() -> String) {
    let channels = l.filter.out_channels;
    let scales: Vec<f32> = (0..channels).map(|c| 0.01 + 0.003 * (c % 5) as f32).collect();
    let totals: Vec<i32> = (0..channels).map(|c| 7 * c as i32 - 20).collect();
    let bias: Vec<f32> = (0..channels).map(|c| 0.3 * c as f32 - 1.0).collect();
    let clamp = Clamp { low: -40.0, high: 60.0 };
    let mut plan = conv.plan(&l.geo, par.threads()).unwrap();
    let mut scratch = vec![0xFF; plan.scratch_len()];
    let padding = vec![l.input_quant.zero_byte().unwrap(); conv.padding_len()];
    for (scales, bias) in [(&scales[..], Some(&bias[..])), (&scales[..1], None)] {
        let output = conv.float_output(scales, &totals, bias, clamp).unwrap();
        let expected: Vec<f32> = sums
            .iter()
            .enumerate()
            .map(|(i, sum)| {
                let c = i % channels;
                let x = (sum - 3 * totals[c]) as f32 * (0.25 * scales[c % scales.len()]);
                bias.map_or(x, |bias| x + bias[c]).max(clamp.low).min(clamp.high)
            })
            .collect();
        let mut got = vec![f32::NAN; expected.len()];
        let scaling = (&output, RowScales::Single(0.25, 3));
        conv.run_floats_padded(&mut plan, &l.input, &padding, scaling, &mut got, &mut scratch, par).unwrap();
        same(&got, &expected, &what);
    }
}

#[test]
fn convolutions_of_every_kind() {
    let mut rng = Rng::new(11);
    let pool = ThreadPool::new(3);
    for round in 0..400 {
        let groups = [1, 1, 1, 2, 3][rng.range(0, 4)];
        let filter = Filter {
            out_channels: groups * rng.range(1, 40),
            height: rng.range(1, 5),
            width: rng.range(1, 5),
            in_channels: rng.range(1, 20),
            groups,
        };
        let geo = random_geometry(&mut rng, groups * filter.in_channels, [filter.height, filter.width]);
        let l = Layer::random(&mut rng, geo, filter);
        let sums = l.sums();
        let expected = l.scale(&sums);
        for &isa in Isa::available() {
            let pack = |output| {
                ConvI8::pack(
                    isa,
                    filter,
                    &geo,
                    &l.weights,
                    l.weight_quant,
                    Some(&l.bias),
                    l.input_quant,
                    output,
                )
                .unwrap()
            };
            let conv = pack(Some(l.output()));
            for par in [&pool as &dyn Parallel, &Serial] {
                let what = || {
                    format!(
                        "{} round {round} {filter:?} {geo:?} {:?} {:?}",
                        isa.name(),
                        l.input_quant,
                        l.weight_quant
                    )
                };
                let mut scratch = vec![0xFF; conv.scratch_len(&geo, par.threads()).unwrap()];
                let mut got = vec![0; sums.len()];
                pack(None).run_sums(&geo, &l.input, &mut got, &mut scratch, par).unwrap();
                same(&got, &sums, what);
                check_floats(&pack(None), &l, &sums, par, what);
                let mut got = vec![0; sums.len()];
                conv.run(&geo, &l.input, &mut got, &mut scratch, par).unwrap();
                same(&got, &expected, what);
                // Addresses that are kept must follow the input to other memory.
                let inputs = [l.input.clone(), l.input.clone()];
                let mut plan = conv.plan(&geo, par.threads()).unwrap().keep_addresses().unwrap();
                for input in [&inputs[0], &inputs[0], &inputs[1], &inputs[0]] {
                    got.fill(0);
                    conv.run_planned(&mut plan, input, &mut got, &mut scratch, par).unwrap();
                    same(&got, &expected, what);
                }
            }
        }
    }
}

#[test]
fn products_of_every_tail() {
    let mut rng = Rng::new(12);
    for &isa in Isa::available() {
        let shapes = (1..=21)
            .map(|m| (m, 5, 33))
            .chain((1..=131).map(|n| (11, 7, n)))
            .chain((1..20).map(|k| (3, k, 20)));
        for (m, k, n) in
            shapes.chain([(1, 0, 9), (0, 3, 4), (3, 4, 0), (1, 1153, 1001), (1, 5000, 20), (97, 300, 70)])
        {
            let filter = Filter { out_channels: n, height: 1, width: 1, in_channels: k, groups: 1 };
            let geo = ConvGeometry {
                batch: 1,
                input: [1, m],
                in_channels: k,
                output: [1, m],
                window: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                padding: [0, 0],
            };
            let mut l = Layer::random(&mut rng, geo, filter);
            if n == 0 {
                l.multipliers = vec![Multiplier::default()];
            }
            let expected = l.scale(&l.sums());
            let gemm = GemmI8::pack(
                isa,
                (k, n),
                &l.weights,
                l.weight_quant,
                Some(&l.bias),
                l.input_quant,
                Some(l.output()),
            )
            .unwrap();
            let mut got = vec![0; m * n];
            let mut scratch = vec![0; gemm.scratch_len(m, 1).unwrap()];
            gemm.run(m, &l.input, &mut got, &mut scratch, &Serial).unwrap();
            same(&got, &expected, || format!("{} {m}x{k}x{n}", isa.name()));
            if gemm.plan(m, 1).unwrap().is_single_row() {
                let mut got = vec![0; n];
                gemm.run_row(&l.input, &mut got).unwrap();
                same(&got, &expected, || format!("{} row of {k}x{n}", isa.name()));
            }
            let mut sums = vec![0; m * n];
            gemm.run_sums(m, &l.input, &mut sums, &mut scratch, &Serial).unwrap();
            same(&sums, &l.sums(), || format!("{} sums of {m}x{k}x{n}", isa.name()));
        }
    }
}

#[test]
fn extreme_values_do_not_saturate_on_the_way() {
    for &isa in Isa::available() {
        for (a, w) in [(0u8, 0x80u8), (0x80, 0x80), (0x7F, 0x80), (0xFF, 0x7F)] {
            let quant = ByteQuant { signed: true, zero_point: 127 };
            let weight_quant = ByteQuant { signed: true, zero_point: 0 };
            let (k, n) = (1000, 17);
            let gemm = GemmI8::pack(isa, (k, n), &vec![w; k * n], weight_quant, None, quant, None).unwrap();
            let mut scratch = vec![0; gemm.scratch_len(2, 1).unwrap()];
            let mut sums = vec![0; 2 * n];
            gemm.run_sums(2, &vec![a; 2 * k], &mut sums, &mut scratch, &Serial).unwrap();
            let expected = (i32::from(a as i8) - 127) * i32::from(w as i8) * k as i32;
            assert_eq!(sums, vec![expected; 2 * n], "{} {a} {w}", isa.name());
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_errors() {
    let isa = Isa::best();
    let quant = ByteQuant { signed: true, zero_point: 0 };
    let output = OutputQuant {
        multipliers: &[Multiplier { multiplier: 1 << 30, shift: 0 }],
        zero_point: 0,
        low: -128,
        high: 127,
        ties: ChannelTies::Away,
    };
    let pack = |w: usize, zero_point: i32, output: OutputQuant<'_>| {
        GemmI8::pack(isa, (3, 2), &vec![0; w], quant, None, ByteQuant { zero_point, ..quant }, Some(output))
            .map(|_| ())
    };
    assert_eq!(pack(6, 0, output), Ok(()));
    assert!(pack(5, 0, output).is_err());
    assert!(pack(6, 128, output).is_err());
    assert!(pack(6, i32::MIN, output).is_err());
    assert!(pack(6, 0, OutputQuant { multipliers: &[Multiplier::default(); 3], ..output }).is_err());
    assert!(pack(6, 0, OutputQuant { low: 1, high: 0, ..output }).is_err());
    assert!(
        pack(6, 0, OutputQuant { multipliers: &[Multiplier { multiplier: -1, shift: 0 }], ..output })
            .is_err()
    );
    assert!(
        pack(6, 0, OutputQuant { multipliers: &[Multiplier { multiplier: 1, shift: -40 }], ..output })
            .is_err()
    );
    let gemm = GemmI8::pack(isa, (3, 2), &[0; 6], quant, None, quant, None).unwrap();
    assert!(
        gemm.run(1, &[0; 3], &mut [0; 2], &mut [0; 1000], &Serial).is_err(),
        "has no output quantization"
    );
    assert!(gemm.run_sums(2, &[0; 6], &mut [0; 4], &mut [0; 1], &Serial).is_err());
    assert!(gemm.run_sums(1, &[0; 4], &mut [0; 2], &mut [0; 1000], &Serial).is_err());
    assert!(gemm.run_sums(1, &[0; 3], &mut [0; 3], &mut [0; 1000], &Serial).is_err());
}

/// A random depthwise layer.
fn depthwise(rng: &mut Rng, DepthwiseFilter { channels, window }: DepthwiseFilter) -> Layer {
    let geo = random_geometry(rng, channels, window);
    // As a grouped convolution, whose filter has the output channel first.
    let grouped = Filter {
        out_channels: channels,
        height: window[0],
        width: window[1],
        in_channels: 1,
        groups: channels,
    };
    Layer::random(rng, geo, grouped)
}

/// Checks a depthwise layer on every instruction set.
fn check_depthwise(l: &Layer, pool: &ThreadPool, round: usize) {
    check_repeated(l, &l.input, pool, round);
}

/// Checks a depthwise layer on every instruction set. Its input repeats the channels of `input`. Returns the number of instruction
/// sets that read these.
fn check_repeated(l: &Layer, input: &[u8], pool: &ThreadPool, round: usize) -> usize {
    let (geo, channels, window) = (l.geo, l.filter.out_channels, [l.filter.height, l.filter.width]);
    let (filter, taps) = (DepthwiseFilter { channels, window }, window[0] * window[1]);
    let weights: Vec<u8> = pairs(taps, channels).map(|(t, c)| l.weights[c * taps + t]).collect();
    let expected = l.scale(&l.sums());
    let repeated = ConvGeometry { in_channels: channels * input.len() / l.input.len().max(1), ..geo };
    let mut direct = 0;
    for &isa in Isa::available() {
        let bias = Some(&l.bias[..]);
        let (output, quant) = (l.output(), l.weight_quant);
        let conv =
            DepthwiseI8::pack(isa, filter, &repeated, &weights, quant, bias, l.input_quant, output).unwrap();
        direct += usize::from(conv.inputs() < channels);
        let (geo, input) = match conv.inputs() == channels {
            true => (geo, &l.input[..]),
            false => (repeated, input),
        };
        for par in [pool as &dyn Parallel, &Serial] {
            let mut got = vec![0; expected.len()];
            conv.run(&geo, input, &mut got, par).unwrap();
            same(&got, &expected, || format!("{} round {round} {geo:?} {quant:?}", isa.name()));
        }
    }
    direct
}

/// Several output channels for each input channel.
#[test]
fn depthwise_convolutions_that_repeat_channels() {
    let mut rng = Rng::new(19);
    let pool = ThreadPool::new(3);
    let mut direct = 0;
    for round in 0..200 {
        let (inputs, multiplier) = (rng.range(1, 18), [2, 3, 8, 16][rng.range(0, 3)]);
        let window = [rng.range(1, 6), rng.range(1, 6)];
        let mut l = depthwise(&mut rng, DepthwiseFilter { channels: inputs * multiplier, window });
        let input = bytes(&mut rng, l.geo.input_len().unwrap() / multiplier);
        l.input = input.iter().flat_map(|&byte| std::iter::repeat_n(byte, multiplier)).collect();
        direct += check_repeated(&l, &input, &pool, round);
    }
    let wide = Isa::available().iter().any(|isa| isa.name() == "avx512vnni");
    assert!(direct > 50 || !wide, "{direct} layers");
}

#[test]
fn depthwise_convolutions_of_every_kind() {
    let mut rng = Rng::new(13);
    let pool = ThreadPool::new(3);
    for round in 0..400 {
        let channels = if rng.range(0, 4) == 0 { 1 } else { rng.range(1, 50) };
        let square = rng.range(1, 5);
        let window = if rng.range(0, 1) == 0 { [square, square] } else { [rng.range(1, 9), rng.range(1, 7)] };
        check_depthwise(&depthwise(&mut rng, DepthwiseFilter { channels, window }), &pool, round);
    }
}

#[test]
fn depthwise_convolutions_of_single_rows() {
    let mut rng = Rng::new(15);
    let pool = ThreadPool::new(3);
    for round in 0..150 {
        let channels = rng.range(1, [20, 200][round % 2]);
        let filter = DepthwiseFilter { channels, window: [1, rng.range(1, 12)] };
        check_depthwise(&depthwise(&mut rng, filter), &pool, round);
    }
}

/// Rows of more bytes than are copied at a time, and windows of about as many.
#[test]
fn depthwise_convolutions_of_long_rows() {
    let mut rng = Rng::new(18);
    let pool = ThreadPool::new(3);
    for round in 0..24 {
        let (channels, taps) = (rng.range(1, 100), rng.range(1, 6));
        let mut l = depthwise(&mut rng, DepthwiseFilter { channels, window: [1, taps] });
        let (stride, far) = (rng.range(1, 2), 17_000 / channels / 5 * rng.range(0, 2));
        let (dilation, width) = (1 + far, 40_000 / channels);
        let before = rng.range(0, 9);
        let input = (width - 1) * stride + (taps - 1) * dilation + 1 - before;
        l.geo = ConvGeometry {
            batch: 1,
            input: [2, input],
            output: [2, width],
            stride: [1, stride],
            dilation: [1, dilation],
            padding: [0, before],
            ..l.geo
        };
        l.input = bytes(&mut rng, l.geo.input_len().unwrap());
        check_depthwise(&l, &pool, round);
    }
}

/// Windows of one column, as in convolutions over time, on outputs of few columns.
#[test]
fn depthwise_convolutions_of_columns() {
    let mut rng = Rng::new(17);
    let pool = ThreadPool::new(3);
    for round in 0..150 {
        let (channels, height, width) = (rng.range(1, 70), rng.range(1, 24), rng.range(1, 3));
        let mut l = depthwise(&mut rng, DepthwiseFilter { channels, window: [height, 1] });
        let rows = rng.range(1, 3);
        let (dilation, padding) = (rng.range(1, 2), if rng.range(0, 2) == 0 { 1 } else { 0 });
        l.geo = ConvGeometry {
            input: [(height - 1) * dilation + rows, width],
            output: [rows, width],
            stride: [1, 1],
            dilation: [dilation, 1],
            padding: [padding, 0],
            ..l.geo
        };
        l.input = bytes(&mut rng, l.geo.input_len().unwrap());
        check_depthwise(&l, &pool, round);
    }
}

#[test]
fn depthwise_convolutions_of_many_channels() {
    let mut rng = Rng::new(14);
    let pool = ThreadPool::new(3);
    for round in 0..60 {
        let channels = rng.range(32, 200);
        let window = [rng.range(1, 6), if rng.range(0, 1) == 0 { 3 } else { 5 }];
        check_depthwise(&depthwise(&mut rng, DepthwiseFilter { channels, window }), &pool, round);
    }
}

#[test]
fn depthwise_weights_at_the_other_end_of_the_range_than_their_zero_point() {
    let mut rng = Rng::new(16);
    let pool = ThreadPool::new(3);
    for round in 0..80 {
        let channels = rng.range(1, [20, 200][round % 2]);
        let filter = DepthwiseFilter { channels, window: [rng.range(1, 5), rng.range(1, 5)] };
        let mut l = depthwise(&mut rng, filter);
        // Minus the zero point, these are 255 or -255.
        let signed = l.weight_quant.signed;
        let (low, high) = if signed { (i32::from(i8::MIN), i32::from(i8::MAX)) } else { (0, 255) };
        let (zero_point, byte) = if round % 4 < 2 { (low, high) } else { (high, low) };
        l.weight_quant = ByteQuant { signed, zero_point };
        l.weights.iter_mut().step_by(3).for_each(|w| *w = byte as u8);
        check_depthwise(&l, &pool, round);
    }
}
