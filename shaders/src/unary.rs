//! Element-wise functions of one tensor, one or a chain of them in one pass.

use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

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
    /// Limits to `[min, max]`; infinite bounds limit nothing. NaN stays NaN.
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
    /// GELU in its tanh approximation.
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

    /// Whether other kernels can apply it to their results, as [`Activation`](crate::Activation). Sine and cosine are
    /// long: kernels of their own have them.
    pub fn follows(self) -> bool {
        !matches!(self, Self::Cos | Self::Sin)
    }

    /// Name of the WGSL function, without its `op_`.
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

    /// What `a` and `b` of the WGSL function get.
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
    /// Functions in the order in which they are applied; none: a copy.
    pub steps: Vec<Unary>,
    /// Elements of input and output.
    pub elements: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let vec4 = self.elements.is_multiple_of(4);
        let count = if vec4 { self.elements / 4 } else { self.elements };
        let names: Vec<_> = self.steps.iter().map(|step| step.name()).collect();
        let chain = names.iter().enumerate().fold(String::from("input[i]"), |inner, (i, name)| {
            format!("op_{name}({inner}, p.a_{i}, p.b_{i})")
        });
        let walk = Walk::new(NAME, caps, &[count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/unary.wgsl")))
            .number("UNIFORM", 2)
            .number("STEPS", u32::try_from(self.steps.len()).unwrap_or(u32::MAX))
            .flag("VEC4", vec4)
            .flag("ANGLES", self.steps.iter().any(|step| !step.follows()))
            .text("CHAIN", names.join("+"), chain)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.f32s(self.steps.iter().flat_map(|s| s.params())).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
