//! Convolution with strides, dilation, padding, groups, bias and a fused epilogue.

use crate::epilogue::Epilogue;
use crate::kernel::check_dispatch;
use crate::register_tile::{RegisterTile, width};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "conv_2d";

/// `output = epilogue(convolution(input, filter) + bias)`.
///
/// Bindings: `Input(0)`, `Weights`, `Output`, `Uniform`, then those of the epilogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// `[output channels, height, width, input channels of one group]`
    pub filter: [u32; 4],
    /// `[height, width]`
    pub stride: [u32; 2],
    /// `[height, width]`
    pub dilation: [u32; 2],
    /// Zero rows above and zero columns left of the input. What lies below and right follows from the
    /// shapes, so an explicit PAD in front of the convolution can be part of it.
    pub padding: [i32; 2],
    /// What happens to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    /// Groups that the channels fall into: input channels over the filter's.
    fn groups(&self) -> u32 {
        self.input[3].checked_div(self.filter[3]).unwrap_or(0)
    }

    fn check(&self) -> Result<(), ShaderError> {
        let Self { input, output, filter, .. } = self;
        let fits = ![*input, *output, *filter].as_flattened().contains(&0)
            && input[3].is_multiple_of(filter[3])
            && output[3].is_multiple_of(self.groups())
            && output[3] == filter[0]
            && input[0] == output[0]
            && !self.stride.contains(&0)
            && !self.dilation.contains(&0);
        if !fits {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        for shape in [input, output, filter] {
            elements(NAME, shape)?;
        }
        Ok(())
    }

    /// Whether every output pixel comes from the input pixel at its own place.
    fn pointwise(&self) -> bool {
        self.filter[1..3] == [1, 1]
            && self.stride == [1, 1]
            && self.padding == [0, 0]
            && self.input[..3] == self.output[..3]
    }

    /// The kernel.
    ///
    /// # Errors
    /// When the shapes contradict each other or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.text(caps, false)
    }

    /// A kernel whose text is the same for nearly all filters, which takes longer with some.
    ///
    /// # Errors
    /// See [`Spec::kernel`].
    pub fn any_filter(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.text(caps, true)
    }

    fn text(&self, caps: &Caps, any: bool) -> Result<Kernel, ShaderError> {
        self.check()?;
        let [_, in_h, in_w, in_c] = self.input;
        let [batch, out_h, out_w, out_c] = self.output;
        let [_, kernel_h, kernel_w, group_c] = self.filter;
        let (vec4, group_v) = (group_c.is_multiple_of(4), group_c.div_ceil(4));
        let (pixels, groups) = (batch * out_h * out_w, self.groups());
        let tile = match any {
            true => RegisterTile::choose(caps, width(out_c, out_c / groups), pixels, groups == 1),
            false => RegisterTile::convolution(caps, out_c, groups, pixels),
        };
        // Along the pixels there may be more workgroups than fit one dimension.
        let tiles = pixels.div_ceil(tile.reach());
        let rows = tiles.div_ceil(caps.max_workgroups_per_dimension.max(1));
        let row = tiles.div_ceil(rows);
        let groups_c = out_c.div_ceil(tile.breadth());
        let dispatch = check_dispatch(NAME, caps, [groups_c, row, rows].map(u64::from))?;
        let template = tile
            .apply(Template::new(NAME, include_str!("wgsl/conv_2d.wgsl")).number("UNIFORM", 3))
            .flag("IN_VEC4", vec4)
            .number("CHANNELS", if any { 0 } else { few_channels(group_c) })
            .flag("POINTWISE", !any && self.pointwise());
        let (key, wgsl) = self.epilogue.apply(template, 4).render()?;
        let taps = kernel_h * kernel_w * group_v * out_c;
        let uniform = Uniform::default()
            .u32s([in_h, in_w, if vec4 { in_c / 4 } else { in_c }, group_c, group_v])
            .u32s([pixels, out_h, out_w, out_c, out_c / groups])
            .u32s([kernel_h, kernel_w])
            .u32s(self.stride)
            .u32s(self.dilation)
            .i32s(self.padding)
            .u32s([self.epilogue.weight_words(taps, taps * 4), row]);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: [Binding::Input(0), Binding::Weights, Binding::Output, Binding::Uniform]
                .into_iter()
                .chain(self.epilogue.bindings())
                .collect(),
            uniform: self.epilogue.uniform(uniform, tile.stride()).finish(),
            dispatch,
            features: Features {
                subgroups: tile.shared,
                halves: self.epilogue.has_halves(),
                ..Features::default()
            },
        })
    }

    /// Lays `filter` (shaped like [`Spec::filter`]) and `bias` (one per output channel; none: zeros) out as
    /// the kernel reads them: `[height][width][input channels / 4][output channels][4]`, zeros where
    /// channels don't come in fours, then the bias, in fours as well. Values missing from the slices count
    /// as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        pack(self.filter, filter, bias)
    }
}

impl Spec {
    /// Lays integer weights, shaped like [`Spec::filter`], out like floats, and after them the words of the output
    /// channels ([`FixedChannel`](crate::FixedChannel) and others).
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        pack_integers(self.filter, self.epilogue, filter, channels)
    }
}

/// Input channels of a group that are fewer than a vector of four, which the text knows; 0: not so.
pub(crate) fn few_channels(group_c: u32) -> u32 {
    if group_c < 4 { group_c } else { 0 }
}

/// See [`Spec::pack_weights`]. `shape`: `[output channels, height, width, input channels]`.
pub(crate) fn pack(shape: [u32; 4], filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let [out_c, kernel_h, kernel_w, group_c] = shape.map(|n| n as usize);
    let (taps, group_v) = (kernel_h * kernel_w, group_c.div_ceil(4));
    let mut packed = vec![0.0; taps * group_v * out_c * 4 + out_c.next_multiple_of(4)];
    let (to, last) = packed.split_at_mut(taps * group_v * out_c * 4);
    for (to, from) in to.iter_mut().zip(in_order(shape)) {
        *to = from.and_then(|at| filter.get(at)).copied().unwrap_or(0.0);
    }
    for (to, from) in last.iter_mut().zip(bias.unwrap_or_default()) {
        *to = *from;
    }
    packed
}

/// See [`Spec::pack_integers`].
pub(crate) fn pack_integers(
    shape: [u32; 4],
    epilogue: Epilogue,
    filter: &[i8],
    channels: &[u32],
) -> Vec<u32> {
    let Some(integers) = epilogue.integers else { return Vec::new() };
    let weights = in_order(shape)
        .map(|at| at.and_then(|at| filter.get(at)).copied().unwrap_or(integers.weight_zero as i8));
    integers.pack(weights, channels)
}

/// Which weight stands at each place of the packed ones; none where channels don't come in fours.
fn in_order(shape: [u32; 4]) -> impl Iterator<Item = Option<usize>> {
    let [out_c, kernel_h, kernel_w, group_c] = shape.map(|n| n as usize);
    let (taps, group_v) = (kernel_h * kernel_w, group_c.div_ceil(4));
    (0..taps * group_v * out_c * 4).map(move |i| {
        let (part, o, vector) = (i % 4, i / 4 % out_c, i / 4 / out_c);
        let (c, tap) = (vector % group_v * 4 + part, vector / group_v);
        (c < group_c).then_some((o * taps + tap) * group_c + c)
    })
}
