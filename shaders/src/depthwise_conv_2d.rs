//! Depthwise convolution with strides, dilation, padding, channel multiplier, bias and a fused epilogue.

use crate::epilogue::Epilogue;
use crate::integers::Sums;
use crate::kernel::{linear_dispatch, looped, nested};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "depthwise_conv_2d";
/// Output columns of an invocation.
const TILE: u32 = 4;
/// Maximum number of weights of a channel that are kept in registers.
const MAX_WEIGHTS: u32 = 25;

/// `output = epilogue(depthwise convolution(input, filter) + bias)`. Output channel `o` is computed from input channel
/// `o / multiplier`, where the multiplier is the number of output channels over that of input channels.
///
/// Bindings: `Input(0)`, `Weights`, `Output`, `Uniform`, then those of the epilogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// `[height, width]` of the filter, whose shape is `[1, height, width, output channels]`.
    pub window: [u32; 2],
    /// `[height, width]`
    pub stride: [u32; 2],
    /// `[height, width]`
    pub dilation: [u32; 2],
    /// Zero rows above and zero columns left of the input; those below and on the right follow from the shapes.
    pub padding: [i32; 2],
    /// Applied to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    fn check(&self) -> Result<(), ShaderError> {
        let Self { input, output, window, stride, dilation, .. } = self;
        let fits = ![*input, *output].as_flattened().contains(&0)
            && ![*window, *stride, *dilation].as_flattened().contains(&0)
            && output[3].is_multiple_of(input[3])
            && input[0] == output[0];
        if !fits {
            return Err(ShaderError::contradiction(NAME, self));
        }
        elements(NAME, input)?;
        elements(NAME, output)?;
        elements(NAME, &[window[0], window[1], output[3]])?;
        Ok(())
    }

    /// Returns the kernel of a filter that the model computes, with a variant that suits windows of all sizes.
    ///
    /// # Errors
    /// See [`Shader::kernel`].
    pub fn any_window(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.check()?;
        self.by_channels(caps)
    }

    /// Returns all variants of [`Spec::any_window`].
    pub fn any_window_variants(&self, caps: &Caps) -> Vec<Variant> {
        [true, false].map(|vec4| self.channel_variant(caps, vec4)).into()
    }

    /// Returns the variants for other numbers of input channels: as many as the constant filter has, or fewer, each for
    /// several output channels.
    pub fn other_channels(&self, caps: &Caps) -> Vec<Variant> {
        let [.., channels] = self.output;
        let equal = if Threshold::MultipleOf(strip_unit(caps)).holds(channels) && self.fits_strips() {
            self.strip_variant(caps)
        } else {
            self.channel_variant(caps, Threshold::VECTORS.holds(channels))
        };
        vec![equal, self.channel_variant(caps, false)]
    }

    /// Returns whether a strip of outputs can keep its weights and shared rows in registers.
    fn fits_strips(&self) -> bool {
        let shares = (0..2).all(|d| self.stride[d] <= 2 && (self.stride[d] == 1 || self.dilation[d] == 1));
        let small = self.window[0].saturating_mul(self.window[1]) <= MAX_WEIGHTS;
        shares && small && self.epilogue.integers.is_none()
    }

    fn strip_variant(&self, caps: &Caps) -> Variant {
        let template = Template::new(NAME, include_str!("wgsl/depthwise_conv_2d.wgsl"))
            .number("UNIT", strip_unit(caps))
            .number("LIVE", self.window[0].div_ceil(self.stride[0]))
            .number("WINDOW_H", self.window[0])
            .number("WINDOW_W", self.window[1])
            .number("STRIDE_H", self.stride[0])
            .number("STRIDE_W", self.stride[1])
            .number("COLUMNS", (TILE - 1) * self.stride[1] + self.window[1]);
        self.variant(caps, template)
    }

    fn channel_variant(&self, caps: &Caps, vec4: bool) -> Variant {
        let source = include_str!("wgsl/depthwise_conv_2d_any.wgsl");
        let template = Template::new("depthwise_conv_2d_any", source).flag("VEC4", vec4);
        self.variant(caps, template.flag("ROLLED", caps.software))
    }

    fn variant(&self, caps: &Caps, template: Template) -> Variant {
        const BINDINGS: [Binding; 4] =
            [Binding::Input(0), Binding::Weights, Binding::Output, Binding::Uniform];
        let template = template.number("WORKGROUP", workgroup(caps)).number("TILE", TILE);
        let template = self.epilogue.apply(template, BINDINGS.len() as u32);
        template.variant(NAME, BINDINGS.into_iter().chain(self.epilogue.bindings()))
    }

    /// Returns the dilation, or a lower one that also places all taps but the first outside of the input.
    fn reduced_dilation(&self) -> [u32; 2] {
        let beyond = |d: usize| self.input[d + 1].saturating_add_signed(self.padding[d].max(0));
        [0, 1].map(|d| self.dilation[d].min(beyond(d)))
    }

    /// Returns the kernel that computes strips of output pixels, which load each input row once.
    fn by_strips(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [batch, in_h, in_w, channels] = self.input;
        let [_, out_h, out_w, _] = self.output;
        let channels = channels / strip_unit(caps);
        // Every phase of the dilation has separate tiles; there are no more phases than outputs.
        let dilation = self.reduced_dilation();
        let [phases_h, phases_w] = [dilation[0].min(out_h), dilation[1].min(out_w)];
        let tiles = out_w.div_ceil(dilation[1]).div_ceil(TILE) * phases_w;
        let column = out_h.div_ceil(dilation[0]);
        let beside = u64::from(batch) * u64::from(channels) * u64::from(tiles) * u64::from(phases_h);
        let rows = rows(caps, column, beside);
        let strips = column.div_ceil(rows) * phases_h;
        let count = u64::from(batch) * u64::from(channels) * u64::from(tiles) * u64::from(strips);
        let uniform = Uniform::default()
            .u32s([u32::try_from(count).unwrap_or(u32::MAX), channels, in_h, in_w, out_h, out_w])
            .u32s(dilation)
            .i32s(self.padding)
            .u32s([tiles, strips, rows]);
        let steps = rows + self.window[0].div_ceil(self.stride[0]);
        self.finish(caps, self.strip_variant(caps), uniform, count, looped(steps, 0))
    }

    /// Returns the kernel that computes any window, channel by channel.
    fn by_channels(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if let Sums::Pairs { .. } = self.epilogue.sums() {
            let why =
                "sums of products in 47-bit integers; sums in floats and in 32-bit integers are supported";
            return Err(ShaderError::unsupported(NAME, why));
        }
        let [batch, in_h, in_w, channels] = self.input;
        let [_, out_h, out_w, out_c] = self.output;
        let multiplier = out_c / channels;
        let vec4 = !Threshold::SEVERAL.holds(multiplier) && Threshold::VECTORS.holds(channels);
        let unit = if vec4 { 4 } else { 1 };
        let tiles = out_w.div_ceil(TILE);
        let count = [batch, out_h, tiles, out_c / unit].iter().map(|n| u64::from(*n)).product();
        let uniform = Uniform::default()
            .u32s([u32::try_from(count).unwrap_or(u32::MAX), channels / unit, multiplier])
            .u32s([in_h, in_w, out_h, out_w])
            .u32s(self.window)
            .u32s(self.stride)
            .u32s(self.reduced_dilation())
            .i32s(self.padding)
            .u32(tiles)
            .u32(self.epilogue.weight_words(0, self.window[0] * self.window[1] * out_c));
        let loops = nested(self.window) + looped(TILE, 0);
        self.finish(caps, self.channel_variant(caps, vec4), uniform, count, loops)
    }

    fn finish(
        &self,
        caps: &Caps,
        variant: Variant,
        uniform: Uniform,
        count: u64,
        iterations: u64,
    ) -> Result<Kernel, ShaderError> {
        Ok(Kernel {
            variant,
            uniform: self.epilogue.uniform(uniform, 1).finish(),
            dispatch: linear_dispatch(NAME, caps, count, u64::from(workgroup(caps)))?,
            iterations,
        })
    }

    /// Returns `filter` (`[1, height, width, output channels]`) and `bias` (one value per output channel; `None` for
    /// zeros) as the kernel reads them: one after the other. Values missing from the slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let channels = self.output[3] as usize;
        let weights = self.window[0] as usize * self.window[1] as usize * channels;
        let mut packed = vec![0.0; weights + channels];
        let (to, last) = packed.split_at_mut(weights);
        for (to, from) in [(to, filter), (last, bias.unwrap_or_default())] {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
        packed
    }

    /// Returns integer weights (`[1, height, width, output channels]`), packed into words, and then `channels`, the
    /// words of the output channels (of [`FixedChannel`](crate::FixedChannel) or another type of channel). Empty
    /// without [`Epilogue::integers`].
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        let Some(integers) = self.epilogue.integers else { return Vec::new() };
        integers.pack(filter.iter().copied(), channels)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, [`Sums::Pairs`], and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.check()?;
        let [.., channels] = self.input;
        let equal = channels == self.output[3];
        match equal && Threshold::MultipleOf(strip_unit(caps)).holds(channels) && self.fits_strips() {
            true => self.by_strips(caps),
            false => self.by_channels(caps),
        }
    }

    /// The constant filter fixes the channels, and the variant depends on nothing else.
    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}

/// Returns the number of channels of an invocation of a strip. Software devices compile a source with pairs in half the
/// time of one with fours, and run it at the same speed.
fn strip_unit(caps: &Caps) -> u32 {
    if caps.software { 2 } else { 4 }
}

/// Returns the size of a workgroup: small on CPUs, so that the few invocations, which have long strips, occupy more
/// cores.
fn workgroup(caps: &Caps) -> u32 {
    if caps.software { 16 } else { 64 }
}

/// Returns the rows of a strip: long strips load less, short ones occupy more of the device. `column` is the number of
/// rows, `beside` the number of neighbouring strips.
fn rows(caps: &Caps, column: u32, beside: u64) -> u32 {
    let (longest, enough) = if caps.software { (32, 128) } else { (4, 65_536) };
    let wanted = enough / beside.max(1) + 1;
    let rows = column.div_ceil(u32::try_from(wanted).unwrap_or(u32::MAX));
    // Strips of equal length.
    let rows = rows.clamp(1, longest);
    column.div_ceil(column.div_ceil(rows))
}
