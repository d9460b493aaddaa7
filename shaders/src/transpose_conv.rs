//! TRANSPOSE_CONV, with bias and a fused epilogue.

use crate::conv_2d::{few_channels, pack, pack_integers};
use crate::epilogue::Epilogue;
use crate::kernel::check_dispatch;
use crate::register_tile::{RegisterTile, width};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "transpose_conv";

/// `output = epilogue(transposed convolution(input, filter) + bias)`: input pixel `i` goes, through tap `k`
/// of the filter, into output pixel `i * stride + k - padding`.
///
/// Bindings: `Input(0)`, `Weights`, `Output`, `Uniform`, then those of the epilogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// `[output channels, height, width, input channels]`
    pub filter: [u32; 4],
    /// `[height, width]`
    pub stride: [u32; 2],
    /// Rows above and columns left of the output that are cut off.
    pub padding: [u32; 2],
    /// What happens to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    fn check(&self) -> Result<(), ShaderError> {
        let Self { input, output, filter, stride, padding, .. } = self;
        let fits = ![*input, *output, *filter].as_flattened().contains(&0)
            && (input[0], input[3], output[3]) == (output[0], filter[3], filter[0])
            && !stride.contains(&0);
        if !fits {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        for shape in [input, output, filter] {
            elements(NAME, shape)?;
        }
        for d in 0..2 {
            elements(NAME, &[output[1 + d].saturating_add(padding[d])])?;
        }
        Ok(())
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
        let [_, kernel_h, kernel_w, _] = self.filter;
        let (vec4, vectors) = (in_c.is_multiple_of(4), in_c.div_ceil(4));
        let [stride_h, stride_w] = self.stride;
        let (phase_h, phase_w) = (out_h.div_ceil(stride_h), out_w.div_ceil(stride_w));
        let pixels = elements(NAME, &[batch, phase_h, phase_w])?;
        let tile = match any {
            true => RegisterTile::choose(caps, width(out_c, out_c), pixels, true),
            false => RegisterTile::convolution(caps, out_c, 1, pixels),
        };
        let phases = u64::from(stride_h) * u64::from(stride_w);
        let groups_c = out_c.div_ceil(tile.breadth());
        let groups = pixels.div_ceil(tile.reach());
        let dispatch = check_dispatch(NAME, caps, [u64::from(groups_c), u64::from(groups), phases])?;
        let template = tile
            .apply(Template::new(NAME, include_str!("wgsl/transpose_conv.wgsl")).number("UNIFORM", 3))
            .flag("IN_VEC4", vec4)
            .number("CHANNELS", if any { 0 } else { few_channels(in_c) })
            .flag("POINTWISE", false);
        let (key, wgsl) = self.epilogue.apply(template, 4).render()?;
        let taps = kernel_h * kernel_w * vectors * out_c;
        let uniform = Uniform::default()
            .u32s([in_h, in_w, if vec4 { vectors } else { in_c }, in_c, vectors])
            .u32s([batch * out_h * out_w, out_h, out_w, out_c, out_c])
            .u32s([kernel_h, kernel_w])
            .u32s(self.stride)
            .u32s(self.padding)
            .u32s([self.epilogue.weight_words(taps, taps * 4), phase_h, phase_w, pixels]);
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
    /// the kernel reads them, which is as [convolutions](crate::conv_2d::Spec::pack_weights) do. Values
    /// missing from the slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        pack(self.filter, filter, bias)
    }

    /// Lays out integer weights, as [convolutions](crate::conv_2d::Spec::pack_integers) do.
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        pack_integers(self.filter, self.epilogue, filter, channels)
    }
}
