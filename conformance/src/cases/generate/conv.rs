//! CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV.

use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::transpose_conv::TransposeConvParams;

use super::super::prelude::*;
use super::draw::{Draw, out_scale, spread};
use super::finish;
use super::weights::{Mode, Weighted};

/// Window sizes; padding of even ones is asymmetric.
const WINDOWS: [usize; 8] = [1, 2, 3, 3, 4, 5, 6, 7];
/// Maximum number of multiply-adds of a case.
const MAX_MULTIPLY_ADDS: usize = 120_000;

/// A convolution of any kind.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    batch: usize,
    size: [usize; 2],
    channels: usize,
    /// Output channels; for a depthwise convolution, per input channel.
    outputs: usize,
    window: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    padding: Padding,
    activation: Activation,
    biased: bool,
}

impl Problem {
    fn random(draw: &mut Draw, op: Op) -> Self {
        let depthwise = op == Op::DEPTHWISE_CONV_2D;
        let mut window = draw.pair(&WINDOWS);
        let stride = draw.pair(&[1, 1, 1, 2, 2, 3]);
        let dilated = op != Op::TRANSPOSE_CONV && draw.chance(if stride == [1, 1] { 45 } else { 15 });
        let dilation = if dilated { draw.pair(&[1, 2, 2, 3]) } else { [1, 1] };
        let padding = draw.pick(&[Padding::Same, Padding::Same, Padding::Valid]);
        if draw.chance(15) {
            window = [1, 1];
        }
        let mut size = [0, 1].map(|i| {
            let extent = (window[i] - 1) * dilation[i] + 1;
            let least = if padding == Padding::Valid { extent } else { 1 };
            least + draw.below(9)
        });
        if op == Op::TRANSPOSE_CONV {
            size = draw.pair(&[1, 2, 3, 4, 5, 6]);
        }
        let (mut channels, mut outputs) = (draw.channels(), draw.channels());
        if depthwise {
            outputs = draw.pick(&[1, 1, 1, 2, 3, 4, 5]);
        }
        let mut groups = 1;
        if op == Op::CONV_2D && draw.chance(12) {
            groups = draw.pick(&[2, 3, 4]);
            (channels, outputs) = (groups * draw.size(1, 5), groups * draw.size(1, 4));
        }
        let mut batch = draw.pick(&[1, 1, 2, 3]);
        let work =
            |b: usize, c: usize, o: usize| b * size[0] * size[1] * window[0] * window[1] * c * o / groups;
        let halve = |n: usize| (n.div_ceil(2)).max(groups).next_multiple_of(groups);
        while work(batch, channels, outputs) > MAX_MULTIPLY_ADDS
            && batch + channels + outputs > 2 * groups + 1
        {
            if channels > outputs {
                channels = halve(channels);
            } else if outputs > groups {
                outputs = halve(outputs);
            } else {
                batch = 1;
            }
        }
        Problem {
            batch,
            size,
            channels,
            outputs,
            window,
            stride,
            dilation,
            groups,
            padding,
            activation: draw.activation(),
            biased: draw.chance(80),
        }
    }

    fn filter(&self, op: Op) -> [usize; 4] {
        let [h, w] = self.window;
        match op {
            Op::DEPTHWISE_CONV_2D => [1, h, w, self.channels * self.outputs],
            _ => [self.outputs, h, w, self.channels / self.groups],
        }
    }

    /// Returns the number of terms of an output element.
    fn terms(&self, op: Op) -> usize {
        let all = self.filter(op).iter().product::<usize>();
        let outputs = if op == Op::DEPTHWISE_CONV_2D { self.channels * self.outputs } else { self.outputs };
        all / outputs.max(1)
    }

    /// Returns the input size of the convolution that has this output size, for TRANSPOSE_CONV.
    fn grown(&self) -> [usize; 4] {
        let grow = |i: usize| match self.padding {
            Padding::Same => self.size[i] * self.stride[i],
            Padding::Valid => (self.size[i] - 1) * self.stride[i] + self.window[i],
        };
        [self.batch, grow(0), grow(1), self.outputs]
    }

    /// Returns the case in this mode.
    pub(super) fn case(&self, draw: &mut Draw, op: Op, mode: Mode) -> Case {
        let filter = self.filter(op);
        let dimension = if op == Op::DEPTHWISE_CONV_2D { 3 } else { 0 };
        let input = [self.batch, self.size[0], self.size[1], self.channels];
        let w = Weighted::new(draw, mode, &input, &filter, dimension);
        let deviation =
            (self.terms(op) as f32).sqrt() * w.unit * spread(mode.data()) * spread(mode.weights());
        let [stride_h, stride_w] = self.stride.map(|s| s as i32);
        let [dilation_h_factor, dilation_w_factor] = self.dilation.map(|d| d as i32);
        let quantized_bias_type = mode.declared_bias();
        // Modes for which LiteRT's kernels require a bias always have one.
        let bias = (self.biased || mode.needs_bias()).then(|| w.bias(filter[dimension], deviation));
        let padding = self.padding;
        let fused_activation_function = self.activation;
        let case = match op {
            Op::CONV_2D => {
                let params = Conv2DParams::default()
                    .padding(padding)
                    .stride_w(stride_w)
                    .stride_h(stride_h)
                    .fused_activation_function(fused_activation_function)
                    .dilation_w_factor(dilation_w_factor)
                    .dilation_h_factor(dilation_h_factor)
                    .quantized_bias_type(quantized_bias_type);
                Case::optional(op, params, [Some(w.input), Some(w.weights), bias])
            }
            Op::DEPTHWISE_CONV_2D => {
                let params = DepthwiseConv2DParams::default()
                    .padding(padding)
                    .stride_w(stride_w)
                    .stride_h(stride_h)
                    .depth_multiplier(self.outputs as i32)
                    .fused_activation_function(fused_activation_function)
                    .dilation_w_factor(dilation_w_factor)
                    .dilation_h_factor(dilation_h_factor);
                Case::optional(op, params, [Some(w.input), Some(w.weights), bias])
            }
            _ => {
                let params = TransposeConvParams::default()
                    .padding(padding)
                    .stride_w(stride_w)
                    .stride_h(stride_h)
                    .fused_activation_function(fused_activation_function)
                    .quantized_bias_type(quantized_bias_type);
                let shape = list(&self.grown().map(|d| d as i32));
                let mut inputs = vec![Some(shape), Some(w.weights), Some(w.input)];
                inputs.extend(bias.map(Some));
                Case::optional(op, params, inputs).outputs_of(mode.data())
            }
        };
        let scale = out_scale(draw, mode.data(), deviation);
        let zero = draw.zero(mode.data());
        if mode.is_integer() { case.q(scale, zero).outputs_of(mode.data()) } else { case }
    }
}

/// The number of cases of each op and mode.
const CONV: usize = 48;
const DEPTHWISE: usize = 40;
const TRANSPOSED: usize = 30;

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    for (op, count, modes) in [
        (Op::CONV_2D, CONV, Mode::CONV),
        (Op::DEPTHWISE_CONV_2D, DEPTHWISE, Mode::DEPTHWISE),
        (Op::TRANSPOSE_CONV, TRANSPOSED, Mode::TRANSPOSED),
    ] {
        for &mode in modes {
            for i in 0..count {
                let mut draw = Draw::new(seed, &format!("{op:?}{mode:?}"), i);
                let case = Problem::random(&mut draw, op).case(&mut draw, op, mode);
                out.push(finish(case, &mut draw, mode.name(), i));
            }
        }
    }
}
