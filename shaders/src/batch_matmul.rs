//! BATCH_MATMUL, and FULLY_CONNECTED with computed weights.

use crate::binding::bindings;
use crate::epilogue::Activation;
use crate::integers::Sums;
use crate::kernel::{check_dispatch, looped};
use crate::outer_tile;
use crate::register_tile::{Pixels, RegisterTile, WIDTHS, column_thresholds, width};
use crate::shape::{MAX_RANK, NEST, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Features, Kernel, OtherSizes, Shader, ShaderError, Threshold, Variant};

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
    /// Whether the first operand is stored transposed.
    pub transpose_a: bool,
    /// Whether the second operand is stored transposed.
    pub transpose_b: bool,
    /// Applied to the result. Not [`Activation::Prelu`].
    pub activation: Activation,
    /// Quantization of operands and result, where they are integers. Integers take no activation.
    pub integers: Option<Steps>,
}

/// A product of integers: `(sum over k of (a - zero_a) * (b - zero_b) + bias) * multiplier * 2^(shift - 31) + zero`,
/// rounded after the product with the multiplier and after the shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Zero points of the operands.
    pub zeros: [i32; 2],
    /// Whether a 32-bit bias per column is added.
    pub bias: bool,
    /// From 2^30 to below 2^31.
    pub multiplier: i32,
    /// From -31 to 30.
    pub shift: i32,
    /// Whether halves are rounded upwards after the shift, instead of away from zero.
    pub up: bool,
    /// Zero point of the result.
    pub zero: i32,
    /// Minimum of the results.
    pub low: i32,
    /// Maximum of the results.
    pub high: i32,
    /// How products are summed: in floats or in blocks.
    pub sums: Sums,
}

/// The extents of a product, and the batches of both operands.
pub(crate) struct Problem {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) depth: u32,
    /// Leading dimensions of the output.
    leading: Vec<u32>,
    /// The leading dimensions, merged, with strides in both operands.
    pub(crate) batches: Nest<2>,
    pub(crate) batch: u32,
}

impl Spec {
    pub(crate) fn problem(&self) -> Result<Problem, ShaderError> {
        let bad = || {
            let (a, b) = (self.transpose_a, self.transpose_b);
            let why = format!("{:?} (transposed: {a}) with {:?} (transposed: {b})", self.a, self.b);
            ShaderError::invalid(NAME, why)
        };
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
        // The leading dimensions of the operand of higher rank, with extents of one replaced by those of the other.
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

    /// Returns the shape of the output.
    ///
    /// # Errors
    /// For shapes that contradict each other, and for a tensor of 2^31 elements or more.
    pub fn output(&self) -> Result<Vec<u32>, ShaderError> {
        let Problem { rows, columns, mut leading, .. } = self.problem()?;
        leading.extend([rows, columns]);
        Ok(leading)
    }
}

/// Which operands of a product are read as vectors of four.
#[derive(Clone, Copy)]
struct Vectors {
    /// The first operand, along the depth.
    a: bool,
    /// The first operand, along the rows. Only outer products read it so.
    a_rows: bool,
    /// The second operand, along the columns.
    b_rows: bool,
    /// The second operand, along the depth.
    b_columns: bool,
}

impl Vectors {
    fn new(spec: &Spec, problem: &Problem) -> Self {
        let [depth, columns] = [problem.depth, problem.columns].map(|n| Threshold::VECTORS.holds(n));
        Self {
            a: !spec.transpose_a && depth,
            a_rows: false,
            b_rows: !spec.transpose_b && columns,
            b_columns: spec.transpose_b && depth,
        }
    }

    /// Elements of an access to each operand.
    fn units(self) -> [u32; 2] {
        [self.a || self.a_rows, self.b_rows || self.b_columns].map(|vectors| if vectors { 4 } else { 1 })
    }
}

/// Numbers of rows and of columns that fill a block of outer products.
const OUTER_SIDE: Threshold = Threshold::AtLeast(128);
/// Elements of the output from which the blocks occupy a device: 128 blocks.
const OUTER_ELEMENTS: Threshold = Threshold::AtLeast(1 << 21);

impl Spec {
    /// Returns how outer products read the operands; `None` where outer products do not support the operands or the
    /// device.
    fn outer(&self, caps: &Caps, problem: &Problem) -> Option<Vectors> {
        let Problem { rows, columns, depth, .. } = *problem;
        let a_rows = self.transpose_a && Threshold::VECTORS.holds(rows);
        let vectors = Vectors { a_rows, ..Vectors::new(self, problem) };
        let fours = (vectors.a || a_rows) && [depth, columns].iter().all(|n| Threshold::VECTORS.holds(*n));
        let fits = self.integers.is_none() && fours && outer_tile::TILE.fits(caps, Sums::Floats);
        fits.then_some(vectors)
    }

    fn outer_variant(&self, vectors: Vectors, rank: usize) -> Variant {
        let template = Template::new("batch_matmul_outer", include_str!("wgsl/batch_matmul_outer.wgsl"))
            .flag("FIXED", false)
            .number("RANK", u32::try_from(rank).unwrap_or(u32::MAX))
            .flag("A_ROWS", vectors.a_rows)
            .flag("B_ROWS", vectors.b_rows)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        outer_tile::TILE.apply(template, [vectors.a_rows, vectors.b_rows]).variant(NAME, bindings(2))
    }

    fn outer_kernel(&self, caps: &Caps, problem: &Problem, vectors: Vectors) -> Result<Kernel, ShaderError> {
        let Problem { rows, columns, batch, .. } = *problem;
        let tile = outer_tile::TILE;
        let groups = [columns.div_ceil(tile.breadth()), rows.div_ceil(tile.reach()), batch].map(u64::from);
        Ok(Kernel {
            variant: self.outer_variant(vectors, problem.batches.extents.len()),
            uniform: self.uniform(problem, vectors, 1),
            dispatch: check_dispatch(NAME, caps, groups)?,
            iterations: looped(2 * u64::from(problem.depth), 0),
        })
    }

    fn register_kernel(&self, caps: &Caps, problem: &Problem) -> Result<Kernel, ShaderError> {
        let Problem { rows, columns, batch, .. } = *problem;
        let vectors = Vectors::new(self, problem);
        let width = if vectors.b_rows { WIDTHS[0] } else { width(columns, columns) };
        let tile = RegisterTile::choose(caps, width, Pixels::of(rows), true);
        let sums = self.integers.map_or(Sums::Floats, |steps| steps.sums);
        let groups = [columns.div_ceil(tile.breadth()), rows.div_ceil(tile.reach()), batch].map(u64::from);
        Ok(Kernel {
            variant: self.variant(tile, vectors, problem.batches.extents.len()),
            uniform: self.uniform(problem, vectors, tile.stride()),
            dispatch: check_dispatch(NAME, caps, groups)?,
            iterations: tile.iterations(problem.depth.div_ceil(4), sums) + looped(tile.pixels, 0),
        })
    }

    /// Returns the kernels of all tiles that compute the product on the device, for tests and measurements.
    ///
    /// # Errors
    /// See [`Shader::kernel`].
    pub fn candidates(&self, caps: &Caps) -> Result<Vec<Kernel>, ShaderError> {
        let problem = self.problem()?;
        let outer = self.outer(caps, &problem).map(|vectors| self.outer_kernel(caps, &problem, vectors));
        [Some(self.register_kernel(caps, &problem)), outer].into_iter().flatten().collect()
    }

    fn variant(&self, tile: RegisterTile, vectors: Vectors, rank: usize) -> Variant {
        let sums = self.integers.map_or(Sums::Floats, |steps| steps.sums);
        let bias = self.integers.is_some_and(|steps| steps.bias);
        let template = Template::new(NAME, include_str!("wgsl/batch_matmul.wgsl"))
            .flag("FIXED", self.integers.is_some())
            .flag("BIAS", bias)
            .number("RANK", u32::try_from(rank).unwrap_or(u32::MAX))
            .flag("A_VEC4", vectors.a)
            .flag("B_ROWS", vectors.b_rows)
            .flag("B_COLUMNS", vectors.b_columns)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let variant = sums.apply(tile.apply(template)).variant(NAME, bindings(2 + u8::from(bias)));
        variant.with_features(Features { subgroups: tile.shared, ..Features::default() })
    }

    fn uniform(&self, problem: &Problem, vectors: Vectors, stride: u32) -> Vec<u8> {
        let Problem { rows, columns, depth, batches, .. } = problem;
        let [unit_a, unit_b] = vectors.units();
        let (a_row, a_depth) = if self.transpose_a { (1, rows / unit_a) } else { (depth / unit_a, 1) };
        let (b_column, b_depth) = if self.transpose_b { (depth / unit_b, 1) } else { (1, columns / unit_b) };
        let mut uniform =
            Uniform::default().u32s([*rows, *columns, *depth, a_row, a_depth, b_column, b_depth]);
        for (d, extent) in batches.extents.iter().enumerate().rev() {
            let [a, b] = batches.unsigned_strides(d);
            uniform = uniform.u32s([*extent, a / unit_a, b / unit_b]);
        }
        uniform = uniform.f32s(self.activation.params());
        if let Some(Steps { zeros, multiplier, shift, up, zero, low, high, sums, .. }) = self.integers {
            uniform = uniform.i32s(zeros).i32s([multiplier, shift, i32::from(up), zero, low, high]);
            uniform = uniform.u32(sums.block(stride).saturating_mul(4));
        }
        uniform.finish()
    }
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that contradict each other, [`Activation::Prelu`], sums other than [`Sums::Floats`] and
    /// [`Sums::Blocks`], more than six leading dimensions after merging those that broadcast alike, and a tensor larger
    /// than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let problem = self.problem()?;
        let rank = problem.batches.extents.len();
        if rank > MAX_RANK {
            let why = format!("{rank} leading dimensions; {MAX_RANK} are supported");
            return Err(ShaderError::unsupported(NAME, why));
        }
        let sums = self.integers.map_or(Sums::Floats, |steps| steps.sums);
        if self.activation == Activation::Prelu || !matches!(sums, Sums::Floats | Sums::Blocks(_)) {
            let why = format!("activation {:?} of sums by {sums:?}", self.activation);
            return Err(ShaderError::unsupported(NAME, why));
        }
        let Problem { rows, columns, batch, .. } = problem;
        let large = [rows, columns].iter().all(|n| OUTER_SIDE.holds(*n))
            && OUTER_ELEMENTS.holds(rows.saturating_mul(columns).saturating_mul(batch));
        match self.outer(caps, &problem).filter(|_| large) {
            Some(vectors) => self.outer_kernel(caps, &problem, vectors),
            None => self.register_kernel(caps, &problem),
        }
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        let sums = self.integers.map(|_| Sums::LONG_DEPTH);
        let columns = column_thresholds();
        let outer: &[Threshold] = match caps.software || self.integers.is_some() {
            true => &[],
            false => &[OUTER_SIDE, OUTER_ELEMENTS],
        };
        OtherSizes::thresholds(NEST.iter().chain(&columns).chain(&sums).chain(outer))
    }
}
