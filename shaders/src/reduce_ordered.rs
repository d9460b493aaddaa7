//! Reductions of integers in memory order: truncated means, and products that are rounded after every factor, or that
//! wrap.

use crate::binding::bindings;
use crate::kernel::looped;
use crate::reduce::kept_and_reduced;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "reduce_ordered";

/// The operation that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// The 64-bit sum of the elements over their number, truncated.
    Mean,
    /// The product of quantized integers. The product so far is multiplied by each next one and by
    /// `multiplier * 2^-right`, rounded once, halves upwards; at the end by the latter alone.
    Product {
        /// Zero point of the input.
        input_zero: i32,
        /// 15 bits.
        multiplier: u32,
        /// From -31 to 63.
        right: i32,
        /// Zero point of the output.
        output_zero: i32,
        /// Minimum and maximum of the results.
        range: [i32; 2],
    },
    /// The wrapping product of integers of fewer than 32 bits.
    Wrapped {
        /// Bits of an integer.
        bits: u32,
        /// Whether integers are signed.
        signed: bool,
    },
}

/// Combines the integers along some dimensions.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The operation.
    pub op: Ordered,
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Dimensions to reduce.
    pub axes: Vec<usize>,
}

impl Shader for Spec {
    /// # Errors
    /// For an empty input or a missing axis, more than seven dimensions after merging neighbours, and a tensor larger
    /// than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [kept, reduced] = kept_and_reduced(NAME, &self.input, &self.axes)?;
        let total = |dimensions: &[[u32; 2]]| {
            elements(NAME, &dimensions.iter().map(|[extent, _]| *extent).collect::<Vec<_>>())
        };
        let (count, combined) = (total(&kept)?, total(&reduced)?);
        // The mean is divided bit by bit.
        let walk = Walk::new(NAME, caps, &[count])?.looping(caps, looped(combined, 0) + looped(64_u32, 0));
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/reduce_ordered.wgsl")))
            .flag("MEAN", self.op == Ordered::Mean)
            .flag("RESCALES", matches!(self.op, Ordered::Product { .. }))
            .flag("WRAPS", matches!(self.op, Ordered::Wrapped { .. }))
            .number("KEPT", u32::try_from(kept.len()).unwrap_or(u32::MAX))
            .number("REDUCED", u32::try_from(reduced.len()).unwrap_or(u32::MAX));
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
            variant: template.variant(NAME, bindings(1)),
            uniform: dimensions.fold(uniform, |uniform, d| uniform.u32s(*d)).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::SEVERAL])
    }
}
