//! Depthwise convolution with strides, dilation, padding, channel multiplier, bias and a fused epilogue.

use crate::epilogue::Epilogue;
use crate::integers::Sums;
use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "depthwise_conv_2d";
/// Columns of an invocation.
const TILE: u32 = 4;
/// Most weights of a channel that are kept in registers.
const MOST_WEIGHTS: u32 = 25;

/// `output = epilogue(depthwise convolution(input, filter) + bias)`. Output channel `o` comes from input
/// channel `o / multiplier`, where the multiplier is output over input channels.
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
    /// Zero rows above and zero columns left of the input; what lies below and right follows from the
    /// shapes.
    pub padding: [i32; 2],
    /// What happens to the result.
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
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        elements(NAME, input)?;
        elements(NAME, output)?;
        elements(NAME, &[window[0], window[1], output[3]])?;
        Ok(())
    }

    /// The kernel.
    ///
    /// # Errors
    /// When the shapes contradict each other or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.check()?;
        let shares = (0..2).all(|d| self.stride[d] <= 2 && (self.stride[d] == 1 || self.dilation[d] == 1));
        let small = self.window[0].saturating_mul(self.window[1]) <= MOST_WEIGHTS;
        let floats = self.epilogue.integers.is_none();
        // Software devices compile a text of pairs in half the time, and run it as fast.
        let unit = if caps.software { 2 } else { 4 };
        let vectors = self.input[3] == self.output[3] && self.input[3].is_multiple_of(unit);
        if floats && vectors && small && shares { self.strips(caps, unit) } else { self.any(caps) }
    }

    /// A kernel whose text is the same for windows of all sizes, which takes longer.
    ///
    /// # Errors
    /// See [`Spec::kernel`].
    pub fn any_window(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.check()?;
        self.any(caps)
    }

    /// Strips that load each input row once.
    fn strips(&self, caps: &Caps, unit: u32) -> Result<Kernel, ShaderError> {
        let [batch, in_h, in_w, channels] = self.input;
        let [_, out_h, out_w, _] = self.output;
        let channels = channels / unit;
        let live = self.window[0].div_ceil(self.stride[0]);
        // Every phase of the dilation has tiles of its own.
        let tiles = out_w.div_ceil(self.dilation[1]).div_ceil(TILE) * self.dilation[1];
        let column = out_h.div_ceil(self.dilation[0]);
        let beside = u64::from(batch) * u64::from(channels) * u64::from(tiles) * u64::from(self.dilation[0]);
        let rows = rows(caps, column, beside);
        let strips = column.div_ceil(rows) * self.dilation[0];
        let count = u64::from(batch) * u64::from(channels) * u64::from(tiles) * u64::from(strips);
        let template = Template::new(NAME, include_str!("wgsl/depthwise_conv_2d.wgsl"))
            .number("UNIFORM", 3)
            .number("WORKGROUP", workgroup(caps))
            .number("UNIT", unit)
            .number("TILE", TILE)
            .number("LIVE", live)
            .number("WINDOW_H", self.window[0])
            .number("WINDOW_W", self.window[1])
            .number("STRIDE_H", self.stride[0])
            .number("STRIDE_W", self.stride[1])
            .number("COLUMNS", (TILE - 1) * self.stride[1] + self.window[1]);
        let uniform = Uniform::default()
            .u32s([u32::try_from(count).unwrap_or(u32::MAX), channels, in_h, in_w, out_h, out_w])
            .u32s(self.dilation)
            .i32s(self.padding)
            .u32s([tiles, strips, rows]);
        self.finish(caps, template, uniform, count)
    }

    /// Any window, channel by channel.
    fn any(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if let Sums::Pairs { .. } = self.epilogue.sums() {
            return Err(ShaderError::unsupported(NAME, format!("sums of over 31 bits: {self:?}")));
        }
        let [batch, in_h, in_w, channels] = self.input;
        let [_, out_h, out_w, out_c] = self.output;
        let multiplier = out_c / channels;
        let vec4 = multiplier == 1 && channels.is_multiple_of(4);
        let unit = if vec4 { 4 } else { 1 };
        let tiles = out_w.div_ceil(TILE);
        let count = [batch, out_h, tiles, out_c / unit].iter().map(|n| u64::from(*n)).product();
        let template =
            Template::new("depthwise_conv_2d_any", include_str!("wgsl/depthwise_conv_2d_any.wgsl"))
                .number("UNIFORM", 3)
                .number("WORKGROUP", workgroup(caps))
                .number("TILE", TILE)
                .flag("VEC4", vec4);
        let uniform = Uniform::default()
            .u32s([u32::try_from(count).unwrap_or(u32::MAX), channels / unit, multiplier])
            .u32s([in_h, in_w, out_h, out_w])
            .u32s(self.window)
            .u32s(self.stride)
            .u32s(self.dilation)
            .i32s(self.padding)
            .u32(tiles)
            .u32(self.epilogue.weight_words(0, self.window[0] * self.window[1] * out_c));
        self.finish(caps, template, uniform, count)
    }

    fn finish(
        &self,
        caps: &Caps,
        template: Template,
        uniform: Uniform,
        count: u64,
    ) -> Result<Kernel, ShaderError> {
        let (key, wgsl) = self.epilogue.apply(template, 4).render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: [Binding::Input(0), Binding::Weights, Binding::Output, Binding::Uniform]
                .into_iter()
                .chain(self.epilogue.bindings())
                .collect(),
            uniform: self.epilogue.uniform(uniform, 1).finish(),
            dispatch: linear_dispatch(NAME, caps, count, u64::from(workgroup(caps)))?,
            features: Features::default(),
        })
    }

    /// Lays `filter` (`[1, height, width, output channels]`) and `bias` (one per output channel; none: zeros)
    /// out as the kernel reads them: one after the other. Values missing from the slices count as zero.
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
}

impl Spec {
    /// Lays integer weights, shaped like floats, out one after the other, and after them the words of the output
    /// channels ([`FixedChannel`](crate::FixedChannel) and others).
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        let Some(integers) = self.epilogue.integers else { return Vec::new() };
        integers.pack(filter.iter().copied(), channels)
    }
}

/// Small where few invocations with long strips have to fill a few cores.
fn workgroup(caps: &Caps) -> u32 {
    if caps.software { 16 } else { 64 }
}

/// Rows of a strip: long strips load less, short ones keep the device busy. `column`: rows that there are,
/// `beside`: strips side by side.
fn rows(caps: &Caps, column: u32, beside: u64) -> u32 {
    let (longest, enough) = if caps.software { (32, 128) } else { (4, 65_536) };
    let wanted = enough / beside.max(1) + 1;
    let rows = column.div_ceil(u32::try_from(wanted).unwrap_or(u32::MAX));
    // Equal strips.
    let rows = rows.clamp(1, longest);
    column.div_ceil(column.div_ceil(rows))
}
