//! BATCH_MATMUL of 16-bit integers.

use crate::batch_matmul;
use crate::binding::bindings;
use crate::epilogue::Activation;
use crate::kernel::looped;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "batch_matmul_wide";

/// `output[…, i, j] = (sum over k of a[…, i, k] * b[…, k, j]) * multiplier * 2^-right`, rounded once, halves upwards, and
/// limited to 16 bits; the leading dimensions broadcast.
///
/// Bindings: `Input(0)` (a), `Input(1)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the first operand: `[…, rows, depth]`, transposed `[…, depth, rows]`.
    pub a: Vec<u32>,
    /// Shape of the second operand: `[…, depth, columns]`, transposed `[…, columns, depth]`.
    pub b: Vec<u32>,
    /// Whether the first operand is stored transposed.
    pub transpose_a: bool,
    /// Whether the second operand is stored transposed.
    pub transpose_b: bool,
    /// 15 bits.
    pub multiplier: u32,
    /// From -31 to 63.
    pub right: i32,
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, sums of more than 65535 products, and a tensor larger than one dispatch
    /// reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let shapes = batch_matmul::Spec {
            a: self.a.clone(),
            b: self.b.clone(),
            transpose_a: self.transpose_a,
            transpose_b: self.transpose_b,
            activation: Activation::None,
            integers: None,
        };
        let problem = shapes.problem()?;
        let (rows, columns, depth) = (problem.rows, problem.columns, problem.depth);
        if depth > u32::from(u16::MAX) {
            return Err(ShaderError::unsupported(
                NAME,
                format!("sums of {depth} products; 65535 are supported"),
            ));
        }
        let walk = Walk::new(NAME, caps, &[problem.batch, rows, columns])?.looping(caps, looped(depth, 0));
        let extents = &problem.batches.extents;
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/batch_matmul_wide.wgsl")))
            .number("BATCHES", u32::try_from(extents.len()).unwrap_or(u32::MAX));
        let (a_row, a_depth) = if self.transpose_a { (1, rows) } else { (depth, 1) };
        let (b_column, b_depth) = if self.transpose_b { (depth, 1) } else { (1, columns) };
        let uniform = walk.dimensions(walk.uniform(), |uniform, _| uniform);
        let uniform =
            uniform.u32s([depth, a_row, a_depth, b_column, b_depth, self.multiplier]).i32(self.right);
        let uniform = extents.iter().enumerate().rev().fold(uniform, |uniform, (d, extent)| {
            uniform.u32(*extent).u32s(problem.batches.unsigned_strides(d))
        });
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::SEVERAL])
    }
}
