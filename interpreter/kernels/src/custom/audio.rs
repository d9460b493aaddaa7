//! The custom ops `AudioSpectrogram` and `Mfcc`: spectra of sound, and the cepstral coefficients that speech
//! recognition uses.

use std::f64::consts::{PI, TAU};

use delegraph_core::error::counted;
use delegraph_core::kernel::{Charged, InvokeContext, Kernel, PrepareContext, Temporary};
use delegraph_core::{Error, MutableOpResolver, Registration, Result, TensorType};

use super::{check_floats, dims, invalid};
use crate::common::fourier::RealFft;
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::unsupported_type;
use delegraph_core::ops::custom_options::Options;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let spectrogram = Registration::new(|cx| Spectrogram::new(&Options::parse(cx.custom_options)?));
    let mfcc = Registration::new(|cx| Mfcc::new(&Options::parse(cx.custom_options)?));
    resolver.add_custom("AudioSpectrogram", spectrogram, 1).add_custom("Mfcc", mfcc, 1);
}

struct Spectrogram {
    /// Samples of a window.
    size: usize,
    /// Samples of a transform.
    length: i32,
    stride: usize,
    squared: bool,
    tables: Option<Tables>,
}

struct Tables {
    /// A Hann window.
    window: Charged<f64>,
    fft: RealFft,
    line: Temporary,
}

impl Spectrogram {
    fn new(options: &Options<'_>) -> Result<Self> {
        let (size, stride) = (options.size("window_size")?, options.size("stride")?);
        let length = i32::try_from(size)
            .ok()
            .filter(|n| (2..=1 << 20).contains(n))
            .and_then(|n| n.cast_unsigned().checked_next_power_of_two());
        let length = length.and_then(|n| i32::try_from(n).ok()).filter(|_| stride > 0);
        let length = length.ok_or_else(|| {
            invalid(format!(
                "windows of {} every {stride}; windows must have 2 to 2^20 samples, and the stride must be positive",
                counted(size, "sample")
            ))
        })?;
        let squared = options.number("magnitude_squared")?.is_some_and(|v| v != 0.0);
        Ok(Spectrogram { size, length, stride, squared, tables: None })
    }
}

/// Input `[samples, channels]`, output `[channels, windows, frequencies]`: magnitudes or squared magnitudes.
impl Kernel for Spectrogram {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 1, 1)?;
        let [samples, channels] = dims(cx.input(0)?)?;
        let windows = samples.checked_sub(self.size).map_or(0, |rest| rest / self.stride + 1);
        let (window, fft) = match self.tables.take() {
            Some(tables) => (tables.window, tables.fft),
            None => {
                let weight = |i: usize| 0.5 - 0.5 * (TAU * i as f64 / self.size as f64).cos();
                let window = cx.budget().collect((0..self.size).map(weight))?;
                (window, RealFft::new(self.length, cx.budget())?)
            }
        };
        let frequencies = fft.frequencies();
        let line = cx.temporary_of::<[f64; 2]>(frequencies)?;
        self.tables = Some(Tables { window, fft, line });
        cx.set_output_shape(0, [channels, windows, frequencies])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Tables { window, fft, line } = self.tables.as_ref().ok_or_else(unprepared)?;
        let line = cx.temporary::<[f64; 2]>(*line)?;
        let (channels, windows) = (cx.output_shape(0)?[0], cx.output_shape(0)?[1]);
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let mut pace = Pace::new(cx);
        for (row, output) in output.chunks_exact_mut(fft.frequencies()).enumerate() {
            cx.check_interrupted()?;
            let (channel, first) = (row / windows, row % windows * self.stride);
            let sample =
                |(i, weight): (usize, &f64)| f64::from(input[(first + i) * channels + channel]) * weight;
            fft.run(window.iter().enumerate().map(sample), line, &mut pace)?;
            for (o, [re, im]) in output.iter_mut().zip(line.iter()) {
                let squared = (re * re + im * im) as f32;
                *o = if self.squared { squared } else { squared.sqrt() };
            }
        }
        Ok(())
    }
}

fn unprepared() -> Error {
    Error::State("the kernel was not prepared".into())
}

struct Mfcc {
    /// Limits of the bands, in Hz.
    limits: [f64; 2],
    channels: usize,
    coefficients: usize,
    /// A cosine transform: `coefficients` rows of `channels`. Made in `prepare`.
    cosines: Option<Charged<f64>>,
    /// The sample rate that `bands` was computed for.
    rate: i32,
    /// For each input frequency within the limits, beginning with the first one: the number of channels whose center is
    /// below it, and its weight in the last of these channels. The rest of its weight goes to the next channel.
    bands: Charged<(usize, f64)>,
    /// Number of `bands` for the rate.
    used: usize,
    first: usize,
    energies: Vec<f64>,
}

impl Mfcc {
    fn new(options: &Options<'_>) -> Result<Self> {
        let (channels, coefficients) =
            (options.size("filterbank_channel_count")?, options.size("dct_coefficient_count")?);
        let limits = [options.size("lower_frequency_limit")?, options.size("upper_frequency_limit")?];
        if coefficients == 0 || coefficients > channels || limits[1] <= limits[0] || channels > 1 << 12 {
            return Err(invalid(format!(
                "{} of {} between {limits:?} Hz; there must be 1 to {channels} coefficients, at most 4096 channels, \
                 and ascending limits",
                counted(coefficients, "coefficient"),
                counted(channels, "channel")
            )));
        }
        Ok(Mfcc {
            limits: limits.map(|limit| limit as f64),
            channels,
            coefficients,
            cosines: None,
            rate: 0,
            bands: Charged::default(),
            used: 0,
            first: 0,
            energies: vec![0.0; channels],
        })
    }

    /// Distributes the frequencies of a sound of `rate` samples per second over overlapping triangles of equal width on
    /// the mel scale.
    fn set_rate(&mut self, rate: i32, frequencies: usize, pace: &mut Pace) -> Result<()> {
        // No rate has bands until they are complete.
        self.rate = 0;
        let mel = |hz: f64| 1127.0 * (hz / 700.0).ln_1p();
        let [low, high] = self.limits;
        let step = (mel(high) - mel(low)) / (self.channels + 1) as f64;
        let edge = |i: usize| mel(low) + step * i as f64;
        let hz = 0.5 * f64::from(rate) / (frequencies - 1) as f64;
        // Excludes the constant component.
        self.first = (1.5 + low / hz) as usize;
        let last = (high / hz) as usize;
        self.used = 0;
        // If the upper limit is above the highest frequency, no band is used, and the output is 0.
        if last < frequencies {
            let mut below = 0;
            for (band, i) in self.bands.iter_mut().zip(self.first..=last) {
                pace.spend(64)?;
                let at = mel(i as f64 * hz);
                while below < self.channels && edge(below + 1) < at {
                    below += 1;
                }
                *band = (below, (edge(below + 1) - at) / (edge(below + 1) - edge(below)));
                self.used += 1;
            }
        }
        self.rate = rate;
        Ok(())
    }
}

/// Inputs: squared magnitudes `[channels, windows, frequencies]` and the sample rate. Output: `[channels, windows,
/// coefficients]`.
impl Kernel for Mfcc {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(2, 1)?;
        let (input, rate, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
        for (what, tensor, ty) in [
            ("input", input, TensorType::Float32),
            ("rate", rate, TensorType::Int32),
            ("output", output, TensorType::Float32),
        ] {
            if tensor.ty() != ty {
                return Err(unsupported_type(what, tensor));
            }
        }
        let [channels, windows, frequencies] = dims(input)?;
        if frequencies < 2 || rate.shape().elements() != 1 {
            let (shape, frequencies) = (rate.shape(), counted(frequencies, "frequency"));
            return Err(invalid(format!(
                "{frequencies} and rates of shape {shape}, expected at least 2 frequencies and one rate"
            )));
        }
        self.rate = 0;
        if self.cosines.is_none() {
            let channels = self.channels;
            let (scale, step) = ((2.0 / channels as f64).sqrt(), PI / channels as f64);
            let cosine =
                |i: usize| scale * ((i / channels) as f64 * step * ((i % channels) as f64 + 0.5)).cos();
            self.cosines = Some(cx.budget().collect((0..channels * self.coefficients).map(cosine))?);
        }
        // As many as there can be, so that `invoke` does not allocate.
        if self.bands.len() < frequencies {
            self.bands = Charged::default();
            self.bands = cx.budget().filled((0, 0.0), frequencies)?;
        }
        cx.set_output_shape(0, [channels, windows, self.coefficients])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let frequencies = cx.input_shape(0)?.last().copied().unwrap_or(0);
        let rate = cx.input::<i32>(1)?.first().copied().unwrap_or(0);
        if rate <= 0 {
            return Err(Error::Kernel(format!(
                "a rate of {rate} samples per second, which must be positive"
            )));
        }
        let mut pace = Pace::new(cx);
        if rate != self.rate {
            self.set_rate(rate, frequencies, &mut pace)?;
        }
        let cosines = self.cosines.as_ref().ok_or_else(unprepared)?;
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        if self.used == 0 {
            output.fill(0.0);
            return Ok(());
        }
        for (spectrum, output) in
            input.chunks_exact(frequencies).zip(output.chunks_exact_mut(self.coefficients))
        {
            cx.check_interrupted()?;
            self.energies.fill(0.0);
            let within = spectrum.get(self.first..).unwrap_or_default();
            for (within, bands) in within.chunks(PIECE).zip(self.bands[..self.used].chunks(PIECE)) {
                pace.spend(bands.len().saturating_mul(8))?;
                for (&squared, &(below, share)) in within.iter().zip(bands) {
                    let magnitude = f64::from(squared).sqrt();
                    if let Some(last) = below.checked_sub(1) {
                        self.energies[last] += magnitude * share;
                    }
                    if let Some(next) = self.energies.get_mut(below) {
                        *next += magnitude - magnitude * share;
                    }
                }
            }
            self.energies.iter_mut().for_each(|energy| *energy = energy.max(1e-12).ln());
            for (o, cosines) in output.iter_mut().zip(cosines.chunks_exact(self.channels)) {
                *o = cosines.iter().zip(&self.energies).map(|(c, e)| c * e).sum::<f64>() as f32;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::{Op, Params};

    use super::*;
    use crate::ReferenceOpResolver;
    use crate::testing::{T, run_custom};

    fn run(op: &str, numbers: &[(&str, i64)], inputs: &[Option<T>], output: &[usize]) -> Result<Vec<f32>> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        numbers.iter().for_each(|&(name, value)| map.push(name, value));
        map.end_map();
        let output = [T::new(output, &vec![0.0f32; output.iter().product()])];
        let (op, resolver) = (Op::custom(op), ReferenceOpResolver::new());
        let result = run_custom(resolver, op, 1, Params::Custom, builder.view(), inputs, &output)?;
        assert_eq!(result[0].0.elements() * 4, result[0].1.len());
        Ok(result[0].1.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect())
    }

    #[test]
    fn spectra_of_a_wave() {
        // A wave of two periods per window, in the second of two channels, with windows of 8 every 4 samples.
        let wave = |i: usize| (TAU * 2.0 * i as f64 / 8.0).cos() as f32;
        let samples: Vec<f32> = (0..12).flat_map(|i| [0.0, wave(i)]).collect();
        let input = [Some(T::new(&[12, 2], &samples))];
        let options = |squared| [("window_size", 8), ("stride", 4), ("magnitude_squared", squared)];
        let magnitudes = run("AudioSpectrogram", &options(0), &input, &[2, 2, 5]).unwrap();
        let want = [[0.0; 5], [0.0; 5], [0.0, 1.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 1.0, 0.0]].concat();
        approx::assert_abs_diff_eq!(magnitudes[..], want[..], epsilon = 1e-5);
        let squares = run("AudioSpectrogram", &options(1), &input, &[2, 2, 5]).unwrap();
        approx::assert_abs_diff_eq!(squares[12], 4.0, epsilon = 1e-5);
        let e =
            run("AudioSpectrogram", &[("window_size", 1), ("stride", 4)], &input, &[2, 2, 5]).unwrap_err();
        assert!(e.to_string().contains("windows of 1 sample every 4"));
    }

    #[test]
    fn a_flat_spectrum_has_no_shape() {
        let options = [
            ("filterbank_channel_count", 4),
            ("dct_coefficient_count", 2),
            ("lower_frequency_limit", 0),
            ("upper_frequency_limit", 4000),
        ];
        let input = |rate: i32| [Some(T::new(&[1, 1, 129], &[0.0f32; 129])), Some(T::new(&[1], &[rate]))];
        let flat = run("Mfcc", &options, &input(16000), &[1, 1, 2]).unwrap();
        let floor = (0.5f64.sqrt() * 4.0 * 1e-12f64.ln()) as f32;
        approx::assert_abs_diff_eq!(flat[..], [floor, 0.0][..], epsilon = 1e-3);
        assert_eq!(run("Mfcc", &options, &input(4000), &[1, 1, 2]).unwrap(), [0.0, 0.0]);
        assert!(
            run("Mfcc", &options, &input(0), &[1, 1, 2])
                .unwrap_err()
                .to_string()
                .contains("a rate of 0 samples per second")
        );
    }
}
