//! Operands of ops with weights: their types, and scales that use the range of each type.

use super::super::operand::growing;
use super::super::prelude::*;
use super::draw::{Draw, spread};

/// How data and weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Float,
    /// The weights are fed.
    Fed,
    /// 16-bit weights behind DEQUANTIZE.
    Half,
    UInt8,
    /// INT8 with one scale for the weights.
    Int8,
    /// INT8 with a scale per channel.
    Channels,
    /// 4-bit weights.
    Int4,
    /// 16-bit data and a 64-bit bias.
    Wide,
    /// 16-bit data and a 64-bit bias, with a scale per channel.
    WideChannels,
    /// 16-bit data and a 32-bit bias.
    WideNarrowBias,
    /// Float data and 8-bit weights.
    Hybrid,
    HybridChannels,
}

impl Mode {
    pub(super) const CONV: &[Mode] = &[
        Mode::Float,
        Mode::Float,
        Mode::Fed,
        Mode::Half,
        Mode::UInt8,
        Mode::Int8,
        Mode::Channels,
        Mode::Int4,
        Mode::Wide,
        Mode::WideChannels,
        Mode::WideNarrowBias,
        Mode::Hybrid,
        Mode::HybridChannels,
    ];
    pub(super) const DEPTHWISE: &[Mode] = &[
        Mode::Float,
        Mode::Fed,
        Mode::Half,
        Mode::UInt8,
        Mode::Int8,
        Mode::Channels,
        Mode::Int4,
        Mode::WideChannels,
        Mode::HybridChannels,
    ];
    pub(super) const TRANSPOSED: &[Mode] = &[
        Mode::Float,
        Mode::Half,
        Mode::UInt8,
        Mode::Int8,
        Mode::Channels,
        Mode::WideChannels,
        Mode::WideNarrowBias,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Float => "float",
            Mode::Fed => "fed",
            Mode::Half => "half",
            Mode::UInt8 | Mode::Int8 => "per_tensor",
            Mode::Channels | Mode::WideChannels => "per_channel",
            Mode::Int4 => "int4",
            Mode::Wide => "wide",
            Mode::WideNarrowBias => "wide_bias_int32",
            Mode::Hybrid => "hybrid",
            Mode::HybridChannels => "hybrid_per_channel",
        }
    }

    pub(super) fn is_integer(self) -> bool {
        self.data() != Float32
    }

    pub(super) fn needs_bias(self) -> bool {
        self.is_integer() || matches!(self, Mode::Hybrid | Mode::HybridChannels)
    }

    pub(super) fn data(self) -> TensorType {
        match self {
            Mode::UInt8 => UInt8,
            Mode::Int8 | Mode::Channels | Mode::Int4 => Int8,
            Mode::Wide | Mode::WideChannels | Mode::WideNarrowBias => Int16,
            _ => Float32,
        }
    }

    pub(super) fn weights(self) -> TensorType {
        match self {
            Mode::Float | Mode::Fed | Mode::Half => Float32,
            Mode::UInt8 => UInt8,
            Mode::Int4 => Int4,
            _ => Int8,
        }
    }

    /// Returns the option that names the bias's type.
    pub(super) fn declared_bias(self) -> TensorType {
        if self == Mode::WideNarrowBias { Int32 } else { Float32 }
    }

    fn bias(self) -> TensorType {
        match self {
            Mode::Wide | Mode::WideChannels => Int64,
            _ if self.is_integer() => Int32,
            _ => Float32,
        }
    }

    fn per_channel(self) -> bool {
        matches!(
            self,
            Mode::Channels | Mode::Int4 | Mode::WideChannels | Mode::HybridChannels | Mode::WideNarrowBias
        )
    }
}

/// Data and weights of one case.
pub(super) struct Weighted {
    pub(super) input: Operand,
    pub(super) weights: Operand,
    /// The scale of a product for a typical channel.
    pub(super) unit: f32,
    mode: Mode,
    scales: Vec<f32>,
}

impl Weighted {
    pub(super) fn new(
        draw: &mut Draw,
        mode: Mode,
        input: &[usize],
        filter: &[usize],
        dimension: usize,
    ) -> Self {
        let (data, ty) = (mode.data(), mode.weights());
        let own = if data == Int16 { draw.real(0.0001, 0.001) } else { draw.real(0.005, 0.09) };
        let scale = draw.real(0.003, 0.03) * 74.0 / spread(ty);
        let count = if mode.per_channel() { filter[dimension] } else { 1 };
        // Scales of channels differ by a factor of up to four.
        let mut scales = growing(scale, count.min(13));
        scales = scales.into_iter().cycle().take(count).collect();
        let input = match mode.is_integer() {
            true => x(data, input).q(own, draw.zero(data)),
            false => x(data, input).range(-2.0, 3.0),
        };
        let weights = match mode {
            Mode::Fed => x(ty, filter),
            Mode::Float | Mode::Half => x(ty, filter).constant(),
            Mode::UInt8 => x(ty, filter).constant().q(scale, draw.zero(ty).clamp(60, 200)),
            // Symmetric weights do not use the lowest value.
            Mode::Int8 | Mode::Wide | Mode::Hybrid => {
                x(ty, filter).constant().range(-127.0, 127.0).q(scale, 0)
            }
            Mode::Int4 => x(ty, filter).constant().range(-7.0, 7.0).affine(scales.clone(), dimension),
            _ => x(ty, filter).constant().range(-127.0, 127.0).affine(scales.clone(), dimension),
        };
        let weights = if mode == Mode::Half { weights.halved() } else { weights };
        let middle = scales.iter().sum::<f32>() / scales.len().max(1) as f32;
        let unit = if mode.is_integer() { own * middle } else { 1.0 };
        let scales = scales.into_iter().map(|s| s * own).collect();
        Weighted { input, weights, unit, mode, scales }
    }

    /// Creates a bias of significant size relative to sums of this deviation.
    pub(super) fn bias(&self, count: usize, deviation: f32) -> Operand {
        let ty = self.mode.bias();
        let bias = x(ty, &[count]).constant();
        if !self.mode.is_integer() {
            return if self.mode == Mode::Fed { x(ty, &[count]) } else { bias };
        }
        let steps = f64::from((deviation / self.unit).clamp(2.0, 1e6));
        let bias = bias.range(-steps.round(), steps.round());
        match (&self.scales[..], self.mode.per_channel()) {
            (scales, true) => bias.affine(scales.to_vec(), 0),
            (scales, false) => bias.q(scales.first().copied().unwrap_or(1.0), 0),
        }
    }
}
