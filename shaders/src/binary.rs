//! Element-wise operators on two tensors that broadcast against each other.

use crate::element::Element;
use crate::epilogue::Activation;
use crate::shape::{MAX_RANK, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

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
    /// The smaller.
    Minimum,
    /// The larger.
    Maximum,
    /// `a^b`. A negative base takes whole exponents, integers exponents that are not negative.
    Pow,
    /// `(a - b)^2`
    SquaredDifference,
    /// `a > 0 ? a : a * b`: PReLU with slopes in `b`.
    Prelu,
    /// The angle of the point `(b, a)`; floats only.
    Atan2,
    /// The bits in which the two differ; integers only.
    BitwiseXor,
    /// The bits that both have; integers only.
    BitwiseAnd,
    /// The bits that one of them has; integers only.
    BitwiseOr,
    /// `a >> b`, rounding down; integers only. `b` is limited to 0 to 31.
    ShiftRight,
    /// `a << b`; integers only. Nothing is left where `b` is not within 0 to 31.
    ShiftLeft,
    /// `a - b * trunc(a / b)`, with the sign of `a`.
    Remainder,
    /// `a == b`, as are the following, gives [`Element::Bool`].
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
    /// Whether the result is [`Element::Bool`], whatever the operands are.
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

    /// Name in keys, and body of the WGSL function of `x` and `y`. None: not for this element.
    fn wgsl(self, element: Element) -> Option<(&'static str, &'static str)> {
        use Element::{Bool, F32, I32, U32};
        Some(match (self, element) {
            (Self::Add, F32 | I32 | U32) => ("add", "return x + y;"),
            (Self::Sub, F32 | I32 | U32) => ("sub", "return x - y;"),
            (Self::Mul, F32 | I32 | U32) => ("mul", "return x * y;"),
            (Self::Div, F32 | I32 | U32) => ("div", "return x / y;"),
            // Where the quotient was rounded up to a whole number, or down from one, what is left tells. To find that
            // exactly, y is split into halves whose products with a whole number need no rounding.
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
            // Quotients up to tan(pi/8) go into a polynomial, larger ones by way of pi/4. The signs of zeros count.
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
            // As FLOOR_MOD of the magnitudes; of an infinite divisor, all is left.
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
            // Of what is no number, drivers find neither equal nor unequal.
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
    /// What the operands hold. The output holds the same, or booleans when the operator
    /// [compares](Binary::compares).
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
    /// The kernel.
    ///
    /// # Errors
    /// When the shapes don't broadcast, when the operator isn't defined for the element, and when more
    /// than six dimensions remain after merging those that broadcast alike.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let (name, operation) = self
            .op
            .wgsl(self.element)
            .ok_or_else(|| ShaderError::unsupported(NAME, format!("{:?} of {:?}", self.op, self.element)))?;
        let activates = self.activation != Activation::None;
        if self.activation == Activation::Prelu
            || (activates && (self.op.compares() || self.element != Element::F32))
        {
            return Err(ShaderError::unsupported(NAME, format!("{:?} after {:?}", self.activation, self.op)));
        }
        let result = if self.op.compares() { Element::Bool } else { self.element };
        let (nest, vec4) = self.nest()?;
        let walk = Walk::new(NAME, caps, &nest.extents)?;
        let repeats = |operand: usize| nest.strides[operand].last() == Some(&0);
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/binary.wgsl")))
            .number("UNIFORM", 3)
            .flag("VEC4", vec4)
            .flag("A_REPEATS", repeats(0))
            .flag("B_REPEATS", repeats(1))
            .flag("ACTIVATES", activates)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl())
            .text("RESULT", result.wgsl(), result.wgsl())
            .text("OPERATION", name, operation)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"))
            .render()?;
        let uniform = walk.uniform().f32s(self.activation.params());
        let uniform = walk.dimensions(uniform, |uniform, d| uniform.u32s(nest.unsigned_strides(d)));
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }

    /// The collapsed loop nest, in vectors of four where the flag says so.
    pub(crate) fn nest(&self) -> Result<(Nest<2>, bool), ShaderError> {
        elements(NAME, &self.output)?;
        elements(NAME, &self.a)?;
        elements(NAME, &self.b)?;
        let strides = |shape: &[u32]| {
            broadcast_strides(shape, &self.output)
                .map(|strides| strides.into_iter().map(i64::from).collect())
                .ok_or_else(|| {
                    ShaderError::invalid(NAME, format!("{shape:?} doesn't broadcast to {:?}", self.output))
                })
        };
        let nest = Nest { extents: self.output.clone(), strides: [strides(&self.a)?, strides(&self.b)?] };
        let mut nest = nest.collapse();
        if nest.extents.len() > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("broadcasting {:?} with {:?}", self.a, self.b),
            ));
        }
        let vec4 = nest.split_vec4();
        Ok((nest, vec4))
    }
}
