//! Operations that a kernel applies to its result before storing it.

use crate::integers::{IntegerResult, Integers, Sums};
use crate::template::Template;
use crate::unary::Unary;
use crate::uniform::Uniform;
use crate::{Binding, Features, Variant};

/// A function applied to a kernel's result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// The identity.
    #[default]
    None,
    /// A function of one value, for which [`Unary::follows`] holds.
    Unary(Unary),
    /// `x > 0 ? x : slope[channel] * x`, with slopes from [`Binding::Slope`].
    Prelu,
}

impl Activation {
    /// `max(x, 0)`
    pub const RELU: Self = Self::Unary(Unary::RELU);
    /// Limits to `[0, 6]`.
    pub const RELU6: Self = Self::Unary(Unary::RELU6);
    /// Limits to `[-1, 1]`.
    pub const RELU_N1_TO_1: Self = Self::Unary(Unary::RELU_N1_TO_1);
    /// Limits to `[0, 1]`.
    pub const RELU_0_TO_1: Self = Self::Unary(Unary::RELU_0_TO_1);

    /// Returns the WGSL function. The identity is a clamp, so that it shares a variant with clamps.
    fn unary(self) -> Option<Unary> {
        match self {
            Self::None => Some(Unary::Clamp { min: f32::NEG_INFINITY, max: f32::INFINITY }),
            Self::Unary(unary) => Some(unary),
            Self::Prelu => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.unary().map_or("prelu", Unary::name)
    }

    pub(crate) fn params(self) -> [f32; 2] {
        self.unary().map_or([0.0; 2], Unary::params)
    }

    /// Returns an expression over `v`, with parameters in the uniform fields `NAME_a` and `NAME_b`.
    pub(crate) fn wgsl(self, field: &str) -> String {
        match self.unary() {
            Some(unary) => format!("op_{}(v, p.{field}_a, p.{field}_b)", unary.name()),
            None => String::from("op_prelu(v, slope_at(channel))"),
        }
    }
}

/// `y = activation(x)`, and with a residual operand `y = after(activation(x) + residual)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epilogue {
    /// Applied to the result (bias included).
    pub activation: Activation,
    /// The function applied after adding a residual operand, which is shaped like the output; `None` without the operand.
    pub residual: Option<Activation>,
    /// Quantization of the operands, where they are integers. Results that are integers take no activation.
    pub integers: Option<Integers>,
    /// Whether float weights are stored in 16 bits each, by [`halves`](crate::halves). Not for depthwise convolutions.
    pub halves: bool,
}

impl Epilogue {
    /// Creates an epilogue with an activation alone.
    pub fn activation(activation: Activation) -> Self {
        Self { activation, ..Self::default() }
    }

    /// Returns whether a kernel with this epilogue reads [`Binding::Slope`].
    pub fn has_slope(&self) -> bool {
        self.activation == Activation::Prelu || self.residual == Some(Activation::Prelu)
    }

    /// Creates an epilogue for integer operands.
    pub fn of_integers(activation: Activation, integers: Integers) -> Self {
        Self { activation, integers: Some(integers), ..Self::default() }
    }

    /// Returns whether the results are integers.
    pub fn is_fixed(&self) -> bool {
        matches!(self.integers, Some(Integers { result: IntegerResult::Fixed { .. }, .. }))
    }

    /// Returns how products are summed.
    pub(crate) fn sums(&self) -> Sums {
        self.integers.map_or(Sums::Floats, |i| i.sums)
    }

    /// Returns whether float weights are stored in 16 bits.
    pub(crate) fn has_halves(&self) -> bool {
        self.halves && self.integers.is_none()
    }

    /// Returns whether rows of the input have separate scales.
    fn has_rows(&self) -> bool {
        matches!(self.integers, Some(Integers { result: IntegerResult::Real { row: 1.. }, .. }))
    }

    /// Returns the offset of the channels' words in weights of `vectors` vectors of four, or `integers` integers.
    pub(crate) fn weight_words(&self, vectors: u32, integers: u32) -> u32 {
        self.integers.map_or(vectors, |i| i.words(integers))
    }

    /// Returns the bindings that the epilogue adds, in the order in which `include/epilogue.wgsl` numbers them.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = Binding> {
        let residual = self.residual.map(|_| Binding::Residual);
        let rows = self.has_rows().then_some(Binding::Input(1));
        residual.into_iter().chain(self.has_slope().then_some(Binding::Slope)).chain(rows)
    }

    /// Sets the values of `include/epilogue.wgsl`, whose first binding number is `binding`.
    pub(crate) fn apply(&self, template: Template, binding: u32) -> Template {
        let slope = binding + u32::from(self.residual.is_some());
        let rows = slope + u32::from(self.has_slope());
        let after = self.residual.unwrap_or_default();
        self.sums()
            .apply(template)
            .flag("INTEGERS", self.integers.is_some())
            .flag("FIXED", self.is_fixed())
            .number("RESULT", self.integers.map_or(0, |i| i.result.kind()))
            .flag("HALVES", self.has_halves())
            .flag("BY_ROW", self.has_rows())
            .number("BY_ROW_BINDING", rows)
            .number("BITS", self.integers.map_or(0, |i| i.bits))
            .flag("RESIDUAL", self.residual.is_some())
            .flag("SLOPE", self.has_slope())
            .number("RESIDUAL_BINDING", binding)
            .number("SLOPE_BINDING", slope)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"))
            .text("AFTER", after.name(), after.wgsl("after"))
    }

    /// Returns the variant of a convolution with this epilogue, which reads an input and weights.
    pub(crate) fn convolution(&self, name: &'static str, template: Template, features: Features) -> Variant {
        const BINDINGS: [Binding; 4] =
            [Binding::Input(0), Binding::Weights, Binding::Output, Binding::Uniform];
        let template = self.apply(template, BINDINGS.len() as u32);
        let bindings = BINDINGS.into_iter().chain(self.bindings());
        template.variant(name, bindings).with_features(Features { halves: self.has_halves(), ..features })
    }

    /// Appends the fields of `include/epilogue_params.wgsl`. `stride`: the distance between the steps of four products of
    /// an invocation.
    pub(crate) fn uniform(&self, uniform: Uniform, stride: u32) -> Uniform {
        let uniform = uniform.f32s(self.activation.params()).f32s(self.residual.unwrap_or_default().params());
        let Some(Integers { input_zero, weight_zero, sums, result, .. }) = self.integers else {
            return uniform;
        };
        let ([zero, low, high], tail, row) = match result {
            IntegerResult::Fixed { zero, low, high, tail, .. } => ([zero, low, high], tail, 0),
            IntegerResult::Real { row } => ([0; 3], [0; 2], row),
        };
        let uniform = uniform.i32s([input_zero, weight_zero, zero, low, high]).u32(row);
        uniform.u32s(tail).u32(sums.block(stride))
    }
}
