//! ADD, SUB, MUL, DIV, SQUARED_DIFFERENCE, PRELU and comparisons of quantized tensors that broadcast against each other, in
//! the fixed-point arithmetic of the kernels on CPUs.

use crate::binary;
use crate::element::Element;
use crate::epilogue::Activation;
use crate::rescale::Factor;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "binary_quantized";

/// What becomes of two integers, `x` and `y` without their zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The sum of `x * a` and `y * b`, both shifted left in front, times the factor.
    Add,
    /// The difference.
    Sub,
    /// The difference squared.
    SquaredDifference,
    /// `x / 2^a.shift + y / 2^b.shift`, of 16 bits.
    AddShifted,
    /// `x / 2^a.shift - y / 2^b.shift`
    SubShifted,
    /// `x * y` times the factor.
    Mul,
    /// `x * y / 2^23` of fractions of 16 bits.
    MulFractions,
    /// `x / y` times the factor. Of a division by 0, anything.
    Div,
    /// `x * a`, below 0 `x * y * b`.
    Prelu,
    /// Whether `x * a`, shifted left in front, compares so with `y * b`.
    Compare(binary::Binary),
}

impl Operator {
    /// Name in keys, and body of the WGSL function of `x`, `y` and `once`, whether inputs are rounded once.
    fn wgsl(self) -> Option<(&'static str, &'static str)> {
        use binary::Binary::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        Some(match self {
            Self::Add => ("add", "return placed(scaled(x, 0u, once) + scaled(y, 1u, once));"),
            Self::Sub => ("sub", "return placed(scaled(x, 0u, once) - scaled(y, 1u, once));"),
            Self::SquaredDifference => (
                "squared_difference",
                "let apart = scaled(x, 0u, once) - scaled(y, 1u, once);
    return placed(apart * apart);",
            ),
            Self::AddShifted => (
                "add_shifted",
                "return limited(clamp(shift_right(x, p.shift_a) + shift_right(y, p.shift_b), -32768, 32767));",
            ),
            Self::SubShifted => {
                ("sub_shifted", "return limited(shift_right(x, p.shift_a) - shift_right(y, p.shift_b));")
            }
            Self::Mul => ("mul", "return placed(x * y);"),
            Self::MulFractions => (
                "mul_fractions",
                "let product = x * y;
    let nudge = select(16384, 1 - 16384, product < 0);
    return limited(shift_right(min((product + nudge) / 32768, 32767), 8) + p.zero);",
            ),
            Self::Div => (
                "div",
                "let over = select(x, -x, y < 0);
    let under = bitcast<u32>(abs(y));
    let zeros = countLeadingZeros(under);
    let inverse = one_over_one_plus(bitcast<i32>((under << (zeros & 31u)) - 0x80000000u));
    let headroom = countLeadingZeros(bitcast<u32>(select(over, ~over, over < 0))) - 1u;
    let unscaled = high_product(over << headroom, inverse);
    let shift = p.shift - (31 - i32(zeros)) - i32(headroom);
    return limited(shift_right(high_product(unscaled, p.multiplier), -shift) + p.zero);",
            ),
            Self::Prelu => (
                "prelu",
                "let above = fixed_multiply(x, p.multiplier_a, p.shift_a, false);
    let below = fixed_multiply(x * y, p.multiplier_b, p.shift_b, false);
    return limited(select(below, above, x >= 0) + p.zero);",
            ),
            Self::Compare(Equal) => ("equal", "return i32(scaled(x, 0u, once) == scaled(y, 1u, once));"),
            Self::Compare(NotEqual) => {
                ("not_equal", "return i32(scaled(x, 0u, once) != scaled(y, 1u, once));")
            }
            Self::Compare(Less) => ("less", "return i32(scaled(x, 0u, once) < scaled(y, 1u, once));"),
            Self::Compare(LessEqual) => {
                ("less_equal", "return i32(scaled(x, 0u, once) <= scaled(y, 1u, once));")
            }
            Self::Compare(Greater) => ("greater", "return i32(scaled(x, 0u, once) > scaled(y, 1u, once));"),
            Self::Compare(GreaterEqual) => {
                ("greater_equal", "return i32(scaled(x, 0u, once) >= scaled(y, 1u, once));")
            }
            Self::Compare(_) => return None,
        })
    }
}

/// `output = clamp(operator(a - zero, b - zero) + zero, low, high)`, with the operands broadcast to the output's shape.
///
/// Bindings: `Input(0)` (a), `Input(1)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The operator.
    pub op: Operator,
    /// What stands for zero in the operands.
    pub zeros: [i32; 2],
    /// How far operands are shifted left before they are multiplied.
    pub left: u32,
    /// What the operands are multiplied by, where the operator says so.
    pub inputs: [Factor; 2],
    /// What the result is multiplied by, where the operator says so.
    pub factor: Factor,
    /// What stands for zero in the output.
    pub zero: i32,
    /// The lowest and the highest result.
    pub range: [i32; 2],
    /// So many of the first elements, a multiple of four, round a product of an operand once.
    pub once: u32,
    /// Shape of the first operand.
    pub a: Vec<u32>,
    /// Shape of the second operand.
    pub b: Vec<u32>,
    /// Shape of the output: what `a` and `b` broadcast to.
    pub output: Vec<u32>,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the shapes don't broadcast, or more than six dimensions remain after merging those that broadcast alike.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let operator = self.op.wgsl().filter(|_| self.once.is_multiple_of(4));
        let (name, operation) =
            operator.ok_or_else(|| ShaderError::unsupported(NAME, format!("{:?}", self.op)))?;
        let plain = binary::Spec {
            op: binary::Binary::Add,
            element: Element::I32,
            a: self.a.clone(),
            b: self.b.clone(),
            output: self.output.clone(),
            activation: Activation::None,
        };
        let (nest, vec4) = plain.nest()?;
        let walk = Walk::new(NAME, caps, &nest.extents)?;
        let repeats = |operand: usize| nest.strides[operand].last() == Some(&0);
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/binary_quantized.wgsl")))
            .number("UNIFORM", 3)
            .flag("VEC4", vec4)
            .flag("A_REPEATS", repeats(0))
            .flag("B_REPEATS", repeats(1))
            .flag("ONCE", self.once > 0)
            .flag("DIVIDES", self.op == Operator::Div)
            .text("OPERATION", name, operation)
            .render()?;
        let [a, b] = self.inputs;
        let uniform = walk
            .uniform()
            .i32s(self.zeros)
            .u32(self.left)
            .i32s([a.multiplier, a.shift, b.multiplier, b.shift])
            .i32s([self.factor.multiplier, self.factor.shift, self.zero])
            .i32s(self.range)
            .u32(if vec4 { self.once / 4 } else { self.once });
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
}
