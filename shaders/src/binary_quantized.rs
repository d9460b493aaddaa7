//! ADD, SUB, MUL, DIV, SQUARED_DIFFERENCE, PRELU and comparisons of quantized tensors that broadcast against each other, in
//! the fixed-point arithmetic of CPU kernels.

use crate::binary;
use crate::binding::bindings;
use crate::element::Element;
use crate::epilogue::Activation;
use crate::rescale::Factor;
use crate::shape::{NEST, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "binary_quantized";

/// Elements that TFLite's kernel for 16 bits computes together. A multiple of four.
pub const GROUP: u32 = 16;

/// An operator on two integers `x` and `y`, from which their zero points were subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `x * a + y * b`, both shifted left before, times the factor.
    Add,
    /// `x * a - y * b`, likewise.
    Sub,
    /// `(x * a - y * b)^2`, likewise.
    SquaredDifference,
    /// `x / 2^a.shift + y / 2^b.shift`, for 16 bits.
    AddShifted,
    /// `x / 2^a.shift - y / 2^b.shift`
    SubShifted,
    /// `x * y` times the factor.
    Mul,
    /// `x * y / 2^23`, for 16-bit fractions.
    MulFractions,
    /// `x / y` times the factor. The result of a division by 0 is unspecified.
    Div,
    /// `x * a` for `x >= 0`, else `x * y * b`.
    Prelu,
    /// Compares `x * a` with `y * b`, both shifted left before.
    Compare(binary::Binary),
}

impl Operator {
    /// Returns the name in keys, and the body of the WGSL function of `x`, `y` and `once` (whether inputs are rounded
    /// once).
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

/// `output = clamp(op(a - zeros[0], b - zeros[1]) + zero, range)`, with the operands broadcast to the output's shape.
/// Comparisons return 0 or 1.
///
/// Bindings: `Input(0)` (a), `Input(1)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The operator.
    pub op: Operator,
    /// Zero points of the operands.
    pub zeros: [i32; 2],
    /// Bits by which operands are shifted left before they are multiplied.
    pub left: u32,
    /// Factors of the operands, where the operator has them.
    pub inputs: [Factor; 2],
    /// Factor of the result, where the operator has one.
    pub factor: Factor,
    /// Zero point of the output.
    pub zero: i32,
    /// Minimum and maximum of the results.
    pub range: [i32; 2],
    /// Whether products of operands are rounded once in the elements that TFLite's kernel computes in groups of
    /// [`GROUP`], and twice in the rest.
    pub grouped: bool,
    /// Shape of the first operand.
    pub a: Vec<u32>,
    /// Shape of the second operand.
    pub b: Vec<u32>,
    /// Shape of the output: what `a` and `b` broadcast to.
    pub output: Vec<u32>,
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that do not broadcast, an [`Operator::Compare`] of an operator that does not compare numbers, more
    /// than six dimensions after merging those that broadcast alike, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let unsupported = || ShaderError::unsupported(NAME, format!("operator {:?}", self.op));
        let (name, operation) = self.op.wgsl().ok_or_else(unsupported)?;
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
        let once = match self.grouped {
            true => elements(NAME, &self.output)? / GROUP * GROUP,
            false => 0,
        };
        let repeats = |operand: usize| nest.strides[operand].last() == Some(&0);
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/binary_quantized.wgsl")))
            .flag("VEC4", vec4)
            .flag("A_REPEATS", repeats(0))
            .flag("B_REPEATS", repeats(1))
            .flag("ONCE", once > 0)
            .flag("DIVIDES", self.op == Operator::Div)
            .text("OPERATION", name, operation);
        let [a, b] = self.inputs;
        let uniform = walk
            .uniform()
            .i32s(self.zeros)
            .u32(self.left)
            .i32s([a.multiplier, a.shift, b.multiplier, b.shift])
            .i32s([self.factor.multiplier, self.factor.shift, self.zero])
            .i32s(self.range)
            .u32(if vec4 { once / 4 } else { once });
        let uniform = walk.dimensions(uniform, |uniform, d| uniform.u32s(nest.unsigned_strides(d)));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        let group = self.grouped.then_some(&Threshold::AtLeast(GROUP));
        OtherSizes::thresholds(NEST.iter().chain(group))
    }
}
