//! Reductions of integers in the order in which they lie: the mean of whole numbers, and products that are rounded after
//! every factor, or that wrap around.

use crate::reduce::kept_and_reduced;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "reduce_ordered";

/// What happens to the elements that become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// Their sum of 64 bits, divided by their number; what is behind the point is cut off.
    Mean,
    /// The product of integers that stand for real numbers: the first, then after each one more, and at last alone,
    /// times `multiplier * 2^-right`, rounded once, halves upwards.
    Product {
        /// What stands for zero in the input.
        input_zero: i32,
        /// Of 15 bits.
        multiplier: u32,
        /// From -31 to 63.
        right: i32,
        /// What stands for zero in the output.
        output_zero: i32,
        /// The lowest and the highest result.
        range: [i32; 2],
    },
    /// The product of integers of fewer bits than 32.
    Wrapped {
        /// Bits of each.
        bits: u32,
        /// Whether they have signs.
        signed: bool,
    },
}

/// Combines the integers along some dimensions.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// How.
    pub op: Ordered,
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Dimensions to reduce.
    pub axes: Vec<usize>,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When there is nothing to reduce or an axis isn't there, and when more than six dimensions remain after merging
    /// neighbours.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [kept, reduced] = kept_and_reduced(NAME, &self.input, &self.axes)?;
        let total = |dimensions: &[[u32; 2]]| {
            elements(NAME, &dimensions.iter().map(|[extent, _]| *extent).collect::<Vec<_>>())
        };
        let (count, combined) = (total(&kept)?, total(&reduced)?);
        let walk = Walk::new(NAME, caps, &[count])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/reduce_ordered.wgsl")))
            .number("UNIFORM", 2)
            .flag("MEAN", self.op == Ordered::Mean)
            .flag("RESCALES", matches!(self.op, Ordered::Product { .. }))
            .flag("WRAPS", matches!(self.op, Ordered::Wrapped { .. }))
            .number("KEPT", u32::try_from(kept.len()).unwrap_or(u32::MAX))
            .number("REDUCED", u32::try_from(reduced.len()).unwrap_or(u32::MAX))
            .render()?;
        let (mut numbers, mut factor, mut bits) = ([0; 4], (0, 0), [0, u32::MAX]);
        match self.op {
            Ordered::Mean => {}
            Ordered::Product { input_zero, multiplier, right, output_zero, range: [low, high] } => {
                (numbers, factor) = ([input_zero, output_zero, low, high], (multiplier, right));
            }
            Ordered::Wrapped { bits: of, signed } => {
                let unused = 32_u32.saturating_sub(of).min(31);
                bits = [unused, if signed { u32::MAX } else { u32::MAX >> unused }];
            }
        }
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(combined);
        let uniform = uniform.i32s(numbers).u32(factor.0).i32(factor.1).u32s(bits);
        let dimensions = kept.iter().rev().chain(reduced.iter().rev());
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: dimensions.fold(uniform, |uniform, d| uniform.u32s(*d)).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
