//! TRANSPOSE_CONV, with bias and a fused epilogue.

use crate::conv_2d::{few_channels, pack, pack_integers};
use crate::epilogue::Epilogue;
use crate::kernel::{check_dispatch, looped};
use crate::register_tile::{Pixels, RegisterTile, WIDTHS, width};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "transpose_conv";

/// `output = epilogue(transposed convolution(input, filter) + bias)`: input pixel `i` contributes, through tap `k` of the
/// filter, to output pixel `i * stride + k - padding`.
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
    /// Rows above and columns left of the output that are cropped.
    pub padding: [u32; 2],
    /// Applied to the result.
    pub epilogue: Epilogue,
}

impl Spec {
    fn check(&self) -> Result<(), ShaderError> {
        let Self { input, output, filter, stride, padding, .. } = self;
        let fits = ![*input, *output, *filter].as_flattened().contains(&0)
            && (input[0], input[3], output[3]) == (output[0], filter[3], filter[0])
            && !stride.contains(&0);
        if !fits {
            return Err(ShaderError::contradiction(NAME, self));
        }
        for shape in [input, output, filter] {
            elements(NAME, shape)?;
        }
        for d in 0..2 {
            elements(NAME, &[output[1 + d].saturating_add(padding[d])])?;
        }
        Ok(())
    }

    /// Returns the kernel of a filter that the model computes, with a variant that suits filters of nearly all sizes.
    ///
    /// # Errors
    /// See [`Shader::kernel`].
    pub fn any_filter(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [.., out_c] = self.output;
        self.kernel_of(
            |pixels| {
                let tile = RegisterTile::choose(caps, width(out_c, out_c), pixels, true);
                (tile, self.variant(tile, Threshold::VECTORS.holds(self.input[3]), 0))
            },
            caps,
        )
    }

    /// Returns all variants of [`Spec::any_filter`].
    pub fn any_filter_variants(&self, caps: &Caps) -> Vec<Variant> {
        let tiles = WIDTHS
            .into_iter()
            .flat_map(|width| Pixels::ALL.map(|pixels| RegisterTile::choose(caps, width, pixels, true)));
        tiles.flat_map(|tile| [true, false].map(|vec4| self.variant(tile, vec4, 0))).collect()
    }

    /// Returns the variant of the constant filter.
    fn known_filter(&self, caps: &Caps, pixels: Pixels) -> (RegisterTile, Variant) {
        let [.., in_c] = self.input;
        let tile = RegisterTile::convolution(caps, self.output[3], 1, pixels);
        (tile, self.variant(tile, Threshold::VECTORS.holds(in_c), few_channels(in_c)))
    }

    fn variant(&self, tile: RegisterTile, vec4: bool, channels: u32) -> Variant {
        let template = Template::new(NAME, include_str!("wgsl/transpose_conv.wgsl"));
        tile.variant(NAME, template, vec4, channels, false, &self.epilogue)
    }

    fn kernel_of(
        &self,
        variant: impl FnOnce(Pixels) -> (RegisterTile, Variant),
        caps: &Caps,
    ) -> Result<Kernel, ShaderError> {
        self.check()?;
        let [_, in_h, in_w, in_c] = self.input;
        let [batch, out_h, out_w, out_c] = self.output;
        let [_, kernel_h, kernel_w, _] = self.filter;
        let (vec4, vectors) = (Threshold::VECTORS.holds(in_c), in_c.div_ceil(4));
        let [stride_h, stride_w] = self.stride;
        let (phase_h, phase_w) = (out_h.div_ceil(stride_h), out_w.div_ceil(stride_w));
        let pixels = elements(NAME, &[batch, phase_h, phase_w])?;
        let (tile, variant) = variant(Pixels::of(pixels));
        let phases = u64::from(stride_h) * u64::from(stride_w);
        let groups_c = out_c.div_ceil(tile.breadth());
        let groups = pixels.div_ceil(tile.reach());
        // The taps of a window that meet pixels of the input.
        let [rows, columns] = [kernel_h.div_ceil(stride_h), kernel_w.div_ceil(stride_w)];
        let taps = kernel_h * kernel_w * vectors * out_c;
        let uniform = Uniform::default()
            .u32s([in_h, in_w, if vec4 { vectors } else { in_c }, in_c, vectors])
            .u32s([batch * out_h * out_w, out_h, out_w, out_c, out_c])
            .u32s([kernel_h, kernel_w])
            .u32s(self.stride)
            .u32s(self.padding)
            .u32s([self.epilogue.weight_words(taps, taps * 4), phase_h, phase_w, pixels]);
        Ok(Kernel {
            variant,
            uniform: self.epilogue.uniform(uniform, tile.stride()).finish(),
            dispatch: check_dispatch(NAME, caps, [u64::from(groups_c), u64::from(groups), phases])?,
            iterations: looped(rows, looped(columns, tile.iterations(vectors, self.epilogue.sums())))
                + looped(tile.pixels, 0),
        })
    }

    /// Returns `filter` (of the shape [`Spec::filter`]) and `bias` (one value per output channel; `None` for zeros) as
    /// the kernel reads them, packed as by [convolutions](crate::conv_2d::Spec::pack_weights). Values missing from the
    /// slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        pack(self.filter, filter, bias)
    }

    /// Returns integer weights (of the shape [`Spec::filter`]), packed as by
    /// [convolutions](crate::conv_2d::Spec::pack_integers).
    pub fn pack_integers(&self, filter: &[i8], channels: &[u32]) -> Vec<u32> {
        pack_integers(self.filter, self.epilogue, filter, channels)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.kernel_of(|pixels| self.known_filter(caps, pixels), caps)
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants(Pixels::ALL.map(|pixels| self.known_filter(caps, pixels).1))
    }
}
