//! BATCH_MATMUL, and FULLY_CONNECTED with weights that the model computes.

use crate::epilogue::Activation;
use crate::integers::Sums;
use crate::kernel::check_dispatch;
use crate::register_tile::{RegisterTile, width};
use crate::shape::{MAX_RANK, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "batch_matmul";

/// `output[…, i, j] = activation(sum over k of a[…, i, k] * b[…, k, j])`; the leading dimensions broadcast.
///
/// Bindings: `Input(0)` (a), `Input(1)` (b), `Input(2)` (a bias of integers), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Shape of the first operand: `[…, rows, depth]`, transposed `[…, depth, rows]`.
    pub a: Vec<u32>,
    /// Shape of the second operand: `[…, depth, columns]`, transposed `[…, columns, depth]`.
    pub b: Vec<u32>,
    /// Whether the first operand lies transposed.
    pub transpose_a: bool,
    /// Whether the second operand lies transposed.
    pub transpose_b: bool,
    /// Applied to the result. Not [`Activation::Prelu`].
    pub activation: Activation,
    /// When operands and result are integers: what they stand for. They take no activation.
    pub integers: Option<Steps>,
}

/// A product of integers: `(sum over k of (a - zero_a) * (b - zero_b) + bias) * multiplier * 2^(shift - 31) + zero`,
/// rounded after the product with the multiplier and after the shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// What stands for zero in the operands.
    pub zeros: [i32; 2],
    /// Whether a bias per column is added: integers of 32 bits.
    pub bias: bool,
    /// From 2^30 to below 2^31.
    pub multiplier: i32,
    /// From -31 to 30.
    pub shift: i32,
    /// Halves are rounded upwards after the shift, not away from zero.
    pub up: bool,
    /// What stands for zero in the result.
    pub zero: i32,
    /// The lowest integer.
    pub low: i32,
    /// The highest integer.
    pub high: i32,
    /// How products are added up: in floats or in blocks.
    pub sums: Sums,
}

/// Extents of one product, and the batches of both operands.
pub(crate) struct Problem {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) depth: u32,
    /// Leading dimensions of the output.
    leading: Vec<u32>,
    /// The same, merged, with strides in both operands.
    pub(crate) batches: Nest<2>,
    pub(crate) batch: u32,
}

impl Spec {
    pub(crate) fn problem(&self) -> Result<Problem, ShaderError> {
        let bad = || ShaderError::invalid(NAME, format!("{self:?}"));
        elements(NAME, &self.a)?;
        elements(NAME, &self.b)?;
        let (Some((batch_a, [a0, a1])), Some((batch_b, [b0, b1]))) =
            (self.a.split_last_chunk::<2>(), self.b.split_last_chunk::<2>())
        else {
            return Err(bad());
        };
        let (rows, depth) = if self.transpose_a { (*a1, *a0) } else { (*a0, *a1) };
        let (depth_b, columns) = if self.transpose_b { (*b1, *b0) } else { (*b0, *b1) };
        if depth != depth_b || [rows, columns, depth].contains(&0) {
            return Err(bad());
        }
        // The longer list of batches, with ones replaced by what the other has there.
        let rank = batch_a.len().max(batch_b.len());
        let extent = |batch: &[u32], d: usize| {
            (d + batch.len()).checked_sub(rank).and_then(|d| batch.get(d)).copied().unwrap_or(1)
        };
        let extents: Vec<u32> = (0..rank)
            .map(|d| match extent(batch_a, d) {
                1 => extent(batch_b, d),
                n => n,
            })
            .collect();
        let strides = |batch: &[u32], matrix: u32| -> Result<Vec<i64>, ShaderError> {
            let strides = broadcast_strides(batch, &extents).ok_or_else(bad)?;
            Ok(strides.into_iter().map(|s| i64::from(s) * i64::from(matrix)).collect())
        };
        let batch = elements(NAME, &extents)?;
        elements(NAME, &[batch, rows, columns])?;
        let strides = [strides(batch_a, a0 * a1)?, strides(batch_b, b0 * b1)?];
        let batches = Nest { extents: extents.clone(), strides }.collapse();
        Ok(Problem { rows, columns, depth, leading: extents, batches, batch })
    }

    /// The kernel.
    ///
    /// # Errors
    /// When the shapes don't fit together or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let Problem { rows, columns, depth, batches, batch, .. } = self.problem()?;
        let rank = batches.extents.len();
        let sums = self.integers.map_or(Sums::Floats, |steps| steps.sums);
        let bias = self.integers.is_some_and(|steps| steps.bias);
        if rank > MAX_RANK
            || self.activation == Activation::Prelu
            || !matches!(sums, Sums::Floats | Sums::Blocks(_))
        {
            return Err(ShaderError::unsupported(NAME, format!("{self:?}")));
        }
        let a_vec4 = !self.transpose_a && depth.is_multiple_of(4);
        let b_columns = self.transpose_b && depth.is_multiple_of(4);
        let b_rows = !self.transpose_b && columns.is_multiple_of(4);
        let tile = RegisterTile::choose(caps, if b_rows { 4 } else { width(columns, columns) }, rows, true);
        let template = Template::new(NAME, include_str!("wgsl/batch_matmul.wgsl"))
            .number("UNIFORM", 3 + u32::from(bias))
            .flag("FIXED", self.integers.is_some())
            .flag("BIAS", bias);
        let (key, wgsl) = sums
            .apply(tile.apply(template))
            .number("RANK", u32::try_from(rank).unwrap_or(u32::MAX))
            .flag("A_VEC4", a_vec4)
            .flag("B_ROWS", b_rows)
            .flag("B_COLUMNS", b_columns)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"))
            .render()?;
        let unit_a = if a_vec4 { 4 } else { 1 };
        let unit_b = if b_rows || b_columns { 4 } else { 1 };
        let (a_row, a_depth) = if self.transpose_a { (1, rows) } else { (depth / unit_a, 1) };
        let (b_column, b_depth) = if self.transpose_b { (depth / unit_b, 1) } else { (1, columns / unit_b) };
        let mut uniform = Uniform::default().u32s([rows, columns, depth, a_row, a_depth, b_column, b_depth]);
        for (d, extent) in batches.extents.iter().enumerate().rev() {
            let stride = |operand: &Vec<i64>, unit: u32| {
                operand.get(d).and_then(|s| u32::try_from(*s).ok()).unwrap_or(0) / unit
            };
            let [a, b] = &batches.strides;
            uniform = uniform.u32s([*extent, stride(a, unit_a), stride(b, unit_b)]);
        }
        uniform = uniform.f32s(self.activation.params());
        if let Some(Steps { zeros, multiplier, shift, up, zero, low, high, .. }) = self.integers {
            uniform = uniform.i32s(zeros).i32s([multiplier, shift, i32::from(up), zero, low, high]);
            uniform = uniform.u32(sums.block(tile.stride()).saturating_mul(4));
        }
        let groups = [columns.div_ceil(tile.breadth()), rows.div_ceil(tile.reach()), batch].map(u64::from);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: [Binding::Input(0), Binding::Input(1)]
                .into_iter()
                .chain(bias.then_some(Binding::Input(2)))
                .chain([Binding::Output, Binding::Uniform])
                .collect(),
            uniform: uniform.finish(),
            dispatch: check_dispatch(NAME, caps, groups)?,
            features: Features { subgroups: tile.shared, ..Features::default() },
        })
    }

    /// Shape of the output.
    ///
    /// # Errors
    /// When the shapes don't fit together.
    pub fn output(&self) -> Result<Vec<u32>, ShaderError> {
        let Problem { rows, columns, mut leading, .. } = self.problem()?;
        leading.extend([rows, columns]);
        Ok(leading)
    }
}
