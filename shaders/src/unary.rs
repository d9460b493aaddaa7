//! Elementwise functions of one tensor, one function or a chain of them in one pass.

use crate::binding::bindings;
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

const NAME: &str = "unary";

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `|x|`
    Abs,
    /// `x * scale + offset`: arithmetic with constants.
    Affine {
        /// Factor.
        scale: f32,
        /// Added after scaling.
        offset: f32,
    },
    /// The cube root.
    Cbrt,
    /// Rounds up.
    Ceil,
    /// Limits to `[min, max]`, where either may be infinite. NaN stays NaN on devices whose compilers preserve it.
    Clamp {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// Cosine.
    Cos,
    /// `x > 0 ? x : exp(x) - 1`
    Elu,
    /// `e^x`
    Exp,
    /// Rounds down.
    Floor,
    /// `x/2 * (1 + erf(x / sqrt(2)))`
    Gelu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// `x * relu6(x + 3) / 6`
    HardSwish,
    /// `x > 0 ? x : alpha * x`
    LeakyRelu {
        /// Slope of the negative side.
        alpha: f32,
    },
    /// Natural logarithm.
    Log,
    /// `1 / (1 + e^-x)`
    Logistic,
    /// `-x`
    Neg,
    /// Rounds to the nearest integer, halves to even.
    Round,
    /// `1 / sqrt(x)`
    Rsqrt,
    /// -1, 0 or 1.
    Sign,
    /// Sine.
    Sin,
    /// Square root.
    Sqrt,
    /// `x * x`
    Square,
    /// Hyperbolic tangent.
    Tanh,
}

impl Unary {
    /// `max(x, 0)`
    pub const RELU: Self = Self::Clamp { min: 0.0, max: f32::INFINITY };
    /// Limits to `[0, 6]`.
    pub const RELU6: Self = Self::Clamp { min: 0.0, max: 6.0 };
    /// Limits to `[-1, 1]`.
    pub const RELU_N1_TO_1: Self = Self::Clamp { min: -1.0, max: 1.0 };
    /// Limits to `[0, 1]`.
    pub const RELU_0_TO_1: Self = Self::Clamp { min: 0.0, max: 1.0 };

    /// Every function, with one value of its parameters: the list that tests compile, run and compare.
    pub const EVERY: &[Self] = &[
        Self::Abs,
        Self::Affine { scale: 0.5, offset: -1.0 },
        Self::Cbrt,
        Self::Ceil,
        Self::RELU,
        Self::RELU6,
        Self::RELU_N1_TO_1,
        Self::RELU_0_TO_1,
        Self::Cos,
        Self::Elu,
        Self::Exp,
        Self::Floor,
        Self::Gelu,
        Self::GeluTanh,
        Self::HardSwish,
        Self::LeakyRelu { alpha: 0.3 },
        Self::Log,
        Self::Logistic,
        Self::Neg,
        Self::Round,
        Self::Rsqrt,
        Self::Sign,
        Self::Sin,
        Self::Sqrt,
        Self::Square,
        Self::Tanh,
    ];

    /// Returns whether other kernels can apply the function to their results, as [`Activation`](crate::Activation).
    /// Sine and cosine have long sources, so they need a separate kernel.
    pub fn follows(self) -> bool {
        !matches!(self, Self::Cos | Self::Sin)
    }

    /// Returns the name of the WGSL function, without its `op_`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Affine { .. } => "affine",
            Self::Cbrt => "cbrt",
            Self::Ceil => "ceil",
            Self::Clamp { .. } => "clamp",
            Self::Cos => "cos",
            Self::Elu => "elu",
            Self::Exp => "exp",
            Self::Floor => "floor",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::HardSwish => "hard_swish",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::Log => "log",
            Self::Logistic => "logistic",
            Self::Neg => "neg",
            Self::Round => "round",
            Self::Rsqrt => "rsqrt",
            Self::Sign => "sign",
            Self::Sin => "sin",
            Self::Sqrt => "sqrt",
            Self::Square => "square",
            Self::Tanh => "tanh",
        }
    }

    /// Returns the arguments `a` and `b` of the WGSL function.
    pub(crate) fn params(self) -> [f32; 2] {
        match self {
            Self::Affine { scale, offset } => [scale, offset],
            Self::Clamp { min, max } => [min, max],
            Self::LeakyRelu { alpha } => [alpha, 0.0],
            _ => [0.0; 2],
        }
    }
}

/// `output[i] = steps(input[i])`, for tensors of any shape.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Functions in the order in which they are applied. Without any, the kernel copies.
    pub steps: Vec<Unary>,
    /// Elements of input and output.
    pub elements: u32,
}

impl Spec {
    fn variant(&self, caps: &Caps, vec4: bool) -> Variant {
        let names: Vec<_> = self.steps.iter().map(|step| step.name()).collect();
        let chain = names
            .iter()
            .enumerate()
            .fold(String::from("v"), |inner, (i, name)| format!("op_{name}({inner}, p.a_{i}, p.b_{i})"));
        let template = Template::new(NAME, include_str!("wgsl/unary.wgsl"))
            .number("STEPS", u32::try_from(self.steps.len()).unwrap_or(u32::MAX))
            .flag("VEC4", vec4)
            .flag("ANGLES", self.steps.iter().any(|step| !step.follows()))
            .flag("PAIRS", !caps.software)
            .text("CHAIN", names.join("+"), chain);
        walk::apply(template, caps, 1).variant(NAME, bindings(1))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = Threshold::VECTORS.holds(self.elements);
        let count = if vec4 { self.elements / 4 } else { self.elements };
        let walk = Walk::new(NAME, caps, &[count])?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        Ok(Kernel {
            variant: self.variant(caps, vec4),
            uniform: uniform.f32s(self.steps.iter().flat_map(|s| s.params())).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants([true, false].map(|vec4| self.variant(caps, vec4)))
    }
}
