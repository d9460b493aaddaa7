//! Convolution with strides, dilation, padding, groups, bias and a fused epilogue.

use crate::epilogue::Epilogue;
use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "conv_2d";
const WORKGROUP: u32 = 64;

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
        let groups = self.groups();
        let fits = groups > 0
            && input[3].is_multiple_of(filter[3])
            && output[3] == filter[0]
            && output[3].is_multiple_of(groups)
            && input[0] == output[0]
            && !self.stride.contains(&0)
            && !self.dilation.contains(&0)
            && ![*input, *output, *filter].as_flattened().contains(&0);
        if !fits {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        if groups > 1 && !(output[3] / groups).is_multiple_of(4) {
            return Err(ShaderError::unsupported(
                NAME,
                format!("{groups} groups of {} output channels: not a multiple of 4", output[3] / groups),
            ));
        }
        for shape in [input, output, filter] {
            elements(NAME, shape)?;
        }
        Ok(())
    }

    /// The kernel.
    ///
    /// # Errors
    /// When the shapes contradict each other, when groups have output channels that don't come in
    /// fours, or when the output is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        self.check()?;
        let [_, in_h, in_w, in_c] = self.input;
        let [batch, out_h, out_w, out_c] = self.output;
        let [_, kernel_h, kernel_w, group_c] = self.filter;
        let groups = self.groups();
        let (group_v, out_v) = (group_c.div_ceil(4), out_c.div_ceil(4));
        let (pixels, blocks) = (4, if groups == 1 && out_v.is_multiple_of(2) { 2 } else { 1 });
        let (tiles_c, tiles_w) = (out_v.div_ceil(blocks), out_w.div_ceil(pixels));
        let tiles = [tiles_c, tiles_w, out_h, batch].iter().map(|n| u64::from(*n)).product();
        let dispatch = linear_dispatch(NAME, caps, tiles, u64::from(WORKGROUP))?;
        let template = Template::new(NAME, include_str!("wgsl/conv_2d.wgsl"))
            .number("WORKGROUP", WORKGROUP)
            .number("PIXELS", pixels)
            .number("BLOCKS", blocks)
            .flag("IN_VEC4", group_c.is_multiple_of(4))
            .flag("OUT_VEC4", out_c.is_multiple_of(4));
        let (key, wgsl) = self.epilogue.apply(template, 4).render()?;
        let uniform = Uniform::default()
            .u32s([in_h, in_w, in_c, group_c, group_v])
            .u32s([out_h, out_w, out_c, out_v, (out_c / groups).div_ceil(4)])
            .u32s([tiles_c, tiles_w, u32::try_from(tiles).unwrap_or(u32::MAX)])
            .u32s([kernel_h, kernel_w])
            .u32s(self.stride)
            .u32s(self.dilation)
            .i32s(self.padding)
            .u32(kernel_h * kernel_w * group_v * 4 * out_v);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: [Binding::Input(0), Binding::Weights, Binding::Output, Binding::Uniform]
                .into_iter()
                .chain(self.epilogue.bindings())
                .collect(),
            uniform: self.epilogue.uniform(uniform).finish(),
            dispatch,
            features: Features::default(),
        })
    }

    /// Lays `filter` (shaped like [`Spec::filter`]) and `bias` (one per output channel; none: zeros) out as
    /// the kernel reads them: `[height][width][input channels][output channels]` and the bias, both channel
    /// counts padded to fours. Values missing from the slices count as zero.
    pub fn pack_weights(&self, filter: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let [out_c, kernel_h, kernel_w, group_c] = self.filter.map(|n| n as usize);
        let (in_pad, out_pad) = (group_c.next_multiple_of(4), out_c.next_multiple_of(4));
        let mut packed = vec![0.0; (kernel_h * kernel_w * in_pad + 1) * out_pad];
        let (rows, last) = packed.split_at_mut(kernel_h * kernel_w * in_pad * out_pad);
        for (row, to) in rows.chunks_exact_mut(out_pad).enumerate() {
            let (tap, c) = (row / in_pad, row % in_pad);
            if c < group_c {
                for (o, to) in to.iter_mut().take(out_c).enumerate() {
                    let at = (o * kernel_h * kernel_w + tap) * group_c + c;
                    *to = filter.get(at).copied().unwrap_or(0.0);
                }
            }
        }
        for (to, from) in last.iter_mut().zip(bias.unwrap_or_default()) {
            *to = *from;
        }
        packed
    }
}
