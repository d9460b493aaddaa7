//! Elementwise operators on two tensors that broadcast against each other.

use crate::binding::bindings;
use crate::element::Element;
use crate::epilogue::Activation;
use crate::shape::{MAX_RANK, NEST, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "binary";

/// An operator on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`; integers round towards zero.
    Div,
    /// `floor(a / b)`
    FloorDiv,
    /// `a - b * floor(a / b)`
    FloorMod,
    /// `min(a, b)`
    Minimum,
    /// `max(a, b)`
    Maximum,
    /// `a^b`; NaN for a negative float and an exponent that is not a whole number. Exponents of integers must not be
    /// negative.
    Pow,
    /// `(a - b)^2`
    SquaredDifference,
    /// `a > 0 ? a : a * b`: PReLU with slopes in `b`.
    Prelu,
    /// The angle of the point `(b, a)`; floats only.
    Atan2,
    /// `a ^ b`; integers only.
    BitwiseXor,
    /// `a & b`; integers only.
    BitwiseAnd,
    /// `a | b`; integers only.
    BitwiseOr,
    /// `a >> b`, rounding down; integers only. `b` is clamped to 0 to 31.
    ShiftRight,
    /// `a << b`; integers only. 0 if `b` is outside 0 to 31.
    ShiftLeft,
    /// `a - b * trunc(a / b)`, with the sign of `a`.
    Remainder,
    /// `a == b`. The result of this and of the following operators is [`Element::Bool`].
    Equal,
    /// `a != b`
    NotEqual,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
    /// `a && b`, on booleans.
    LogicalAnd,
    /// `a || b`, on booleans.
    LogicalOr,
}

impl Binary {
    /// Returns whether the result is [`Element::Bool`] for operands of any type.
    pub fn compares(self) -> bool {
        matches!(
            self,
            Self::Equal
                | Self::NotEqual
                | Self::Less
                | Self::LessEqual
                | Self::Greater
                | Self::GreaterEqual
                | Self::LogicalAnd
                | Self::LogicalOr
        )
    }

    /// Returns the name in keys, and the body of the WGSL function of `x` and `y`. `None` if the operator is not
    /// defined for the element.
    fn wgsl(self, element: Element) -> Option<(&'static str, &'static str)> {
        use Element::{Bool, F32, I32, U32};
        Some(match (self, element) {
            (Self::Add, F32 | I32 | U32) => ("add", "return x + y;"),
            (Self::Sub, F32 | I32 | U32) => ("sub", "return x - y;"),
            (Self::Mul, F32 | I32 | U32) => ("mul", "return x * y;"),
            (Self::Div, F32 | I32 | U32) => ("div", "return x / y;"),
            // The remainder shows whether the quotient was rounded up to a whole number, or down from one. The remainder is
            // exact because y is split into halves whose products with a whole number are not rounded.
            (Self::FloorDiv, F32) => (
                "floor_div",
                "let q = floor(x / y);
    let shifted = 4097.0 * y;
    let high = shifted - (shifted - y);
    let r = (x - q * high) - q * (y - high);
    return q - select(T(0.0), T(1.0), ((r < T(0.0)) & (y > T(0.0))) | ((r > T(0.0)) & (y < T(0.0))));",
            ),
            (Self::FloorDiv, I32) => (
                "floor_div",
                "let q = x / y; return q - select(T(0), T(1), (q * y != x) & ((x < T(0)) != (y < T(0))));",
            ),
            (Self::FloorMod, F32) => (
                "floor_mod",
                "let q = floor(x / y);
    let shifted = 4097.0 * y;
    let high = shifted - (shifted - y);
    let r = (x - q * high) - q * (y - high);
    return r + select(T(0.0), y, ((r < T(0.0)) & (y > T(0.0))) | ((r > T(0.0)) & (y < T(0.0))));",
            ),
            (Self::FloorMod, I32) => (
                "floor_mod",
                "let r = x % y; return r + select(T(0), y, (r != T(0)) & ((r < T(0)) != (y < T(0))));",
            ),
            (Self::Minimum, F32 | I32 | U32) => ("minimum", "return min(x, y);"),
            (Self::Maximum, F32 | I32 | U32) => ("maximum", "return max(x, y);"),
            (Self::Pow, F32) => ("pow", include_str!("wgsl/include/power.wgsl")),
            (Self::SquaredDifference, F32 | I32) => ("squared_difference", "return (x - y) * (x - y);"),
            (Self::Prelu, F32) => ("prelu", "return select(x * y, x, x > T(0.0));"),
            (Self::Pow, I32) => (
                "pow",
                "var power = T(1);
    var base = x;
    for (var bit = 0u; bit < 31u; bit++) {
        power = select(power, power * base, ((y >> U(bit)) & T(1)) == T(1));
        base *= base;
    }
    return power;",
            ),
            // A polynomial for quotients up to tan(pi/8); larger ones are reduced by pi/4. The sign bits distinguish -0
            // from 0.
            (Self::Atan2, F32) => (
                "atan2",
                "let large = max(abs(x), abs(y));
    let small = min(abs(x), abs(y));
    let q = select(small / large, select(T(1.0), T(0.0), large == T(0.0)), small == large);
    let far = q > T(0.41421357);
    let z = select(q, (q - 1.0) / (q + 1.0), far);
    let zz = z * z;
    let poly = (((0.080537446 * zz - 0.13877685) * zz + 0.19977711) * zz - 0.33332949) * zz * z + z;
    let eighth = poly + select(T(0.0), T(0.78539816), far);
    let quarter = select(eighth, 1.5707964 - eighth, abs(x) > abs(y));
    let half = select(quarter, 3.1415927 - quarter, (bitcast<U>(y) >> U(31u)) == U(1u));
    return select(half, -half, (bitcast<U>(x) >> U(31u)) == U(1u));",
            ),
            (Self::BitwiseXor, I32 | U32) => ("bitwise_xor", "return x ^ y;"),
            (Self::BitwiseAnd, I32 | U32) => ("bitwise_and", "return x & y;"),
            (Self::BitwiseOr, I32 | U32) => ("bitwise_or", "return x | y;"),
            (Self::ShiftRight, I32 | U32) => ("shift_right", "return x >> U(clamp(y, T(0), T(31)));"),
            (Self::ShiftLeft, I32 | U32) => {
                ("shift_left", "return select(T(0), x << U(y & T(31)), (y >= T(0)) & (y < T(32)));")
            }
            (Self::Remainder, I32 | U32) => ("remainder", "return x % y;"),
            // As FLOOR_MOD of the magnitudes. For an infinite divisor the result is the dividend.
            (Self::Remainder, F32) => (
                "remainder",
                "let size = abs(x);
    let by = abs(y);
    let q = floor(size / by);
    let shifted = 4097.0 * by;
    let high = shifted - (shifted - by);
    let r = (size - q * high) - q * (by - high);
    let above = r + select(T(0.0), by, r < T(0.0));
    let within = above - select(T(0.0), by, above >= by);
    let left = select(within, size, (by > T(3.4e38)) & (size <= T(3.4e38)));
    return select(left, -left, x < T(0.0));",
            ),
            (Self::Equal, _) => ("equal", "return R(x == y);"),
            // Drivers evaluate both == and != to false for NaN.
            (Self::NotEqual, _) => ("not_equal", "return R(!(x == y));"),
            (Self::Less, F32 | I32 | U32) => ("less", "return R(x < y);"),
            (Self::LessEqual, F32 | I32 | U32) => ("less_equal", "return R(x <= y);"),
            (Self::Greater, F32 | I32 | U32) => ("greater", "return R(x > y);"),
            (Self::GreaterEqual, F32 | I32 | U32) => ("greater_equal", "return R(x >= y);"),
            (Self::LogicalAnd, Bool) => ("logical_and", "return x & y;"),
            (Self::LogicalOr, Bool) => ("logical_or", "return x | y;"),
            _ => return None,
        })
    }
}

/// `output = activation(op(a, b))`, with the operands broadcast to the output's shape.
///
/// Bindings: `Input(0)` (a), `Input(1)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The operator.
    pub op: Binary,
    /// Element type of the operands, and of the output unless the operator [compares](Binary::compares).
    pub element: Element,
    /// Shape of the first operand.
    pub a: Vec<u32>,
    /// Shape of the second operand.
    pub b: Vec<u32>,
    /// Shape of the output: what `a` and `b` broadcast to.
    pub output: Vec<u32>,
    /// Applied to a float result. Not [`Activation::Prelu`].
    pub activation: Activation,
}

impl Spec {
    /// Returns the collapsed loop nest, and whether it is in vectors of four.
    pub(crate) fn nest(&self) -> Result<(Nest<2>, bool), ShaderError> {
        elements(NAME, &self.output)?;
        elements(NAME, &self.a)?;
        elements(NAME, &self.b)?;
        let strides = |shape: &[u32]| {
            broadcast_strides(shape, &self.output)
                .map(|strides| strides.into_iter().map(i64::from).collect())
                .ok_or_else(|| {
                    ShaderError::invalid(NAME, format!("{shape:?} does not broadcast to {:?}", self.output))
                })
        };
        let nest = Nest { extents: self.output.clone(), strides: [strides(&self.a)?, strides(&self.b)?] };
        let mut nest = nest.collapse();
        if nest.extents.len() > MAX_RANK {
            let rank = nest.extents.len();
            let why =
                format!("{rank} dimensions of {:?} with {:?}; {MAX_RANK} are supported", self.a, self.b);
            return Err(ShaderError::unsupported(NAME, why));
        }
        let vec4 = nest.split_vec4();
        Ok((nest, vec4))
    }
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that do not broadcast, an operator or an activation that is not defined for the element, more than
    /// six dimensions after merging those that broadcast alike, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let (name, operation) = self.op.wgsl(self.element).ok_or_else(|| {
            ShaderError::unsupported(NAME, format!("{:?} of {:?} elements", self.op, self.element))
        })?;
        let activates = self.activation != Activation::None;
        if self.activation == Activation::Prelu
            || (activates && (self.op.compares() || self.element != Element::F32))
        {
            let why = format!(
                "{:?} of {:?} with activation {:?}; \
                activations other than Prelu are supported for arithmetic on F32 only",
                self.op, self.element, self.activation
            );
            return Err(ShaderError::unsupported(NAME, why));
        }
        let result = if self.op.compares() { Element::Bool } else { self.element };
        let (nest, vec4) = self.nest()?;
        let walk = Walk::new(NAME, caps, &nest.extents)?;
        let repeats = |operand: usize| nest.strides[operand].last() == Some(&0);
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/binary.wgsl")))
            .flag("VEC4", vec4)
            .flag("A_REPEATS", repeats(0))
            .flag("B_REPEATS", repeats(1))
            .flag("ACTIVATES", activates)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl())
            .text("RESULT", result.wgsl(), result.wgsl())
            .text("OPERATION", name, operation)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let uniform = walk.uniform().f32s(self.activation.params());
        let uniform = walk.dimensions(uniform, |uniform, d| uniform.u32s(nest.unsigned_strides(d)));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&NEST)
    }
}
