//! Operators on 64-bit integers, and their conversion from and to 32 bits. An integer is a pair of words, the low one first.

use crate::binding::bindings;
use crate::shape::{MAX_RANK, NEST, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Variant};

const NAME: &str = "long";
const CONVERT: &str = "long_convert";

/// An operator on two 64-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Add,
    Sub,
    Mul,
    Maximum,
    Minimum,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Operator {
    /// Returns the name in keys, and the WGSL expression of `a` and `b`.
    fn expression(self) -> (&'static str, &'static str) {
        match self {
            Operator::Add => ("add", "sum(a, b)"),
            Operator::Sub => ("sub", "difference(a, b)"),
            Operator::Mul => ("mul", "product(a, b)"),
            Operator::Maximum => ("maximum", "select(a, b, less(a, b))"),
            Operator::Minimum => ("minimum", "select(a, b, less(b, a))"),
            Operator::Equal => ("equal", "all(a == b)"),
            Operator::NotEqual => ("not_equal", "any(a != b)"),
            Operator::Less => ("less", "less(a, b)"),
            Operator::LessEqual => ("less_equal", "!less(b, a)"),
            Operator::Greater => ("greater", "less(b, a)"),
            Operator::GreaterEqual => ("greater_equal", "!less(a, b)"),
        }
    }

    /// Returns whether the result is [boolean](crate::Element::Bool).
    pub fn compares(self) -> bool {
        !matches!(self, Operator::Add | Operator::Sub | Operator::Mul | Operator::Maximum | Operator::Minimum)
    }
}

/// `output = a op b`, with the operands broadcast to the output's shape. Sums and products wrap. The result of a comparison is
/// one word per element, every other result a pair.
///
/// Bindings: `Input(0)` (a), `Input(1)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The operator.
    pub op: Operator,
    /// The range to which results are limited. Unused for a comparison.
    pub range: Option<[i64; 2]>,
    /// Shape of the first operand, in integers.
    pub a: Vec<u32>,
    /// Shape of the second operand.
    pub b: Vec<u32>,
    /// Shape of the output.
    pub output: Vec<u32>,
}

/// Returns the words of an integer, the low one first.
fn words(value: i64) -> [u32; 2] {
    let bits = value.cast_unsigned();
    [bits as u32, (bits >> 32) as u32]
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that do not broadcast, more than six dimensions after merging those that broadcast alike, and a
    /// tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let strides = |shape: &[u32]| -> Result<Vec<i64>, ShaderError> {
            elements(NAME, shape)?;
            broadcast_strides(shape, &self.output)
                .map(|strides| strides.into_iter().map(i64::from).collect())
                .ok_or_else(|| {
                    ShaderError::invalid(NAME, format!("{shape:?} does not broadcast to {:?}", self.output))
                })
        };
        elements(NAME, &self.output)?;
        let nest = Nest { extents: self.output.clone(), strides: [strides(&self.a)?, strides(&self.b)?] };
        let nest = nest.collapse();
        let rank = nest.extents.len();
        if rank > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("broadcasting in {rank} dimensions; {MAX_RANK} are supported"),
            ));
        }
        let walk = Walk::new(NAME, caps, &nest.extents)?;
        let (short, expression) = self.op.expression();
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/long.wgsl")))
            .text("OPERATOR", short, expression)
            .flag("COMPARES", self.op.compares())
            .flag("LIMITED", self.range.is_some() && !self.op.compares());
        let [low, high] = self.range.unwrap_or_default().map(words);
        let uniform = walk.uniform().u32s(low).u32s(high);
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

/// Converts 64-bit integers to 32 bits or back. Integers that do not fit 32 bits are saturated.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convert {
    /// Whether the input has 64 bits, and the output 32.
    pub narrows: bool,
    /// Integers of input and output.
    pub elements: u32,
}

impl Convert {
    fn variant(self, caps: &Caps) -> Variant {
        let template =
            Template::new(CONVERT, include_str!("wgsl/long_convert.wgsl")).flag("NARROWS", self.narrows);
        walk::apply(template, caps, 1).variant(CONVERT, bindings(1))
    }
}

impl Shader for Convert {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let walk = Walk::new(CONVERT, caps, &[self.elements])?;
        Ok(Kernel {
            variant: self.variant(caps),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::variants([self.variant(caps)])
    }
}
